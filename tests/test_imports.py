"""Imports point one way, and only torch and numpy are needed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import cafexai

PACKAGE = Path(cafexai.__file__).parent
ORDER = """
    registry progress arguments models datasets metrics rows ledger weighted scores codes pointwise fused activation lazy path
    feature tensors law calls paths trace rules subject inputs request chain forward chunks backward text plots explanation
    explanations groups assemble pairs netted batches explain sklearn support conflicts methods comparison compare adapters
    studies commands cli __init__ __main__
""".split()


def imported(file):
    """Modules of this package that a file imports, at the top or inside functions."""
    depth = len(file.relative_to(PACKAGE).parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield from [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]


def layer(file):
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_point_one_way():
    allowed_inside = {
        ("explanation", "text"),
        ("explanation", "plots"),
        ("explain", "__version__"),
        ("plots", "explanation"),
        ("text", "explanation"),
    }
    files = list(PACKAGE.rglob("*.py"))
    assert {layer(file) for file in files} == set(ORDER)
    for file in files:
        for name in imported(file):
            if (layer(file), name) not in allowed_inside:
                assert ORDER.index(name) < ORDER.index(layer(file)), f"{file.name} imports {name}"


def test_only_the_rules_know_torch_operations():
    for file in (PACKAGE / "scores.py", PACKAGE / "path.py"):
        assert "torch.nn.functional" not in file.read_text()


def test_import_needs_torch_and_numpy_only(tmp_path):
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "pandas sklearn matplotlib captum shap safetensors tqdm skorch scipy polars pooch PIL".split():
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import cafexai, cafexai.datasets, cafexai.models, torch
made = cafexai.datasets.load("synthetic_shift", rows=64)
net = cafexai.models.mlp(11, 4, 5)
cafexai.models.train_group([net], made.x_train, made.y_train, cafexai.models.Recipe(1))
e = cafexai.CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(1, 2))
print(e.ledger(0))
def checkpoint():
    cafexai.models.train_group([net], made.x_train, made.y_train, cafexai.models.Recipe(1), folder="nowhere")
def download():
    cafexai.datasets.load("adult")
for call in (e.to_frame, lambda: e.save("x"), e.to_shap, e.plot, checkpoint, download):
    try:
        call()
    except (ModuleNotFoundError, cafexai.datasets.DataNotFound) as error:
        assert "pip install 'cafexai[" in str(error), error
    else:
        raise AssertionError(call)
"""
    environment = {name: value for name, value in os.environ.items() if name != "CAFEXAI_DATA"}
    environment |= {"CAFEXAI_CACHE": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert result.returncode == 0, result.stderr
