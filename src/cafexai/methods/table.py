"""The table of methods: each is one registered function of a case; the signature that all share is written here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from .._engine.subject import with_gradients
from .._inputs import renamed
from .case import case


class Method(Protocol):
    """Scores shaped like x; a method may have options of its own."""

    def __call__(
        self, model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_groups: Any = None, **options: Any
    ) -> Tensor: ...


METHODS: dict[str, Method] = {}
_group_scores: list[Method] = []


def method(
    *, baselines: bool = True, aimed: bool = True, group_scores: bool = False
) -> Callable[[Callable[..., Tensor]], Method]:
    """Register a function ``(case, *, options) -> scores`` under its name.

    ``baselines``: it compares with them; else they are left alone. ``aimed``: the case has its target as an index, for which
    the model is called once; else ``case.wanted`` is what the user gave. ``group_scores``: every element of a group gets the
    score of the group.
    """
    compares = baselines

    def register(own: Callable[..., Tensor]) -> Method:
        name = own.__name__
        options = [p for p in inspect.signature(own).parameters.values() if p.kind is p.KEYWORD_ONLY]
        known = {option.name for option in options}

        @functools.wraps(own)
        def run(
            model: Any, x: Any, *, target: Any = None, baselines: Any = None, feature_groups: Any = None, **given: Any
        ) -> Tensor:
            others = {word: given.pop(word) for word in list(given) if word not in known}
            (groups,) = renamed(name, others, feature_groups=(feature_groups, None, "feature_mask"))
            asked = case(name, model, x, baselines if compares else None, groups, target)
            return own(asked.aimed() if aimed else asked, **given)

        shared = [p for p in inspect.signature(run, follow_wrapped=False).parameters.values() if p.kind is not p.VAR_KEYWORD]
        run.__signature__ = inspect.Signature([*shared, *options], return_annotation=Tensor)  # type: ignore[attr-defined]
        METHODS[name] = with_gradients(run)
        if group_scores:
            _group_scores.append(METHODS[name])
        return METHODS[name]

    return register


def scores_groups(method: Any) -> bool:
    """Every element of a group gets the score of the group."""
    return any(method is one for one in _group_scores)


def by_word(method: Any, groups: Any) -> dict[str, Any]:
    """Groups as a method takes them; those of users may still say feature_mask."""
    parameters = inspect.signature(method).parameters
    return {"feature_mask" if "feature_mask" in parameters and "feature_groups" not in parameters else "feature_groups": groups}
