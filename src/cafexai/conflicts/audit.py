"""Does an attribution method report the conflicts of a model's units? (Definitions 5 and 6.)

For every ReLU unit that follows a linear or convolutional layer, its inputs are the features and its bias is one more,
all with reference 0. A counteracted input is underreported if its score is smaller than the largest magnitude of its
minimal conflicts, or if some set that counteracts it has a score of the wrong sign; it is hidden if its score is 0 or that
sign is wrong. One count is a (row, unit, counteracted input).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._core.tolerance import all_finite
from .._extras import needs
from .._inputs.baselines import expand_baseline
from .closed_form import inactive_conflicts
from .definitions import as_rows
from .find_units import LocalLayer, local_layers
from .minimal import minimal_conflicts

if TYPE_CHECKING:
    import pandas

    from ..plotting.picture import Picture

SEARCH = 500  # covers that are tried for one input of an inactive unit
CASES = 50  # inputs that are searched for, per unit and block of rows; the rest is undecided
OFFENDERS = 10
ROWS = 256  # that are decided at a time: their numbers fit into the cache


@dataclass(frozen=True)
class Offence:
    """One conflict that a method underreports.

    Args:
        layer: The name of the layer.
        row: The position of the row.
        unit: The position of the unit in the output of the layer.
        feature: The position of the input; the number of inputs stands for the bias.
        score: What the method reports.
        magnitude: What it should report at least.
        hidden: It reports nothing.
    """

    layer: str
    row: int
    unit: int
    feature: int
    score: float
    magnitude: float
    hidden: bool


@dataclass(frozen=True)
class Audit:
    """Counts of conflicts over all units.

    Args:
        conflicts: Conflicts in all.
        underreported: Those with too small a score.
        hidden: Those with no score; they are among the underreported.
        undecided: Units with too many inputs to search.
        by_layer: These four counts for every layer.
        worst: The largest offences.
        skipped: Layers that were not audited, and why.

    Example:
        >>> import torch
        >>> from cafexai import conflicts
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> found = conflicts.audit("integrated_gradients", net, torch.rand(5, 3))
        >>> found.underreported <= found.conflicts
        True
    """

    conflicts: int
    underreported: int
    hidden: int
    undecided: int
    by_layer: Mapping[str, tuple[int, int, int, int]]
    worst: tuple[Offence, ...]
    skipped: Mapping[str, str]

    def __str__(self) -> str:
        if not self.conflicts:
            return "no conflicts in any unit"
        verdict = "reports every conflict" if not (self.underreported or self.undecided) else (
            f"underreports {self.underreported} ({self.underreported / self.conflicts:.1%}), hides {self.hidden}"
        )  # fmt: skip
        rest = f", {self.undecided} undecided" if self.undecided else ""
        return f"{verdict}{rest}, of {self.conflicts} conflicts"

    def _repr_html_(self) -> str:
        from .audit_page import page

        return page(self)

    def plot(self) -> Picture:
        """Bars of every layer: which of its conflicts are reported, underreported, hidden; needs matplotlib."""
        from .audit_page import picture

        return picture(self)

    def to_frame(self) -> pandas.DataFrame:
        """The counts by layer; needs pandas.

        Example:
            >>> import torch
            >>> from cafexai import conflicts
            >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
            >>> len(conflicts.audit("lrp", net, torch.rand(5, 3)).to_frame())
            1
        """
        columns = ["conflicts", "underreported", "hidden", "undecided"]
        frame = needs("pandas", "tabular").DataFrame.from_dict(dict(self.by_layer), orient="index", columns=columns)
        frame["share underreported"] = frame.underreported / frame.conflicts.clip(lower=1)
        return frame


def audit(method: Any, model: Any, x: Any, baselines: Any = None, layers: list[str] | None = None) -> Audit:
    """Audit a method on every local ReLU unit of a model. ``audit_outputs`` audits it on the whole model.

    Args:
        method: A name from ``cafexai.methods.METHODS``, a class such as ``CAFE`` or one of Captum's, a factory ``model ->
            explainer`` (``functools.partial(CAFE, c=1.0)``), or a function ``(model, x, *, target, baselines) -> scores``.
            It is applied to each unit by itself.
        model: The model.
        x: The rows.
        baselines: The references of the units are what reaches them in the bias-free model at these baselines; None is 0.
        layers: Names of the layers; None takes all.

    Returns:
        The counts.

    Raises:
        ValueError: The model has no such layer, or no ReLU unit.

    Example:
        >>> import functools
        >>> from cafexai import CAFE, conflicts
        >>> net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> conflicts.audit(functools.partial(CAFE.published, c=1.0), net, torch.rand(5, 3)).underreported
        0
    """
    score = _scorer(method)
    found = local_layers(model, x, baselines)
    names = [layer.name for layer in found]
    unknown = set(layers or ()) - set(names)
    if unknown:
        raise ValueError(f"audit(..., layers={layers}): no local units in {sorted(unknown)}. There are some in {names}.")
    counts: dict[str, tuple[int, int, int, int]] = {}
    skipped: dict[str, str] = {}
    offences: list[Offence] = []
    for layer in found:
        if layers is not None and layer.name not in layers:
            continue
        if layer.activation != "relu":
            skipped[layer.name] = f"its activation is {layer.activation}; the closed forms are those of ReLU"
            continue
        result, worst = _layer(score, layer)
        before = counts.get(layer.name, (0, 0, 0, 0))
        counts[layer.name] = tuple(a + b for a, b in zip(before, result, strict=True))  # type: ignore[assignment]
        offences = sorted([*offences, *worst], key=lambda o: abs(o.score) - o.magnitude)[:OFFENDERS]
    if not counts:
        raise ValueError(f"audit(method, model, x): the model has no ReLU units to audit. Skipped: {skipped or 'nothing'}.")
    conflicts, under, hidden, undecided = (sum(count[k] for count in counts.values()) for k in range(4))
    return Audit(conflicts, under, hidden, undecided, counts, tuple(offences), skipped)


def _scorer(method: Any) -> Callable[..., Tensor]:
    """The method as a function of a unit and its inputs."""
    if isinstance(method, str):
        from ..methods import METHODS

        if method not in METHODS:
            raise ValueError(f"audit({method!r}, ...): unknown method. Give a function, or one of: {', '.join(METHODS)}.")
        method = METHODS[method]
    if hasattr(method, "attribute") and not inspect.isclass(method):
        raise ValueError(
            f"audit({type(method).__name__} object, ...): it is bound to the whole model, and units are audited by themselves. "
            f"Give the class, or a factory: functools.partial({type(method).__name__}, ...)."
        )
    if not callable(method):
        raise ValueError(f"audit({method!r}, ...): give a name, a class, a factory or a function that attributes.")
    made = inspect.isclass(method) or (isinstance(method, functools.partial) and inspect.isclass(method.func))
    if not made:
        needed = [
            p for p in inspect.signature(method).parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]  # fmt: skip
        made = len(needed) == 1

    def score(unit: Any, x: Tensor, reference: Tensor | None = None, target: Any = 0) -> Tensor:
        attribute = method(unit).attribute if made else functools.partial(method, unit)
        options = {"target": target} if reference is None else {"target": target, "baselines": reference}
        if reference is not None and "baselines" not in inspect.signature(attribute).parameters:
            raise ValueError("audit(..., baselines=...): the method takes no baselines.")
        result = attribute(x, **options)
        if not isinstance(result, Tensor) or result.shape != x.shape:
            raise ValueError(f"audit(...): the method gives scores that are not shaped like its input, {tuple(x.shape)}.")
        if not all_finite(result):
            raise ValueError("audit(...): the method gives scores that are NaN or infinite.")
        return result.detach().double()

    return score


class Unit(nn.Module):
    """One ReLU unit whose bias is the weight of a last feature."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.linear = nn.Linear(len(weight), 1, bias=False, dtype=weight.dtype, device=weight.device)
        self.linear.weight.data = weight[None]
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(rows, features) to (rows, 1)."""
        return self.relu(self.linear(x))


def _layer(score: Callable[..., Tensor], layer: LocalLayer) -> tuple[tuple[int, ...], list[Offence]]:
    rows = torch.cat([layer.inputs, layer.inputs.new_ones(len(layer.inputs), 1)], 1)
    start_at = None if layer.reference is None else torch.cat([layer.reference, torch.zeros_like(rows[:, :1])], 1)
    counts = torch.zeros(4, dtype=torch.long)
    offences: list[Offence] = []
    for number, (weight, bias) in enumerate(zip(layer.weight, layer.bias, strict=True)):
        full = torch.cat([weight, bias[None]])
        scores = score(Unit(full).eval(), rows, start_at)
        moved = rows if start_at is None else rows - start_at
        for start in range(0, len(rows), ROWS):
            part = slice(start, start + ROWS)
            found, worst = _unit(moved[part] * full, scores[part], rows[part] @ full)
            counts += found
            for row, feature, own, magnitude, hidden in worst:
                offences.append(Offence(layer.name, start + row, number, feature, own, magnitude, hidden))
        offences = sorted(offences, key=lambda o: abs(o.score) - o.magnitude)[:OFFENDERS]
    return tuple(counts.tolist()), offences


def _unit(contributions: Tensor, scores: Tensor, value: Tensor) -> tuple[Tensor, list[tuple[int, int, float, float, bool]]]:
    """Counts for one unit, and its worst offences, from (rows, features) and the pre-activations (rows,)."""
    value = value[:, None]
    tolerance = 64 * torch.finfo(contributions.dtype).eps * contributions.abs().sum(1, keepdim=True)
    sign = torch.where(scores.abs() <= tolerance, torch.zeros_like(scores), scores.sign())
    active = value > 0
    positive, negative = contributions > tolerance, contributions < -tolerance
    size = contributions.abs()
    nothing = torch.zeros_like(size)

    largest_negative = torch.where(negative, size, nothing).amax(1, keepdim=True)
    reach = value + size  # a positive input p counteracts a negative one if p < value + n
    opposing = torch.where(positive, size, nothing)
    largest_positive = _largest_below(opposing, reach)
    covered = torch.where(negative, size, nothing).sum(1, keepdim=True) + value > tolerance  # some set of them is a cover
    counteracted = (positive & negative.any(1, keepdim=True) & (active | covered)) | (
        active & negative & (largest_positive > 0)
    )
    bound = torch.minimum(size, torch.where(positive, largest_negative, largest_positive))  # for active units exact

    wrong_negative = _wrong(sign, negative)
    wrong_positive_least = _least_wrong(sign, positive, size)
    side = torch.where(sign > 0, 0, 1)
    misled = torch.where(positive, wrong_negative.gather(1, side), wrong_positive_least.gather(1, side) < reach)
    zero = counteracted & (sign == 0)

    decided = counteracted & active
    hidden = zero | (decided & misled)
    under = hidden | (decided & (scores.abs() < bound - tolerance))
    # Inactive units. A minimal cover C frees C - |value| <= the largest negative input: ``bound`` holds for all of them.
    # The largest negative input alone, if it is a cover, and a misled one that is a cover, decide most of the rest.
    single = torch.minimum(size, (largest_negative + value).clamp_min(0))
    misled_alone = _wrong(sign, negative & (size + value > tolerance)).gather(1, side)
    inactive = counteracted & ~active & ~zero
    hidden |= inactive & misled_alone
    under |= inactive & (misled_alone | (~misled & (scores.abs() < single - tolerance)))
    fine = inactive & ~misled & (scores.abs() >= bound - tolerance)
    open_cases = inactive & ~under & ~fine
    undecided = torch.zeros_like(under)
    for number, (row, feature) in enumerate(open_cases.nonzero().tolist()):
        if number >= CASES:
            undecided[row, feature] = True
            continue
        verdict = _search(contributions[row], scores[row], sign[row], feature, float(value[row]), float(tolerance[row]))
        hidden[row, feature] = verdict == "hidden"
        under[row, feature] = verdict in ("hidden", "underreported")
        undecided[row, feature] = verdict == "undecided"
    counts = torch.stack([counteracted.sum(), under.sum(), hidden.sum(), undecided.sum()]).cpu()
    return counts, list(_worst(under, hidden, scores, bound))


def _largest_below(values: Tensor, limits: Tensor) -> Tensor:
    """For every limit of a row, the largest value of that row below it, or 0."""
    ordered = values.sort(1).values
    place = torch.searchsorted(ordered, limits.contiguous()) - 1
    return torch.where(place >= 0, ordered.gather(1, place.clamp_min(0)), torch.zeros_like(limits))


def _wrong(sign: Tensor, among: Tensor) -> Tensor:
    """(rows, 2): some of these features do not oppose a positive score, or a negative one."""
    return torch.stack([(among & (sign >= 0)).any(1), (among & (sign <= 0)).any(1)], 1)


def _least_wrong(sign: Tensor, among: Tensor, size: Tensor) -> Tensor:
    """(rows, 2): the smallest of these features that does not oppose a positive score, or a negative one."""
    far = torch.full_like(size, torch.inf)
    return torch.stack([torch.where(among & wrong, size, far).amin(1) for wrong in (sign >= 0, sign <= 0)], 1)


def _search(contributions: Tensor, scores: Tensor, sign: Tensor, feature: int, value: float, tolerance: float) -> str:
    """An input of an inactive unit that no short cut decides: try its minimal covers."""
    result = inactive_conflicts(contributions, min(value, 0.0), SEARCH)
    weak = False
    for cover in result.covers:
        members = list(cover)
        total = float(scores[members].sum())
        if _sign(total, tolerance) != -int(sign[feature]):
            return "hidden"
        magnitude = min(float(contributions[feature]), value - float(contributions[members].sum()))
        weak |= abs(float(scores[feature])) < magnitude - tolerance
    if weak:
        return "underreported"
    return "fine" if result.complete else "undecided"


def _worst(under: Tensor, hidden: Tensor, scores: Tensor, bound: Tensor) -> Iterator[tuple[int, int, float, float, bool]]:
    gap = torch.where(under, bound - scores.abs(), torch.full_like(bound, -torch.inf)).flatten()
    for place in gap.topk(min(OFFENDERS, len(gap))).indices.tolist():
        row, feature = divmod(place, under.shape[1])
        if under[row, feature]:
            yield row, feature, float(scores[row, feature]), float(bound[row, feature]), bool(hidden[row, feature])


def audit_outputs(method: Any, model: Any, x: Tensor, target: Any = 0, baselines: Any = None) -> Audit:
    """Definition 5 for the output of the whole model: exhaustive search in every row, so for at most 12 features.

    Args:
        method: See ``audit``.
        model: The model.
        x: The rows, (rows, features).
        target: The index of the output.
        baselines: What rows are compared with; None is zero.

    Returns:
        The counts.

    Raises:
        ValueError: There are too many features.

    Example:
        >>> import functools
        >>> from cafexai import CAFE, conflicts
        >>> method = functools.partial(CAFE.published, c=1.0)
        >>> conflicts.audit_outputs(method, torch.nn.Linear(2, 1), torch.ones(1, 2)).underreported
        0
    """
    score = _scorer(method)
    rows = as_rows("audit_outputs", model, x)
    features = rows[0].numel()
    if features > 12:
        raise ValueError(f"audit_outputs(..., x): {features} features are too many to search; conflict_map shows the pairs.")
    scores = score(model, rows, baselines, target).flatten(1)
    reference = expand_baseline(0 if baselines is None else baselines, rows, "audit_outputs")
    counts = [0, 0, 0, 0]
    offences = []
    for row, (values, start, own) in enumerate(zip(rows, reference, scores, strict=True)):
        opponents: dict[tuple[int, ...], list[tuple[tuple[int, ...], float]]] = {}
        for c in minimal_conflicts(model, values[None], start[None], target):
            for does, by, of in ((c.first_counteracts, c.first, c.second), (c.second_counteracts, c.second, c.first)):
                if does:
                    opponents.setdefault(of, []).append((by, c.magnitude))
        tolerance = 64 * torch.finfo(own.dtype).eps * float(own.abs().sum())
        for of, sets in opponents.items():
            total = float(own[list(of)].sum())
            misled = any(_sign(float(own[list(by)].sum()), tolerance) != -_sign(total, tolerance) for by, _ in sets)
            magnitude = max(size for _, size in sets)
            hidden = abs(total) <= tolerance or misled
            under = hidden or abs(total) < magnitude - tolerance
            counts = [counts[0] + 1, counts[1] + under, counts[2] + hidden, 0]
            if under:
                offences.append(Offence("(model)", row, 0, of[0], total, magnitude, hidden))
    worst = sorted(offences, key=lambda o: abs(o.score) - o.magnitude)[:OFFENDERS]
    by_layer = {"(model)": (counts[0], counts[1], counts[2], counts[3])}
    return Audit(*by_layer["(model)"], by_layer=by_layer, worst=tuple(worst), skipped={})


def _sign(value: float, tolerance: float) -> int:
    return 0 if abs(value) <= tolerance else (1 if value > 0 else -1)
