"""Write docs/evidence.md from what the committed studies of the truth on deep models left in studies/*/."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cafexai.studies import STUDIES, Finding, Table

ROOT = Path(__file__).parent.parent
PRESETS = ("full", "quick")  # the larger one that has these tables is shown
SHOWN = {  # the tables of each study that the page repeats; the others are in its folder
    "truth-text": (
        "networks",
        "occlusion-correlation",
        "sign-agreement",
        "shapley-correlation",
        "shapley-rmse",
        "short-correlation",
        "seconds",
    ),
    "truth-vit": ("networks", "occlusion-correlation", "shapley-correlation", "shapley-rmse", "deletion-as-is", "seconds"),
    "truth-images": (
        "networks",
        "occlusion-correlation",
        "deletion",
        "insertion",
        "deletion-as-is",
        "insertion-as-is",
        "sign-agreement",
        "comprehensiveness",
    ),
    "truth-tables": (
        "networks",
        "losses",
        "infidelity-as-is",
        "infidelity-as-is-standardised",
        "infidelity",
        "infidelity-standardised",
        "occlusion-correlation",
        "shapley-correlation",
        "shapley-top",
        "seconds",
    ),
    "truth-ft": ("networks", "infidelity-as-is", "infidelity", "occlusion-correlation", "shapley-correlation", "seconds"),
    "depth": ("trained-plain-combined", "trained-residual-combined", "trained-residual-rmse"),
    "depth-blocks": ("blocks-compas",),
    "synthetic-deep": ("deep-rmse", "deep-shown"),
}
SUMMARY = """# The evidence behind the default

Is the default, `CAFE(model)`, as good as it should be? Each study judges claims by its numbers. This table counts them: how
many hold, how many do not, and how many the numbers leave undecided.

{rows}
What it gains and loses beside the published method is in
[the default](default.md#gains-and-losses-beside-the-published-method). Three pages have other evidence:
[the paper, table by table](paper.md), [public models](zoo.md), and [networks with known truth](units.md).

**Three things it does not do.** It underreports conflicts of single units ([audit](conflicts.md)). It shows nothing of what
cancels fully deep inside. Its correlation with masking single words stays below 0.8. The findings are below, with all numbers.

## How this was measured
"""
HEAD = """Written by
`make claims` from the results in `studies/`, measured in November 2026 on two cores that did other work at the
same time (runtimes say little); `cafexai study NAME --preset PRESET` makes them anew. The default, `CAFE(model)`, is unit
netting with mean flows, biases in the reference, open norms and open attention, at c = 0.5. All rows are held out from
training.

How to read it: "holds" says that the mean reaches what is claimed on every network, "does not hold" that it is missed by more
than two standard errors on at least one, "undecided" all between. The studies of texts, images and tables have five seeds where
networks are trained (preset `full`), `truth-vit` and `truth-ft` three, the tuned encoder one. Where one network is explained,
the standard error is over its rows and does not know how another training would turn out.

GIM, AttnLRP and CP-LRP are rules for attention weights, norms and activations. They are in the tables of networks with
attention: `truth-text`, `truth-vit` and `truth-ft`. The networks of `truth-tables` and `truth-images` have no attention; on a
ReLU network without norms all three are the gradient times the change of the input.

What removing a feature shows depends on what stands in its place; here it is the baseline of the scores: zeros, for text
the mask token, for standardised columns the mean row. On texts the first and the last token stay in every comparison. Shapley
values answer another question than removing single features; they are exact for columns (at most 13 features) and for
short sentences, and means over pairs of an order and its reverse for the cells of images. How much can be asked of a method
that shares out f(x) - f(baseline) is seen where exact Shapley values themselves are held against masking. Deletion
and insertion are measured in units of the distance between the output and that of an empty image, which is near 0 for some
images of small networks: their large errors come from there. Comprehensiveness and sufficiency are in units of the logit.

What the reader should know of how it came about: the default was chosen with throw-away code on other trainings of networks
of these kinds (other seeds, but the same data sets and mostly the same first test rows; networks with given weights are the
same ones), not on the numbers below; presets were cut down for the machine at hand before any of their numbers were seen
(fewer sentences, images and photographs than first planned). The networks are trained
briefly (see accuracies); the LSTM has learnt little on covertype. The results of `truth-images` were measured before attention
was open. Its networks have neither attention nor layer norms; two of them, measured again, had the same numbers to the bit.
FT-Transformers in `depth-blocks` were first trained on
1000 rows for 5 epochs, all of them ending at the larger class; there the default had at most 1.08 times the size of
Integrated Gradients.

What it does not do, the last section says: where features cancel fully at one unit and further layers follow, unit netting
passes nothing on, as DeepLIFT and Integrated Gradients do; the published method at c = 1 shows all of it at any depth. To look
for hidden conflicts in a deep network take `CAFE.published(model, c=1)`, or feature netting, and do not read the size of these
scores as an effect.
"""


def page(studies: Path) -> str:
    """The head, and per study that was run its size, its findings and some of its tables."""
    parts, rows = [HEAD], ["| study | question | holds | does not | undecided |\n| --- | --- | --- | --- | --- |\n"]
    for name, tables in SHOWN.items():
        sections = (_section(studies / f"{name}-{preset}", tables) for preset in PRESETS)
        found = next((section for section in sections if section), None)
        if found is not None:
            parts += found[1]
            rows.append(found[0])
    return "\n".join([SUMMARY.format(rows="".join(rows)), *parts])


def _summary_line(name: str, title: str, findings: list[Finding]) -> str:
    """A study in one line: how many of its claims hold, do not hold, and are undecided."""
    counts = [sum(finding.holds is verdict for finding in findings) for verdict in (True, False, None)]
    return f"| [{name}](#{name}) | {title.split(' (ours)')[0]} | {' | '.join(map(str, counts))} |\n"


def _section(folder: Path, names: tuple[str, ...]) -> tuple[str, list[str]] | None:
    """The line of the summary and what a folder says; None if it is not there, not finished, or lacks one of the tables."""
    if not (folder / "results.json").exists():
        return None
    config = json.loads((folder / "config.json").read_text())
    study, settings = STUDIES[config["study"]], config["settings"]
    report = study.report(settings, json.loads((folder / "results.json").read_text()))
    sizes = ", ".join(f"{key} {value}" for key, value in settings.items() if key not in ("methods", "networks"))
    tables: dict[str, Table] = {table.name: table for table in report.tables}
    findings: list[Finding] = list(report.findings)
    if not set(names) <= set(tables):
        return None
    return _summary_line(study.name, study.title, findings), [
        f"## {study.name}\n",
        f"{study.title[0].upper()}{study.title[1:]}. Preset `{config['preset']}`: {sizes}. "
        f"[All tables](../studies/{folder.name}/README.md).\n",
        *map(str, findings),
        "",
        *(tables[name].to_markdown() for name in names),
    ]


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "evidence.md"
    target.write_text(page(ROOT / "studies"))
