"""Audit attribution methods on the units of the demo's network and write docs/conflicts.md."""

from __future__ import annotations

import functools
import sys
import warnings
from pathlib import Path

from demo import load, train

from cafexai.conflicts import audit, conflict_map, prevalence
from cafexai.methods import METHODS

AUDITED = {
    "CAFE as published, c = 1": functools.partial(METHODS["cafe_published"], c=1.0),
    "CAFE as published, c = 0.5": functools.partial(METHODS["cafe_published"], c=0.5),
    "CAFE as published, c = 0": functools.partial(METHODS["cafe_published"], c=0.0),
    "CAFE, default variant": METHODS["cafe"],
    "gradient x input": METHODS["gradient_x_input"],
    "LRP": METHODS["lrp"],
    "DeepLIFT Rescale": METHODS["deeplift_rescale"],
    "DeepLIFT RevealCancel": METHODS["deeplift_revealcancel"],
    "Integrated Gradients": METHODS["integrated_gradients"],
    "GradientSHAP": METHODS["gradient_shap"],
    "SmoothGrad": METHODS["smoothgrad"],
    "KernelSHAP": METHODS["kernel_shap"],
    "LIME": METHODS["lime"],
    "bias back-propagation": METHODS["bias_backpropagation"],
}


def main(path: Path) -> None:
    warnings.simplefilter("ignore")
    (x_train, x_test, y_train, _), names = load()
    mean, spread = x_train.mean(0), x_train.std(0)
    model = train((x_train - mean) / spread, y_train)
    rows = (x_test - mean) / spread
    lines = []
    for name, method in AUDITED.items():
        result = audit(method, model, rows)
        share = result.underreported / result.conflicts
        lines.append(
            f"| {name} | {result.conflicts} | {result.underreported} ({share:.1%}) | {result.hidden} | {result.undecided} |"
        )
    common = prevalence(model, rows)
    chart = conflict_map(model, rows[112], feature_names=names)
    pairs = "\n".join(f"| {one} | {two} | {size:.3f} |" for one, two, size in chart.top(5))
    table = "\n".join(lines)
    path.write_text(f"""# Conflicts in a real model

The network of `make demo` (30-32-16-1, ReLU, trained on the breast-cancer data of scikit-learn), {len(rows)} test rows.
Written by `python examples/conflicts.py`.

## Which methods report the conflicts of single units?

Each ReLU unit by itself, its inputs and its bias being the features: in how many cases (row, unit, counteracted input) is the
score smaller than the largest magnitude of a minimal conflict, or of the wrong sign (underreported), or 0 or of the wrong
sign (hidden)?

| method | conflicts | underreported | hidden | undecided |
| --- | --- | --- | --- | --- |
{table}

The published CAFE with c = 1 reports every one of them, as Theorem 1 of the paper says for ReLU units and a zero reference.

## How common are they?

A unit is inactive although positive and negative inputs arrive in {common.overall:.1%} of all rows and units
({", ".join(f"{share:.1%} in layer {name}" for name, share in common.by_layer.items())}).

## Who cancels whom in one prediction?

The strongest input-output conflicts between single measurements of test row 112, which the demo explains
(`conflict_map`, Definition 4 of the paper):

| measurement | against | magnitude |
| --- | --- | --- |
{pairs}
""")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "conflicts.md")
