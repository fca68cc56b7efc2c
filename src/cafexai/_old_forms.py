"""Forms of earlier versions: they still work in 0.2, warn with the line to write instead, and go in 0.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._core.variant import ALLOWED, Variant
from ._engine.request import OPTIONS, Question, Request, unknown_parameter
from .errors import warn
from .refinement.refine import Refine

if TYPE_CHECKING:
    from .cafe import CAFE

INFO = ("tokenizer", "words", "preprocess", "per_row")  # parameters of explain that now belong to CAFE
QUESTION = ("layer", "start", "target_layer", "check", "c", "refine", "feature_names")


def resolve_variant(variant: str | Variant | None, options: Mapping[str, Any]) -> Variant:
    """The variant that the arguments of ``CAFE`` name.

    Before 0.2, an option without a variant started from the paper; now it starts from the default, with a warning where
    this changes the scores.
    """
    named = {name: value for name, value in options.items() if value is not None}
    if isinstance(variant, str) and variant in ALLOWED["netting"] and variant not in Variant.PRESETS:
        warn(
            f"CAFE(model, c, {variant!r}): the third argument is now the variant. Write "
            f'CAFE(model, c, "default", netting={variant!r}), or for the scores before 0.2 '
            f'CAFE(model, c, "published", netting={variant!r}).',
            DeprecationWarning,
        )
        return Variant().replace(**{"netting": variant, **named})
    if variant is not None:
        base = variant if isinstance(variant, Variant) else Variant.preset(variant)
        return base.replace(**named)
    if not named:
        return Variant.preset("default")
    if (changed := changed_default(named)) is not None:
        words = ", ".join(f"{name}={value!r}" for name, value in named.items())
        warn(
            f"CAFE(model, {words}) now starts from the default variant ({changed}); before 0.2 it started from the paper. "
            f'For the new scores, without this warning: CAFE(model, variant="default", {words}). '
            f'For the old scores: CAFE(model, variant="published", {words}).',
            FutureWarning,
        )
    return changed or Variant().replace(**named)


def changed_default(named: Mapping[str, Any]) -> Variant | None:
    """What these options mean without a variant, if they meant other scores before 0.2; else None."""
    before = _before(named)
    if not named or before is None:
        return None
    chosen = Variant().replace(**named)
    return chosen if set(chosen.changes_from(before)) - {"attention"} else None


def _before(named: Mapping[str, Any]) -> Variant | None:
    """What these options meant before 0.2; None if they were refused."""
    if "attention" in named:  # unknown before
        return None
    try:
        return Variant.preset("published").replace(**named)
    except ValueError:
        return None


def old_form(cafe: CAFE, method: Callable[..., Any], inputs: Any, request: Request, old: dict[str, Any]) -> Any:
    """``explain`` with parameters that it had before 0.2."""
    name = method.__name__
    if name == "explain_classes" and isinstance(request.target, str):
        raise ValueError('explain_classes(..., target="all"): it explains all outputs. Drop target=.')
    if "segments" in old:
        raise TypeError(f"{name}(..., segments=...): parts of a prompt are summed by cafe.generation(prompt, segments=...).")
    if unknown := sorted(set(old) - {*INFO, *QUESTION}):
        raise unknown_parameter(name, unknown[0], ["inputs", *OPTIONS])
    for one in INFO:
        if one in old:
            _warn(f"{name}(..., {one}=...)", f"CAFE(model, {one}=...).{name}(...)")
            cafe = cafe.replace(**{one: old.pop(one)})
    asked_all = isinstance(request.target, str) and request.target == "all"
    every_class = asked_all or name == "explain_classes"
    if asked_all:
        _warn(f'{name}(..., target="all")', "cafe.explain_classes(x)")
        if request.against is not None:
            raise ValueError('explain(..., target="all", against=...): a difference is of two outputs; give one target.')
        request = request.replace(target=None)
    layer, start, target_layer = old.pop("layer", None), old.pop("start", True), old.pop("target_layer", None)
    if layer is not None:
        _warn(f"{name}(..., layer={layer!r})", f"cafe.explain_layer(x, {layer!r}{'' if start else ', from_inputs=True'})")
    if target_layer is not None:
        _warn(f"{name}(..., target_layer={target_layer!r})", f"cafe.explain_neuron(x, {target_layer!r}, target=...)")
    check = old.pop("check", "output")
    if check not in ("output", "each"):
        raise ValueError(f"{name}(..., check={check!r}): unknown value. Allowed values: 'output', 'each'.")
    if check == "each":
        _warn(f'{name}(..., check="each")', "cafexai.debug.check_operations(cafe, x)")
    names = old.pop("feature_names", None)
    if names is not None:
        _warn(f"{name}(..., feature_names=...)", f"CAFE(model, feature_names=...).{name}(...)")
    c, several = old.pop("c", None), None
    if isinstance(c, (list, tuple)):
        _warn(f"{name}(..., c={list(c)!r})", f"cafe.sweep(x, c={list(c)!r})")
        if not c:
            raise ValueError(f"{name}(..., c=[]): give at least one value.")
        several = tuple(c)
    elif c is not None:
        _warn(f"{name}(..., c={c!r})", f"cafe.replace(c={c!r}).{name}(...)")
        cafe = cafe.replace(c=c)
    refine = old.pop("refine", None)
    how = Refine(refine) if refine is not None and not isinstance(refine, Refine) else refine
    if how is not None and layer is not None:
        raise ValueError(f"{name}(..., refine=..., layer=...): rows are perturbed at the inputs; refine scores of these.")
    question = Question(every_class, layer, start, target_layer, several, check == "each", names)
    found = cafe._explain(inputs, request, question)
    if how is None:
        return found
    _warn(f"{name}(..., refine=...)", "cafe.refine(cafe.explain(x), 20)")
    if isinstance(found, Mapping):
        return type(found)(found.by, {key: cafe.refine(one, how) for key, one in found.items()})
    return cafe.refine(found, how)


def _warn(old: str, new: str) -> None:
    warn(f"{old} is deprecated and goes in 0.3. Write {new} instead.", DeprecationWarning)
