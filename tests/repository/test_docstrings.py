"""Every public function says what its parameters are, and the examples in docstrings run."""

import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest
import torch

import cafexai

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "scripts"))
import reference

OBJECTS = reference.public_objects()


def parameters(thing):
    if inspect.isclass(thing) and (issubclass(thing, (BaseException, dict)) or getattr(thing, "_is_protocol", False)):
        return []
    return [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]


def sections(thing):
    return (inspect.getdoc(thing) or "").split("\n")


def test_the_surface_is_known():
    assert len(OBJECTS) > 150
    assert {"cafexai.CAFE.explain", "cafexai.methods.lime", "cafexai.metrics.deletion", "cafexai.batch.score"} <= set(OBJECTS)


def test_every_parameter_is_described():
    missing = []
    for name, thing in OBJECTS.items():
        words = parameters(thing)
        lines = [line.strip() for line in sections(thing)]
        if not words:
            continue
        if "Args:" not in lines:
            missing.append(name)
            continue
        described = "\n".join(lines[lines.index("Args:") :])
        missing += [f"{name}({word})" for word in words if f"{word}:" not in described]
    assert missing == []


def examples():
    finder = doctest.DocTestFinder(recurse=False)
    for name, thing in OBJECTS.items():
        scope = {**vars(importlib.import_module(thing.__module__)), "torch": torch, "cafexai": cafexai}
        yield from (one for one in finder.find(thing, name, module=False, globs=scope) if one.examples)


EXAMPLES = list(examples())


def test_there_are_examples():
    assert len(EXAMPLES) > 200


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = []
    runner.run(example, out=said.append)
    assert runner.failures == 0, "".join(said)


PAGES = reference.reference_pages()


def test_the_reference_has_every_public_name_once():
    anchors = re.findall(r"^#+ .*\{ #(\S+) \}$", "\n".join(PAGES.values()), re.MULTILINE)
    assert sorted(anchors) == sorted([*OBJECTS, *reference.public_tables()])
    linked = re.findall(r"\]\((\w+)\.md#(\S+)\)", PAGES["reference/index.md"])
    assert all(f"{{ #{name} }}" in PAGES[f"reference/{page}.md"] for page, name in linked)
    assert {name for _, name in linked} >= {name for name in OBJECTS if name.rpartition(".")[0] not in OBJECTS}


@pytest.mark.parametrize(
    "name", ["cafexai.CAFE.explain", "cafexai.CAFE.explain_layer", "cafexai.batch.score", "cafexai.methods.lime"]
)
def test_the_reference_has_every_parameter(name):
    """Also those that a decorator adds."""
    page = PAGES[f"reference/{reference.page_of(name)}.md"]
    text = page.partition(f"{{ #{name} }}\n")[2].partition("{ #")[0]
    words = parameters(OBJECTS[name])
    assert len(words) > 4
    assert [word for word in words if not re.search(rf"^- `\*{{0,2}}{word}`", text, re.MULTILINE)] == []
    assert ">>> " in text
    assert " at 0x" not in "".join(PAGES.values())


def test_docstrings_are_divided_into_their_sections():
    def taught(first, second=2):
        """Do it.

        Twice.

        Args:
            first: What to do: ``a[:3]``,
                and more.
            second: How often.

        Returns:
            A number.

        Raises:
            ValueError: It cannot be done.

        Example:
            >>> 1
            1
        """

    text = "\n".join(reference.described("cafexai.taught", taught, 2))
    assert "cafexai.taught(first, second=2)" in text
    assert "- `first`: What to do: ``a[:3]``, and more.\n- `second`: How often." in text
    assert "**Returns** A number." in text
    assert "- `ValueError`: It cannot be done." in text
    assert "```pycon\n>>> 1\n1\n```" in text


def test_the_reference_lists_what_tables_hold():
    from cafexai.methods import METHODS

    tables = reference.public_tables()
    assert {
        "cafexai.methods.METHODS",
        "cafexai.metrics.METRICS",
        "cafexai.datasets.DATASETS",
        "cafexai.studies.STUDIES",
    } <= set(tables)
    page = PAGES["reference/methods.md"]
    assert [name for name in METHODS if f"| `{name}` | " not in page] == []
    assert "methods.md#cafexai.methods.METHODS" in PAGES["reference/index.md"]


def test_the_calls_of_users_have_examples():
    """Every public method of these classes; deprecated ones and what needs a further tool are left out."""
    without = {name for name, thing in OBJECTS.items() if "Example" not in reference.sections(thing)[1]}
    classes = ("CAFE", "Explanation", "Explanations", "Variant", "Background", "monitor.Monitor", "comparison.Comparison")
    missing = {name for name in without if name.rpartition(".")[0] in {f"cafexai.{one}" for one in classes}}
    left_out = {"plot_biases", "plot_pairs", "summary", "of", "to_shapash", "to_explainerdashboard", "cell"}
    assert {name.rpartition(".")[2] for name in missing} <= left_out
    assert len(without) < len(OBJECTS) / 2
