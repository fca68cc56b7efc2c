"""Every public function says what its parameters are, and the examples in docstrings run."""

import doctest
import importlib
import inspect
import pkgutil

import pytest
import torch

import cafexai

MODULES = ["cafexai", *sorted(f"cafexai.{one.name}" for one in pkgutil.iter_modules(cafexai.__path__) if one.name[0] != "_")]


def public_objects():
    """Name -> object, for everything in ``__all__`` of the public modules, and the public methods of classes."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for word in getattr(module, "__all__", []):
            thing = getattr(module, word)
            if callable(thing) and getattr(thing, "__module__", "").startswith("cafexai"):
                found.setdefault(id(thing), (f"{name}.{word}", thing))
    objects = dict(found.values())
    for name, thing in list(objects.items()):
        if inspect.isclass(thing):
            members = {word: getattr(thing, word) for word in dir(thing) if word[0] != "_"}
            own = {word: one for word, one in members.items() if (getattr(one, "__module__", "") or "").startswith("cafexai")}
            objects |= {f"{name}.{word}": one for word, one in own.items() if inspect.isroutine(one)}
    return objects


OBJECTS = public_objects()


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
    assert len(EXAMPLES) > 70


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said = []
    runner.run(example, out=said.append)
    assert runner.failures == 0, "".join(said)
