"""What the README promises: its code runs, and so does the demo."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def as_a_reader(tmp_path, monkeypatch, shipped_rules):
    """An empty folder, torch's own default dtype, and a table of rules that forgets what was added to it."""
    monkeypatch.chdir(tmp_path)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)


OURS = r".*(CAFE\(|cafexai|explanation\.|explain|goes in 0\.3|before 0\.2)"  # messages of our warnings


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/conflict.md",
        "docs/default.md",
        "docs/guide.md",
        "docs/index.md",
        "docs/inputs.md",
        "docs/language-models.md",
        "docs/monitor.md",
        "docs/pictures.md",
    ],
)
@pytest.mark.usefixtures("as_a_reader")
def test_every_python_block_runs_without_a_deprecated_form(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    namespace = {"__name__": "readme"}
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            warnings.filterwarnings("error", OURS, kind)
        for block in blocks:
            line = text[: text.index(block)].count("\n")
            exec(compile("\n" * line + block, name, "exec"), namespace)


def test_the_check_of_deprecated_forms_looks():
    from cafexai import CAFE

    with warnings.catch_warnings():
        warnings.filterwarnings("error", OURS, DeprecationWarning)
        warnings.filterwarnings("error", OURS, FutureWarning)
        model, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
        for old in (
            lambda: CAFE(model, netting="path"),
            lambda: CAFE(model).explain(x, target="all"),
            lambda: CAFE(model).explain(x, feature_names=["a", "b"]),
            lambda: CAFE(model).explain(x).feature_names,
            lambda: CAFE(model).explain(x).plot_biases(0),
        ):
            with pytest.raises((DeprecationWarning, FutureWarning)):
                old()


def test_files_named_in_the_readme_exist():
    text = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target.startswith("https://") or (ROOT / target).is_file(), target


def test_the_demo_runs_and_ends_by_naming_its_report(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "Test accuracy" in done.stdout
    assert "conflict between features" in done.stdout
    report = tmp_path / "demo-report.html"
    assert done.stdout.rstrip().endswith(str(report))
    assert "Tumour 170" in report.read_text(encoding="utf-8")


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```py\n(.*?)^```", CONTRIBUTING, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("as_a_reader")
def test_what_contributors_are_shown_works():
    from cafexai import compare
    from cafexai.methods import METHODS
    from cafexai.metrics import METRICS

    names = "from __future__ import annotations\nimport torch\nfrom torch import Tensor\nfrom typing import Any\n"
    names += "from cafexai._core.value import Scores\nfrom cafexai.rules.conversion import as_dtype\n"
    names += "from cafexai.rules.registry import rule\nfrom cafexai.methods.case import Case\n"
    names += "from cafexai.methods import method\nfrom cafexai.metrics import Bench, metric\n"
    assert len(BLOCKS) == 3
    try:
        for block in BLOCKS:
            exec(compile(names + block, "CONTRIBUTING.md", "exec"), {"__name__": "contributing"})
        model, x = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2)).eval(), torch.randn(4, 3)
        with torch.inference_mode():
            slopes = METHODS["gradient"](model, x.clone(), target=0)
        leaf = x.clone().requires_grad_()
        torch.testing.assert_close(slopes, torch.autograd.grad(model(leaf)[:, 0].sum(), leaf)[0])
        found = compare(model, x, 0, methods=["gradient", "cafe"], metrics=["sparsity"])
        assert "share of zeros" in str(found)
        assert "less is better" not in str(found)
    finally:
        METHODS.pop("gradient", None)
        METRICS.pop("sparsity", None)


def test_methods_and_metrics_are_described():
    from cafexai.methods import METHODS
    from cafexai.metrics import METRICS

    described = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert {name for name in (*METHODS, *METRICS) if f"`{name}" not in described} == set()
