"""A generated text as a page without script: a table of all scores, and each generated token on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..plotting.generation_plot import choose_lines, readable
from ..plotting.labels import percent
from ..plotting.palette import tint
from ..plotting.row_lines import align_numbers
from .escape import Html, html, join_parts, tag
from .html_parts import word_strip
from .notebook import ledger_page

if TYPE_CHECKING:
    from ..explanation.generation import Generation

MOST, EACH = 80, 8  # rows of the table, and of the table of one token
STYLE = """
:root{color-scheme:light}body{margin:2rem auto;max-width:70rem;padding:0 1.5rem;background:#fff;color:#1a1a1a;
font:16px/1.5 system-ui,"Segoe UI",Roboto,"Noto Sans",sans-serif}h1{font-size:1.5rem}h2{font-size:1.1rem}
.text{white-space:pre-wrap}.text a{color:#005a8f}.wide{overflow-x:auto}.token{display:none;border-top:1px solid #dfe3e6}
.token:target{display:block}body:not(:has(.token:target)) .token:first-of-type{display:block}
"""


def generation_page(generation: Generation) -> str:
    """One file: the prompt, the generated tokens as links, what each comes from, and all scores as a table."""
    links = join_parts(tag("a", name, href=f"#t{place}") for place, name in enumerate(generation.generated))
    chosen = join_parts(_token(generation, place) for place in range(len(generation)))
    body = join_parts(
        [
            tag("h1", "What each generated token comes from"),
            tag("p", tag("strong", "Prompt: "), generation.prompt, kind="text"),
            tag("p", tag("strong", "Generated: "), links, kind="text"),
            tag("p", f"Explained: {generation.explained}. Choose a generated token to see what it comes from."),
            chosen,
            tag("h2", "All scores"),
            tag("div", Html(generation_table(generation)), kind="wide", tabindex="0", role="region", label="All scores"),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Generated text, explained</title>'
        f"<style>{STYLE}</style></head>\n<body><main>{body}</main></body></html>\n"
    )


def generation_table(generation: Generation) -> str:
    """The heat map as a table, for notebooks too."""
    lines = choose_lines(generation, "combined", MOST)
    reach = float(lines.values.abs().max()) or 1.0
    texts = iter(align_numbers(lines.values.flatten().tolist(), 3))
    chance = generation.explanation.probability
    head = [tag("th", "", scope="col")]
    for place, token in enumerate(generation.generated):
        more = "" if chance is None else f" {percent(chance[place].item())}"
        head.append(tag("th", tag("strong", readable(token)), Html("<br>"), more, scope="col", style=_look("#FFFFFF")))
    rows = []
    for y, name in enumerate(lines.names):
        cells = [tag("th", name, scope="row", style="text-align:left;padding:1px 8px;font-weight:400;white-space:nowrap")]
        for x in range(len(generation)):
            text, value = next(texts), float(lines.values[y, x])
            colour = tint(value, reach, 0.6) if lines.seen[y, x] else "#EEF0F1"
            cells.append(tag("td", text if lines.seen[y, x] else "", style=_look(colour)))
        line = "border-top:2px solid #1a1a1a" if y == lines.border > 0 else None
        rows.append(tag("tr", *cells, style=line))
    told = f"Net scores by {generation.level}; explained: {generation.explained}."
    body = join_parts([tag("thead", tag("tr", *head)), tag("tbody", *rows)])
    caption = tag("caption", told, style="text-align:left")
    return str(tag("table", caption, body, style="border-collapse:collapse;font-size:.85rem"))


def _token(generation: Generation, place: int) -> Html:
    """One generated token: the text before it, tinted, and its strongest sources."""
    one = generation.explanation[place]
    return tag(
        "section",
        tag("h2", html(one.target_name())),
        Html(word_strip(one)),
        Html(ledger_page(one, EACH)),
        kind="token",
        id=f"t{place}",
    )


def _look(colour: str) -> str:
    return f"background:{colour};color:#1a1a1a;text-align:right;padding:1px 6px;white-space:nowrap"
