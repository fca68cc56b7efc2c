"""The user's model: unwrapped, looked at, never changed."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any, TypeVar, cast

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


F = TypeVar("F", bound=Callable[..., Any])


def with_gradients(method: F) -> F:
    """Callers may have switched gradients off; Captum's metrics do."""

    @functools.wraps(method)
    def wrapped(*args: Any, **options: Any) -> Any:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            return method(*args, **options)
        with torch.inference_mode(False), torch.enable_grad():
            return method(*args, **options)

    return cast(F, wrapped)


class Subject:
    """A model with what explaining needs to know of it."""

    def __init__(self, model: Any) -> None:
        self.model = unwrap(model)
        self.names: dict[int, str] = {}  # id of each module -> its path; the model itself is ""
        self._inside: list[dict[str, nn.Module | None]] = []  # what was in each module when the names were made
        self._look()
        self.takes_raw = hasattr(type(self.model), "from_raw")  # it comes with a preprocessing step of its own

    def _look(self) -> list[nn.Module]:
        """All modules; their names are made anew where these have changed."""
        modules = _modules(self.model)
        inside = [module._modules for module in modules]
        if inside != self._inside:
            self._inside = [dict(children.items()) for children in inside]
            self.names = {id(m): name for name, m in self.model.named_modules()}
        return modules

    def __reduce__(self) -> Any:
        """A copy looks at its own modules."""
        return Subject, (self.model,)

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

    def ready(self, call: str = "explain") -> None:
        """Refuse models whose calls cannot be seen, or that would behave differently on each pass."""
        if isinstance(self.model, torch.jit.ScriptFunction):
            _refuse_script(call, "the function")
        for module in self._look():
            kind: Any = type(module)
            odd = _is_odd(kind)
            if not odd and not module.training:
                continue
            if isinstance(module, torch.jit.ScriptModule):
                _refuse_script(call, self._where(module))
            if odd:
                raise ValueError(
                    f"{call}(...): {self._where(module)} is quantised ({type(module).__name__}); its integer arithmetic "
                    "cannot be followed. Explain the float model it was made from."
                )
            self._refuse_training(module, call)

    def settled(self, call: str) -> None:
        """Refuse models whose output depends on chance or on the other rows."""
        for module in self._look():
            self._refuse_training(module, call)

    def _refuse_training(self, module: nn.Module, call: str) -> None:
        if not module.training:
            return
        drops = module.p if isinstance(module, _DropoutNd) else module.dropout if isinstance(module, nn.RNNBase) else 0
        if isinstance(module, _BatchNorm) or drops:
            raise ValueError(
                f"{call}(...): {self._where(module)} ({type(module).__name__}) is in training mode, so the output depends "
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


def _refuse_script(call: str, where: str) -> None:
    raise ValueError(
        f"{call}(...): {where} is a TorchScript program; its calls cannot be seen. Explain the eager module it was made from."
    )
