"""The state guard: a run of the model, scored or plain, leaves the model as it was.

1. A guard takes a snapshot of the model and of further arguments of forward, and ``restore`` undoes what has changed since.
2. Attributes, dicts, lists, sets, deques, slots, closures and numpy arrays are compared, however nested, and set back.
3. A tensor that was there before is copied when it is about to be written to (``save``), and gets content and version back.
4. As a context, the guard sees writes and random draws of this thread below autograd; outside of it, callers say ``save``.
5. Random numbers come from a generator of the guard's own that starts where torch's stands; torch's is only read.
   Generators of the model are set back.
6. Others may use the model at the same time: only what has changed is touched, never ``training`` and hooks.
7. Containers and objects that others hold as well (globals, other packages) are set back only if they hold engine tensors.
8. Not seen: changes by other threads during a run, values put where the model does not hold them, the generators of numpy and
   Python; in plain runs over chunks of rows, memory written to through ``.numpy()`` or replaced by ``.data =``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import threading
from collections import deque
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._core.foreign import pass_on
from .._core.tensors import PLAIN, Coded, Complexed, Scored, Softmaxed
from .._torch import TorchDispatchMode, pop_mode, preserve_version, push_mode
from ..rules.effects import draws, with_generator, written

FOLLOWED = (Scored, Softmaxed, Coded, Complexed)  # the tensors that the model is given
_LEAVES = PLAIN | {Tensor, nn.Parameter, complex, bytes, type}
_CONTAINERS = (dict, list, set, deque)
# Hooks belong to those who register them, and ``training`` to those who call train() and eval().
_STANDARD = frozenset(vars(nn.Module()))
_PARTS = ("_parameters", "_buffers", "_modules")
States = dict[torch.device, Tensor]


class StateGuard(TorchDispatchMode):
    """A snapshot of a model, taken when it is made; as a context, it sees what is written and drawn in this thread.

    ``arguments`` belong to it. ``starts``: where the random numbers of each device start, noted when the first is drawn.
    """

    def __init__(self, model: Any, arguments: tuple[Any, ...] = (), starts: States | None = None) -> None:
        self.needed = False  # the model writes or draws, so that its runs are to be watched
        self.watching = 0  # how many times it was entered
        self.saved: dict[int, tuple[Any, Any, list[Any]]] = {}  # what was written: storage, its content, tensors that use it
        self._starts = {} if starts is None else starts
        self._own: dict[torch.device, torch.Generator] = {}  # the model draws from these instead of torch's
        self._given: dict[torch.Generator, Tensor] = {}  # generators of the model itself, and their states
        self._taken_in: list[tuple[Any, Any]] = []  # containers outside of the model that were given values of the engine
        self._arguments = arguments
        self._all = _Changeable((model, *arguments))
        self._names, self._values = self._all.contents()
        self._before = [container.copy() for container in (*self._all.dicts, *self._all.others)]

    def restore(self) -> None:
        """Undo what has changed, and that alone."""
        for storage, content, owners in self.saved.values():
            if storage.nbytes() != content.nbytes():
                storage.resize_(content.nbytes())
            storage.copy_(content)
            for tensor, before, version in owners:
                if not tensor.is_set_to(before):
                    tensor.data = before
                version.__exit__(None, None, None)
        for generator, state in self._given.items():
            generator.set_state(state)
        for device, generator in self._own.items():
            generator.set_state(self._starts[device])
        for array, content in self._all.arrays:
            if array.tobytes() != content.tobytes():
                array[...] = content
        for now, before in self._all.outside:
            if any(map(_is_followed, now.values() if isinstance(now, dict) else now)):
                self._taken_in.append((now, before))
        for now, before in self._taken_in:
            _set_back(now, before)
        for owner, name, value in self._all.places:
            if getattr(owner, name, None) is not value:
                setattr(owner, name, value)
        names, values = self._all.contents()
        if names != self._names or len(values) != len(self._values) or not all(map(operator.is_, values, self._values)):
            for now, before in zip((*self._all.dicts, *self._all.others), self._before, strict=True):
                _set_back(now, before)

    def owns(self, tensor: Tensor) -> int | None:
        """The id of the tensor's memory, if the model or its arguments had it before the run."""
        storage = _storage(tensor)
        return storage._cdata if storage is not None and storage._cdata in self._owned else None

    @functools.cached_property
    def _owned(self) -> dict[int, list[Tensor]]:
        """Tensors by the id of their memory."""
        found: dict[int, list[Tensor]] = {}
        every = itertools.chain(self._arguments, self._values, (value for *_, value in self._all.places))
        waiting = [value for value in every if isinstance(value, (Tensor, tuple))]
        while waiting:
            value = waiting.pop()
            if isinstance(value, tuple):
                waiting.extend(part for part in value if isinstance(part, (Tensor, tuple)))
            elif (storage := _storage(value)) is not None:
                found.setdefault(storage._cdata, []).append(value)
        return found

    def save(self, value: Any) -> None:
        """Keep the content of a tensor that is about to be written to, if it is the model's."""
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, Tensor) and (key := self.owns(tensor)) is not None and key not in self.saved:
                owners = [(t, t.detach(), _version(t)) for t in self._owned[key]]
                storage = tensor.untyped_storage()
                self.saved[key] = storage, storage.clone(), owners
                self.needed = True

    def apart(self, constant: Tensor) -> Tensor:
        """A constant of the model, copied if it will be put back before the backward pass needs it."""
        return constant.clone() if self.saved and self.owns(constant) in self.saved else constant

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # it would be imported

    def __enter__(self) -> StateGuard:
        """That of torch also notes in a global variable that there is a mode, as if there were one thread."""
        if not self.watching:
            push_mode(self)
        self.watching += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.watching -= 1
        if not self.watching:
            pop_mode(None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for place, name in written(func):
            self.save(args[place] if place < len(args) else kwargs.get(name))
        return self._draw(func, args, kwargs) if draws(func) else pass_on(func, args, kwargs)

    def _draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Draw from a generator of our own: that of torch is everybody's."""
        given = kwargs.get("generator")
        if given is not None and given is not torch.default_generator:
            self._given.setdefault(given, given.get_state())
            return pass_on(func, args, kwargs)
        device = next((part.device for part in args if isinstance(part, Tensor)), torch.device(kwargs.get("device") or "cpu"))
        common = _common_generator(device)
        if common is None:
            return pass_on(func, args, kwargs)
        if device not in self._own:
            start = self._starts.setdefault(device, common.get_state())
            self._own[device] = torch.Generator(device)
            self._own[device].set_state(start)
        own, other = self._own[device], with_generator(func)
        if other is not None:
            return pass_on(other, args, {**kwargs, "generator": own})
        with _TAKING_TURNS:
            state = common.get_state()
            try:
                common.set_state(own.get_state())
                result = pass_on(func, args, kwargs)
                own.set_state(common.get_state())
            finally:
                common.set_state(state)
        return result


_TAKING_TURNS = threading.Lock()  # for the few operations that know no generator but torch's


def _common_generator(device: torch.device) -> torch.Generator | None:
    """The one that torch draws from."""
    if device.type == "cuda":
        return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    return torch.default_generator if device.type == "cpu" else None


def _storage(tensor: Tensor) -> Any:
    """The memory of a tensor, if it has some of its own."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError, ValueError):  # sparse, not yet initialised, a wrapper
        return None


def _version(tensor: Tensor) -> Any:
    """On exit, the tensor counts as unchanged, as its content then is."""
    return contextlib.nullcontext() if tensor.is_inference() else preserve_version(tensor)


class _Changeable:
    """What runs can change. Followed are modules, containers, and objects and functions from the package of what holds them."""

    def __init__(self, roots: tuple[Any, ...]) -> None:
        self.dicts: list[dict[Any, Any]] = []
        self.others: list[Any] = []  # lists, deques and sets
        self.places: list[tuple[Any, str, Any]] = []  # (owner, name, value)
        self.arrays: list[tuple[Any, Any]] = []  # (array, its copy)
        self.outside: list[tuple[Any, Any]] = []  # (container, its copy): others use it as well
        self._functions: set[Any] = set()  # those that were looked into: layers of one kind share their forward
        met: set[int] = set()
        waiting: list[tuple[Any, str]] = [(root, _package(root)) for root in roots if type(root) not in _LEAVES]
        while waiting:
            value, package = waiting.pop()
            if id(value) in met:
                continue
            met.add(id(value))
            if isinstance(value, nn.Module):
                package = _package(value)
                inside = self._module(value, package)
            elif isinstance(value, _CONTAINERS):
                own: list[Any] = self.dicts if isinstance(value, dict) else self.others
                own.append(value)
                inside = [*value.values()] if isinstance(value, dict) else [*value]
            else:
                inside = self._object(value, package)
            waiting += [(part, package) for part in inside if type(part) not in _LEAVES]

    def contents(self) -> tuple[list[Any], list[Any]]:
        """All names in the dictionaries, and all that is in the containers, in order."""
        chain = itertools.chain.from_iterable
        return list(chain(self.dicts)), [*chain(map(dict.values, self.dicts)), *chain(self.others)]

    def _module(self, module: nn.Module, package: str) -> list[Any]:
        own = vars(module)
        parts = [own[name] for name in _PARTS]
        self.dicts += [own, *parts]
        more = [own[name] for name in own.keys() - _STANDARD]
        return [*parts[-1].values(), *more, *(() if package == "torch" else self._names_used_by(type(module).forward))]

    def _object(self, value: Any, package: str) -> list[Any]:
        if isinstance(value, tuple):
            return [*value]
        if isinstance(value, np.ndarray):
            self.arrays.append((value, value.copy()))
        elif isinstance(value, functools.partial):
            return [value.func, value.args, value.keywords]
        elif isinstance(value, MethodType):
            return [value.__self__, value.__func__]
        elif isinstance(value, SimpleNamespace):
            return [vars(value)]
        elif package != "torch" and package == _package(value) and not isinstance(value, type):
            names = [name for kind in type(value).__mro__ for name in _slots(kind)]
            found = [(value, name, getattr(value, name)) for name in names if hasattr(value, name)]
            self.places += found
            more = self._names_used_by(value) if isinstance(value, FunctionType) else []
            return [*(part for *_, part in found), getattr(value, "__dict__", None), *more]
        elif not isinstance(value, (type, ModuleType, FunctionType)) and hasattr(value, "__dict__"):
            self._others_hold(vars(value), *vars(value).values())
        return []

    def _names_used_by(self, function: Any) -> list[Any]:
        """What a function takes from outside; containers there are others' as well."""
        if not isinstance(function, FunctionType) or function in self._functions:
            return []
        self._functions.add(function)
        known = function.__globals__
        found = [known[name] for name in function.__code__.co_names if name in known]
        inside = [value for value in found if isinstance(value, nn.Module)]
        for cell in function.__closure__ or ():
            if _refill(cell):
                found.append(cell.cell_contents)
                inside.append(cell.cell_contents)
                self.places.append((cell, "cell_contents", cell.cell_contents))
        self._others_hold(*found)
        return [value for value in inside if not isinstance(value, _CONTAINERS)]

    def _others_hold(self, *values: Any) -> None:
        self.outside += [(value, value.copy()) for value in values if isinstance(value, _CONTAINERS)]


def _is_followed(value: Any) -> bool:
    return isinstance(value, FOLLOWED) or (isinstance(value, (tuple, list)) and any(map(_is_followed, value)))


def _package(value: Any) -> str:
    """Where the class of a value comes from, or a function."""
    while isinstance(value, (MethodType, functools.partial)):
        value = value.__self__ if isinstance(value, MethodType) else value.func
    return _top(value.__module__ if isinstance(value, FunctionType) else type(value).__module__)


@functools.cache
def _top(module: str) -> str:
    return module.partition(".")[0]


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    names = kind.__dict__.get("__slots__", ())
    return tuple(name for name in ((names,) if isinstance(names, str) else names) if not name.startswith("__"))


def _refill(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _set_back(now: Any, before: Any) -> None:
    """Make a container hold what it held."""
    if isinstance(now, dict):
        for name in now.keys() - before.keys() - {"training"}:
            del now[name]
        for name, value in before.items():
            if now.get(name) is not value and name != "training" and not isinstance(value, FOLLOWED):
                now[name] = value
        if "_modules" not in now and list(now) != list(before):  # the order of attributes does not matter
            for name in [name for name in before if name in now]:
                now[name] = now.pop(name)
    elif len(now) != len(before) or not all(map(operator.is_, now, before)):
        now.clear()
        (now.update if isinstance(now, set) else now.extend)(before)
