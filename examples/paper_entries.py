"""What docs/paper.md judges: the tables, figures and sentences of the paper in its order, and the findings that judge them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cafexai.paper.studies import Finding

FAST = "as low as that of every comparably fast method, or lower"
KINDS = {"rate": ("@5e-4", "at a rate of"), "authors": ("@authors", "built as the authors do")}  # of networks, in claims
RIVALS = {"that of Integrated Gradients, or lower": "Integrated Gradients", "the sampling methods, or lower": "slow methods"}


@dataclass(frozen=True)
class Entry:
    """A claim of the paper, in our words, and the findings of a study that judge it."""

    claim: str
    study: str = ""
    starts: Sequence[str] = ()  # beginnings of the claims of the findings
    label: str = ""  # what it is about, in the first table
    elsewhere: str = ""  # the test that checks it, if no study does
    kind: str = ""  # of the networks: see KINDS; "" for the usual ones
    ends: str = ""  # how the claims end
    detail: bool = False  # left out of the first table
    better: bool = False  # the paper says "better", not "as good": a tie is undecided
    preset: str = ""  # which results; "" takes the largest

    def takes(self, finding: Finding) -> bool:
        """Whether a finding of the study judges this entry."""
        kind = next((kind for kind, words in KINDS.items() if any(word in finding.claim for word in words)), "")
        return kind == self.kind and finding.claim.startswith(tuple(self.starts)) and finding.claim.endswith(self.ends)


@dataclass(frozen=True)
class Line:
    """A line of the first table: a place in the paper, what it says there, and the entries that judge it."""

    place: str
    says: str
    entries: tuple[Entry, ...]


class Networks(NamedTuple):
    """Networks that one study explains."""

    study: str
    kind: str
    name: str
    label: str


MLPS, TRANSFORMERS, SPLIT = "infidelity-mlp", "infidelity-ft", "infidelity-covertype"  # Covertype has a study of its own
PERCEPTRONS = (
    Networks(MLPS, "", "MLPs but for Covertype", "six data sets"),
    Networks(MLPS, "rate", "MLPs for Titanic at a rate of 5e-4", "Titanic at 5e-4"),
    Networks(SPLIT, "", "MLPs for Covertype", "Covertype"),
    Networks(SPLIT, "rate", "MLPs for Covertype at a rate of 5e-4", "Covertype at 5e-4"),
)
BLOCKS = (
    Networks(TRANSFORMERS, "", "FT-Transformers", ""),
    Networks(TRANSFORMERS, "authors", "FT-Transformers as the authors build them", "as the authors build them"),
)


def infidelity(networks: Iterable[Networks], better: bool = False) -> Iterable[Entry]:
    """Tables 1 and 2."""
    for study, kind, name, label in networks:
        claim, starts = f"infidelity, {name}: CAFE 0.5 is as low as", ["infidelity of CAFE 0.5 on "]
        fast, whole = (
            f"{claim} every comparably fast method",
            [f"{starts[0]}{where}" for where in ("all data", "five sevenths")],
        )
        yield Entry(fast, study, whole, label, kind=kind, ends=FAST, better=better)
        yield Entry(f"{fast}, by data set", study, starts, kind=kind, ends=FAST, detail=True)
        for rivals, they in RIVALS.items():
            yield Entry(f"{claim} {they}", study, starts, kind=kind, ends=rivals, detail=True)
        order = f"infidelity, {name}: the order of the methods, by data set"
        yield Entry(order, study, ["methods in the paper's order"], kind=kind, detail=True)


def structural(networks: Iterable[Networks]) -> Iterable[Entry]:
    """Tables 8 and 11."""
    for study, kind, name, label in networks:
        claim, starts = f"structural infidelity, {name}: CAFE 0.5 is as low as", ["structural infidelity of CAFE 0.5"]
        yield Entry(f"{claim} every comparably fast method", study, starts, label, kind=kind, ends=FAST, better=True)
        for rivals, they in RIVALS.items():
            yield Entry(f"{claim} {they}", study, starts, kind=kind, ends=rivals, detail=True)


def each(networks: Iterable[Networks], claim: str, starts: str) -> Iterable[Entry]:
    """The same claim of all networks."""
    return (Entry(claim.format(name), study, [starts], label, kind=kind) for study, kind, name, label in networks)


def tested(place: str, says: str, test: str) -> Line:
    """Worked examples and propositions, which tests check exactly."""
    return Line(place, says, (Entry(says, elsewhere=test),))


def simple(study: str, *parts: tuple[str, str, str]) -> tuple[Entry, ...]:
    """An entry for each claim of one study: what it is about, the claim, and how the findings begin."""
    return tuple(Entry(claim, study, [starts], label) for label, claim, starts in parts)


WORKED, CONFLICTS, TWIN = "explain/test_worked_examples.py", "conflicts/test_conflicts.py", "rules/test_rules.py"
SENSITIVE, COMPLEX = "max-sensitivity, {}: CAFE 1 is lowest of the comparably fast methods", "complexity, {}: CAFE 0.5 is "
OF_TEXT = (*PERCEPTRONS, BLOCKS[0]._replace(label="FT-Transformers"), BLOCKS[1])
ALL_IN_ONE = (PERCEPTRONS[0], PERCEPTRONS[2], OF_TEXT[-2])  # findings about all networks of a study

LINES = (
    Line("Figure 1", "gradients hide both features of a heart-attack neuron, CAFE does not; conflicts change when data shift", (
        Entry("gradients give 0 to both features of the heart-attack neuron, CAFE does not", label="neuron", elsewhere=WORKED),
        *simple("shift-tabular", ("shift", "conflicts rise under a correlation shift", "s_conf rises")))),
    tested("Propositions 1 to 3", "conflicts are symmetric; minimal ones of linear models are pairs of opposite sign",
           CONFLICTS),
    Line("Figure 2, appendix on score flows", "peak and linear score flows", (
        Entry("flows of a GELU unit", label="of a GELU unit", elsewhere=WORKED),
        Entry("the eight peak and the eight linear flows", label="all sixteen", elsewhere=TWIN))),
    Line("Theorem 1", "CAFE 1 underreports no conflict of a ReLU unit; other methods do", simple(
        "awareness", ("CAFE 1", "CAFE 1 underreports no conflict of a ReLU unit", "Theorem 1"),
        ("other methods", "every other method underreports some", "every other method"))),
    Line("Theorem 2, Propositions 6 to 8", "missingness, linearity, completeness", (
        Entry("missingness, linearity, completeness", "properties",
              [f"ticks for '{name}'" for name in ("Missingness", "Linearity", "Completeness")]),)),
    Line("Table 1", "infidelity, MLPs: CAFE 0.5 outperforms or matches all comparably fast methods", (
        *infidelity(PERCEPTRONS),
        Entry("infidelity, OpenXAI's networks: the levels, which can be compared on fixed networks", MLPS, ["infidelity on "],
              detail=True))),
    Line("Table 2", "infidelity, FT-Transformers: CAFE 0.5 outperforms fast methods on 5 of 7 data sets",
         tuple(infidelity(BLOCKS, better=True))),
    Line("Section on real data", "CAFE 0.5 has a lower infidelity than CAFE 1", tuple(
        each(OF_TEXT, "infidelity, {}: CAFE 0.5 is below CAFE 1", "infidelity: CAFE 0.5 below CAFE 1"))),
    Line("Section on real data", "accuracies of the networks (held if within 0.03)",
         tuple(each(OF_TEXT, "accuracies of {}", "accuracy of"))),
    Line("Section on prevalence", "49 % of the units of MLPs and 30 % of those of FT-Transformers are in conflict", (
        *simple("prevalence", ("MLPs", "49 % of the units of MLPs are in conflict", "49%"),
                ("FT-Transformers", "30 % of the units of FT-Transformers are in conflict", "30%")),
        Entry("MLPs: 31 % (MIMIC-IV) to 80 % (HELOC)", "prevalence", ["31%", "80%"], detail=True),
        Entry("FT-Transformers: 24 % (HELOC) to 37 % (Covertype)", "prevalence", ["24%", "37%"], detail=True))),
    Line("Figure 3 (shifts, tables)", "s_conf rises under a correlation shift and falls if a feature is missing", simple(
        "shift-tabular", ("rises", "s_conf rises under a correlation shift", "s_conf rises"),
        ("falls", "s_conf falls if a feature is missing", "s_conf falls"))),
    Line("Figure 4 (shifts, images)", "both shifts lower MaxLogit; the correlation shift raises s_conf more than the other", (
        *simple("shift-images", ("MaxLogit falls", "both shifts lower MaxLogit", "MaxLogit falls"),
                ("correlation raises s_conf", "the correlation shift raises s_conf", "s_conf of latent features rises"),
                ("more than semantic", "the correlation shift raises s_conf more than the semantic one", "s_conf rises more"),
                ("semantic does not raise it", "the semantic shift does not raise s_conf", "the semantic")),
        Entry("the articles of clothing, which the paper does not name, decide the order of both shifts (ours)",
              "shift-clothes", ["which"], detail=True))),
    Line("FAQ", "GELU(-2 - 5) shows no conflict; ReLU(-ReLU(1 - x)) has the scores +1 and -1", (
        Entry("GELU(-2 - 5) shows nothing; extrema could be included", label="GELU", elsewhere="core/test_extrema.py"),
        Entry("ReLU(-ReLU(1 - x)): CAFE 1 gives +1 and -1", label="ReLU", elsewhere=WORKED))),
    Line("Propositions 4, 5", "minimal conflicts of active and inactive ReLU units", simple(
        "activation-conflicts", ("", "minimal conflicts of active and inactive ReLU units", "Propositions"))),
    tested("Figure 5 (XNOR)", "1 / 1 for each input, 1 / 0 for the bias", WORKED),
    Line("Figure 6", "scores do not jump between two inputs that differ little, nor explode on a GELU unit", (
        Entry("two inputs that differ little have scores that differ little", label="a", elsewhere=WORKED),
        *simple("worked-tables", ("b, c", "scores of all methods on the GELU unit", "explosion")))),
    Line("Tables 3 and 4 (runtimes)", "CAFE takes about as long as gradient-based methods (held if below 5 x DeepLIFT)", tuple(
        each(ALL_IN_ONE, "{}: CAFE 0.5 takes less than five times as long as DeepLIFT Rescale", "CAFE 0.5 takes"))),
    Line("Tables 3 and 4 (hourglasses)", "sampling methods take more than ten times as long as CAFE", tuple(
        each(ALL_IN_ONE, "{}: sampling methods take more than 10 times as long as CAFE", "sampling methods"))),
    Line("Table 5 (properties)", "13 properties of six methods", simple(
        "properties", ("", "13 properties of six methods", "ticks"))),
    Line("Table 6 (trained networks)", "CAFE 1 has the lowest RMSE in all columns", simple(
        "synthetic-trained", ("", "CAFE 1 has the lowest RMSE in all columns", "CAFE 1 has the lowest RMSE of the paper's"))),
    Line("Table 7 (constructed networks)", "CAFE 1 is exact, and has the lowest RMSE, in all columns", (
        *simple("synthetic-procedural", ("exact", "CAFE 1 is exact", "CAFE 1 is exactly"),
                ("lowest", "CAFE 1 has the lowest RMSE", "CAFE 1 has the lowest RMSE of the paper's")),
        Entry("CAFE 0, Gradient x Input, DeepLIFT and Integrated Gradients are the same", "synthetic-procedural",
              ["CAFE 0 = Gradient"], detail=True),
        Entry("the levels", "synthetic-procedural", ["RMSE within 5 %"], detail=True))),
    Line("Table 8", "structural infidelity, MLPs: CAFE 0.5 is best overall", tuple(structural(PERCEPTRONS))),
    Line("Table 9", "max-sensitivity, MLPs: CAFE 1 is lowest of the fast methods",
         tuple(each(PERCEPTRONS, f"{SENSITIVE} on all data sets", "max-sensitivity"))),
    Line("Table 10", "complexity, MLPs: CAFE is about as complex as other methods",
         tuple(each(PERCEPTRONS, f"{COMPLEX}about as complex as other explanations", "complexity of CAFE"))),
    Line("Table 11", "structural infidelity, FT-Transformers: CAFE 0.5 is best overall", tuple(structural(BLOCKS))),
    Line("Table 12", "max-sensitivity, FT-Transformers: CAFE 0.5 and CAFE 1 are lowest on 4 of 7 data sets", tuple(
        dataclasses.replace(entry, label=f"CAFE {c}{', ' * bool(entry.label)}{entry.label}")
        for c in ("1", "0.5")
        for entry in each(BLOCKS, f"{SENSITIVE.replace('1', c)} on 4 of 7 data sets", f"max-sensitivity of CAFE {c}:"))),
    Line("Table 13", "complexity, FT-Transformers: CAFE is more complex than other methods",
         tuple(each(BLOCKS, f"{COMPLEX}more complex than other explanations", "complexity of CAFE"))),
    Line("Figure 7 (circuit)", "scores of all methods on a circuit of a MIMIC-IV network", (
        *simple("worked-tables", ("the paper's circuit", "scores of all methods on the circuit of the paper", "circuit")),
        *(Entry(f"circuits of a trained network ({name}) behave alike", "circuit", [f"circuit from {name}"], f"ours, {name}")
          for name in ("mimic", "titanic", "adult")))),
    tested("Figure 8 (stacked digits)", "three sets of digits and clothes", "paper/test_datasets.py"),
    Line("Figures 9 to 12 (MIMIC-IV)", "in explained rows the bias has a part that other methods do not show", tuple(
        Entry(f"{name}: the bias has a part that other methods do not show", "examples-tabular", [f"{name}:"], name)
        for name in ("mimic", "titanic", "adult"))),
    Line("Figures 13 to 15 (images)", "CAFE 1 shows more negative pixels than CAFE 0", tuple(
        Entry(f"{name}: CAFE 1 shows more negative pixels than CAFE 0", "examples-images", [f"{name}:"], name)
        for name in ("mnist", "cifar10", "shapes"))),
)  # fmt: skip
ENTRIES = tuple(itertools.chain.from_iterable(line.entries for line in LINES))
