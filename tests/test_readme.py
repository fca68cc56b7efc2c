"""What the README promises: its code runs, and so does the demo."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
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


@pytest.mark.usefixtures("as_a_reader")
def test_every_python_block_runs():
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert blocks
    namespace = {"__name__": "readme"}
    for block in blocks:
        line = README[: README.index(block)].count("\n")
        exec(compile("\n" * line + block, "README.md", "exec"), namespace)


def test_files_named_in_the_readme_exist():
    text = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert target.startswith("https://") or (ROOT / target).is_file(), target


def test_the_demo_runs():
    done = subprocess.run([sys.executable, ROOT / "examples" / "demo.py"], capture_output=True, text=True, check=True)
    assert "Test accuracy" in done.stdout
    assert "conflict (cancelled between features)" in done.stdout
