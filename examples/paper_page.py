"""Write docs/paper.md: every table and figure of the paper, what the committed studies measured, and why numbers differ."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cafexai.studies import Finding

ROOT = Path(__file__).parent.parent
FAST = "as low as that of every comparably fast method, or lower"


@dataclass(frozen=True)
class Entry:
    """One table, figure or claim of the paper, and the findings of a study that judge it."""

    place: str  # in the paper
    claim: str  # of the paper, in our words
    study: str = ""
    starts: Sequence[str] = ()  # beginnings of the claims of the findings
    elsewhere: str = ""  # where it is checked, if by no study


TESTS = "tests/explain/test_worked_examples.py"
MLPS, TRANSFORMERS = "infidelity-mlp", "infidelity-ft"
ENTRIES = (
    Entry("Figure 1 a", "the heart-attack neuron: gradients give 0, CAFE shows both features", elsewhere=TESTS),
    Entry("Theorem 1", "CAFE 1 underreports no conflict of a ReLU unit", "awareness", ["Theorem 1", "every other method"]),
    Entry("Figure 2", "score flows of a GELU unit", elsewhere=TESTS),
    Entry("Table 1", "infidelity on MLPs: CAFE 0.5 is lowest of the comparably fast methods", MLPS,
          [f"infidelity of CAFE 0.5 on {name}: {FAST}"
           for name in ("compas", "heloc", "adult", "german", "titanic", "mimic", "covertype")]),
    Entry("Table 1, networks at a rate of 5e-4", "the same on networks that reach the paper's level", MLPS,
          [f"infidelity of CAFE 0.5 on {name}: {FAST}" for name in ("titanic@5e-4", "covertype@5e-4")]),
    Entry("Table 1, fixed networks", "levels and order of all methods", MLPS,
          [f"infidelity on {name} within" for name in ("compas", "heloc", "adult", "german")]),
    Entry("Table 1, Covertype", "five trainings of the largest network", "infidelity-covertype",
          [f"infidelity of CAFE 0.5 on covertype{rate}: {FAST}" for rate in ("", "@5e-4")]),
    Entry("Table 2", "infidelity on FT-Transformers", TRANSFORMERS,
          [f"infidelity of CAFE 0.5 on {name}: {FAST}"
           for name in ("compas", "heloc", "adult", "german", "titanic", "mimic", "covertype")]),
    Entry("Section on prevalence", "49 % of the units of MLPs are in conflict, 31 % to 80 %", "prevalence",
          ["49%", "31%", "80%"]),
    Entry("Section on prevalence", "30 % in FT-Transformers, 24 % to 37 %", "prevalence", ["30%", "24%", "37%"]),
    Entry("Figure on shifts, tables", "s_conf rises under a correlation shift, falls if a feature is missing", "shift-tabular",
          ["s_conf rises", "s_conf falls"]),
    Entry("Figure on shifts, images", "both shifts lower MaxLogit; the correlation shift raises s_conf more", "shift-images",
          ["MaxLogit falls", "s_conf of latent features rises", "s_conf rises more"]),
    Entry("Figure on XNOR", "1 / 1 for each input, 1 / 0 for the bias", elsewhere=TESTS),
    Entry("Figure on robustness, a", "two inputs that differ little have scores that differ little", elsewhere=TESTS),
    Entry("Figure on robustness, c", "scores of all methods on the GELU unit", "worked-tables", ["explosion"]),
    Entry("Tables of runtimes", "sampling methods take more than 10 times as long as CAFE, MLPs", MLPS, ["sampling methods"]),
    Entry("Tables of runtimes", "CAFE takes about as long as other gradient-based methods, MLPs", MLPS, ["CAFE 0.5 takes"]),
    Entry("Tables of runtimes", "the same, FT-Transformers", TRANSFORMERS, ["CAFE 0.5 takes", "sampling methods"]),
    Entry("Table of properties", "13 properties of six methods", "properties", ["ticks"]),
    Entry("Table on trained networks", "CAFE 1 has the lowest RMSE in all columns", "synthetic-trained",
          ["CAFE 1 has the lowest RMSE of the paper's"]),
    Entry("Table on constructed networks", "CAFE 1 is exact in all columns", "synthetic-procedural",
          ["CAFE 1 is exactly", "CAFE 0 = Gradient", "RMSE within 5 %"]),
    Entry("Tables of structural infidelity", "CAFE 0.5 is lowest of the comparably fast methods, MLPs", MLPS,
          ["structural infidelity of CAFE 0.5 on all data sets: as low as that of every"]),
    Entry("Tables of structural infidelity", "the same, FT-Transformers", TRANSFORMERS,
          ["structural infidelity of CAFE 0.5 on five sevenths of the data sets: as low as that of every"]),
    Entry("Tables of max-sensitivity", "CAFE 1 is lowest of the comparably fast methods, MLPs (the paper: on 5 of 7)", MLPS,
          ["max-sensitivity of CAFE 1: lowest among comparably fast methods on all data sets"]),
    Entry("Tables of max-sensitivity", "the same, FT-Transformers (the paper: on 4 of 7)", TRANSFORMERS,
          ["max-sensitivity of CAFE 1"]),
    Entry("Tables of complexity", "MLPs: about as complex as other explanations", MLPS, ["complexity of CAFE"]),
    Entry("Tables of complexity", "FT-Transformers: more complex than others", TRANSFORMERS, ["complexity of CAFE"]),
    Entry("Section on real data", "accuracies of the networks, MLPs", MLPS, ["accuracy of"]),
    Entry("Section on real data", "accuracies of the networks, FT-Transformers", TRANSFORMERS, ["accuracy of"]),
    Entry("Figure on a circuit", "scores of all methods on the circuit of the paper", "worked-tables", ["circuit"]),
    Entry("Figure on a circuit", "circuits of trained networks behave alike", "circuit", ["circuit from"]),
    Entry("Figures of tabular examples", "the bias has a part that other methods do not show", "examples-tabular",
          ["mimic:", "titanic:", "adult:"]),
    Entry("Figures of image examples", "CAFE 1 shows more negative pixels than CAFE 0", "examples-images",
          ["mnist:", "cifar10:", "shapes:"]),
)  # fmt: skip
HEAD = """# The paper, table by table

Written by `make claims` from the results under `studies/`, in the order of the paper. A preset other than `full` is smaller
than the paper's experiment. The verdict counts the findings of a study that judge a claim: how many hold, how many do not,
and how many our numbers leave undecided (differences below two standard errors are ties). `cafexai study NAME --preset PRESET`
runs a study again. `mimic` is the open demo of 93 patients, not the paper's data. What we claim beyond the paper is in
[the evidence](evidence.md).

| in the paper | claim | verdict | measured | study |
| --- | --- | --- | --- | --- |
"""
REASONS = """
## Why numbers differ

- **Rows of the last batch.** The authors' evaluation reads the scores of batch i from row i times the length of *that*
  batch. If the last batch is shorter, its rows are judged by the scores of other rows: 17.1 % of COMPAS, 9.3 % of HELOC, 28
  % of Titanic, none of German. [authors-protocol](../studies/authors-protocol-full/README.md) computes infidelity both
  ways, with the same noise.
- **Units for structural infidelity.** The authors' seed draws 26 outputs among 50 units, where half would be expected. The
  same study weights all units both ways.
- **Trained synthetic networks.** Of five networks per data set the paper explains the one with the lowest validation loss,
  and its data are drawn row by row. `synthetic-trained` does both. SmoothGrad in the last column (paper 2.26, neighbours
  4.25 to 4.27) may be a misprint for 4.26; this is a guess.
- **Learning rate.** The paper names none. At 1e-4, the rate of the authors' published code, our networks for Titanic stay
  at a quarter of the paper's infidelity and those for Covertype below its accuracy; at 5e-4 they reach both. Both rates are
  shown.
- **Semantic shift.** The paper does not name the classes of clothing that replace digits, and the verdict depends on them.
- **FT-Transformers.** Ours read [CLS], multiply one-hot blocks with their embeddings and give every token a bias. Those
  marked `@authors` read the last token, look blocks up by argmax, so that gradients are 0 there, and give blocks no bias;
  on OpenXAI's data they see the rows in a new order in every epoch.

## Where we leave the paper's protocol on purpose

| what | the paper | here | reason |
| --- | --- | --- | --- |
| rows of the last batch | misaligned | aligned | the paper's numbers for these rows are not those of the method |
| prevalence | signs of activations ignored | both counts | see [prevalence](../studies/prevalence-quick/README.md) |
| head of FT-Transformers | last token | [CLS], and `@authors` | the paper describes [CLS] |
| MIMIC-IV | credentialed data | open demo, 2000 epochs | its files may not be passed on; an epoch of the demo is one batch |
| FT-Transformers on OpenXAI's data | rows shuffled | rows in order, and `@authors` | as on the other data sets |
| slow methods | all rows | some rows, marked in each table | time |

## Choices made after a first look

Some settings were chosen after a first look at results, which the reader should know.

- `infidelity-ft`, quick: FT-Transformers trained for only 20 epochs (3000 rows) were tried first; there CAFE 0.5 was as good as
  every comparably fast method on 1 of 4 data sets (heloc). Then came the paper's 100 epochs (2000 rows, 60 test rows): it was
  so on 4 of 4, mostly ties. Then all seven data sets, up to 5000 rows to train on and up to 400 to test on: it was so on 4 of 7
  with one network each. Now there are three networks each, a number fixed beforehand by the time at hand: on 5 of 7, on none of
  them by more than two standard errors over the networks.
- `infidelity-*`: "as low as that of every comparably fast method" was first judged by the method with the lowest mean alone.
  Now no method may be lower by more than two standard errors; german (FT-Transformer) fails by this, and would not have before.
- `infidelity-mlp`, `infidelity-covertype`: the paper names no learning rate. At 1e-4, the rate of the authors' published code,
  our networks for Titanic stay at a quarter of the paper's level of infidelity, and those for Covertype below its accuracy. A
  higher rate was looked for after that: on Titanic the levels of all methods come nearest to the paper's at 5e-4 (Gradient x
  Input 1.1, 2.6, 5.0 and 13.4 at 1e-4, 3e-4, 5e-4 and 1e-3; paper 4.9; 450 epochs at 1e-4 reach it too). Covertype was then
  trained at 5e-4 and at no other rate: its levels, which had no part in the choice, come within 6 % of the paper's under the
  small perturbation and within 12 % under the large one. Both rates are shown; which one the authors used, we do not know.
- How faithful CAFE 0.5 is beside other fast methods depends on how far a network is trained. On Covertype methods that use
  gradients have the lower infidelity at an accuracy of 74 and 78 % (`infidelity-covertype`, quick) and at 94.3 % (full, 1e-4),
  CAFE 0.5 at 95.2 % (full, 5e-4); on Titanic it is alike.
- `shift-images`, quick: s_conf rose more under the correlation shift than under the semantic one in 1 of 4 networks with 600
  images and 3 epochs, the first preset, and in 2 of 4 with all images and 4 epochs. The preset now has all of the paper's 25
  epochs and one seed instead of five. Its networks were trained anew, on another machine, when rows of unit netting were added:
  it was so in 1 of 4 before and is in 2 of 4 now; as a share of all influence, s_conf was highest under the correlation shift
  in 3 of 4 and is in 4 of 4 now, in two of them by less than .003.
- `prevalence`, quick: with 5000 rows for the MLPs and 10 epochs for the FT-Transformers, the first preset, the lowest share of
  the MLPs was 13.9 % (covertype), and FT-Transformers had 42.6 % with signs. MLPs are now trained as in the paper,
  FT-Transformers on at most 5000 rows for 100 epochs.
- `synthetic-trained`: of five networks per data set the one with the lowest validation loss at its last epoch is explained, and
  data are drawn row by row, as the authors do. Before, all five were averaged, and data were drawn in blocks: CAFE 1 had 0.80,
  0.64, 0.69, 0.90 (ReLU) and 0.79, 0.77, 0.99, 0.90 (GELU) in 2 to 5 dimensions.
- `infidelity-deep`: biases in the reference with c = 0.5 at the first activation was chosen among some twenty variants (c by
  layer, several steps between baseline and input, RevealCancel's rule with feature netting) by their infidelity on one or two
  networks for each of the same data sets. The study has further networks, but its numbers for that variant flatter it a little.
- `circuit`: only units without a positive bias are considered. A unit that is active at the reference and switched off by
  features is partly seen by DeepLIFT Rescale and Integrated Gradients (71 % of the effect in one that we met).
- `depth-ft`, quick: its networks were trained anew, with the same settings on another machine, when rows of unit netting were
  added. Rounding is enough for 100 epochs to end elsewhere: positive scores with feature netting were 45.5 times the output on
  HELOC, within the limit of the claim, and are 51.2 times now; infidelity was as low as with path netting in 7 of 16 cases, now
  in 2.
- `properties`: implementation invariance is tested on three pairs of equal functions; the first pair alone showed no difference
  for LRP and DeepLIFT RevealCancel.
- The MLPs for the MIMIC demo are trained for 2000 epochs instead of 100 (not in `prevalence`), because an epoch is a single
  batch there. Its test set has 10 patients.

Results of `examples-tabular`, `examples-images` and `circuit` hold scores, maps and names, but no values of rows and no
pictures of data sets, which are not ours to pass on; `--set show_data=true` shows them. HELOC is not among them: its terms
are not open, and with OpenXAI's public weights the scores of a row would tell the row. `cafexai study list` says how long
presets take that are missing here. Runtimes were taken on one thread of a machine that did other work at the same time, and
say little about single methods.
"""


def page(studies: Path) -> str:
    """The table of all entries, then the reasons for differences."""
    return HEAD + "".join(_line(entry, studies) for entry in ENTRIES) + REASONS


def _line(entry: Entry, studies: Path) -> str:
    if not entry.study:
        source = f"[test](../{entry.elsewhere})"
        return f"| {entry.place} | {entry.claim} | holds | exact numbers, tested | {source} |\n"
    folder = next(
        path for preset in ("full", "quick") if (path := studies / f"{entry.study}-{preset}" / "findings.json").exists()
    )
    findings = [Finding(**one) for one in json.loads(folder.read_text())]
    judged = [finding for finding in findings if finding.claim.startswith(tuple(entry.starts))]
    if not judged:
        raise ValueError(f"{entry.place}: {folder} has no finding that begins with one of {list(entry.starts)}.")
    config = json.loads((folder.parent / "config.json").read_text())
    seeds = config["settings"].get("seeds")
    drawn = f", {len(seeds)} seeds" if isinstance(seeds, list) else ""
    source = f"[{entry.study}](../studies/{folder.parent.name}/README.md), {config['preset']}{drawn}"
    return f"| {entry.place} | {entry.claim} | {_verdict(judged)} | {_numbers(judged)} | {source} |\n"


def _verdict(findings: Sequence[Finding]) -> str:
    if len({finding.holds for finding in findings}) == 1:
        return {True: "holds", False: "does not hold", None: "undecided"}[findings[0].holds]
    counts = [
        (sum(one.holds is kind for one in findings), word) for kind, word in ((True, "hold"), (False, "not"), (None, "open"))
    ]
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _numbers(findings: Sequence[Finding]) -> str:
    """The first sentence of numbers; that of a finding that does not hold, if there is one."""
    shown = next((finding for finding in findings if finding.holds is not True), findings[0])
    about = f"{shown.claim.partition(':')[0]}: " if len(findings) > 1 else ""
    return (about + shown.numbers.partition(". ")[0].rstrip(".")).replace("|", "/")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "paper.md"
    target.write_text(page(ROOT / "studies"))
