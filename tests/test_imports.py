"""Imports point one way, and only torch and numpy are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import cafexai

PACKAGE = Path(cafexai.__file__).parent
ORDER = """
    registry arguments models rows ledger weighted scores codes pointwise fused activation path lazy tensors law calls
    paths trace rules subject inputs forward chunks backward text plots explanation explanations groups assemble batches
    explain sklearn support conflicts __init__
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
        ("path", "lazy"),
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


def test_import_needs_torch_and_numpy_only():
    code = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in "pandas sklearn matplotlib captum shap safetensors tqdm skorch scipy polars".split():
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import cafexai, torch
e = cafexai.CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(1, 2))
print(e.ledger(0))
for call in (e.to_frame, lambda: e.save("x"), e.to_shap, e.plot):
    try:
        call()
    except ModuleNotFoundError as error:
        assert "pip install 'cafexai[" in str(error), error
    else:
        raise AssertionError(call)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
