"""What all scored values of one explained pass share: its settings, which are fixed, and its journal, which is written."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .flow_rule import LINEAR_FLOW, FlowRule
from .layer_values import LayerValues
from .session_cache import SessionCache
from .steps import Biases, Deltas, Magnitudes, Step

if TYPE_CHECKING:
    from .value import Scores

C = float | Mapping[str, float]  # the conflict sensitivity constant: of all modules, or by pattern of their names


class Sensitivity:
    """The conflict sensitivity constant c of each module, by its path."""

    def __init__(self, c: Any, names: Iterable[str] = ()) -> None:
        self._patterns: list[tuple[str, float]] = []
        self._default = 0.5
        if isinstance(c, Mapping):
            known = list(names)
            for pattern, value in c.items():
                if not any(fnmatch.fnmatchcase(name, pattern) for name in known):
                    listed = ", ".join(repr(name) for name in known if name)
                    raise ValueError(f"CAFE(c={{{pattern!r}: ...}}): no module of the model matches. It has: {listed}.")
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
        word = " A variant is given by its name: CAFE(model, variant=...)." if isinstance(value, str) else ""
        raise ValueError(f"CAFE(c={value!r}): the conflict sensitivity constant is a number between 0 and 1.{word}")
    return float(value)


HALF = Sensitivity(0.5)


@dataclass(frozen=True)
class Settings:
    """How a pass is explained."""

    carrier: type[Scores]  # how influence is carried along
    sensitivity: Callable[[str], float] = HALF  # the conflict sensitivity constant c of a module, by its path
    norm_mean: str = "bias"  # what the mean inside a normalisation is: "bias" (the paper) or "linear"
    biases_in_reference: bool = False  # the reference is the model itself at the reference input, biases included
    dtype: torch.dtype = torch.float32  # scores are carried in this at least
    norms: str = "frozen"  # the statistics of normalisations: constants (the paper), or "open", values that depend on the input
    attention: str = "frozen"  # attention weights: constants (the paper), "open", or "local": the gradient of the softmax
    softmax_temperature: float = 1.0  # by which logits are divided where the gradient of a softmax is taken
    flows: str = "peak"  # what shows of cancelled influence: the larger of its two ways (the paper), or their "mean"

    def flow_rule_at(self, path: str) -> FlowRule:
        """The flow rule of a module."""
        return FlowRule(self.flows, self.sensitivity(path))


@dataclass(frozen=True)
class Leaf:
    """A scored value that stands for an input: the input itself, or the embedding of its codes."""

    scores: Scores
    source: int  # which of the inputs
    places: Tensor | None = None  # for codes: the place in the input of each element (of the leading dimensions)


class Frozen(NamedTuple):
    """A value that was taken as a constant.

    ``kind``: "routing" (it only says where values flow: softmax, attention, the statistics of norms), "softmax" (routing that
    may also be the output), "comparison", "index" (places, which choose among values), or "choice" (all others).
    """

    operation: str
    path: str
    kind: str


class Run:
    """The journal of one explained forward pass."""

    def __init__(self, batch: int, settings: Settings, deltas: Deltas | None = None) -> None:
        self.batch = batch
        self.settings = settings
        self.path = ""  # the module that is running
        self.along_secants = False  # what is computed now belongs to the scale of a norm: functions are taken as linear
        self.leaves: list[Leaf] = []  # the explained inputs, in the order in which they were met
        self.closed = False  # the explanation begins at a layer that was met: no further leaves
        self.steps: list[tuple[Step, Any, Any]] | None = None  # the backward pass, where it is known without torch's graph
        self.state = settings.carrier.new_state()  # what the carrier itself remembers of the pass
        self.only_net = False  # positive and negative scores are not needed
        self.biases = Biases(batch)
        self.magnitudes = Magnitudes()
        self.cache: SessionCache | None = None  # what a session keeps
        self.layers: LayerValues | None = None  # what large layers gave in a plain run
        self.deltas = deltas  # what several passes over the same rows have in common
        self.coarsest = torch.float64  # the shortest floating point type that the model has computed in
        self.operations: dict[str, int] = {}  # rule -> number of calls
        self.frozen: dict[Frozen, int] = {}  # -> number of calls
        self.cuts: list[Scores] = []  # values of which the model made integers or numbers of Python, so that influence is lost
        self.may_warn: Callable[[], bool] = lambda: True  # whether the user was not warned about this model yet
        self.notes: dict[str, None] = {}  # what the explanation has to say of this pass
        self._infinite: dict[str, str] = {}  # module -> why a value there is not finite

    def release(self) -> None:
        """Release what the backward pass needs. Leaves refer to their run, so it would wait for the garbage collector."""
        self.leaves.clear()
        self.cuts.clear()
        self.state.release()
        self.steps = self.layers = None

    def use_cache(self, cache: SessionCache) -> None:
        """Reuse what earlier passes of a session have computed."""
        self.cache, self.magnitudes = cache, Magnitudes(cache)

    def at_reference(self, layer: Any, fn: Callable[[Tensor], Tensor], reference: Tensor, *constants: Tensor | None) -> Tensor:
        """What a layer gives at its reference; in a session computed once."""
        return fn(reference) if self.cache is None else self.cache.at_reference(layer, fn, reference, constants)

    def linear_at_reference(self, reference: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The same for a linear layer in the precision of its reference."""
        return self.at_reference("linear", lambda r: F.linear(r, weight, bias), reference, weight, bias)

    def absolute(self, constant: Any) -> Any:
        """The absolute value of a constant."""
        cache = self.cache
        if cache is None or not isinstance(constant, Tensor) or not cache.owns(constant):
            return abs(constant)
        return cache.absolute(constant, constant.dtype)

    def wide(self, x: Tensor) -> Tensor:
        """An input in the precision that scores are carried in."""
        return x.to(torch.promote_types(x.dtype, self.settings.dtype))

    @property
    def flow_rule(self) -> FlowRule:
        """The flow rule where the pass is now."""
        return LINEAR_FLOW if self.along_secants else self.settings.flow_rule_at(self.path)

    @contextlib.contextmanager
    def secants(self) -> Iterator[None]:
        """What is computed meanwhile belongs to the scale of a norm."""
        before, self.along_secants = self.along_secants, True
        try:
            yield
        finally:
            self.along_secants = before

    def note_operation(self, name: str) -> None:
        """Count a call."""
        self.operations[name] = self.operations.get(name, 0) + 1

    def note_dtype(self, dtype: torch.dtype) -> None:
        """Remember how exactly the model itself computes."""
        if dtype is not self.coarsest and torch.finfo(dtype).eps > torch.finfo(self.coarsest).eps:
            self.coarsest = dtype

    def note_infinite(self, reason: str) -> None:
        """Remember why values of the pass are not finite: an error only if they reach the explained output."""
        self._infinite.setdefault(self.path, reason)

    def refuse_infinite(self) -> None:
        """The explained output or its scores are not finite: say why, if it is known."""
        for path, reason in self._infinite.items():
            raise ValueError(f"explain(...): {reason}" + (f" (In module {path!r}.)" if path else ""))

    def note_mixed_rows(self, operation: str) -> None:
        """Remember that rows depend on each other by a value that is taken as a constant."""
        place = f" in {self.path}" if self.path else ""
        self.notes[
            f"Rows depend on each other: {operation}{place} is of several rows. Its result is taken as a constant, so a "
            "row's scores are valid for this batch only. batch_size=1 explains every row by itself."
        ] = None

    def note_frozen(self, operation: str, kind: str = "choice") -> None:
        """Remember that a value was taken as a constant here."""
        key = Frozen(operation, self.path, kind)
        self.frozen[key] = self.frozen.get(key, 0) + 1
