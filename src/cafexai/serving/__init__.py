"""Scores of single rows over HTTP: ``cafexai serve``."""
