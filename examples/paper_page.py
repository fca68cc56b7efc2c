"""Write docs/paper.md: every table and figure of the paper, what the committed studies measured, and why numbers differ."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from paper_entries import ENTRIES, LINES, MLPS, SPLIT, TRANSFORMERS, Entry, Line

from cafexai.paper.studies import STUDIES, Finding
from cafexai.paper.studies.infidelity_report import COMPARED, SIZES, collect
from cafexai.paper.studies.published_numbers import figure_of_paper

ROOT = Path(__file__).parent.parent
HEAD = """# The paper, table by table

Every table and figure of the paper, and every sentence of its text that can be measured, in the paper's order and with its
numbers of tables and figures. "In part": some of the claims on the line hold. "Undecided": our numbers do not tell
(differences below two standard errors are ties; "clearly" is beyond them). A preset other than `full` is smaller than the
paper's experiment. `mimic` is the open demo of MIMIC-IV, not the paper's data. "At 5e-4" are networks trained at this rate.

Below: [each claim with its numbers](#claim-by-claim), [why numbers differ](#why-numbers-differ),
[where we leave the paper's protocol](#where-we-leave-the-papers-protocol-on-purpose), and
[what is not at full size](#presets-that-are-not-at-full-size). What we claim beyond the paper is in
[the evidence](evidence.md).

"""
STARTS = ("On ", "In ", "It ", "Lower ", "Largest ")  # of sentences, which stand behind a label here
CLEARLY = re.compile(r"on (\d+) of them lower by more than two standard errors")


def page(studies: Path) -> str:
    """The table of all lines, each claim, what else the same studies say, then the reasons for differences."""
    text = (ROOT / "examples" / "paper_reasons.md").read_text()
    for name, make in PARTS.items():
        text = text.replace(f"<!-- {name} -->\n", make(studies))
    columns = "| in the paper | what it says | verdict | what we measured | studies |\n| --- | --- | --- | --- | --- |\n"
    return HEAD + columns + "".join(_line(line, studies) for line in LINES) + text


def _line(line: Line, studies: Path) -> str:
    """A line of the first table."""
    entries = [entry for entry in line.entries if not entry.detail]
    verdicts = {verdict for entry in entries for verdict in _verdicts(entry, studies)}
    shown = "; ".join(f"{entry.label}: " * bool(entry.label) + _brief(entry, studies) for entry in entries)
    sources = "; ".join(dict.fromkeys(_source(entry, studies) for entry in entries))
    return f"| {line.place} | {line.says} | {word_of(verdicts)} | {shown} | {sources} |\n"


def word_of(verdicts: Set[bool | None]) -> str:
    """The verdict on a line with several claims."""
    sure = verdicts - {None}
    word = "in part" if len(sure) == 2 else _word(next(iter(sure), None))
    return word + ", some undecided" * bool(sure and None in verdicts)


def _verdicts(entry: Entry, studies: Path) -> list[bool | None]:
    """Of all findings of an entry."""
    if entry.elsewhere:
        return [True]
    return [verdict_of(entry, finding) for finding in _judged(entry, studies)]


def verdict_of(entry: Entry, finding: Finding) -> bool | None:
    """Of one finding: where the paper says "better", a tie is undecided."""
    counts = re.match(r"On (\d+) of \d+, on (\d+) of them", finding.numbers)
    tie = finding.holds and entry.better and counts is not None and counts[1] != counts[2]
    return None if tie else finding.holds


def _word(holds: bool | None) -> str:
    return {True: "holds", False: "does not hold", None: "undecided"}[holds]


def _brief(entry: Entry, studies: Path) -> str:
    """A few words on what was measured."""
    if entry.elsewhere:
        return "exact, tested"
    judged = _judged(entry, studies)
    if len(judged) > 1:
        counts = Counter(finding.holds for finding in judged)
        return f"{counts[True]} of {len(judged)} hold" + f", {counts[None]} undecided" * bool(counts[None])
    text = CLEARLY.sub(r"clearly on \1", judged[0].numbers).removeprefix("So ")
    if text.startswith(("On 1 of 1", "On 0 of 1")):
        tie = entry.better and judged[0].holds and "clearly on 1" not in text
        return "a tie" if tie else _word(judged[0].holds) + ", clearly" * ("clearly on 1" in text)
    if text.startswith("Times"):
        times = [float(value) for value in re.findall(r" ([\d.]+)(?=[,;]|\.$)", text)]
        return f"{min(times):.3g} to {max(times):.3g} times" if len(times) > 1 else f"{times[0]:.3g} times"
    missing = re.findall(r"; ([\w@-]+): ", text) if "clearly" in text else []
    head = re.split(r"(?:[;:.] | \(|\.$)", text)[0]
    head = head[0].lower() + head[1:] if head.startswith(STARTS) else head
    return head + (f"; not {', '.join(missing)}" if missing else "")


def details(studies: Path) -> str:
    """The second table: every claim by itself."""
    columns = "| in the paper | claim | verdict | measured | study |\n| --- | --- | --- | --- | --- |\n"
    return columns + "".join(_row(line.place, entry, studies) for line in LINES for entry in line.entries)


def _row(place: str, entry: Entry, studies: Path) -> str:
    if entry.elsewhere:
        return f"| {place} | {entry.claim} | holds | exact, tested | {_source(entry, studies)} |\n"
    judged = _judged(entry, studies)
    return f"| {place} | {entry.claim} | {_verdict(judged)} | {_numbers(judged)} | {_source(entry, studies)} |\n"


def _judged(entry: Entry, studies: Path) -> list[Finding]:
    """The findings that judge an entry."""
    folder = _measured(entry.study, studies, entry.preset)
    judged = [finding for finding in _findings(folder) if entry.takes(finding)]
    if not judged:
        raise ValueError(f"{entry.claim}: {folder} has no finding that begins with one of {list(entry.starts)}.")
    return judged


def _source(entry: Entry, studies: Path) -> str:
    if entry.elsewhere:
        return f"[test](../tests/{entry.elsewhere})"
    folder = _measured(entry.study, studies, entry.preset)
    return f"[{entry.study}](../studies/{folder.name}/README.md), {_size(folder)}"


def _folder(study: str, studies: Path) -> Path | None:
    """The results at full size, or the smaller ones. A folder without findings is not finished: it does not count."""
    folders = (studies / f"{study}-{preset}" for preset in ("full", "quick"))
    return next((folder for folder in folders if _done(folder)), None)


def _measured(study: str, studies: Path, preset: str = "") -> Path:
    """The same for a study that has results; or those of a preset."""
    folder = studies / f"{study}-{preset}" if preset else _folder(study, studies)
    assert folder is not None, study
    return folder


def _done(folder: Path) -> bool:
    return (folder / "findings.json").exists()


def _findings(folder: Path) -> list[Finding]:
    return [Finding(**one) for one in json.loads((folder / "findings.json").read_text())]


def _size(folder: Path) -> str:
    """Preset and seeds."""
    config = json.loads((folder / "config.json").read_text())
    seeds = config["settings"].get("seeds")
    if not isinstance(seeds, list):
        return str(config["preset"])
    fewer = sum(len(own.get("seeds", seeds)) < len(seeds) for own in config["settings"].get("per_data", {}).values())
    count = f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"
    return f"{config['preset']}, {count}" + (f" (fewer for {fewer} data sets)" if fewer else "")


def _verdict(findings: Sequence[Finding]) -> str:
    if len({finding.holds for finding in findings}) == 1:
        return _word(findings[0].holds)
    names = _names([finding.claim for finding in findings])
    parts = []
    for kind, word in ((True, "hold"), (False, "not"), (None, "open")):
        chosen = [name for name, finding in zip(names, findings, strict=True) if finding.holds is kind]
        if chosen:
            parts.append(f"{len(chosen)} {word}" + ("" if kind else f" ({'; '.join(chosen)})"))
    return ", ".join(parts).replace("|", "/")


def _names(claims: Sequence[str]) -> list[str]:
    """What is different about each of several claims."""
    words = [claim.split() for claim in claims]
    first = _shared(words)
    last = _shared([part[first:][::-1] for part in words])
    return [" ".join(part[first : len(part) - last]).rstrip(":,") or claim for part, claim in zip(words, claims, strict=True)]


def _shared(parts: Sequence[Sequence[str]]) -> int:
    """How many words all of them begin with."""
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, zip(*parts, strict=False)))


def _numbers(findings: Sequence[Finding]) -> str:
    """The first sentence of numbers; that of a finding that does not hold, if there is one."""
    shown = next((finding for finding in findings if finding.holds is not True), findings[0])
    about = f"{shown.claim.partition(':')[0]}: " if len(findings) > 1 else ""
    return (about + shown.numbers.partition(". ")[0].rstrip(".")).replace("|", "/")


# ---- parts of the text below the table


def other_findings(studies: Path) -> str:
    """Findings of the same studies that no row above shows: nothing is left out."""
    lines = []
    for study in dict.fromkeys(entry.study for entry in ENTRIES if entry.study not in ("", "activation-conflicts")):
        folder, asked = _folder(study, studies), [entry for entry in ENTRIES if entry.study == study]
        for finding in _findings(folder) if folder else ():
            if not any(entry.takes(finding) for entry in asked):
                verdict, numbers = _verdict([finding]), _numbers([finding])
                lines.append(f"| [{study}](../studies/{folder.name}/README.md) | {finding.claim} | {verdict} | {numbers} |\n")
    return "| study | claim | verdict | measured |\n| --- | --- | --- | --- |\n" + "".join(lines)


def levels(studies: Path) -> str:
    """How far infidelity is from the paper's, lowest and highest of the compared methods."""
    lines = ["| networks | data | small perturbation | large perturbation |\n| --- | --- | --- | --- |\n"]
    for study in (MLPS, SPLIT, TRANSFORMERS):
        folder = _measured(study, studies)
        settings = json.loads((folder / "config.json").read_text())["settings"]
        ours = collect(settings, json.loads((folder / "results.json").read_text()))
        for name in settings["data"]:
            cells = [_range(_apart(ours, settings["family"], name, size)) for size in SIZES]
            lines.append(f"| [{study}](../studies/{folder.name}/README.md) | {name} | {' | '.join(cells)} |\n")
    return "".join(lines)


def _apart(ours: Mapping[Any, Any], family: str, name: str, size: str) -> list[float]:
    theirs = {key: figure_of_paper(f"infidelity {family}", key, f"{name.partition('@')[0]} {size}") for key in COMPARED}
    known = [(key, value) for key, value in theirs.items() if value and ("infidelity", f"{name} {size}", key) in ours]
    return [ours["infidelity", f"{name} {size}", key][0] / value - 1 for key, value in known]


def _range(values: Sequence[float]) -> str:
    ends = dict.fromkeys(f"{end:+.1%}" for end in (min(values), max(values))) if values else ()
    return " to ".join(ends)


def misaligned(studies: Path) -> str:
    """Shares of rows that are judged by scores of others, and what the draw of units alone changes."""
    folder = _measured("authors-protocol", studies)
    results = json.loads((folder / "results.json").read_text())
    shares = ", ".join(
        f"{result['misaligned'] / result['rows']:.1%} of {key.removeprefix('alignment-').upper()}"
        for key, result in results.items()
        if key.startswith("alignment-")
    )
    found = [
        sizes["small"]["authors"][0] / sizes["small"]["ours"][0] - 1 for sizes in results["units-german"]["methods"].values()
    ]
    lines = ["\n", *(f"    {finding}\n" for finding in _findings(folder))]
    lines.append(f"    - Rows that get the scores of other rows: {shares}.\n")
    lines.append(
        f"    - German has no shorter batch. There the draw of units alone changes structural infidelity by {_range(found)}.\n"
    )
    return "".join(lines)


def of_activations(studies: Path) -> str:
    """The findings about units that are not ReLUs."""
    return "".join(f"{finding}\n" for finding in _findings(_measured("activation-conflicts", studies)))


def smaller(studies: Path) -> str:
    """The presets that are at full size; those that are not, what they cost, and the command: first those of the paper."""
    own = [name for name, study in STUDIES.items() if study.title.endswith("(ours)")]
    full = [name for name in STUDIES if _done(studies / f"{name}-full")]
    lines = []
    for kind, names in (("of the paper", [name for name in full if name not in own]), ("ours", [n for n in full if n in own])):
        lines.append(f"At full size, {kind}: {', '.join(names)}.\n\n")
    costs = json.loads((studies / "costs.json").read_text())
    lines.append("| study | here | full, minutes on one core | command |\n| --- | --- | --- | --- |\n")
    for name in sorted(set(STUDIES) - set(full), key=lambda name: (name in own, list(STUDIES).index(name))):
        here = _size(studies / f"{name}-quick") if _done(studies / f"{name}-quick") else "no results"
        line = f"cafexai study {name} --preset full --jobs 2"
        measured = costs.get(name, {}).get("minutes")
        cost = STUDIES[name].minutes["full"] if measured is None else f"{measured:.0f} (from its parts)"
        lines.append(f"| {name}{' (ours)' * (name in own)} | {here} | {cost} | `{line}` |\n")
    return "".join(lines)


PARTS = {
    "details": details,
    "other findings": other_findings,
    "levels": levels,
    "misaligned": misaligned,
    "activations": of_activations,
    "smaller": smaller,
}

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "paper.md"
    target.write_text(page(ROOT / "studies"))
