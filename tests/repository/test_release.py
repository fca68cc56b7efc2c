"""What make release, make matrix and the page on versions promise."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

from cafexai.errors import ModelProblem
from cafexai.loading import load_model

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")


def load(name):
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "release" / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notes_are_the_section_of_the_version():
    notes_of = load("release").notes_of
    text = "# Changelog\n\n## 0.2 (unreleased)\n\nnew\n\n- one\n\n## 0.1.0 (2026-11-15)\n\nold\n"
    assert notes_of(text, "0.2.0.dev0") == notes_of(text, "0.2.0") == "new\n\n- one\n"
    assert notes_of(text, "0.1.0") == "old\n"
    with pytest.raises(SystemExit, match=r"no section for 0\.3\.0"):
        notes_of(text, "0.3.0")


def test_every_extra_is_described():
    assert [extra for extra in PROJECT["optional-dependencies"] if f"`{extra}`" not in PAGE] == []


def test_the_example_of_the_image_is_what_serve_takes(tmp_path):
    """Its model is read without --trust, and the health check asks the port that the example opens."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    words = re.search(r"cafexai (serve /model/.*)", text)[1].split()
    pytest.importorskip("onnx")
    model, port = next(word for word in words if word.startswith("/model/")), words[words.index("--port") + 1]
    assert f"127.0.0.1', {port}" in text
    assert f"EXPOSE {port}\n" in text
    file = tmp_path / Path(model).name
    file.write_bytes(b"no model")
    with pytest.raises(ModelProblem) as told:
        load_model(file)
    assert "--trust" not in str(told.value)  # it has been read
    check = re.search(r'CMD \["python", "-c", "(.*?)"\]', text, re.DOTALL)[1].replace("\\\n", "")
    compile(check, "health check", "exec")
    lock = (ROOT / "release" / "locks" / "image.txt").read_text()
    assert all(re.search(rf"^{name}==", lock, re.MULTILINE) for name in ("onnx", "s3fs", "safetensors", "skops", "uvicorn"))


def test_the_locks_hold_the_tested_torch():
    pin = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    for name in ("tested", "image"):
        lock = (ROOT / "release" / "locks" / f"{name}.txt").read_text()
        assert re.findall(r"^torch==(\S+?)(?:\+cpu)? ", lock, re.MULTILINE) == [pin]
        assert len(re.findall(r"^\S+==\S+ \\\n    --hash=sha256:", lock, re.MULTILINE)) == len(
            re.findall(r"^\S+==", lock, re.MULTILINE)
        )


def test_what_developers_need_is_not_published():
    extras, groups = PROJECT["optional-dependencies"], PYPROJECT["dependency-groups"]
    assert not {"demo", "test", "docs", "browser", "engines", "mutants", "dev"} & set(extras)
    assert [group for group in groups if f"`{group}`" not in PAGE] == []
    tools = re.compile(r"pytest|ruff|mypy|playwright|zensical|cosmic-ray")
    assert [word for words in extras.values() for word in words if tools.match(word)] == []


def test_what_all_leaves_out_is_said():
    extras = PROJECT["optional-dependencies"]
    (line,) = re.findall(r"^\| `all` \| (.*) \|$", PAGE, re.MULTILINE)
    named = set(re.search(r"\[(.*)\]", extras["all"][0])[1].split(","))
    assert set(re.findall(r"`(\w+)`", line)) == set(extras) - named - {"all"}


def test_classifiers_are_rows_of_the_matrix_without_failures():
    rows = re.findall(r"^\| (3\.\d+)\.\d+ \| (\d+\.\d+)\.\d+ \| .* \| \d+ \| (\d+) \| \d+ \|$", PAGE, re.MULTILINE)
    passed = {(int(python[2:]), int(torch[2:])) for python, torch, failed in rows if failed == "0"}
    classifiers = {word.rpartition(" ")[2] for word in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", word)}
    assert classifiers == {f"3.{python}" for python, _ in passed}
    python, torch = min(passed)  # one row is the floor: no other one that passes has an older torch
    assert (PROJECT["requires-python"], PROJECT["dependencies"][0]) == (f">=3.{python}", f"torch>=2.{torch}")
    assert torch == min(torch for _, torch in passed)
    assert PYPROJECT["tool"]["mypy"]["python_version"] == PROJECT["requires-python"][2:]
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py" + PROJECT["requires-python"][2:].replace(".", "")


def test_the_matrix_replaces_rows_that_ran_and_keeps_the_others(tmp_path, monkeypatch):
    matrix = load("matrix")
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "versions.md")
    matrix.PAGE.write_text(PAGE, encoding="utf-8")
    matrix.write([])
    assert matrix.PAGE.read_text(encoding="utf-8") == PAGE
    floor = next(line for line in PAGE.splitlines() if "the pin of" in line).strip("| ").split(" | ")
    matrix.write([[*floor[:3], "2030-01-02", "7", "0", "1"], ["3.9.1", floor[1], "another", "2030-01-02", "5", "2", "0"]])
    now = matrix.PAGE.read_text(encoding="utf-8")
    assert (
        f"| 3.9.1 | {floor[1]} | another | 2030-01-02 | 5 | 2 | 0 |\n| {floor[0]} | {floor[1]} | {floor[2]} | 2030-01-02 | 7 |"
        in now
    )
    assert [line for line in PAGE.splitlines() if line.startswith("| 3.") and floor[2] not in line] == [
        line for line in now.splitlines() if line.startswith("| 3.") and "2030" not in line
    ]
    assert matrix.count("...\n3 failed, 20 passed, 1 error, 4 skipped in 5s") == ["20", "4", "4"]
    assert matrix.find_python("3.999") is None
    assert matrix.find_python(f"3.{sys.version_info.minor}") is not None


def test_targets_of_make():
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    assert targets == set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    called = set(re.findall(r"run: make ([a-z-]+)", workflow)) | set(re.search(r"target: \[(.*)\]", workflow)[1].split(", "))
    assert called == {"lint", "test", "docs", "browser", "release"}
    assert called <= targets
