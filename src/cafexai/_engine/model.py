"""The user's model: unwrapped, looked at, never changed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from .._inputs.trees import refuse_trees
from .._torch import BatchNorm, Dropout
from .session import OpenSession
from .state_guard import StateGuard


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
        refuse_trees(model, f"CAFE({type(model).__name__})")
        hint = " For a scikit-learn model: CAFE(cafexai.from_sklearn(model))." if hasattr(model, "predict") else ""
        raise ValueError(f"CAFE({type(model).__name__}): give a PyTorch module or a function of tensors.{hint}")
    _refuse_predict(model)
    return model


def _refuse_predict(model: Any) -> None:
    """Refuse ``estimator.predict_proba``, which SHAP takes: it computes with numpy, and nothing is left to follow."""
    owner, name = getattr(model, "__self__", None), str(getattr(model, "__name__", ""))
    predicts = name.startswith(("predict", "decision_function")) and hasattr(owner, "get_params")
    if predicts and not isinstance(owner, nn.Module):
        call = f"CAFE({type(owner).__name__}.{name})"
        refuse_trees(owner, call)
        remedy = "CAFE(net)" if hasattr(owner, "module_") else "CAFE(cafexai.from_sklearn(model))"
        raise ValueError(f"{call}: scores follow the layers of a model, and this gives numbers only. Give the model: {remedy}.")


_warned: weakref.WeakSet[Any] = weakref.WeakSet()  # models that the user was warned about
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
        self.session: OpenSession | None = None
        self._opening = threading.Lock()

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

    def keywords(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """These names if forward takes arguments by them; else none, and arguments go by their places."""
        try:
            known = inspect.signature(getattr(self.model, "forward", self.model)).parameters
        except (TypeError, ValueError):
            return ()
        open_ended = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
        return names if open_ended or all(name in known for name in names) else ()

    def needed_arguments(self) -> tuple[str, ...]:
        """The names of the arguments that forward cannot do without; none where that is not known."""
        try:
            known = inspect.signature(getattr(self.model, "forward", self.model)).parameters.values()
        except (TypeError, ValueError):
            return ()
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(one.name for one in known if one.kind in plain and one.default is inspect.Parameter.empty)

    def first_warning(self) -> bool:
        """True once for every model."""
        with contextlib.suppress(TypeError):  # a callable that cannot be remembered
            known = self.model in _warned
            _warned.add(self.model)
            return not known
        return True

    @contextlib.contextmanager
    def keep_results(self) -> Iterator[None]:
        """A session: in here the model must not change. Blocks in one another, and in several threads, share one session."""
        with self._opening:
            if self.session is None:
                self.session = OpenSession(self.model)
            session = self.session
            session.depth += 1
        try:
            yield
            session.check_contents()
        finally:
            with self._opening:
                session.depth -= 1
                if not session.depth:
                    self.session = None

    @contextlib.contextmanager
    def guard_state(self) -> Iterator[None]:
        """The model may run in here; what it stores, writes and draws is undone."""
        guard = StateGuard(self.model)
        try:
            with guard:
                yield
        finally:
            guard.restore()

    def has_module(self, call: str, name: str | None) -> None:
        """Refuse a name that no module has, and a module in place of its name."""
        if own := self.names.get(id(name)):
            raise ValueError(f"{call}(..., layer=...): give the name of the layer, not the module: layer={own!r}.")
        if name is not None and name not in self.names.values():
            known = ", ".join(repr(n) for n in self.names.values() if n)
            raise ValueError(f"{call}(..., layer={name!r}): the model has no such module. It has: {known}.")

    def ready(self, call: str = "explain") -> None:
        """Refuse models whose calls cannot be seen, or that would behave differently on each pass."""
        if isinstance(self.model, torch.jit.ScriptFunction):
            _refuse_script(call, "the function")
        session = self.session  # read once: another thread may end it
        if session is not None:
            session.check_versions(call)
        for module in self._look():
            kind: Any = type(module)
            odd = _is_odd(kind)
            if not odd and not module.training:
                continue
            if isinstance(module, torch.jit.ScriptModule):
                _refuse_script(call, self._where(module))
            if isinstance(module, LazyModuleMixin):
                if module.has_uninitialized_params():
                    raise ValueError(
                        f"{call}(...): {self._where(module)} ({type(module).__name__}) has no weights before its first call: "
                        "call model(x) once."
                    )
            elif odd:
                raise ValueError(
                    f"{call}(...): {self._where(module)} is quantised ({type(module).__name__}); its integer arithmetic "
                    "cannot be followed. Explain the float model it was made from."
                )
            self._refuse_training(module, call)

    def check_settled(self, call: str) -> None:
        """Refuse models whose output depends on chance or on the other rows."""
        for module in self._look():
            self._refuse_training(module, call)

    def _refuse_training(self, module: nn.Module, call: str) -> None:
        if not module.training:
            return
        drops = module.p if isinstance(module, Dropout) else module.dropout if isinstance(module, nn.RNNBase) else 0
        if isinstance(module, BatchNorm) or drops:
            raise ValueError(
                f"{call}(...): {self._where(module)} ({type(module).__name__}) is in training mode, so the output depends "
                "on chance or on the other rows. Call model.eval() first."
            )

    def _where(self, module: nn.Module) -> str:
        name = self.names.get(id(module))
        return f"module {name!r}" if name else "the model" if name == "" else f"a {type(module).__name__}"


@functools.cache
def _is_odd(kind: type[nn.Module]) -> bool:
    """Modules of this type are scripted or quantised, or may have no weights yet."""
    return issubclass(kind, (torch.jit.ScriptModule, LazyModuleMixin)) or "quantized" in kind.__module__


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


def _refuse_script(call: str, where: str) -> None:
    raise ValueError(
        f"{call}(...): {where} is a TorchScript program; its calls cannot be seen. Explain the eager module it was made from."
    )
