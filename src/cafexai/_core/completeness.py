"""How exactly scores must add up: beside the change of the output, not beside the influence that cancelled on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import LostInRounding, ScoreWarning, SumBroken, warn
from .tolerance import all_finite, tolerance, widest

if TYPE_CHECKING:
    from .backward import Passed
    from .run import Settings

OF_CHANGE = 1e-4  # what may be missing, beside the change of the output
OF_SCORES = 1e-5  # and beside the sum of all scores without their signs,
NEAR = 2.0  # as long as that is at most so many times the outputs
MUCH = 100.0  # times the change of the output: influence that nearly all cancels
OF_OUTPUT = 1e-9  # what may be missing in double precision where the output hardly changes, beside the output itself


def check_range(passed: Passed) -> None:
    """Refuse at once what no backward pass can add up: totals that have left the range of their dtype."""
    if len(passed.chosen.parts) > 1 and not all_finite(passed.chosen.parts[1]):
        passed.run.refuse_infinite()
        raise too_large(passed.run.settings, passed.chosen.delta.dtype)


def check_sum(passed: Passed, goal: Tensor, lack: Tensor, scores: Iterable[Tensor]) -> None:
    """Refuse scores of which the sum misses ``goal``, one number per row, by ``lack``.

    In short precision that is ``LostInRounding``: the rows are explained again in float64. There it is a fault of ours where
    rounding cannot explain it, and else influence so large that no sum of it says anything.
    """
    if (lack / goal).abs().max().item() <= OF_CHANGE:  # mostly it is that small, and nothing else need be asked
        return
    exact, chosen = lack.dtype, passed.chosen
    change, outputs = goal.abs(), passed.scores.value.abs()
    value = torch.maximum(chosen.value.abs(), outputs.mean()).to(exact)  # one row may have an output near 0 by chance
    if chosen.reference is not None:
        value = torch.maximum(value, chosen.reference.detach().abs().to(exact))
    size = sum((per_row(part.abs(), exact).to(lack.device) for part in scores), torch.zeros_like(lack))
    allowed = OF_CHANGE * change + OF_SCORES * torch.minimum(size, NEAR * torch.maximum(change, value))
    if bool((lack.abs() <= allowed).all()):
        return
    if not all_finite(lack):
        passed.run.refuse_infinite()
    if chosen.delta.dtype is not torch.float64 and chosen.delta.device.type != "mps":
        raise LostInRounding(f"explain(...): in {chosen.delta.dtype} the scores miss the output.")
    missed = ~(lack.abs() <= allowed + OF_OUTPUT * (outputs.max().item() or 1.0))
    if not bool(missed.any()):
        return
    influence = chosen.influence().to(exact)
    if not all_finite(influence):
        raise too_large(passed.run.settings, chosen.delta.dtype)
    influence = influence + value + change + size
    worst = (lack.abs() / influence)[missed].max().item()
    limit = tolerance(chosen.delta.dtype) * chosen.slack
    if not worst <= limit:
        raise SumBroken(
            f"explain(...): the scores of features and biases miss the output by {worst:.3g} of all influence (allowed "
            f"{limit:.3g}): a path from the input was lost. Rows may influence each other, values may bypass the layer "
            "that scores are about, or a rule is wrong."
            + ' If they add up with CAFE(model, variant="feature"), it was rounding: use that.'
            * (not chosen.by_feature),
            lack * missed,
            limit,
        )
    raise make_rounding_error(passed.run.settings, chosen.delta, lack * missed, influence)


def too_large(settings: Settings, dtype: torch.dtype) -> LostInRounding:
    """Why scores with these settings cannot be had: there are no numbers for them."""
    return LostInRounding(
        f"explain(...): the influence inside the model is larger than {dtype} can hold. Instead: {_instead(settings)}"
    )


def make_rounding_error(settings: Settings, change: Tensor, lack: Tensor, influence: Tensor) -> LostInRounding:
    """The same where numbers are too coarse: one number per row each, ``lack`` 0 where nothing is missing."""
    row = int(lack.abs().argmax())
    return LostInRounding(
        f"explain(...): the scores of {int(lack.count_nonzero())} row(s) do not add up. In row {row} of its batch they miss "
        f"the change of the output, {change[row].abs().item():.3g}, by {lack[row].abs().item():.3g}: inside the model positive "
        f"and negative influence grows to {influence[row].item():.3g}, of which nearly all cancels, more than {change.dtype} "
        f"can resolve. Instead: {_instead(settings)}"
    )


def proportion(passed: Passed, combined: Sequence[Tensor]) -> tuple[str, ...]:
    """Say so where nearly all influence cancels on its way; warn where the combined scores, too, are far from the output."""
    chosen = passed.chosen
    change, total = chosen.delta.detach().abs().mean().item(), chosen.influence().mean().item()
    if not total > MUCH**2 * change > 0:
        return ()
    net = sum(per_row(part.abs(), widest(part.device)).mean().item() for part in combined)
    loud = net > MUCH * max(change, chosen.value.abs().mean().item())
    if total <= MUCH * net or not (loud or torch.finfo(chosen.delta.dtype).eps * total > change):
        return ()  # features are in conflict with each other, not with themselves, or the difference is too small to matter
    told = (
        f"positive and negative are {total / change:.1e} times the change of the output, combined {net / change:.1e} times: "
        "nearly all cancels between the paths of the same feature. The size of the scores and even the sign of combined may "
        "not say what a feature does to this output. Compare them with the model (set features to their baselines, "
        "cafexai.metrics.infidelity)"
        + ("." if chosen.by_feature else ', or use the default variant, CAFE(model), or variant="feature".')
    )
    if loud and passed.run.may_warn():
        warn(f"explain(...): {told}", ScoreWarning)
    return (told[0].upper() + told[1:],)


def _instead(settings: Settings) -> str:
    by_path = not (settings.carrier.by_feature or settings.carrier.forgets)
    ways = [
        'CAFE(model, variant="feature") or variant="default", whose influence does not grow with depth' * by_path,
        "a smaller c (CAFE(model, c=0))",
        'cafe.replace(biases="reference")' * (not settings.biases_in_reference),
        'cafe.explain_layer(x, "...") to start at a later layer',
        "a method that carries no conflicts (cafexai.methods.integrated_gradients)",
    ]
    return "; ".join(filter(None, ways)) + "."


def per_row(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of all elements of each row."""
    return (scores if scores.ndim == 2 else scores.reshape(len(scores), -1)).sum(1, dtype=dtype)
