"""The sentences on conflict that every view uses: ledger, plots, notebook, report, explorer, command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..explanation.conflict import MEASURED, ConflictInfo
from ..explanation.hidden_conflicts import SMALL, FightingPair, HiddenPair

SHARE = "cancelled / (cancelled + left)"
BIAS, CONSTANTS = "(bias)", "the constants of the model"
NO_PAIR = "No two features cancelled anything of each other."


def whole_percent(share: float) -> str:
    """A share in whole per cent; not 0 % or 100 % of what is neither."""
    if 0 < share < 0.005 or 0.995 < share < 1:
        return "below 1 %" if share < 0.5 else "above 99 %"
    return f"{100 * share:.0f} %"


@dataclass(frozen=True)
class ShownConflict:
    """The conflict of one row in the digits of its table."""

    cancelled: str
    left: str
    share: float
    kind: str
    sides: tuple[str, str, str, str] | None = None  # start, only for, only against, together; for one baseline
    baselines: int = 1
    rank: float | None = None  # the part of the background rows with a smaller share
    typical: bool = False  # the baselines are rows of the background
    among: str = "background rows"  # which rows the rank is among

    @property
    def short(self) -> str:
        """1.90 cancelled, 0.36 left (84 %)."""
        return f"{self.cancelled} cancelled, {self.left} left ({whole_percent(self.share)})"


def show_conflict(
    info: ConflictInfo,
    unit: float,
    text: Callable[[int], str],
    ends: tuple[int, int],
    typical: bool = False,
    among: str = "background rows",
) -> ShownConflict:
    """The conflict of one row in whole units, so that what is said follows from the digits that are shown.

    ``ends`` are start and output as the table shows them.
    """
    rank = None if info.rank is None else info.rank.item()
    many = 1 if info.sides is None else info.sides.shape[1]
    if info.sides is None or many > 1:
        cancelled, left = (round(one.item() / unit) for one in (info.conflict, info.left))
        share = _shown_share(cancelled, left)
        return ShownConflict(text(cancelled), text(left), share, info.kind, None, many, rank, typical, among)
    steps = [round(one / unit) for one in info.sides[0, 0].double().tolist()]
    for place, end in ((0, ends[0]), (3, ends[1])):
        steps[place] = end if abs(steps[place] - end) <= 1 else steps[place]
    r, p, q, y = steps
    most = max(_counteraction(y, u, r) for u in (p, q))
    shown = tuple(text(step) if step <= 0 else f"+{text(step)}" for step in steps)
    share, sides = _shown_share(most, abs(y - r)), (shown[0], shown[1], shown[2], shown[3])
    return ShownConflict(text(most), text(abs(y - r)), share, MEASURED, sides, 1, rank, among=among)


def _shown_share(cancelled: int, left: int) -> float:
    """The share that follows from the digits that are shown."""
    return cancelled / (cancelled + left) if cancelled else 0.0


def _counteraction(y: int, u: int, r: int) -> int:
    """Definition 3 in the digits that are shown."""
    return min(abs(y - u), abs(u - r)) if (y - u) * (u - r) < 0 else 0


def conflict_sentence(row: ShownConflict) -> str:
    """The conflict of one row in words."""
    beside = "" if row.rank is None else f"; more than {whole_percent(row.rank)} of the {row.among}"
    short = f"{row.cancelled} cancelled, {row.left} left ({whole_percent(row.share)}{beside})"
    if row.sides is not None:
        start, only_for, only_against, together = row.sides
        return (
            f"Start {start}. With only what speaks for it {only_for}, with only what speaks against it {only_against}, "
            f"together {together}: {short}."
        )
    if row.baselines > 1:
        return f"On average over {row.baselines} {'typical rows' if row.typical else 'baselines'} {short}."
    return f"By net scores, {short}." if row.kind != MEASURED else f"On average {short}."


def hidden_sentence(pair: HiddenPair) -> str:
    """A hidden conflict in words: what the second feature hides of the first."""
    first, second = pair.first, pair.second
    if abs(pair.alone) >= SMALL * abs(pair.without):  # two signs are compared
        now = f"{first} moves the score by {pair.alone:+.3g} as things are"
        return f"{now}; with {second} at its baseline it would move it by {pair.without:+.3g}."
    held = "holds it down" if pair.without > 0 else "holds it up"
    alone = f"{first} alone seems not to matter, but only because {second} {held}"
    return f"{alone}; without {second} it would move the score by {abs(pair.without):.3g}."


def fighting_sentence(pair: FightingPair) -> str:
    """Two features that cancel each other in the exact map, in words."""
    one, two, amount = pair.first, pair.second, _short(pair.conflict)
    if pair.hidden >= pair.conflict:
        return f"{one} and {two}: {amount} cancelled, which removing either alone does not show."
    up, down = (one, two) if pair.first_alone > 0 else (two, one)
    more = f", {_short(pair.hidden)} of it hidden" if pair.hidden > 0 else ""
    return f"{up} speaks for it, {down} against it: {amount} cancelled{more}."


def engine_sentence(up: str, down: str, amount: str, raised: str = "") -> str:
    """What two features cancelled at the units of the model, in words; ``raised`` is the whole positive score of the first."""
    who, against = (CONSTANTS if name == BIAS else name for name in (up, down))
    if up == down:
        against = "themselves, by another way" if up == BIAS else "itself, by another way"
    if raised:
        return f"{who} raised the score by {raised}; {amount} of that was cancelled by {against}."
    return f"Inside the model, {amount} of what {who} pushed up was cancelled by {against}."


def baseline_words(place: int, count: int, typical: bool, middle: bool) -> str:
    """Which baseline rows are held against, if it is one of several."""
    if count == 1:
        return "the baseline"
    which = f"row {place + 1} of {count} typical rows" if typical else f"baseline {place + 1} of {count}"
    return f"{which}, the one whose output is in the middle" if middle else which


def evaluation_sentence(evaluations: int, features: int, whole: int, against: str) -> str:
    """What an exact map was made of."""
    some = "" if features == whole else f" of the {features} features that cancel most, of {whole}"
    return f"Measured by {evaluations} evaluations of the model{some}, against {against}."


def _short(value: float) -> str:
    return f"{value:.3g}"


def mean_sentence(rows: int, conflict: str, share: float, output: str = "") -> str:
    """The conflict of many rows in words, and the output if all rows are explained for the same one."""
    begin = f"{output[:1].upper()}{output[1:]}: " if output else ""
    return f"{begin}{rows} row{'s' * (rows != 1)}.  On average {conflict} cancelled between features ({whole_percent(share)})"
