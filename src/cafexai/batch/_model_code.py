"""What a model is besides its weights: the code that it runs, and what is set in its modules."""

from __future__ import annotations

import datetime
import enum
import functools
import inspect
import numbers
import re
import sys
import weakref
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PLAIN = (bool, int, float, complex, str, bytes, type(None))
TOLD = (
    enum.Enum,
    numbers.Number,
    np.generic,
    datetime.date,
    datetime.timedelta,
    range,
    slice,
    re.Pattern,
    torch.dtype,
    np.dtype,
)
STANDARD = frozenset(vars(nn.Module()))
ORIGIN = (  # where weights came from, which says nothing about them, and a hash that is another one in every process
    "name_or_path",
    "_name_or_path",
    "_original_object_hash",
)
DEEPEST = 8  # objects in objects
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_sources: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def describe_module(module: nn.Module) -> str:
    """The text of a module, without addresses in memory."""
    return _ADDRESS.sub("", repr(module))


def settings_of(module: nn.Module) -> list[Any]:
    """What is set in a module and in those inside of it."""
    inside = frozenset(map(id, module.modules()))
    return [(name, _attributes(one, inside, ())) for name, one in module.named_modules()]


def plain(value: Any, inside: frozenset[int] = frozenset(), path: tuple[int, ...] = ()) -> Any:
    """A value as plain ones that are the same in every process; ``inside``: modules that are told elsewhere."""
    if type(value) in PLAIN or isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype != object):
        return value
    if isinstance(value, TOLD):
        return repr(value)
    if id(value) in inside or id(value) in path or len(path) == DEEPEST:
        return type(value).__qualname__
    path = (*path, id(value))
    if isinstance(value, Mapping):
        return {str(key): plain(one, inside, path) for key, one in value.items() if key not in ORIGIN}
    if isinstance(value, (list, tuple, deque, np.ndarray)):
        return [plain(one, inside, path) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(repr(plain(one, inside, path)) for one in value)
    if isinstance(value, functools.partial):
        return [plain(one, inside, path) for one in (value.func, value.args, value.keywords)]
    if isinstance(value, nn.Module):  # in a list, say, where torch does not see it
        tensors = dict([*value.named_parameters(), *value.named_buffers()])
        return [describe_module(value), tensors, [_attributes(one, inside, path) for one in value.modules()]]
    if inspect.isroutine(value) or inspect.isclass(value):
        return code_of([value])
    return {"": type(value).__qualname__, **(_attributes(value, inside, path) if _is_open(type(value)) else {})}


def _is_open(kind: type) -> bool:
    """Whether attributes say what an object is, as those of locks, loggers and generators do not."""
    return not _of_others(kind) or issubclass(kind, (SimpleNamespace, Namespace))


def _attributes(value: Any, inside: frozenset[int], path: tuple[int, ...]) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ()) if hasattr(value, name)]
    known = {name: getattr(value, name) for name in slots if not name.startswith("__")} | getattr(value, "__dict__", {})
    skipped = (*STANDARD, *ORIGIN) if isinstance(value, nn.Module) else ORIGIN
    return {key: plain(one, inside, path) for key, one in known.items() if key not in skipped}


def code_of(starts: Iterable[Any]) -> dict[str, Any]:
    """Functions and classes, with their bases and what they use of the user's modules: their texts, and constants."""
    found: dict[str, Any] = {}
    waiting = [one for start in starts for one in _parts(start)]
    seen = set(map(id, waiting))
    while waiting:
        one = waiting.pop()
        name = getattr(one, "__qualname__", type(one).__qualname__)
        key = (
            f"{getattr(one, '__module__', '')}.{name}" if _of_others(one) else f"{name}\n{source(one)}"
        )  # a script is __main__
        found[key] = {}
        for used, value in () if _is_installed(one) else _find_used(one):
            new = [part for part in _parts(value) if id(part) not in seen]
            seen.update(map(id, new))
            waiting += new
            if not (inspect.ismodule(value) or inspect.isroutine(value) or inspect.isclass(value)):
                found[key][used] = plain(value)
    return found


def _parts(value: Any) -> list[Any]:
    """A class and its bases, or a function without its decorators."""
    if inspect.isclass(value):
        return list(value.__mro__)
    return [_function(value) or value] if inspect.isroutine(value) else []


def source(what: Any) -> str:
    """The text of a function or class as it was when it was met first: files may change while the old code runs."""
    try:
        if what not in _sources:
            _sources[what] = _read(what)
        return _sources[what]
    except TypeError:  # it takes no weak reference
        return _read(what)


def _read(what: Any) -> str:
    code = getattr(what, "__code__", None)
    try:
        text = inspect.getsource(what)
    except (OSError, TypeError):
        return "" if code is None else repr([code.co_code, *_constants(code)])
    return text if code is None or code.co_name != "<lambda>" else f"{text}{list(_constants(code))}"  # a line may hold several


def _constants(code: CodeType) -> Iterator[Any]:
    """Names and constants of code."""
    yield code.co_names
    for one in code.co_consts:
        yield from _constants(one) if isinstance(one, CodeType) else [one]


def _find_used(what: Any) -> Iterator[tuple[str, Any]]:
    """Globals, defaults and values of closures that a function, or the functions of a class, have."""
    for function in filter(None, map(_function, vars(what).values() if inspect.isclass(what) else [what])):
        start, known = function.__qualname__, function.__globals__
        names = sorted(name for name in _names(function.__code__) if name in known and not name.startswith("__"))
        yield from ((name, known[name]) for name in names)
        yield from ((f"{start} default {place}", one) for place, one in enumerate(function.__defaults__ or ()))
        yield from ((f"{start} default {name}", one) for name, one in (function.__kwdefaults__ or {}).items())
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from ((f"{start} cell {name}", cell.cell_contents) for name, cell in cells if _is_filled(cell))


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return {*code.co_names}.union(*map(_names, inner))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not yet
        return False


def _function(what: Any) -> Any:
    """The function inside of a method, a property or a decorator."""
    what = what.fget if isinstance(what, property) else what
    what = what.__func__ if isinstance(what, (staticmethod, classmethod, MethodType)) else what
    what = inspect.unwrap(what) if callable(what) else what
    return what if isinstance(what, FunctionType) else None


def _of_others(what: Any) -> bool:
    """Of torch, numpy or Python itself."""
    package = (getattr(what, "__module__", None) or "builtins").partition(".")[0]
    return package in {"torch", "numpy", "builtins", *sys.stdlib_module_names} - {"__main__"}


def _is_installed(what: Any) -> bool:
    """Code of a package that is installed, or ours: it is not followed."""
    module = getattr(what, "__module__", None) or ""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return _of_others(what) or module.partition(".")[0] == "cafexai" or "site-packages" in file or "dist-packages" in file
