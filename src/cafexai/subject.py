"""The user's model: unwrapped, looked at, never changed."""

from __future__ import annotations

import fnmatch
import functools
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def unwrap(model: Any) -> Any:
    """The eager module inside of compiled, parallel and skorch models."""
    inner = getattr(model, "module_", None)
    if not isinstance(model, nn.Module) and isinstance(inner, nn.Module):
        return unwrap(inner)
    if isinstance(model, nn.Module) and hasattr(model, "_orig_mod"):
        return unwrap(model._orig_mod)
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrap(model.module)
    if not callable(model):
        hint = " For a scikit-learn model: CAFE(cafexai.from_sklearn(model))." if hasattr(model, "predict") else ""
        raise ValueError(f"CAFE({type(model).__name__}): give a PyTorch module or a function of tensors.{hint}")
    return model


class Subject:
    """A model with what explaining needs to know of it."""

    def __init__(self, model: Any, c: float | Mapping[str, float], norm_mean: str) -> None:
        if norm_mean not in ("bias", "linear"):
            raise ValueError(f'CAFE(..., norm_mean={norm_mean!r}): the words are "bias" and "linear".')
        self.norm_mean = norm_mean
        self.model = unwrap(model)
        modules = self.model.named_modules() if isinstance(self.model, nn.Module) else ()
        self.names: dict[int, str] = {id(module): name for name, module in modules}  # the model itself is ""
        self.sensitivity = Sensitivity(c, self.names)

    def owned_tensors(self) -> dict[int, str]:
        """id of each parameter and buffer -> its name."""
        if not isinstance(self.model, nn.Module):
            return {}
        return {id(t): name for name, t in (*self.model.named_parameters(), *self.model.named_buffers())}

    def kept(self) -> Attributes:
        """As a context: whatever forward stores on its modules is taken off again."""
        return Attributes(_modules(self.model))

    def has_module(self, option: str, name: str | None) -> None:
        """Refuse a name that no module has."""
        if name is not None and name not in self.names.values():
            known = ", ".join(repr(n) for n in self.names.values() if n)
            raise ValueError(f"explain(..., {option}={name!r}): the model has no such module. It has: {known}.")

    def ready(self) -> None:
        """Refuse models whose calls cannot be seen, or that would behave differently on each pass."""
        if isinstance(self.model, torch.jit.ScriptFunction):
            _refuse_script("the function")
        for module in _modules(self.model):
            kind: Any = type(module)
            odd = _is_odd(kind)
            if not odd and not module.training:
                continue
            if isinstance(module, torch.jit.ScriptModule):
                _refuse_script(self._where(module))
            if odd:
                raise ValueError(
                    f"explain(...): {self._where(module)} is quantised ({type(module).__name__}); its integer arithmetic "
                    "cannot be followed. Explain the float model it was made from."
                )
            if isinstance(module, _BatchNorm) or (isinstance(module, _DropoutNd) and module.p > 0):
                raise ValueError(
                    f"explain(...): {self._where(module)} ({type(module).__name__}) is in training mode, so the output depends "
                    "on chance or on the other rows. Call model.eval() first."
                )

    def _where(self, module: nn.Module) -> str:
        name = self.names.get(id(module))
        return f"module {name!r}" if name else "the model" if name == "" else f"a {type(module).__name__}"


@functools.cache
def _is_odd(kind: type[nn.Module]) -> bool:
    """Modules of this type are scripted or quantised."""
    return issubclass(kind, torch.jit.ScriptModule) or "quantized" in kind.__module__


def _modules(model: Any) -> list[nn.Module]:
    """All modules of a model, each once."""
    found = {id(model): model} if isinstance(model, nn.Module) else {}
    waiting = list(found.values())
    while waiting:
        for child in waiting.pop()._modules.values():
            if child is not None and id(child) not in found:
                found[id(child)] = child
                waiting.append(child)
    return list(found.values())


class Attributes:
    """The attributes of some modules and what those that can change contain, as they were."""

    def __init__(self, modules: list[nn.Module]) -> None:
        kept: list[Any] = [vars(module) for module in modules]
        inside = [value for now in kept for value in now.values() if type(value) in (list, dict, set)]
        self.empty = [value for value in inside if not value]  # most of them, such as dictionaries of hooks
        self.kept = kept + [value for value in inside if value]
        self.before = [now.copy() for now in self.kept]
        self.names, self.values = _contents(self.kept)

    def __enter__(self) -> Callable[[], None]:
        return self.put_back

    def __exit__(self, *error: object) -> None:
        self.put_back()

    def put_back(self) -> None:
        """Undo what has changed, and that alone: others may be using the model at the same time."""
        names, values = _contents(self.kept)
        if not any(self.empty) and names == self.names and len(values) == len(self.values):
            if all(map(operator.is_, values, self.values)):  # by identity: tensors are not compared
                return
        for now in self.empty:
            if now:
                now.clear()
        for now, before in zip(self.kept, self.before, strict=True):
            if isinstance(now, list):
                if len(now) != len(before) or not all(map(operator.is_, now, before)):
                    now[:] = before
            elif isinstance(now, set):
                if now != before:
                    now.clear()
                    now.update(before)
            else:
                for name in now.keys() - before.keys():
                    del now[name]
                for name, value in before.items():
                    if now.get(name) is not value:
                        now[name] = value


def _contents(containers: list[Any]) -> tuple[list[Any], list[Any]]:
    """All names in these dictionaries, and all that these containers hold, in order."""
    dicts = [container for container in containers if type(container) is dict]
    others = [container for container in containers if type(container) is not dict]
    chain = itertools.chain.from_iterable
    return list(chain(dicts)), [*chain(map(dict.values, dicts)), *chain(others)]


def _refuse_script(where: str) -> None:
    raise ValueError(
        f"explain(...): {where} is a TorchScript program; its calls cannot be seen. Explain the eager module it was made from."
    )


class Sensitivity:
    """The conflict sensitivity constant c of each module, by its path."""

    def __init__(self, c: float | Mapping[str, float], names: dict[int, str]) -> None:
        self._patterns: list[tuple[str, float]] = []
        self._default = 0.5
        if isinstance(c, Mapping):
            for pattern, value in c.items():
                if not any(fnmatch.fnmatchcase(name, pattern) for name in names.values()):
                    known = ", ".join(repr(name) for name in names.values() if name)
                    raise ValueError(f"CAFE(c={{{pattern!r}: ...}}): no module of the model matches. It has: {known}.")
                self._patterns.append((pattern, _in_range(value)))
            self._patterns.sort(key=lambda item: -sum(letter not in "*?[]" for letter in item[0]))
        else:
            self._default = _in_range(c)
        self._known: dict[str, float] = {}

    def __call__(self, path: str) -> float:
        """The most specific pattern that matches decides."""
        if not self._patterns:
            return self._default
        if path not in self._known:
            matching = (value for pattern, value in self._patterns if fnmatch.fnmatchcase(path, pattern))
            self._known[path] = next(matching, self._default)
        return self._known[path]


def _in_range(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"CAFE(c={value!r}): the conflict sensitivity constant is a number between 0 and 1.")
    return float(value)
