"""Debugging: find the operation whose rule is wrong."""

from __future__ import annotations

from typing import Any

from ._engine.model import with_gradients
from ._engine.request import Question, Request
from .cafe import CAFE
from .explanation import Explanation


@with_gradients
def check_operations(cafe: CAFE, inputs: Any, **options: Any) -> Explanation:
    """Explain, and compare the result of every single operation with torch's own.

    Args:
        cafe: The explainer.
        inputs: See ``CAFE.explain``.
        **options: Options of ``CAFE.explain``.

    Returns:
        The explanation, if every operation is right.

    Raises:
        CompletenessError: The message names the first operation that differs, its module and the size of the difference.

    Example:
        >>> check_operations(CAFE(torch.nn.Linear(2, 1)), torch.ones(1, 2)).output.shape
        torch.Size([1])
    """
    found = cafe._explain(inputs, Request(**options), Question(check_each=True))
    assert isinstance(found, Explanation)
    return found
