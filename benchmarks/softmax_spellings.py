"""What the recognition of more spellings of a softmax changed: scores of one attention model in two trees, by spelling.

Usage: python benchmarks/softmax_spellings.py OLD_TREE > benchmarks/results/softmax_spellings.md

Every option is named, and attention is frozen, as the old tree knows no other. The spellings are those of
``tests/rules/test_softmax_spellings.py``. "Difference" is the largest difference of a positive or negative score between the
trees, as a share of the largest score of the old one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPTIONS = {
    "published": {"netting": "path", "flows": "peak", "biases": "scores", "norms": "frozen", "norm_mean": "bias"},
    "unit": {"netting": "unit", "flows": "mean", "biases": "reference", "norms": "open", "norm_mean": "bias"},
}
WORKER = """
import inspect, json, sys, torch
sys.path.insert(0, {tests!r})
from rules.test_softmax_spellings import SPELLINGS, Attention
import cafexai
frozen = {{"attention": "frozen"}} if hasattr(cafexai, "Variant") else {{}}
x = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
found = {{}}
for name, spelling in SPELLINGS.items():
    for base, options in {options!r}.items():
        e = cafexai.CAFE(Attention(spelling), 0.5, **options, **frozen).explain(x, None, 1)
        scores = torch.stack([e.positive, e.negative]).flatten().tolist()
        found[name + "/" + base] = [any("softmax" in line for line in e.frozen), scores]
print(json.dumps(found))
"""


def scores_of(tree: Path) -> dict[str, tuple[bool, list[float]]]:
    """By spelling and options: whether a softmax was recognised, and all scores."""
    code = WORKER.format(tests=str(ROOT / "tests"), options=OPTIONS)
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "CAFEXAI_COMPILE": "never"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    return {name: tuple(found) for name, found in json.loads(done.stdout.splitlines()[-1]).items()}  # type: ignore[misc]


def difference(before: list[float], after: list[float]) -> str:
    """The largest difference as a share of the largest score."""
    largest = max(abs(one - other) for one, other in zip(before, after, strict=True)) / max(map(abs, before))
    return "0" if largest == 0 else f"{largest:.1e}" if largest < 1e-4 else f"{largest:.3f}"


def main() -> None:
    """Print the table."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    before, after = scores_of(Path(sys.argv[1])), scores_of(ROOT)
    print(__doc__.split("\n", maxsplit=1)[0].removesuffix("."), "(`benchmarks/softmax_spellings.py`).\n")
    print("| spelling | recognised before | now | difference, published | difference, unit |\n| --- | --- | --- | --- | --- |")
    for name in dict.fromkeys(key.rpartition("/")[0] for key in after):
        keys = [f"{name}/{base}" for base in OPTIONS]
        known = ["yes" if tree[keys[0]][0] else "no" for tree in (before, after)]
        shares = [difference(before[key][1], after[key][1]) for key in keys]
        print(f"| `{name}` | {' | '.join(known)} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
