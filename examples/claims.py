"""Write docs/claims.md from the findings that the committed studies left in studies/*/."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cafexai.studies import STUDIES, Finding

ROOT = Path(__file__).parent.parent
VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}
HEAD = """# The paper's claims in our numbers

Written by `make claims` from `studies/*/findings.json`; each folder holds the settings, the numbers of every run, tables and
figures behind it, and `cafexai study NAME --preset PRESET` makes it anew. A preset other than `full` is smaller than the
paper's experiment (fewer rows, seeds or epochs). "As low as ..., or lower" counts differences below two standard errors as
ties; "undecided" says that our numbers cannot tell. `mimic` is the open demo of 93 patients, not the paper's data;
`titanic@5e-4` and `covertype@5e-4` are networks trained at a learning rate of 5e-4 instead of 1e-4. FT-Transformers marked
`@authors` read the last token and look one-hot blocks up by argmax, as the authors' code does (gradients are 0 there); the
others read [CLS] and multiply blocks by their embeddings.

Some settings were chosen after a first look at results, which the reader should know:

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
pictures of data sets, which are not ours to pass on; `--set show_data=true` shows them. HELOC is not among them: its terms are
not open, and with OpenXAI's public weights the scores of a row would tell the row. Full presets that are missing here take
more than two hours (`cafexai study list` says how long), but that of `examples-tabular`, which needs the credentialed files of
MIMIC-IV. Runtimes were taken on one thread of a machine that did other work at the same time, and say little about single
methods.
"""


PERCEPTRONS = ("compas", "heloc", "adult", "german", "titanic", "titanic@5e-4")
FAST = "as low as that of every comparably fast method, or lower"
# What the paper is about, before all the rest: study, preset and the beginning of a claim.
MAIN = (
    ("synthetic-procedural", "full", "CAFE 1 is exactly 0.00 in all columns"),
    ("synthetic-trained", "full", "CAFE 1 has the lowest RMSE of the paper's methods in all columns"),
    ("awareness", "full", "Theorem 1"),
    ("circuit", "full", "circuit from mimic: CAFE 1 shows the cancelled effect in full"),
    ("properties", "full", "ticks for 'Local conflict awareness for ReLU' as in the paper"),
    ("prevalence", "quick", "49% of the units of MLPs are in conflict on average"),
    ("prevalence", "quick", "30% of the units of FT-Transformers are in conflict on average"),
    *(("infidelity-mlp", "quick", f"infidelity of CAFE 0.5 on {name}: {FAST}") for name in PERCEPTRONS),
    *(("infidelity-covertype", "full", f"infidelity of CAFE 0.5 on covertype{rate}: {FAST}") for rate in ("", "@5e-4")),
    ("infidelity-ft", "quick", f"infidelity of CAFE 0.5 on five sevenths of the data sets: {FAST}"),
    ("shift-tabular", "full", "s_conf rises under correlation shift"),
    ("shift-tabular", "full", "s_conf falls under missing feature"),
    ("shift-images", "quick", "MaxLogit falls under both shifts"),
    ("shift-images", "quick", "s_conf of latent features rises under the correlation shift"),
    ("shift-images", "quick", "s_conf rises more under the correlation shift than under the semantic one"),
)


def page(studies: Path) -> str:
    """The main claims, a table of all studies, and one section per folder with results."""
    folders = sorted(studies.glob("*/findings.json"), key=lambda path: (_place(path), path.parent.name))
    rows, sections, found = [], [], {}
    for path in folders:
        config = json.loads((path.parent / "config.json").read_text())
        findings = [Finding(**entry) for entry in json.loads(path.read_text())]
        name, preset = config["study"], config["preset"]
        found[name, preset] = findings
        counts = [sum(finding.holds is verdict for finding in findings) for verdict in VERDICTS]
        rows.append(f"| [{name}](../studies/{path.parent.name}/README.md) | {preset} | {' | '.join(map(str, counts))} |")
        title = STUDIES[name].title if name in STUDIES else name
        sections += [f"## {name}, {preset}", "", f"{title[0].upper()}{title[1:]}.", "", *map(str, findings), ""]
    table = ["| study | preset | holds | does not hold | undecided |", "| --- | --- | --- | --- | --- |", *rows, ""]
    main = [_short(name, preset, start, found[name, preset]) for name, preset, start in MAIN]
    return "\n".join([HEAD, "## The main claims", "", *main, "", "## All studies", "", *table, *sections])


def _short(name: str, preset: str, start: str, findings: list[Finding]) -> str:
    """One finding with the first of its numbers."""
    (finding,) = (finding for finding in findings if finding.claim.startswith(start))
    numbers = finding.numbers.split(". ")[0].rstrip(".")
    return f"- **{VERDICTS[finding.holds]}**: {finding.claim}. {numbers} ({name}, {preset})."


def _place(path: Path) -> int:
    """In the order of ``cafexai study list``; what is no longer in it comes last."""
    name = json.loads((path.parent / "config.json").read_text())["study"]
    return list(STUDIES).index(name) if name in STUDIES else len(STUDIES)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "claims.md"
    target.write_text(page(ROOT / "studies"))
