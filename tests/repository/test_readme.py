"""What the README promises: its code runs, and so does the demo."""

import ast
import importlib
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "scripts"))
import blocks  # noqa: E402

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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if re.search(r"^```python$", page.read_text(encoding="utf-8"), re.MULTILINE)]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
@pytest.mark.usefixtures("as_a_reader")
def test_python_blocks_run_and_print_what_is_shown(page):
    """All of them, in their order, without a deprecated form; an output block is compared with what was printed."""
    with warnings.catch_warnings():
        for kind in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
            warnings.filterwarnings("error", OURS, kind)
        for block, said in blocks.run_blocks(page):
            shown = block["output"]
            assert shown is None or blocks.same_text(said, shown), f"{page.name} shows\n{shown}\nbut this was printed\n{said}"


def test_pages_with_code_are_found():
    assert len(WITH_CODE) > 18
    assert len(blocks.pages_with_outputs()) > 7


TEXTS = """
import numpy as np
import torch
from torch import nn
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
from cafexai import CAFE
words = "[PAD] [UNK] [CLS] [SEP] [MASK] a text another the film was superb . not bad".split()
raw = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
raw.normalizer, raw.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
raw.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
marks = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, **marks)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
bert = BertForSequenceClassification(BertConfig(vocab_size=len(words), **sizes)).eval()
"""
PRELUDES = {  # what fragments of code, ```py, take for granted
    "guide.md": TEXTS
    + """
model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), torch.randn(5, 6)
labels = model(x).argmax(1).numpy()
""",
    "inputs.md": TEXTS + "model = bert",
    "files.md": """
import torch
from torch import nn
x = torch.randn(3, 4)
torch.onnx.export(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1)), (x,), "model.onnx", dynamo=False)
""",
    "monitor.md": """
import pandas
import torch
from torch import nn
from cafexai import CAFE
from cafexai.monitor import Monitor
torch.manual_seed(0)
rows = pandas.DataFrame(torch.randn(900, 3).numpy(), columns=["age", "debt", "income"])
january, march = rows[:600], rows[600:]
monitor = Monitor.fit(CAFE(nn.Linear(3, 1)), january)
""",
    "methods.md": """
import torch
from torch import nn
from cafexai import CAFE
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
x, data = torch.randn(3, 4), torch.randn(60, 4)
""",
}
NEEDED = {
    "files.md": ["onnx"],
    "guide.md": ["transformers", "quantus"],
    "inputs.md": ["transformers"],
    "monitor.md": ["pyarrow"],
}
FRAGMENT = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PRELUDES)
@pytest.mark.filterwarnings("ignore")  # of exporters
@pytest.mark.usefixtures("as_a_reader")
def test_fragments_run(name):
    for package in NEEDED.get(name, ()):
        pytest.importorskip(package)
    names = {"__name__": "fragment"}
    exec(PRELUDES[name], names)
    for code in FRAGMENT.findall((ROOT / "docs" / name).read_text(encoding="utf-8")):
        compiled = compile(code, name, "exec")
        if "from evidently" not in code:  # it needs an older pandas, so it is read and not run
            exec(compiled, names)
    if name == "inputs.md":
        assert names["e"].names(1) == ("Not", "bad", "", "", "", "")  # as its comment says


def test_code_of_ours_is_not_hidden_in_fences_of_text():
    """It would not run."""
    fence = re.compile(r"^```(?:text|console)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
    ours = re.compile(r"^(from|import) cafexai|^(?!>>>).*\bCAFE\(.*\)\.explain", re.MULTILINE)
    found = {page.name: ours.findall(text) for page in PAGES for text in fence.findall(page.read_text(encoding="utf-8"))}
    assert {page: lines for page, lines in found.items() if lines} == {}


@pytest.mark.parametrize("name", ["explorer.md", "scale.md"])
def test_fragments_that_start_servers_and_clusters_name_options_that_exist(name):
    """They are read, not run: calls of functions of ours bind to their signatures."""
    bound = 0
    for code in FRAGMENT.findall((ROOT / "docs" / name).read_text(encoding="utf-8")):
        tree, ours = ast.parse(code), {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("cafexai"):
                module = importlib.import_module(node.module)
                ours |= {one.name: getattr(module, one.name) for one in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ours:
                inspect.signature(ours[node.func.id]).bind(*node.args, **{word.arg: word.value for word in node.keywords})
                bound += 1
    assert bound > 1


SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINES = [line for page in PAGES for code in SHELL.findall(page.read_text(encoding="utf-8")) for line in code.splitlines()]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", [line for line in LINES if line.strip()], ids=lambda line: line[:40])
def test_shell_lines_name_what_exists(line):
    """Commands with their options, targets of make, extras, and addresses of the server."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    elif words[:2] == ["pip", "install"]:
        extras = set(re.findall(r"\w+", re.search(r"\[(.*)\]", line)[1]))
        assert extras <= set(PYPROJECT["project"]["optional-dependencies"])
    elif words[0] == "curl":
        assert re.search(r"/v1/\w+", line)[0] in (ROOT / "docs" / "scale.md").read_text(encoding="utf-8").replace(line, "")
    else:
        typer = pytest.importorskip("typer")
        from cafexai.cli.app import app

        assert words[0] == "cafexai"
        command, rest = typer.main.get_command(app), words[1:]
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        assert not getattr(command, "commands", None), f"{line}: no command"
        options = {word for parameter in command.params for word in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options


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
CONTRIBUTED = re.findall(r"^```py\n(.*?)^```", CONTRIBUTING, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("as_a_reader")
def test_what_contributors_are_shown_works():
    from cafexai import compare
    from cafexai.methods import METHODS
    from cafexai.metrics import METRICS

    names = "from __future__ import annotations\nimport torch\nfrom torch import Tensor\nfrom typing import Any\n"
    names += "from cafexai._core.value import Scores\nfrom cafexai.rules.conversion import as_dtype\n"
    names += "from cafexai.rules.registry import rule\nfrom cafexai.methods.case import Case\n"
    names += "from cafexai.methods import method\nfrom cafexai.metrics import Bench, metric\n"
    assert len(CONTRIBUTED) == 3
    try:
        for block in CONTRIBUTED:
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
