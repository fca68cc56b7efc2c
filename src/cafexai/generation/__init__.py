"""Generated texts, explained token by token."""

from ..explanation.generation import Generation

__all__ = ["Generation"]
