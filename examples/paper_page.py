"""Write docs/paper.md: every table and figure of the paper, what the committed studies measured, and why numbers differ."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cafexai.paper.studies import STUDIES, Finding
from cafexai.paper.studies.infidelity_report import COMPARED, SIZES, collect
from cafexai.paper.studies.paper import figure_of_paper

ROOT = Path(__file__).parent.parent
FAST = "as low as that of every comparably fast method, or lower"
KINDS = {"rate": ("@5e-4", "at a rate of"), "authors": ("@authors", "built as the authors do")}  # of networks, in claims


@dataclass(frozen=True)
class Entry:
    """One table, figure or claim of the paper, and the findings of a study that judge it."""

    place: str  # in the paper
    claim: str  # of the paper, in our words
    study: str = ""
    starts: Sequence[str] = ()  # beginnings of the claims of the findings
    elsewhere: str = ""  # where it is checked, if by no study
    kind: str = ""  # of the networks: see KINDS; "" for the usual ones
    ends: str = ""  # how the claims end
    detail: bool = False  # for the second table

    def takes(self, finding: Finding) -> bool:
        """Whether a finding of the study judges this entry."""
        kind = next((kind for kind, words in KINDS.items() if any(word in finding.claim for word in words)), "")
        return kind == self.kind and finding.claim.startswith(tuple(self.starts)) and finding.claim.endswith(self.ends)


WORKED, CONFLICTS, TWIN = "explain/test_worked_examples.py", "conflicts/test_conflicts.py", "rules/test_rules.py"
MLPS, TRANSFORMERS, SPLIT = "infidelity-mlp", "infidelity-ft", "infidelity-covertype"
MOST, ONE = "MLPs but for Covertype", "five MLPs for Covertype"  # Covertype has a study of its own
RIVALS = {"that of Integrated Gradients, or lower": "Integrated Gradients", "the sampling methods, or lower": "slow methods"}


def of_family(study: str, name: str, table: str, kinds: Mapping[str, str]) -> Iterable[Entry]:
    """The rows of a table on infidelity, for each kind of networks."""
    for kind, words in kinds.items():
        where = f"{table}{words}"
        yield Entry(where, f"infidelity, {name}: CAFE 0.5 is lowest of the comparably fast methods, by data set", study,
                    ["infidelity of CAFE 0.5 on "], kind=kind, ends=FAST, detail=kind == "authors")  # fmt: skip
        for rivals, they in RIVALS.items():
            yield Entry(where, f"infidelity, {name}: CAFE 0.5 is as low as {they}", study, ["infidelity of CAFE 0.5 on "],
                        kind=kind, ends=rivals, detail=True)  # fmt: skip
        yield Entry(where, f"the order of the methods, {name}, by data set", study, ["methods in the paper's order"], kind=kind,
                    detail=bool(kind))  # fmt: skip


def of_appendix(names: Mapping[str, str], tables: Sequence[str], kinds: Mapping[str, str]) -> Iterable[Entry]:
    """The rows of the tables of the appendix on structural infidelity, max-sensitivity and complexity, by study."""
    transformers = TRANSFORMERS in names
    robust = "is lowest of the comparably fast methods" + (" on 4 of 7 data sets" if transformers else " on all data sets")
    alike = "is more complex than other explanations" if transformers else "is about as complex as other explanations"
    claims = (
        ("structural infidelity, {}: CAFE 0.5 is best overall", "structural infidelity of CAFE 0.5", FAST, False),
        *(
            (f"structural infidelity, {{}}: CAFE 0.5 is as low as {they}", "structural infidelity of CAFE 0.5", rivals, True)
            for rivals, they in RIVALS.items()
        ),
        (f"max-sensitivity, {{}}: CAFE 1 {robust}", "max-sensitivity", "", False),
        (f"complexity, {{}}: CAFE 0.5 {alike}", "complexity of CAFE", "", False),
    )
    places = (tables[0],) * (1 + len(RIVALS)) + tuple(tables[1:])
    for (claim, starts, ends, detail), place in zip(claims, places, strict=True):
        for (study, name), (kind, words) in itertools.product(names.items(), kinds.items()):
            yield Entry(
                f"{place}{words}", claim.format(name), study, [starts], kind=kind, ends=ends, detail=detail or bool(kind)
            )


OURS, HIGHER, AUTHORS = "", ", networks at a rate of 5e-4", ", networks as the authors build them"
ENTRIES = (
    Entry("Figure 1 a", "the heart-attack neuron: gradients give 0, CAFE shows both features", elsewhere=WORKED),
    Entry("Figure 1 b", "conflicts and shifts, a sketch: measured in Figures 3 and 4", "shift-tabular", ["s_conf rises"]),
    Entry("Propositions 1, 2", "conflicts are symmetric; features at their reference are in none", elsewhere=CONFLICTS),
    Entry("Proposition 3", "minimal conflicts of a linear model are pairs of opposite sign", elsewhere=CONFLICTS),
    Entry("Figure 2", "peak and linear score flows of a GELU unit", elsewhere=WORKED),
    Entry("Theorem 1", "CAFE 1 underreports no conflict of a ReLU unit", "awareness", ["Theorem 1", "every other method"]),
    Entry("Theorem 2; Propositions 6 to 8", "missingness, linearity, completeness", "properties",
          [f"ticks for '{name}'" for name in ("Missingness", "Linearity", "Completeness")]),
    *of_family(MLPS, MOST, "Table 1", {"": OURS, "rate": HIGHER}),
    Entry("Table 1, OpenXAI's networks", "the levels, which can be compared on fixed networks", MLPS, ["infidelity on "]),
    *of_family(SPLIT, ONE, "Table 1", {"": OURS, "rate": HIGHER}),
    *of_family(TRANSFORMERS, "FT-Transformers", "Table 2", {"": OURS, "authors": AUTHORS}),
    *(Entry("Section on real data", f"accuracies of the networks, {name}{words}", study, ["accuracy of"], kind=kind,
            detail=bool(kind))
      for study, name in ((MLPS, MOST), (SPLIT, ONE)) for kind, words in (("", ""), ("rate", ", at a rate of 5e-4"))),
    Entry("Section on real data", "accuracies of FT-Transformers built as the authors do", TRANSFORMERS, ["accuracy of"],
          kind="authors", detail=True),
    Entry("Section on real data", "accuracies of the networks, FT-Transformers", TRANSFORMERS, ["accuracy of"]),
    Entry("Section on prevalence", "49 % of the units of MLPs are in conflict, 31 % to 80 %", "prevalence",
          ["49%", "31%", "80%"]),
    Entry("Section on prevalence", "30 % in FT-Transformers, 24 % to 37 %", "prevalence", ["30%", "24%", "37%"]),
    Entry("Figure 3 (shifts, tables)", "s_conf rises under a correlation shift, falls if a feature is missing", "shift-tabular",
          ["s_conf rises", "s_conf falls"]),
    Entry("Figure 4 (shifts, images)", "both shifts lower MaxLogit; the correlation shift raises s_conf more, the semantic one "
          "not", "shift-images", ["MaxLogit falls", "s_conf of latent features rises", "s_conf rises more", "the semantic"]),
    Entry("Figure 4", "the articles of clothing, which the paper does not name, decide the order of both shifts (ours)",
          "shift-clothes", ["which"]),
    Entry("FAQ on conflicts", "GELU(-2 - 5) shows nothing; extrema could be taken into account",
          elsewhere="core/test_extrema.py"),
    Entry("FAQ on overestimates", "ReLU(-ReLU(1 - x)): CAFE 1 gives +1 and -1", elsewhere=WORKED),
    Entry("Propositions 4, 5", "minimal conflicts of active and inactive ReLU units", "activation-conflicts", ["Propositions"]),
    Entry("Figure 5 (XNOR)", "1 / 1 for each input, 1 / 0 for the bias", elsewhere=WORKED),
    Entry("Figure 6 a (robustness)", "two inputs that differ little have scores that differ little", elsewhere=WORKED),
    Entry("Figure 6 b, c", "scores of all methods on the GELU unit", "worked-tables", ["explosion"]),
    Entry("Appendix, definitions of score flows", "the eight peak and the eight linear flows", elsewhere=TWIN),
    *(Entry("Table 3 (runtimes, MLPs)", f"{name}: CAFE takes about as long as other gradient-based methods", study,
            ["CAFE 0.5 takes"]) for study, name in ((MLPS, MOST), (SPLIT, ONE))),
    *(Entry("Table 3", f"{name}: sampling methods take more than 10 times as long as CAFE", study, ["sampling methods"])
      for study, name in ((MLPS, MOST), (SPLIT, ONE))),
    Entry("Table 4 (runtimes, FT-Transformers)", "the same", TRANSFORMERS, ["CAFE 0.5 takes", "sampling methods"]),
    Entry("Table 5 (properties)", "13 properties of six methods", "properties", ["ticks"]),
    Entry("Table 6 (trained networks)", "CAFE 1 has the lowest RMSE in all columns", "synthetic-trained",
          ["CAFE 1 has the lowest RMSE of the paper's"]),
    Entry("Table 7 (constructed networks)", "CAFE 1 is exact, and has the lowest RMSE, in all columns", "synthetic-procedural",
          ["CAFE 1 is exactly", "CAFE 1 has the lowest RMSE of the paper's", "CAFE 0 = Gradient", "RMSE within 5 %"]),
    *of_appendix({MLPS: MOST, SPLIT: ONE}, ("Table 8", "Table 9", "Table 10"), {"": OURS, "rate": HIGHER}),
    *of_appendix({TRANSFORMERS: "FT-Transformers"}, ("Table 11", "Table 12", "Table 13"), {"": OURS, "authors": AUTHORS}),
    Entry("Figure 7 (circuit)", "scores of all methods on the circuit of the paper", "worked-tables", ["circuit"]),
    Entry("Figure 7", "circuits of trained networks behave alike", "circuit", ["circuit from"]),
    Entry("Figure 8 (stacked digits)", "the three data sets of digits and clothes", elsewhere="paper/test_datasets.py"),
    Entry("Figures 9 to 12 (MIMIC)", "the bias has a part that other methods do not show", "examples-tabular",
          ["mimic:", "titanic:", "adult:"]),
    Entry("Figures 13 to 15 (images)", "CAFE 1 shows more negative pixels than CAFE 0", "examples-images",
          ["mnist:", "cifar10:", "shapes:"]),
)  # fmt: skip
HEAD = """# The paper, table by table

Written by `make claims` from the results under `studies/`, in the order of the paper; figures and tables are counted as the
paper counts them. A preset other than `full` is smaller than the paper's experiment. The verdict counts the findings of a
study that judge a claim: how many hold, how many do not, and how many our numbers leave undecided (differences below two
standard errors are ties); those that do not hold are named. `cafexai study NAME --preset PRESET` runs a study again. `mimic`
is the open demo, not the paper's data. What we claim beyond the paper is in [the evidence](evidence.md).

"""
COLUMNS = "| in the paper | claim | verdict | measured | study |\n| --- | --- | --- | --- | --- |\n"


def page(studies: Path) -> str:
    """The table of all entries, what else the same studies say, then the reasons for differences."""
    text = (ROOT / "examples" / "paper_reasons.md").read_text()
    for name, make in PARTS.items():
        text = text.replace(f"<!-- {name} -->\n", make(studies))
    return HEAD + _lines(studies, detail=False) + text


def _lines(studies: Path, detail: bool) -> str:
    return COLUMNS + "".join(_line(entry, studies) for entry in ENTRIES if entry.detail == detail)


def _line(entry: Entry, studies: Path) -> str:
    if not entry.study:
        source = f"[test](../tests/{entry.elsewhere})"
        return f"| {entry.place} | {entry.claim} | holds | exact, tested | {source} |\n"
    if not (folder := _folder(entry.study, studies)):
        command = f"`cafexai study {entry.study} --preset quick`"
        return f"| {entry.place} | {entry.claim} | not measured | | {command} |\n"
    judged = [finding for finding in _findings(folder) if entry.takes(finding)]
    if not judged:
        raise ValueError(f"{entry.place}: {folder} has no finding that begins with one of {list(entry.starts)}.")
    source = f"[{entry.study}](../studies/{folder.name}/README.md), {_size(folder)}"
    return f"| {entry.place} | {entry.claim} | {_verdict(judged)} | {_numbers(judged)} | {source} |\n"


def _folder(study: str, studies: Path) -> Path | None:
    """The results at full size, or the smaller ones. A folder without findings is not finished: it does not count."""
    folders = (studies / f"{study}-{preset}" for preset in ("full", "quick"))
    return next((folder for folder in folders if _done(folder)), None)


def _measured(study: str, studies: Path) -> Path:
    """The same for a study that has results."""
    folder = _folder(study, studies)
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
        return {True: "holds", False: "does not hold", None: "undecided"}[findings[0].holds]
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


def details(studies: Path) -> str:
    """The rows of the second table."""
    return _lines(studies, detail=True)


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
    """The presets that are at full size; those that are not, what they cost, and the command."""
    full = [name for name in STUDIES if _done(studies / f"{name}-full")]
    costs = json.loads((studies / "costs.json").read_text())
    lines = [f"At full size: {', '.join(full)}.\n\n"]
    lines.append("| study | here | full, minutes on one core | command |\n| --- | --- | --- | --- |\n")
    for name in [name for name in STUDIES if name not in full]:
        here = _size(studies / f"{name}-quick") if _done(studies / f"{name}-quick") else "no results"
        line = f"cafexai study {name} --preset full --jobs 2"
        measured = costs.get(name, {}).get("minutes")
        cost = STUDIES[name].minutes["full"] if measured is None else f"{measured:.0f} (from its parts)"
        lines.append(f"| {name} | {here} | {cost} | `{line}` |\n")
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
