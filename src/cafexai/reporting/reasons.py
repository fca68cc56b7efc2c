"""Reasons in sentences: which features moved the score of a row most in one direction, with value and baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

from .._extras import needs
from ..explanation import Explanation
from ..plotting.row_lines import baseline_texts, number, value_texts

if TYPE_CHECKING:
    import pandas

Template = str | Mapping[str, str]  # one for all features, or one for each feature and "" for all others
FIELDS = ("feature", "value", "baseline", "amount", "moved", "target", "output", "row")
NEGLIGIBLE = 0.01  # of the largest score of a row: less is no reason
MOVED = {"down": "lowered", "up": "raised"}


class Reason(NamedTuple):
    """One feature that moved the score of a row."""

    feature: str
    value: str  # "" if there is none to show
    baseline: str  # "" if it is not known
    net: float
    sentence: str


def reasons(
    explanation: Explanation, row: int | str = 0, n: int = 4, direction: str = "down", template: Template | None = None
) -> list[Reason]:
    """The ``n`` features with the largest net scores in one direction, the strongest first; fewer if no more point there."""
    if direction not in MOVED:
        raise ValueError(f"reasons(direction={direction!r}): unknown. Allowed values: 'down', 'up'.")
    if n < 1:
        raise ValueError(f"reasons(n={n}): give the number of reasons, at least 1.")
    one, place = explanation[row], explanation.position(row)
    nets = one.flat(one.combined)[0].double().cpu()
    names, values, starts = one.names(), value_texts(one), baseline_texts(one)
    strength = nets if direction == "up" else -nets
    least = NEGLIGIBLE * nets.abs().max().item() if len(nets) else 0.0
    ordered = strength.argsort(descending=True, stable=True).tolist()
    order = [i for i in ordered if names[i] and strength[i] > least][:n]
    found = []
    for i in order:
        fields = {
            "feature": names[i],
            "value": "" if values is None else values[i],
            "baseline": "" if starts is None else starts[i],
            "amount": number(abs(nets[i].item())),
            "moved": MOVED[direction],
            "target": one.target_name(),
            "output": number(one.output.item()),
            "row": str(place) if one.row_names is None else one.row_names[0],
        }
        sentence = _sentence(template, fields)
        found.append(Reason(fields["feature"], fields["value"], fields["baseline"], nets[i].item(), sentence))
    return found


def _sentence(template: Template | None, fields: Mapping[str, str]) -> str:
    """The sentence of one feature."""
    wanted = template
    if isinstance(template, Mapping):
        wanted = template.get(fields["feature"], template.get(""))
    if wanted is None:
        value = f" is {fields['value']}" if fields["value"] else ""
        start = f" (baseline: {fields['baseline']})" if fields["value"] and fields["baseline"] else ""
        this = ": this" if value else ""
        what = f"the {fields['target']}" if fields["target"].startswith(("logit", "decision", "unit")) else fields["target"]
        return f"{fields['feature']}{value}{start}{this} {fields['moved']} {what} by {fields['amount']}."
    odd = [name for _, name, *_ in Formatter().parse(str(wanted)) if name is not None and name not in FIELDS]
    if odd:
        known = ", ".join(f"{{{name}}}" for name in FIELDS)
        raise ValueError(f"reasons(template={wanted!r}): unknown field {{{odd[0]}}}. Allowed fields: {known}.")
    return str(wanted).format(**fields)


def reasons_frame(explanation: Explanation, n: int, direction: str, template: Template | None) -> pandas.DataFrame:
    """The reasons of all rows, one line each."""
    pandas = needs("pandas", "tabular")
    return pandas.DataFrame(list(_lines(explanation, n, direction, template)), columns=_columns(explanation))


def _columns(explanation: Explanation) -> list[str]:
    name = ["name"] if explanation.row_names is not None else []
    return ["row", *name, "target", "rank", "feature", "value", "baseline", "net", "reason"]


def _lines(explanation: Explanation, n: int, direction: str, template: Template | None) -> Iterator[tuple[Any, ...]]:
    for row in range(len(explanation)):
        one = explanation[row]
        own = [] if explanation.row_names is None else [explanation.row_names[row]]
        for rank, reason in enumerate(reasons(explanation, row, n, direction, template), 1):
            yield (row, *own, one.target_name(), rank, *reason)
