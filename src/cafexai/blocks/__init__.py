"""Explanations in two blocks: what is lost without a feature, and scores close to Shapley values, for four explanations."""

from .walk import explain_in_blocks

__all__ = ["explain_in_blocks"]
