"""The plan of the package: imports point one way, only rules/ knows torch operations, only torch and numpy are needed."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import cafexai
from cafexai._carriers import CARRIERS
from cafexai.methods import METHODS
from cafexai.metrics import METRICS

ROOT = Path(__file__).parents[2]
PACKAGE = Path(cafexai.__file__).parent

# Three storeys, one line per folder. Each line may import the lines above it, and nothing else.
LAYERS = """
    errors _docstrings _extras _files _logging _processes _cluster _torch  what all use
    -- the engine
    _core                                                  the scored value
    _carriers                                              how influence is propagated
    rules                                                  torch operations
    _inputs schema                                         what goes in
    explanation                                            what comes out
    _engine                                                one explained pass
    -- what people use
    plotting reporting adapters                            how it is shown
    refinement blocks                                      scores corrected by evaluations; two blocks of features
    changed_rows                                           what the model does if rows are changed
    generation                                             what language models write
    _old_forms                                             forms of earlier versions
    _explainer                                             a model with c and a variant
    cafe sklearn onnx                                      what users call
    debug                                                  find the rule that is wrong
    metrics                                                how good scores are
    conflicts                                              the theory of conflicts
    methods                                                CAFE and other methods
    comparison                                             many methods at once
    loading                                                models and data that come as files
    batch                                                  more rows than memory holds
    monitor                                                what changed in new rows
    serving                                                single rows over HTTP
    explorer                                               the page in the browser
    -- the paper
    paper datasets models studies                          its data sets, networks and experiments
    -- the doors
    cli                                                    the command line
    __init__ __main__                                      the package
"""
STOREYS = [line.strip() for line in LAYERS.strip().splitlines()]
ORDER = [re.split(r"\s{2,}", line)[0].split() for line in STOREYS if not line.startswith("--")]
PLACE = {name: place for place, names in enumerate(ORDER) for name in names}
BESIDE = {  # imports within a layer, or against the order, with the reason
    ("explanation", "_inputs"): "names of features that nobody named",
    ("schema", "_inputs"): "cells of a table",
    ("_files", "_extras"): "safetensors",
    ("_cluster", "_extras"): "Ray",
    ("plotting", "explanation"): "what is shown",
    ("reporting", "explanation"): "what is shown",
    ("reporting", "plotting"): "colours, labels and rounding",
    ("adapters", "explanation"): "what is exported",
    ("adapters", "plotting"): "the lines of a row",
    ("adapters", "cafe"): "an explainer for Captum, imported on first use",
    ("adapters", "methods"): "methods for Quantus, imported on first use",
    ("explanation", "plotting"): "pictures, inside the methods",
    ("explanation", "reporting"): "tables and the report, inside the methods",
    ("explanation", "adapters"): "exports, inside the methods",
    ("_old_forms", "cafe"): "its type",
    ("conflicts", "methods"): "methods by name, imported on first use",
    ("cafe", "__version__"): "written into the settings of an explanation",
    ("batch", "__version__"): "written into every part",
    ("serving", "__version__"): "part of every answer",
    ("cli", "__version__"): "written into what machines read",
    ("datasets", "paper"): "the public name",
    ("models", "paper"): "the public name",
    ("studies", "paper"): "the public name",
}
ALONE = ("models", "datasets")  # these import nothing of ours but the extras and each other's


def layer(file):
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(file):
    """Layers of this package that a file imports, at the top or inside functions."""
    depth = len(file.relative_to(PACKAGE).parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield from [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]


FILES = sorted(PACKAGE.rglob("*.py"))


def test_every_file_has_its_layer():
    assert {layer(file) for file in FILES} == set(PLACE)
    assert len(list(PACKAGE.glob("*.py"))) <= 18


def test_the_page_on_the_engine_names_every_folder():
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    folders = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())
    assert [name for name in folders if f"`{name}/`" not in page] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way(file):
    own = layer(file)
    for name in imported(file):
        if (own, name) in BESIDE or name == own:
            continue
        assert PLACE[name] < PLACE[own], f"{own} imports {name}"
        assert own not in ALONE or name == "_extras", f"{own} stands alone and imports {name}"


def private_names(file):
    """Private names of torch that a file imports or reaches by dots."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = "" if isinstance(node, ast.Import) else node.module or ""
            dotted = [f"{module}.{alias.name}".strip(".") for alias in node.names]
        else:
            dotted = [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        yield from (name for name in dotted if re.match(r"(torch|nn|F)\b.*\._[a-zA-Z]", name))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_private_names_of_torch_stay_in_one_file(file):
    assert list(private_names(file)) == [] or file.name == "_torch.py", "put it into _torch.py, with what older releases have"


def test_the_check_of_private_names_looks(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("from torch._ops import Op\nfrom torch.nn.modules.conv import _Conv\nx = torch._C._nn\ny = nn.Linear\n")
    assert set(private_names(file)) == {"torch._ops.Op", "torch.nn.modules.conv._Conv", "torch._C", "torch._C._nn"}


# ---- only rules/ knows torch operations --------------------------------------------------------------------------------

WORDS = {word for words in (CARRIERS, METHODS, METRICS) for word in words}  # what users say
ENGINE = [
    file
    for file in FILES
    if layer(file) in ("_core", "_carriers", "_engine", "_inputs", "conflicts", "methods", "cafe", "_explainer", "refinement")
]
OPERATIONS = {  # names that torch functions have, less those that are everyday words
    name
    for space in (torch, F, torch.Tensor)
    for name in set(dir(space)) - WORDS
    if not name.startswith("_") and callable(getattr(space, name)) and not isinstance(getattr(space, name), type)
} - {
    *"all any bool cpu cuda data fix float index int linear max mean min negative out positive round size sum type".split(),
    "where",
}
KNOWN = {
    # (file, what it names): why
    ("_core/activation.py", "torch.relu"): "the closed form of ReLU; rules hand in this very function",
    ("_carriers/unit_activation.py", "torch.relu"): "the closed form of ReLU for net values",
    ("_core/value.py", "torch.mul"): "scale, a map like any other",
    ("_core/math_functions.py", "torch.mul"): "maps that do not sum over elements",
    ("_core/math_functions.py", "torch.div"): "maps that do not sum over elements",
    ("_core/math_functions.py", "torch.square"): "its slope without dividing; rules hand in this very function",
    ("conflicts/definitions.py", "torch.logical_or"): "both directions of a definition",
    ("conflicts/definitions.py", "torch.maximum"): "both directions of a definition",
    ("conflicts/prevalence.py", "relu"): "the paper's thresholds of inactive units",
    ("conflicts/prevalence.py", "gelu"): "the paper's thresholds of inactive units",
    ("conflicts/audit.py", "relu"): "closed forms are those of ReLU",
    ("_inputs/baselines.py", "median"): "a word of the user",
    ("cafe.py", "median"): "a word of the user",
    ("_inputs/baselines.py", "mode"): "a word of the user",
    ("_core/feature_index.py", "amin"): "an option of scatter_reduce",
    ("_inputs/groups.py", "torch.arange"): "makes names",
    ("_engine/output.py", "softmax"): "a kind",
    ("_engine/prepare_job.py", "median"): "a word of the user",
    ("_engine/prepare_job.py", "mode"): "a word of the user",
    ("_engine/explain_job.py", "logit"): "what an output is called",
    ("_engine/sequential.py", "F.linear"): "chains are followed layer by layer",
    ("_engine/output_probabilities.py", "softmax"): "a word of the user",
    ("_engine/output_probabilities.py", "sigmoid"): "a word of the user",
    ("_inputs/table_values.py", "floor"): "a method of pandas",
    ("_inputs/table_values.py", "median"): "a word of the user",
    ("_inputs/table_values.py", "mode"): "a word of the user",
    ("methods/bias.py", "softmax"): "a kind",
    ("refinement/refine.py", "seed"): "a setting",
}


def named(file):
    """Torch functions that a file names without calling them, and words that are names of torch functions."""
    tree = ast.parse(file.read_text())
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    shown = {  # docstrings and messages are for people
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, (ast.JoinedStr, ast.Raise)) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in called and isinstance(node.value, ast.Name):
            space = {"torch": torch, "F": F}.get(node.value.id)
            target = getattr(space, node.attr, None)
            if callable(target) and not isinstance(target, type):
                yield f"{node.value.id}.{node.attr}"
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in shown
            and node.value in OPERATIONS
        ):
            yield node.value


def test_only_the_rules_know_torch_operations():
    found = {(str(file.relative_to(PACKAGE)), name) for file in ENGINE for name in named(file)}
    assert found - set(KNOWN) == set(), "decide by kinds of rules instead, or give the reason here"
    assert set(KNOWN) - found == set(), "no longer needed"


def test_the_check_of_operations_looks(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text('"""relu"""\nif func in (F.linear, torch.conv2d) or name == "softmax":\n    y = torch.relu(x)\n')
    assert sorted(named(file)) == ["F.linear", "softmax", "torch.conv2d"]


# ---- the root ----------------------------------------------------------------------------------------------------------


def run_alone(code, tmp_path, **environment):
    environment = {**{k: v for k, v in os.environ.items() if k != "CAFEXAI_DATA"}, **environment}
    environment |= {"CAFEXAI_CACHE": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_names_are_loaded_when_they_are_asked_for(tmp_path):
    run_alone(
        """
import sys, cafexai
assert "torch" not in sys.modules
assert set(cafexai.__all__) <= set(dir(cafexai)) and "methods" in dir(cafexai)
import cafexai.cli
assert "torch" not in sys.modules
for name in cafexai.__all__:
    assert getattr(cafexai, name) is not None, name
assert callable(cafexai.methods.METHODS["cafe"])  # without an import of its own
import cafexai.comparison
from cafexai import compare
assert compare is cafexai.compare and callable(compare)
try:
    cafexai.nothing
except AttributeError as error:
    assert "nothing" in str(error)
else:
    raise AssertionError
""",
        tmp_path,
    )


def test_import_needs_torch_and_numpy_only(tmp_path):
    run_alone(
        """
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
for name in cafexai.__all__:
    getattr(cafexai, name)
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
""",
        tmp_path,
    )


def test_the_picture_of_the_layers_is_that_of_the_imports():
    """``make layers`` draws it."""
    drawn = set(re.findall(r"<text[^>]*>([\w.]+/?)</text>", (ROOT / "docs" / "layers.svg").read_text()))
    parts = {f"{part.name}/" if part.is_dir() else part.name for part in PACKAGE.iterdir() if part.suffix in ("", ".py")}
    assert parts - drawn <= {"__pycache__/", "__init__.py", "__main__.py", "errors.py", "_extras.py", "_files.py"}
    assert drawn <= parts


# ---- what the documents name -------------------------------------------------------------------------------------------

DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_links_and_files_in_documents_exist(document):
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", re.sub(r"`[^`]*`", "", text)):
        assert target.startswith("https://") or (document.parent / target).exists(), target
    for name in re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|md|toml|txt))`", text):
        places = (ROOT, ROOT / "docs", PACKAGE, ROOT / "src", ROOT / "tests")
        if name == "utils.py":  # the one that there is not
            continue
        known = any((place / name).exists() for place in places) or ("/" not in name and any(PACKAGE.rglob(name)))
        assert known, f"{document.name} names {name}"


@pytest.mark.parametrize("name", ["datasets.titanic", "models.training", "studies.record"])
def test_moved_packages_are_the_same_modules(name):
    """In a process of its own, as the former name is imported first."""
    code = f"import cafexai.{name} as old, cafexai.paper.{name} as new; assert old is new and new.__spec__.name == new.__name__"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_what_users_import_is_an_attribute_of_the_package():
    code = "import cafexai, cafexai.adapters as a; [getattr(cafexai, name) for name in dir(cafexai)]; print(dir(a))"
    found = subprocess.run([sys.executable, "-c", code], check=True, timeout=100, capture_output=True, text=True).stdout
    assert "annotations" not in found
    assert "for_shap" in found
