"""Verdicts as one page: the sentence, what moved, the rows to look at, and the windows over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from ..reporting.document import read_asset, write_document
from ..reporting.escape import Html, join_parts, tag
from ._page_pictures import draw_panels, draw_timeline
from ._sentence import show_p, show_share
from ._verdict import SEVERITIES, OddRow, Verdict

DETAILS = 12  # windows that have a section of their own
PAIRS = 12
STEPS = (
    "A missing or frozen column, or new values, is most often a fault of the pipeline: look there first.",
    "If only inputs or correlations moved and the output did not, the model works on other rows than before.",
    "If the output moved, explain the rows below and some of the reference, and compare the features that moved.",
    "Get labels. A shift says that rows are different, not that predictions are worse.",
)


def write_page(
    verdicts: Mapping[str, Verdict], rows: Mapping[str, Sequence[OddRow]] | None = None, title: str = "Shift monitor"
) -> str:
    """Verdicts by the name of their window as one page, which loads nothing and runs no script.

    Args:
        verdicts: Name of a window, in the order of time -> its verdict.
        rows: Name of a window -> what ``monitor.find_odd_rows`` gave.
        title: The title of the page.

    Returns:
        The page as HTML.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> from cafexai.monitor import Monitor
        >>> monitor = Monitor.fit(CAFE(torch.nn.Linear(2, 1)), torch.randn(400, 2))
        >>> "<h1>Shifts</h1>" in write_page({"monday": monitor.check(torch.randn(200, 2))}, title="Shifts")
        True
    """
    rows = rows or {}
    sections = []
    if len(verdicts) > 1:
        sections.append(_section("Windows over time", _windows(verdicts)))
        changed = [name for name, one in verdicts.items() if one.kind != "none"]
        worst = sorted(changed, key=lambda name: -SEVERITIES.index(verdicts[name].severity))[:DETAILS]
        shown = [name for name in verdicts if name in set(worst)]
    else:
        shown = list(verdicts)
    for name in shown:
        heading = f"Window {name}" if len(verdicts) > 1 else "Verdict"
        sections.append(
            _section(heading, *_details(verdicts[name], rows.get(name, ()), heading), place=f"w{list(verdicts).index(name)}")
        )
    if any(one.kind != "none" for one in verdicts.values()):
        sections.append(_section("What to do", tag("ol", *(tag("li", step) for step in STEPS))))
    foot = tag("footer", "Made by cafexai. One file; it loads nothing and sends nothing.")
    body = join_parts([tag("header", tag("h1", title)), tag("main", *sections), foot])
    own = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    return write_document(title, body, read_asset("page.css") + own)


def _section(title: str, *parts: object, place: str | None = None) -> Html:
    return join_parts(["\n", tag("section", tag("h2", title), *parts, id=place)])


def _badge(verdict: Verdict) -> Html:
    return tag("span", verdict.severity, kind=f"badge {verdict.severity}")


def _windows(verdicts: Mapping[str, Verdict]) -> Html:
    lines = []
    for place, (name, one) in enumerate(verdicts.items()):
        link = tag("a", name, href=f"#w{place}") if one.kind != "none" else name
        lines.append([link, _badge(one), f"{one.rows:,}", one.sentence])
    table = _table(("window", "severity", "rows", "verdict"), lines, "All windows", "windows")
    return join_parts([_wide(draw_timeline(verdicts), "Timeline", "timeline"), table])


def _details(verdict: Verdict, rows: Sequence[OddRow], window: str) -> list[Html]:
    parts = [tag("p", _badge(verdict), " ", verdict.sentence, kind="lead"), tag("ul", *_tiles(verdict), kind="tiles")]
    if verdict.histograms:
        parts += [tag("h3", "What moved"), tag("p", "Grey area: the reference. Line: this window. Shares of rows.", kind="q")]
        parts.append(draw_panels(verdict.histograms))
    if verdict.pairs:
        lines = [
            [f"{one.first}, {one.second}", f"{one.before:+.2f}", f"{one.now:+.2f}", show_p(one.p)]
            for one in verdict.pairs[:PAIRS]
        ]
        parts.append(_table(("inputs", "before", "now", "p"), lines, "Correlations of ranks that changed", window=window))
    families = [[name, f"{value:.2f}", f"{limit:.2f}", "yes" if value > limit else "no"]
                for name, (value, limit) in verdict.statistics.items()]  # fmt: skip
    if rows:
        parts.append(_rows(rows, window))
    parts.append(_table(("family", "statistic", "limit", "alarm"), families, "Statistics and their limits", window=window))
    return parts


def _tiles(verdict: Verdict) -> list[Html]:
    found = [("kind", verdict.kind), ("rows", f"{verdict.rows:,}"), ("harm", verdict.harm)]
    if verdict.scored < verdict.rows:
        found.append(("of the rows could be scored", show_share(verdict.scored / verdict.rows)))
    if verdict.output is not None:
        found.append(("standard deviations by which the output moved", f"{verdict.output.size:.2f}"))
    if verdict.performance is not None:
        now, before = verdict.performance.accuracy_now, verdict.performance.accuracy_before
        found.append((f"accuracy, in the reference {before:.1%}", f"{now:.1%}"))
    return [tag("li", tag("b", value), tag("span", name)) for name, value in found]


def _rows(rows: Sequence[OddRow], window: str) -> Html:
    lines = [
        [
            f"Row {one.row}",
            f"{one.size:.1f}",
            "none" if one.output is None else f"{one.output:.4g}",
            ", ".join(f"{name} = {value}" for name, value in one.values.items()),
        ]
        for one in rows
    ]
    note = "Rows whose values are most typical of what is new. Size: logarithm of how much more frequent they are than before."
    table = _table(("row", "size", "output", "because of"), lines, "Rows to look at", "rows", window)
    return join_parts([table, tag("p", note, kind="q")])


def _table(
    columns: Sequence[str], lines: Sequence[Sequence[object]], title: str, kind: str | None = None, window: str = ""
) -> Html:
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in columns)))
    body = tag(
        "tbody", *(tag("tr", tag("th", line[0], scope="row"), *(tag("td", cell) for cell in line[1:])) for line in lines)
    )
    return join_parts([tag("h3", title), _wide(tag("table", head, body, kind=kind), f"{title} {window}".strip())])


def _wide(part: Html, title: str, kind: str = "") -> Html:
    """Something that scrolls by itself on a narrow screen, by keyboard too."""
    return tag("div", part, kind=f"wide {kind}".strip(), tabindex="0", role="region", label=title)
