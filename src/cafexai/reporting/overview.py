"""What all rows have in common: features by the mean size of their nets, and how much cancelled."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from .._inputs.table_values import is_date_column
from ..explanation import Explanation
from ..plotting.rounding import round_explanation, round_like
from ..plotting.row_lines import number, strongest_first
from .escape import Html, join_parts, tag
from .ledger_table import ledger
from .rows import FEATURE, kind_of, percent
from .summed import average, by_region, by_word

WIDTH, HEIGHT, FOOT = 400, 150, 28  # of a picture
BINS = 20
OUTPUTS = 4  # so many explained outputs have an average of their own
DOTS = 2000
FAR = "Mean |net| says how far a feature moves a row, up or down; opposite nets of two rows cancel in the mean net."


def overview(
    explanation: Explanation, names: Sequence[str], prefix: str, label: str, most: int = 15, order: str = "net"
) -> Html:
    """Averages, pictures, and the rows with most conflict."""
    shares = explanation.conflict_share
    worst = [row for row in shares.argsort(descending=True).tolist()[:5] if shares[row] > 0]
    links = join_parts(
        (tag("a", f"{names[row]} ({percent(shares[row].item())})", href=f"#{prefix}{row}") for row in worst), ", "
    )
    return join_parts(
        [
            *_averages(explanation, label, most, order),
            tag(
                "div",
                tag(
                    "figure",
                    _histogram(shares),
                    tag("figcaption", "Conflict as a share, in how many rows"),
                ),
                tag("figure", _dots(explanation, shares), tag("figcaption", "Every row: its output, and how much cancelled")),
                kind="two",
            ),
            tag("p", "Most conflict: ", links, ".") if worst else "",
        ]
    )


def _averages(explanation: Explanation, label: str, most: int, order: str) -> list[Html]:
    """The average row of the most frequent explained outputs; scores of different outputs are never averaged."""
    found = {label: explanation} if label else explanation.by_output()
    tables = []
    for name, part in list(found.items())[:OUTPUTS]:
        kind = kind_of(part)
        regions = by_region(part) if kind == "image" else by_word(part) if kind == "text" else part
        sizes = regions.flat(regions.combined).double().abs().mean(0)
        mean = round_explanation(average(regions), most, order=_by_mean_size(regions, sizes, order))
        values = value_ranges(part)
        lines = tuple(dataclasses.replace(line, value=values.get(line.name, "")) for line in mean.lines)
        count = f"{len(part)} row{'s' * (len(part) > 1)}"
        tables.append(tag("h3", f"The average of {name}", " ", tag("small", count)))
        what = FEATURE.get(kind, "feature, and its values in these rows")
        known = dict(zip(regions.names(), sizes.tolist(), strict=True))
        told = [round_like(mean, known[line.name]) if line.exact.single else "" for line in lines]
        tables.append(ledger(dataclasses.replace(mean, lines=lines), "mean baseline output", "mean output", what, told))
        tables.append(tag("p", FAR if order == "net" else f"{FAR[:-1]}; the order is that of mean influence.", kind="q"))
    if len(found) > OUTPUTS:
        rest = sum(len(part) for part in list(found.values())[OUTPUTS:])
        tables.append(tag("p", f"{len(found) - OUTPUTS} more outputs, of {rest} rows, have no average here.", kind="q"))
    return tables


def _by_mean_size(explanation: Explanation, sizes: torch.Tensor, order: str) -> list[int]:
    """The places of the features by mean |net|, which opposite nets of two rows do not cancel, or by mean influence."""
    up, down = (explanation.flat(part).double().mean(0) for part in (explanation.positive, explanation.negative))
    return strongest_first(order, up, down, sizes)


def value_ranges(explanation: Explanation) -> dict[str, str]:
    """By feature: from the smallest to the largest number or date, or the most frequent category. Nothing without values."""
    if kind_of(explanation) != "table" or explanation.values() is None:
        return {}
    found = {}
    for name, column in zip(explanation.names(), explanation.flat(explanation.shown).double().T, strict=True):
        words = explanation.features.categories.get(name)
        known = column[~column.isnan()]
        if not len(known):
            found[name] = "missing"
        elif words is not None and is_date_column(words):
            days = sorted(words[int(code)] for code in known.unique())
            found[name] = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
        elif words is not None:
            codes, counts = column.nan_to_num(-1).unique(return_counts=True)  # what is missing is a category
            code = int(codes[counts.argmax()])
            word = words[code] if code >= 0 else "missing"
            found[name] = word if len(codes) == 1 else f"most often {word}"
        else:
            column = known
            low, high = number(column.min().item()), number(column.max().item())
            found[name] = low if low == high else f"{low} to {high}"
    return found


def _histogram(shares: torch.Tensor) -> Html:
    """Rows by the share of their conflict, 0 to 100 %."""
    counts = torch.histc(shares.double().cpu(), BINS, 0, 1).tolist()
    most, step = max(counts) or 1, WIDTH / BINS
    bars = []
    for place, count in enumerate(counts):
        if count:
            high = max(round((HEIGHT - FOOT - 16) * count / most, 1), 1)
            low, up = 100 * place / BINS, 100 * (place + 1) / BINS
            title = tag("title", f"{low:g} to {up:g} %: {count:.0f} rows")
            bars.append(tag("rect", title, x=place * step + 1, y=HEIGHT - FOOT - high, width=step - 2, height=high, kind="k"))
            if count == most:
                at = {"x": (place + 0.5) * step, "y": HEIGHT - FOOT - high - 4}
                bars.append(tag("text", f"{count:.0f}", **at, text_anchor="middle"))
    label = f"Distribution of conflict over {len(shares)} rows; the middle row has {percent(shares.median().item())}"
    return _picture(label, bars, ("0 %", "50 %", "100 %"))


def _dots(explanation: Explanation, shares: torch.Tensor) -> Html:
    """One dot per row: output to the right, conflict upwards."""
    output = explanation.output.double()
    low, high = output.min().item(), output.max().item()
    chosen = torch.linspace(0, len(output) - 1, min(len(output), DOTS)).round().long()
    across = 6 + (WIDTH - 12) * (output - low) / ((high - low) or 1)
    up = HEIGHT - FOOT - 4 - (HEIGHT - FOOT - 10) * shares.double()
    path = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in zip(across[chosen].tolist(), up[chosen].tolist(), strict=True))
    label = f"Output from {number(low)} to {number(high)}, against conflict as a share, from 0 to 100 %"
    return _picture(label, [tag("path", d=path, kind="dots")], (number(low), "output", number(high)))


def _picture(label: str, parts: list[Html], feet: tuple[str, str, str]) -> Html:
    """A picture with a line below, and three words under it."""
    line = tag("path", d=f"M0 {HEIGHT - FOOT}H{WIDTH}", kind="line")
    words = [
        tag("text", word.replace("-", "\u2212"), x=x, y=HEIGHT - 8, text_anchor=anchor)
        for word, x, anchor in zip(feet, (0, WIDTH / 2, WIDTH), ("start", "middle", "end"), strict=True)
    ]
    return tag("svg", *parts, line, *words, role="img", label=label, viewbox=f"0 0 {WIDTH} {HEIGHT}")
