"""What make release, make matrix and the page on versions promise."""

import importlib.util
import re
from pathlib import Path

import pytest
import tomllib

from cafexai.errors import ModelProblem
from cafexai.loading import load_model

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGE = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")


def load(name):
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "release" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
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
