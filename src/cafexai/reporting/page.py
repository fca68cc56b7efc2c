"""The whole page: one file without any address outside of it, allowed to run nothing but its own few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..explanation import Explanation, Explanations
from ..explanation.hidden_conflicts import NONE_HIDDEN
from ..plotting.conflict_words import evaluation_sentence
from .about import about_data, about_model, again, check, list_omissions, number_of_baselines, tiles
from .document import read_asset, write_document
from .escape import Html, join_parts, tag
from .ledger_table import bar_styles
from .overview import overview
from .pictures import word_styles
from .rows import FEATURE, MANY, kind_of, rows
from .sentences import THINGS


class ReportOptions(TypedDict, total=False):
    """What a report takes by name."""

    title: str | None
    model: Any
    data: str | None
    most: int | None
    row_names: Sequence[Any] | None
    command: str | None
    order: str
    checks: Mapping[Any, Any]
    hidden: Any


ORDERS = (
    ("", "as given"),
    ("-c", "most conflict first"),
    ("c", "least conflict first"),
    ("-o", "largest output first"),
    ("o", "smallest output first"),
    ("-e", "largest error of the sum first"),
)
NO_SCRIPT = Html("<noscript><p>Rows open by a click. To order and to search them needs the script of this page.</p></noscript>")


def report_page(
    explanation: Explanation | Explanations,
    *,
    title: str | None = None,
    model: Any = None,
    data: str | None = None,
    most: int | None = None,
    row_names: Sequence[Any] | None = None,
    command: str | None = None,
    order: str = "net",
    checks: Mapping[Any, Any] | None = None,
    hidden: Any = None,
) -> str:
    """The text of the page that ``write_report`` writes.

    Args:
        explanation: One explanation, or several.
        title: The title of the page.
        model: The model itself, or words about it.
        data: Words about the data.
        most: How many features each row shows.
        row_names: One name per row.
        command: The command line that makes the report again.
        order: Features by "net" or "influence".
        checks: Row -> what ``cafe.check_by_changing(e, row)`` gave.
        hidden: The explainer, which looks for hidden conflicts, or what ``cafe.hidden_conflicts(e)`` gave.

    Returns:
        The page as HTML.

    Raises:
        ValueError: An argument is not allowed.
    """
    entries, by = _entries(explanation)
    first = next(iter(entries.values()))
    row_names = first.row_names if row_names is None else row_names
    names = [f"Row {row}" for row in range(len(first))] if row_names is None else [str(name) for name in row_names]
    if len(names) != len(first):
        raise ValueError(f"report(..., row_names=...): {len(names)} names for {len(first)} rows. Give one for each row.")
    total = len(first) * len(entries)
    most = most if most is not None else 12 if total <= 250 else 8 if total <= MANY else 5
    facts = about_model(first, model)
    title = title or f"{len(first):,} prediction{'s' * (len(first) != 1)} explained"
    prefixes = {label: f"r{place}-" if len(entries) > 1 else "r" for place, label in enumerate(entries)}
    told = _remarks(entries, checks or {}, hidden)
    sections = [
        _section("What this is about", tiles(entries) if len(first) else "", _facts([*facts, *about_data(first, data)])),
        _section("How to read it", _reading(first)),
        *(
            _section(f"Overview{f': {label}' if label else ''}", overview(one, names, prefixes[label], label, order=order))
            for label, one in entries.items()
            if len(one)
        ),
        _section(
            "Row by row",
            _tools(entries),
            NO_SCRIPT,
            _rows(entries, names, prefixes, most, order, told),
            kind="rows",
        ),
        _section("What the scores leave out", list_omissions(first)),
        _section("Do the sums add up?", *(check(one, names, prefixes[label]) for label, one in list(entries.items())[:1])),
        _section("What a score is not", _limits()),
        _section("Make it again", again(first, by, command)),
    ]
    made = f"Made by cafexai {first.meta.settings.get('version', '')} with torch {first.meta.settings.get('torch', '')}."
    foot = tag("footer", made, " One file; it loads nothing and sends nothing.")
    body = join_parts([tag("header", tag("h1", title)), tag("main", *sections), foot])
    style = read_asset("page.css") + bar_styles() + word_styles()
    return write_document(title, body, style, read_asset("page.js"))


def _entries(explanation: Explanation | Explanations) -> tuple[Mapping[str, Explanation], tuple[str, ...]]:
    """One explanation, or several by what they differ in."""
    if isinstance(explanation, Explanation):
        return {"": explanation}, ()
    words = {"target": "output"}
    found = {}
    for key, one in explanation.items():
        parts = zip(explanation.by, key if len(explanation.by) > 1 else (key,), strict=True)
        found[", ".join(_key(words.get(by, by), part, one) for by, part in parts)] = one
    return found, explanation.by


def _key(by: str, part: Any, one: Explanation) -> str:
    named = by == "output" and one.class_names is not None and isinstance(part, int) and part < len(one.class_names)
    return str(one.class_names[part]) if named and one.class_names is not None else f"{by} {part}"


def _section(title: str, *parts: Any, kind: str | None = None) -> Html:
    return join_parts(["\n", tag("section", tag("h2", title), *parts, kind=kind)])


def _facts(facts: Sequence[tuple[str, Any]]) -> Html:
    return tag("dl", *(join_parts([tag("dt", name), tag("dd", value)]) for name, value in facts))


def _reading(explanation: Explanation) -> Html:
    """An introduction for readers who see such a table for the first time."""
    kind = kind_of(explanation)
    thing, many = FEATURE.get(kind, "feature"), number_of_baselines(explanation)
    start = "the score at the baseline (described above)" if many == 1 else f"the mean score at {many} baselines (above)"
    parts = [
        tag(
            "p",
            f"The model turned each row into a number, the score. Starting from {start}, every {thing} pushed it ",
            tag("strong", "up", kind="u"),
            ", ",
            tag("strong", "down", kind="d"),
            ", or both at once, by different ways through the model. What remains of both is its ",
            tag("strong", "net"),
            ", the mark on its bar. All nets together, with the constants inside the model (\u201cbias\u201d), lead exactly to "
            "the score.",
        ),
        tag(
            "p",
            tag("strong", "Conflict", kind="k"),
            f" is what {THINGS[kind]} cancelled of each other. It is measured: the model is asked again with only what speaks "
            "for the score, and with only what speaks against it. Its share is cancelled / (cancelled + left): 0\u00a0% if "
            "nothing cancelled, 50\u00a0% if as much cancelled as is left, 100\u00a0% if all cancelled. It says how the score "
            "came about, not that it is wrong.",
        ),
    ]
    if kind == "image":
        parts.append(
            tag(
                "p",
                "Maps show where the picture pushed, and where in both directions; tables sum them up in nine parts.",
            )
        )
    if kind == "text":
        parts.append(tag("p", "A line over a word is what it pushed up, one under it what it pushed down; thicker is more."))
    return join_parts(parts)


def _tools(entries: Mapping[str, Explanation]) -> Html:
    """Order, search, and all open or closed; of use with the script only, and hidden without."""
    which = [tag("option", "all", value="")] + [tag("option", label, value=place) for place, label in enumerate(entries)]
    choice = [tag("label", "Show ", tag("select", *which, id="which"))] if len(entries) > 1 else []
    field = Html('<input type="search" id="search" placeholder="row, feature=value \u2026" autocomplete="off">')
    return tag(
        "form",
        *choice,
        tag("label", "Order ", tag("select", *(tag("option", text, value=value) for value, text in ORDERS), id="order")),
        tag("label", "Search ", field),
        tag("button", "Open all", type="button", id="all"),
        tag("output", id="status", role="status"),
        id="tools",
        label="Order and search rows",
        hidden="hidden",
    )


def _rows(
    entries: Mapping[str, Explanation],
    names: list[str],
    prefixes: Mapping[str, str],
    most: int,
    order: str,
    told: Mapping[int, Sequence[str]],
) -> Html:
    """All rows; those of several explanations side by side."""
    made = [rows(one, names, prefixes[label], label, most, order, told) for label, one in entries.items()]
    return tag("div", *(join_parts(["\n", one]) for same in zip(*made, strict=True) for one in same), id="rows")


def _remarks(entries: Mapping[str, Explanation], checks: Mapping[Any, Any], hidden: Any) -> dict[int, list[str]]:
    """What is told below the tables of rows if it is asked for: hidden conflicts, and checks by changing."""
    first = next(iter(entries.values()))
    told: dict[int, list[str]] = {}
    if hidden is not None:
        if len(entries) > 1:
            raise ValueError("report(..., hidden=...): hidden conflicts are those of one explanation, and these are several.")
        found = hidden.hidden_conflicts(first) if hasattr(hidden, "hidden_conflicts") else hidden
        if len(found) != len(first):
            raise ValueError(f"report(..., hidden=...): hidden conflicts of {len(found)} rows for {len(first)}.")
        for row in range(len(first)):
            lines = found.sentences(row) or [NONE_HIDDEN]
            count = len(found.names[row])
            price = evaluation_sentence(found.evaluations, count, found.features or count, found.against)
            told[row] = [f"Hidden conflicts: {' '.join(lines)} {price}".removesuffix(".")]
    for name, made in checks.items():
        told.setdefault(first.position(name), []).append(made.sentence)
    return told


def _limits() -> Html:
    """What people take scores for, and should not."""
    lines = (
        "It is no cause. Scores say how this model came to its number, not what would happen in the world.",
        "It is no verdict on the model. A wrong prediction is explained as readily as a right one.",
        "It depends on the baseline. Another baseline asks another question and gives other scores.",
        "It is one division among several. The sum is exact; how it is divided among features that act together is a sensible "
        "choice, the rule of the method, and other rules divide it differently.",
        "It does not compare models. How large ups, downs and conflicts are depends on the depth of the model and on the "
        "settings below; compare them between the rows and features of this report.",
        "A feature with the score 0 may still matter where the model cuts it off, or uses it only to steer attention or "
        "scaling; what is known of that stands under \u201cWhat the scores leave out\u201d.",
    )
    return tag("ul", *(tag("li", line) for line in lines))
