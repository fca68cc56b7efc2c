"""CAFE: the explained forward pass, its checks, and the backward passes that distribute the scores."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from . import rules as _rules  # noqa: F401  (fills the table)
from .explanation import Explanation, Tensors
from .groups import Groups
from .inputs import Inputs, Reference, choose_target, prepare, references
from .law import LawBroken, gap, tolerance
from .models_in import Sensitivity, module_names, owned_tensors, ready, unwrap
from .path import PathScores
from .registry import UnsupportedOperation
from .scores import Run, Scores
from .tensors import Frozen, Scored
from .trace import Trace, module_paths


@dataclass
class _Passed:
    """What a forward pass left behind for the backward passes."""

    run: Run
    leaves: list[PathScores]
    chosen: PathScores
    target: Tensor
    output_error: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Request:
    """Where an explanation starts and ends."""

    output: Any = None
    layer: str | None = None
    start: bool = True
    target_layer: str | None = None
    check: str = "output"


class _Reached(BaseException):
    """Ends a forward pass at the target layer."""

    def __init__(self, output: Any) -> None:
        self.output = output


F = TypeVar("F", bound=Callable[..., Any])


def _with_gradients(method: F) -> F:
    """Callers may have switched gradients off; Captum's metrics do."""

    @functools.wraps(method)
    def wrapped(*args: Any, **options: Any) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            return method(*args, **options)

    return cast(F, wrapped)


class CAFE:
    """Conflict-aware feature-wise explanations of a PyTorch model.

    ``c`` is the conflict sensitivity constant, a number in [0, 1] or one per pattern of module names
    (``{"encoder.*": 0.0, "head": 1.0}``; other modules 0.5). ``background`` is data for the baselines "mean", "median"
    and "mode". The model may be any callable; nothing is ever written on it.
    """

    def __init__(
        self, model: Any, c: float | Mapping[str, float] = 0.5, netting: str = "path", *, background: Any = None
    ) -> None:
        if netting != "path":
            raise ValueError(f'CAFE(..., netting={netting!r}): only "path", the method as published, exists in this version.')
        self.model = unwrap(model)
        self.c = c
        self.netting = netting
        self.background = background
        self._names = module_names(self.model)
        self._sensitivity = Sensitivity(c, self._names)

    @_with_gradients
    def explain(
        self, inputs: Any, baselines: Any = None, target: Any = None, additional_forward_args: Any = None, *,
        output: Any = None, layer: str | None = None, start: bool = True, target_layer: str | None = None,
        feature_groups: Any = None, feature_names: Sequence[str] | None = None, batch_size: int | None = None,
        show_progress: bool | None = None, check: str = "output",
    ) -> Explanation:
        """Positive and negative scores of every feature and of the biases for one output of each row.

        ``output`` selects from an output of several tensors (key, index or function). ``layer`` names a module: with
        ``start`` its output is the input to be explained (baselines are in its shape), without, the scores flow from
        the inputs and are reported there. ``target_layer`` makes ``target`` a neuron of that module's output.
        ``feature_groups`` gives one score per group: ``{"sex": [3, 4]}`` or an integer mask shaped like one row.
        ``check="each"`` checks the law after every operation.
        """
        request = _Request(output, layer, start, target_layer, check)
        given, extra = self._check(inputs, additional_forward_args, request, feature_names)
        pieces = []
        for rows in _chunks(given.rows, batch_size, show_progress):
            pieces.append(self._rows(given, baselines, target, extra, request, rows))
        explanation = _concatenate(pieces, given, self._settings(request))
        return Groups(feature_groups, explanation).apply(explanation) if feature_groups is not None else explanation

    @_with_gradients
    def attribute(
        self, inputs: Any, baselines: Any = None, target: Any = None, additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        """The combined scores, in the form of Captum: shaped like the inputs, a tuple for a tuple.

        The convergence delta is what the scores of features and biases lack of output - baseline output. One backward
        pass instead of two.
        """
        request = _Request()
        given, extra = self._check(inputs, additional_forward_args, request, None)
        stacks = references(baselines, given, self.background, self.model)
        combined: list[Tensor] = []
        error = torch.zeros(())
        for reference in stacks:
            passed = self._forward(given, reference, target, extra, request, slice(0, given.rows))
            scores, _, lack = _backward(passed, passed.chosen.delta, keep=False)
            combined = [old + new for old, new in zip(combined, scores, strict=True)] if combined else scores
            error = error + lack
        combined = [_like(part / len(stacks), x) for part, x in zip(combined, given.tensors, strict=True)]
        result = tuple(combined) if given.is_tuple else combined[0]
        return (result, error / len(stacks)) if return_convergence_delta else result

    # Captum's own helpers ask these of an explainer.
    def has_convergence_delta(self) -> bool:
        """attribute can return its convergence delta."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Scores are contributions, not sensitivities."""
        return True

    def _settings(self, request: _Request) -> dict[str, Any]:
        from . import __version__

        c = dict(self.c) if isinstance(self.c, Mapping) else self.c
        return {
            "c": c, "netting": self.netting, "layer": request.layer, "start": request.start,
            "target_layer": request.target_layer, "version": __version__, "torch": str(torch.__version__),
        }

    def _check(
        self, inputs: Any, extra: Any, request: _Request, feature_names: Sequence[str] | None
    ) -> tuple[Inputs, tuple[Any, ...]]:
        if request.check not in ("output", "each"):
            raise ValueError(f'explain(..., check={request.check!r}): the words are "output" and "each".')
        ready(self.model)
        for option, name in (("layer", request.layer), ("target_layer", request.target_layer)):
            if name is not None and name not in self._names.values():
                known = ", ".join(repr(n) for n in self._names.values() if n)
                raise ValueError(f"explain(..., {option}={name!r}): the model has no such module. It has: {known}.")
        extra = () if extra is None else extra if isinstance(extra, tuple) else (extra,)
        return prepare(inputs, self.model, feature_names if request.layer is None else None), extra

    def _rows(
        self, given: Inputs, baselines: Any, target: Any, extra: tuple[Any, ...], request: _Request, rows: slice
    ) -> list[dict[str, Any]]:
        """The explanation of some rows, one entry per baseline."""
        latent = request.layer is not None and request.start
        stacks = [(None,) * len(given.tensors)] if latent else references(baselines, given, self.background, self.model)
        part = Inputs(tuple(x[rows] for x in given.tensors), given.is_tuple, given.names)
        results = []
        for reference in stacks:
            cut = tuple(None if r is None else r[rows] for r in reference)
            passed = self._forward(part, cut, target, _cut(extra, rows, given.rows), request, rows, baselines)
            combined, net_ledger, lack = _backward(passed, passed.chosen.delta, keep=True)
            total, all_ledger, _ = _backward(passed, passed.chosen.total, keep=False)
            _warn_depth(passed.chosen)
            results.append(_result(passed, combined, total, net_ledger, all_ledger, lack))
        return results

    def _forward(
        self, given: Inputs, reference: tuple[Reference, ...], target: Any, extra: tuple[Any, ...],
        request: _Request, rows: slice, baselines: Any = None,
    ) -> _Passed:
        with torch.random.fork_rng(devices=_cuda(given)):
            random = torch.get_rng_state()
            run = Run(given.rows, self._sensitivity)
            trace = Trace(run, PathScores, owned_tensors(self.model), request.check == "each")
            latent = request.layer is not None and request.start
            tensors = tuple(x.clone() if x.is_inference() else x for x in given.tensors)
            leaves = [] if latent else [
                PathScores.of_input(run, _wide(x), None if r is None else _wide(r))
                for x, r in zip(tensors, reference, strict=True)
            ]
            arguments = tensors if latent else tuple(Scored(leaf, x.dtype) for leaf, x in zip(leaves, tensors, strict=True))
            found: dict[str, Any] = {}

            def after(path: str, value: Any) -> Any:
                if path == request.layer:
                    if "layer" in found:
                        raise ValueError(f"explain(..., layer={path!r}): the model calls this module more than once.")
                    return _at_layer(path, value, found, request, run, baselines, self)
                return None

            raw = self._call(arguments, extra, trace, run, request, after)
            torch.set_rng_state(random)
            plain = self._plain_output(tensors, extra, request)
            if request.layer is not None:
                leaves = [found["layer"]] if "layer" in found else _never(request.layer)
            return self._choose(raw, plain, leaves, run, target, request, rows)

    def _call(
        self, arguments: tuple[Any, ...], extra: tuple[Any, ...], trace: Trace, run: Run, request: _Request,
        after: Callable[[str, Any], Any],
    ) -> Any:
        """Run the model on scored values; all operations without a rule are reported together."""
        hook = _until(request.target_layer, after) if request.layer or request.target_layer is not None else None
        try:
            with trace, module_paths(run, self._names, hook):
                raw = self.model(*arguments, *extra)
        except _Reached as reached:
            raw = reached.output
        except Exception:
            if not trace.problems:
                raise
        if trace.problems:
            raise unsupported(trace)
        return raw

    @_with_gradients
    def _survey(self, inputs: Any, additional_forward_args: Any) -> Trace:
        """A forward pass for the list of its operations alone."""
        given, extra = self._check(inputs, additional_forward_args, _Request(), None)
        run = Run(given.rows, self._sensitivity)
        trace = Trace(run, PathScores, owned_tensors(self.model))
        arguments = tuple(Scored(PathScores.of_input(run, _wide(x), None), x.dtype) for x in given.tensors)
        with contextlib.suppress(UnsupportedOperation), torch.random.fork_rng(devices=_cuda(given)):
            self._call(arguments, extra, trace, run, _Request(), lambda path, value: None)
        return trace

    def _plain_output(self, tensors: tuple[Tensor, ...], extra: tuple[Any, ...], request: _Request) -> Any:
        """The model as it is, for comparison."""
        with torch.no_grad():
            if request.target_layer is None:
                return self.model(*tensors, *extra)
            try:
                with module_paths(Run(1, self._sensitivity), self._names, _until(request.target_layer, lambda path, value: None)):
                    self.model(*tensors, *extra)
            except _Reached as reached:
                return reached.output
        return _never(request.target_layer)

    def _choose(
        self, raw: Any, plain: Any, leaves: list[PathScores], run: Run, target: Any, request: _Request, rows: slice
    ) -> _Passed:
        """Compare the output with the plain one and pick the target."""
        output, expected = select_output(raw, request.output), select_output(plain, request.output)
        if not isinstance(output, (Scored, Frozen)):
            raise ValueError(
                "explain(...): the output does not depend on the input in a way that can be followed. It is a constant, or "
                "forward leaves torch (numpy, a script, another thread) or detaches its value on the way."
            )
        scores: Scores = output.logits if isinstance(output, Frozen) else output.state
        found = output.as_subclass(Tensor) if isinstance(output, Frozen) else scores.value
        error = gap(found, expected.to(found.dtype))
        limit = tolerance(expected.dtype if expected.dtype.itemsize < 4 else found.dtype)
        if not bool(found.isfinite().all()):
            raise ValueError(
                'explain(...): values under explanation are not finite at the output. check="each" finds the operation.'
            )
        if not error <= limit:
            raise LawBroken(
                f"explain(...): reference + positive - negative differs from model(x) by {error:.3g} relative (allowed {limit:.3g}). "
                'Either a rule is wrong (check="each" finds the operation) or the model is not deterministic.'
            )
        notes = []
        if isinstance(output, Frozen) or scores.logits is not None:
            notes.append("The final sigmoid or softmax is left out: the scores are about its logit.")
            scores = scores if isinstance(output, Frozen) else scores.logits or scores
        if scores.rows is not None or not scores.ndim or scores.shape[0] != run.batch:
            raise ValueError(
                f"explain(...): the output of shape {tuple(scores.shape)} does not have one entry per row in dimension 0, for "
                f"{run.batch} row(s). Select or reshape it: output=lambda out: ..."
            )
        pick, index = choose_target(scores.value, target, rows)
        chosen = scores.reshape(pick)
        assert isinstance(chosen, PathScores)
        size = float((found - expected.to(found.dtype)).abs().max().item())
        return _Passed(run, leaves, chosen, index, size, tuple(notes))


def unsupported(trace: Trace) -> UnsupportedOperation:
    """One error for all calls that have no rule."""
    lines = "\n".join(f"  - {problem}" for problem in trace.problems)
    return UnsupportedOperation(
        f"explain(...): {len(trace.problems)} operation(s) of this model cannot be explained:\n{lines}\n"
        "Nothing is approximated instead. Write the operation with supported ones, or register a rule:\n"
        '  @cafexai.rule(torch.some_function)\n  def some_function(x, ...): return x.elementwise(torch.some_function)',
        tuple(trace.problems),
    )


def select_output(raw: Any, output: Any) -> Any:
    """The one tensor to explain among the outputs of the model."""
    if callable(output) and not isinstance(output, str):
        return output(raw)
    if output is not None:
        try:
            return raw[output] if not isinstance(output, str) or isinstance(raw, Mapping) else getattr(raw, output)
        except (KeyError, IndexError, AttributeError, TypeError):
            raise ValueError(f"explain(..., output={output!r}): the model's output has {_parts_of(raw)}.") from None
    if isinstance(raw, Tensor):
        return raw
    values = list(raw.values()) if isinstance(raw, Mapping) else list(raw) if isinstance(raw, (tuple, list)) else []
    tensors = [value for value in values if isinstance(value, Tensor)]
    if len(tensors) == 1:
        return tensors[0]
    raise ValueError(f"explain(...): which output? The model returns {_parts_of(raw)}. Give output= a key, an index or a function.")


def _parts_of(raw: Any) -> str:
    if isinstance(raw, Mapping):
        return f"the keys {list(raw)}"
    if isinstance(raw, (tuple, list)):
        return f"{len(raw)} entries"
    return f"a {type(raw).__name__}"


def _until(layer: str | None, after: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """Watch the outputs of modules and end the pass at one of them."""

    def watch(path: str, value: Any) -> Any:
        replaced = after(path, value)
        if path == layer:
            raise _Reached(value if replaced is None else replaced)
        return replaced

    return watch


def _never(layer: str | None) -> Any:
    raise ValueError(f"explain(...): the module {layer!r} was not called in this forward pass.")


def _at_layer(
    path: str, value: Any, found: dict[str, Any], request: _Request, run: Run, baselines: Any, cafe: CAFE
) -> Any:
    """Begin at a hidden layer, or remember its scores."""
    if not isinstance(value, Tensor):
        raise ValueError(f"explain(..., layer={path!r}): its output is a {type(value).__name__}, not a tensor.")
    if not request.start:
        if not isinstance(value, Scored):
            raise ValueError(f"explain(..., layer={path!r}, start=False): its output does not depend on the input.")
        found["layer"] = value.state
        return None
    latent = value.detach().clone()
    (reference,), *more = references(baselines, Inputs((latent,), False, None), None, cafe.model)
    if more:
        raise ValueError("explain(..., layer=..., baselines=...): a stack of baselines is not taken at a hidden layer.")
    found["layer"] = PathScores.of_input(run, _wide(latent), None if reference is None else _wide(reference))
    return Scored(found["layer"], latent.dtype)


def _backward(passed: _Passed, seed: Tensor, keep: bool) -> tuple[list[Tensor], dict[str, Tensor], Tensor]:
    """Distribute the seed over the features and, in the ledger, over the biases; check that nothing is lost."""
    tensors = [tensor for leaf in passed.leaves for tensor in leaf.parts]
    gradients = torch.autograd.grad(seed.sum(), tensors, retain_graph=keep, allow_unused=True)
    if all(gradient is None for gradient in gradients):
        raise ValueError("explain(...): the output does not depend on the input. It comes from constants of the model alone.")
    scores = []
    size = passed.chosen.total.detach().double() + passed.chosen.value.double().abs()
    for place, leaf in enumerate(passed.leaves):
        terms = [
            tensor.detach() * gradient
            for tensor, gradient in zip(leaf.parts, gradients[2 * place : 2 * place + 2], strict=True)
            if gradient is not None
        ]
        scores.append(sum(terms[1:], terms[0]) if terms else torch.zeros_like(leaf.delta))
        size = sum((_per_row(term.abs()) for term in terms), size)
    ledger, sizes = passed.run.ledger.take()
    lack = sum((_per_row(s) for s in scores), -seed.detach().double())
    lack = sum((share.double() for share in ledger.values()), lack)
    worst = (lack.abs() / (size + sizes.double()).clamp_min(1e-300)).max().item()
    limit = tolerance(seed.dtype)
    if not worst <= limit:
        raise LawBroken(
            f"explain(...): the scores of features and biases miss the output by {worst:.3g} of all influence (allowed {limit:.3g}): "
            "a path from the input was lost. Rows may influence each other, or a rule is wrong."
        )
    return scores, ledger, lack


def _per_row(scores: Tensor) -> Tensor:
    return scores.reshape(len(scores), -1).sum(1, dtype=torch.float64)


def _warn_depth(chosen: PathScores) -> None:
    """Say so when the cancelled influence is so large that positive - negative has few correct digits."""
    total, delta = chosen.total.detach().mean().item(), chosen.delta.detach().abs().mean().item()
    digits = torch.finfo(chosen.delta.dtype).eps * total
    if digits > 1e-3 * delta > 0:
        warnings.warn(
            f"The total influence is {total / delta:.3g} times the change of the output: in {chosen.delta.dtype} positive and "
            f"negative are rounded to about {digits:.2g}, against a change of the output of {delta:.3g}. combined keeps its digits, "
            "positive - negative does not. The published scores grow with depth: compare them only within one model, lower c, "
            "start at a later layer, or explain in float64 (model.double(), x.double()).",
            stacklevel=5,
        )


def _result(
    passed: _Passed, combined: list[Tensor], total: list[Tensor], net: dict[str, Tensor], every: dict[str, Tensor],
    lack: Tensor,
) -> dict[str, Any]:
    chosen = passed.chosen
    bias = {
        layer: torch.stack([_half(every[layer] + net[layer]), _half(every[layer] - net[layer]), net[layer]], 1)
        for layer in net
    }
    return {
        "positive": [_half(t + c) for t, c in zip(total, combined, strict=True)],
        "negative": [_half(t - c) for t, c in zip(total, combined, strict=True)],
        "combined": combined,
        "bias_by_layer": bias,
        "output": chosen.value,
        "baseline_output": torch.zeros_like(chosen.value) if chosen.reference is None else chosen.reference.clone(),
        "completeness_error": lack,
        "output_error": passed.output_error,
        "target": passed.target,
        "inputs": [leaf.value for leaf in passed.leaves],
        "baselines": [
            torch.zeros_like(leaf.value) if leaf.reference is None else leaf.reference.detach() for leaf in passed.leaves
        ],
        "frozen": [f"{op} in {path or 'the model'} ({n}x)" for (op, path), n in passed.run.frozen.items()],
        "notes": passed.notes,
    }


def _half(doubled: Tensor) -> Tensor:
    return (doubled / 2).clamp_min(0)


def _concatenate(pieces: list[list[dict[str, Any]]], given: Inputs, settings: dict[str, Any]) -> Explanation:
    """Average over baselines, then put the batches of rows one below the other."""
    batches = [_averaged(piece) for piece in pieces]
    first = batches[0]
    single = not given.is_tuple or settings["layer"] is not None

    def tensors(name: str) -> Tensors:
        parts = tuple(torch.cat([b[name][i] for b in batches]) for i in range(len(first[name])))
        return parts[0] if single else parts

    layers = dict.fromkeys(layer for b in batches for layer in b["bias_by_layer"])
    nothing = [torch.zeros(len(b["output"]), 3).to(b["output"]) for b in batches]
    return Explanation(
        positive=tensors("positive"), negative=tensors("negative"), combined=tensors("combined"),
        bias_by_layer={
            layer or "(model)": torch.cat([b["bias_by_layer"].get(layer, n) for b, n in zip(batches, nothing, strict=True)])
            for layer in layers
        },
        output=torch.cat([b["output"] for b in batches]),
        baseline_output=torch.cat([b["baseline_output"] for b in batches]),
        completeness_error=torch.cat([b["completeness_error"] for b in batches]),
        output_error=max(b["output_error"] for b in batches),
        target=torch.cat([b["target"] for b in batches]),
        inputs=tensors("inputs"), baselines=tensors("baselines"), feature_names=given.names, display=given.display,
        frozen=tuple(dict.fromkeys(line for b in batches for line in b["frozen"])), notes=first["notes"], settings=settings,
    )


def _averaged(entries: list[dict[str, Any]]) -> dict[str, Any]:
    if len(entries) == 1:
        return entries[0]
    mean = dict(entries[0])
    for name in ("positive", "negative", "combined", "baselines"):
        mean[name] = [sum(parts) / len(entries) for parts in zip(*(e[name] for e in entries), strict=True)]
    mean["bias_by_layer"] = {
        layer: sum(e["bias_by_layer"][layer] for e in entries) / len(entries) for layer in entries[0]["bias_by_layer"]
    }
    for name in ("baseline_output", "completeness_error"):
        mean[name] = sum(e[name] for e in entries) / len(entries)
    mean["output_error"] = max(e["output_error"] for e in entries)
    return mean


def _chunks(rows: int, batch_size: int | None, show_progress: bool | None) -> Any:
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"explain(..., batch_size={batch_size}): give a positive number of rows.")
    step = batch_size or rows
    slices = [slice(i, min(i + step, rows)) for i in range(0, rows, step)]
    if show_progress is False or (show_progress is None and len(slices) == 1):
        return slices
    from tqdm.auto import tqdm

    return tqdm(slices, desc="explaining", unit="batch", disable=None if show_progress is None else False)


def _cut(extra: tuple[Any, ...], rows: slice, count: int) -> tuple[Any, ...]:
    """Further arguments of forward that have one entry per row go with their rows."""
    whole = rows == slice(0, count)
    return extra if whole else tuple(
        a[rows] if isinstance(a, Tensor) and a.ndim and a.shape[0] == count else a for a in extra
    )


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize < 4 else x


def _like(scores: Tensor, x: Tensor) -> Tensor:
    return scores if x.dtype.itemsize < 4 else scores.to(x.dtype)


def _cuda(given: Inputs) -> list[int]:
    return sorted({x.device.index or 0 for x in given.tensors if x.device.type == "cuda"})


