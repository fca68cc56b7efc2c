"""A generated text as a heat map: what each generated token comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .figures import add_heading, cell_text, figure, heatmap
from .labels import percent, shorten
from .looks import current, points
from .palette import NET
from .row_lines import align_numbers, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..explanation.generation import Generation
    from .picture import Picture

SCORES = ("combined", "positive", "negative")
CELLS = 260  # with more of them, the numbers are left out
LETTERS, WIDE, TALL = 28, 0.62, 0.25  # of a label; inches of a column and of a row
UNSEEN = "#EEF0F1"  # tokens that come later


class Lines(NamedTuple):
    """The rows of the heat map."""

    names: list[str]
    values: Tensor  # (rows, generated tokens)
    seen: Tensor
    border: int  # how many of them are of the prompt


def heat_map(generation: Generation, scores: str = "combined", most: int = 60) -> Picture:
    """A row for each source, a column for each generated token, coloured by the scores."""
    if scores not in SCORES:
        raise ValueError(f"plot(scores={scores!r}): unknown. Allowed values: {', '.join(map(repr, SCORES))}.")
    if most < 2:
        raise ValueError(f"plot(most={most}): give the number of sources to show, at least 2.")
    lines = choose_lines(generation, scores, most)
    rows, columns = lines.values.shape
    given = current().ax
    drawn: Any = figure(max(5.4, 3.0 + WIDE * columns), max(2.6, 1.9 + TALL * rows)) if given is None else given.figure
    axes = drawn.subplots() if given is None else given
    reach = float(lines.values.abs().max()) or 1.0
    picture = heatmap(axes, lines.values.numpy() * (-1 if scores == "negative" else 1), reach)
    _label(axes, generation, lines)
    _mark_unseen(axes, lines.seen)
    if rows * columns <= CELLS:
        _numbers(axes, lines, reach)
    if 0 < lines.border < rows:
        axes.axhline(lines.border - 0.5, color=NET, linewidth=1)
    bar = drawn.colorbar(picture, ax=axes, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label({"combined": "net score", "positive": "pushed up", "negative": "pushed down"}[scores], fontsize=points(9))
    if given is not None:
        return drawn
    title = f"What each generated {'token' if columns > 1 else 'text'} comes from"
    add_heading(drawn, title, "\n".join([f"Explained: {generation.explained}.", _below(lines, generation)]))
    return drawn


def choose_lines(generation: Generation, scores: str, most: int) -> Lines:
    """The sources in the order of the text; beyond ``most``, the weakest are summed in a last row."""
    e = generation.explanation
    values = e.flat(getattr(e, scores)).mT.double().cpu()
    seen = generation.seen.mT
    there = seen.any(1)
    places = there.nonzero()[:, 0]
    rest = torch.empty(0, dtype=torch.long)
    if len(places) > most:
        order = values[places].abs().amax(1).argsort(descending=True, stable=True)
        rest = places[order[most - 1 :]]
        places = places[order[: most - 1]].sort().values
    names = [readable(generation.sources[i]) for i in places.tolist()]
    found, known = values[places], seen[places]
    border = sum(generation.origins[i] == "prompt" for i in places.tolist())
    if len(rest):
        names.append(f"({len(rest)} others)")
        found, known = torch.cat([found, values[rest].sum(0)[None]]), torch.cat([known, seen[rest].any(0)[None]])
    return Lines(names, found, known, border)


def readable(token: str) -> str:
    """A token as a label: spaces at its ends are left out, line ends are shown."""
    plain = token.replace("\n", "↵").replace("\t", "⇥").strip()
    plain = "".join(letter if letter.isprintable() else "\ufffd" for letter in plain)
    return shorten(plain, LETTERS) if plain else repr(token)


def _label(axes: Axes, generation: Generation, lines: Lines) -> None:
    names = [readable(token) for token in generation.generated]
    chance = generation.explanation.probability
    if chance is not None:
        names = [f"{name}\n{percent(p)}" for name, p in zip(names, chance.tolist(), strict=True)]
    turned = max(map(len, [readable(token) for token in generation.generated])) > 9
    looks: dict[str, Any] = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"} if turned else {}
    axes.set_xticks(range(len(names)), names, parse_math=False, fontsize=points(9), **looks)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(lines.names)), lines.names, parse_math=False, fontsize=points(9))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _mark_unseen(axes: Axes, seen: Tensor) -> None:
    """Tokens that come later are grey: they have no score."""
    from matplotlib.patches import Rectangle

    for y, x in (~seen).nonzero().tolist():
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, color=UNSEEN, linewidth=0))


def _numbers(axes: Axes, lines: Lines, reach: float) -> None:
    texts = align_numbers(lines.values.flatten().tolist(), 3)
    for place, text in enumerate(texts):
        y, x = divmod(place, lines.values.shape[1])
        if bool(lines.seen[y, x]):
            cell_text(axes, x, y, text, abs(float(lines.values[y, x])) > 0.55 * reach)


def _below(lines: Lines, generation: Generation) -> str:
    """How the columns add up, for the first one."""
    e = generation.explanation
    told = "Each column sums from the value at the baseline to that of the model"
    bias = e.bias[0].item()
    more = "" if abs(bias) < 1e-12 else f" (constants of the model {number(bias)})"
    start, end = number(e.baseline_output[0].item()), number(e.output[0].item())
    later = "; grey: tokens that come later" if not bool(lines.seen.all()) else ""
    percentages = "" if e.probability is None else "; percentages: how likely the token was"
    return f"{told}, in the first from {start} to {end}{more}{later}{percentages}."
