"""Explanations as people see them: tables of text and pictures."""
