"""The explained forward pass of a batch, compared with the plain one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import rules as _rules  # noqa: F401  (fills the table)
from .chain import along, stages_of
from .codes import Coded
from .inputs import Inputs, Reference, choose_target, references
from .law import LawBroken, all_finite, gap, tolerance
from .path import PathScores
from .paths import module_paths
from .registry import UnsupportedOperation
from .request import Batch, Passed, Request
from .scores import Leaf, Run, Scores
from .subject import Subject
from .tensors import Frozen, Scored
from .trace import Trace
from .weighted import Deltas


class _Reached(BaseException):
    """Ends a forward pass at the target layer."""

    def __init__(self, output: Any) -> None:
        self.output = output


def forward(
    subject: Subject, batch: Batch, request: Request, expected: Tensor | None = None, deltas: Deltas | None = None
) -> Passed:
    """Run the model on scored values and pick the target; the result must be ``expected``, by default that of a plain run.

    Both runs draw the same random numbers. ``deltas`` holds what an earlier pass over these rows has computed.
    """
    run = _run(subject, batch, request, deltas)
    try:
        stages = stages_of(subject, batch, request)
        if stages is not None:
            output: Any = along(run, batch, stages)
            return _choose(output, _plain(subject, batch, request) if expected is None else expected, batch, run, request)
        return _followed(subject, batch, request, expected, run)
    except BaseException:
        run.release()
        raise


def _followed(subject: Subject, batch: Batch, request: Request, expected: Tensor | None, run: Run) -> Passed:
    """The same call by call."""
    with _RandomNumbers(batch.tensors) as random_numbers, subject.kept() as put_back:
        trace = Trace(run, request.carrier, subject.owned_tensors, request.check == "each")
        if request.features is not None and not request.latent:
            run.features = request.features([x.shape[1:] for x in batch.tensors])
            if all(x.is_floating_point() for x in batch.tensors):
                run.features = run.features.changed(_changes(batch.tensors, batch.references))
        arguments = tuple(x.clone() for x in batch.tensors) if request.latent else _scored(run, batch)
        layer = _Layer(run, request)
        output = _call(subject, trace, (*arguments, *batch.extra), batch.options, request, layer.after)
        if expected is None:
            put_back()
            random_numbers.again()
            expected = _plain(subject, batch, request)
        return _choose(output, expected, batch, run, request)


def _run(subject: Subject, batch: Batch, request: Request, deltas: Deltas | None) -> Run:
    dtype = torch.float64 if request.double else torch.float32
    run = Run(len(batch.tensors[0]), request.sensitivity or subject.sensitivity, subject.norm_mean, dtype)
    run.biases_in_reference = request.biases_in_reference
    run.deltas = deltas
    if deltas is not None:
        deltas.rewind()
    return run


def _scored(run: Run, batch: Batch) -> tuple[Tensor, ...]:
    """The inputs as the model gets them: numbers carry scores, codes their places."""
    arguments: list[Tensor] = []
    for source, (x, reference) in enumerate(zip(batch.tensors, batch.references, strict=True)):
        if x.is_floating_point():
            scores = run.carrier.of_input(run, run.wide(x), None if reference is None else run.wide(reference))
            if run.features is not None:
                scores.belongs(source, _places(x))
            run.leaves.append(Leaf(scores, source))
            arguments.append(Scored(scores, x.dtype))
        else:
            arguments.append(Coded.of_input(run, x.clone(), None if reference is None else reference.clone(), source))
    return tuple(arguments)


def _explained(run: Run, batch: Batch, request: Request) -> tuple[list[Tensor], list[Reference]]:
    """What the scores are about, with its references."""
    if request.layer is not None:
        if not run.leaves:
            raise ValueError(f"explain(...): the module {request.layer!r} was not called in this forward pass.")
        scores = run.leaves[0].scores
        return [scores.value], [scores.reference]
    met = {leaf.source for leaf in run.leaves}
    if len(met) < len(batch.tensors):
        missing = min(set(range(len(batch.tensors))) - met)
        raise ValueError(
            f"explain(...): the codes of input {missing} never reached an embedding. Integer inputs are explained "
            "there; pass x.float() if these are quantities, or additional_forward_args if they are no features."
        )
    return [run.wide(x) if x.is_floating_point() else x for x in batch.tensors], list(batch.references)


def survey(subject: Subject, batch: Batch) -> Trace:
    """A forward pass for the list of its operations alone."""
    run = Run(len(batch.tensors[0]), subject.sensitivity)
    trace = Trace(run, PathScores, subject.owned_tensors)
    with contextlib.suppress(UnsupportedOperation), _RandomNumbers(batch.tensors), subject.kept():
        arguments = (*_scored(run, batch), *batch.extra)
        _call(subject, trace, arguments, batch.options, Request(output=lambda raw: raw), None)
    return trace


class _RandomNumbers:
    """As a context: leaves the random numbers of the caller alone. ``again`` draws those of the pass once more."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        devices = {x.device.index or 0 for x in tensors if x.is_cuda}
        self.cuda = [(device, torch.cuda.get_rng_state(device)) for device in devices]
        self.cpu = torch.get_rng_state()

    def again(self) -> None:
        torch.set_rng_state(self.cpu)
        for device, state in self.cuda:
            torch.cuda.set_rng_state(state, device)

    def __enter__(self) -> _RandomNumbers:
        return self

    def __exit__(self, *error: object) -> None:
        self.again()


class _Layer:
    """Begins at the output of a hidden module, or remembers its scores."""

    def __init__(self, run: Run, request: Request) -> None:
        self.run = run
        self.request = request
        self.met = False
        self.after = self._after if request.layer is not None else None

    def _after(self, path: str, value: Any) -> Any:
        if path != self.request.layer:
            return None
        if self.met:
            raise ValueError(f"explain(..., layer={path!r}): the model calls this module more than once.")
        if not isinstance(value, Tensor):
            raise ValueError(f"explain(..., layer={path!r}): its output is a {type(value).__name__}, not a tensor.")
        self.met = True
        if self.request.start:
            return self._begin(value.detach().clone())
        if not isinstance(value, Scored):
            raise ValueError(f"explain(..., layer={path!r}, start=False): its output does not depend on the input.")
        scores = value.state.reshape(lambda v: v.view_as(v))  # behind the layer's own bias
        self.run.leaves[:] = [Leaf(scores, 0)]
        self.run.closed = True
        return Scored(scores, value.dtype)

    def _begin(self, value: Tensor) -> Scored:
        (reference,), *more = references(self.request.latent_baselines, Inputs((value,), False, None), None, None)
        if more:
            raise ValueError("explain(..., layer=..., baselines=...): a stack of baselines is not taken at a hidden layer.")
        scores = self.run.carrier.of_input(
            self.run, self.run.wide(value), None if reference is None else self.run.wide(reference)
        )
        if self.request.features is not None:
            self.run.features = self.request.features([value.shape[1:]]).changed(_changes((value,), (reference,)))
            scores.belongs(0, _places(value))
        self.run.leaves[:] = [Leaf(scores, 0)]
        self.run.closed = True
        return Scored(scores, value.dtype)


def _changes(tensors: tuple[Tensor, ...], references: tuple[Reference, ...]) -> list[Tensor]:
    """Which elements differ from their reference."""
    return [(x != (0 if r is None else r)) for x, r in zip(tensors, references, strict=True)]


def _places(x: Tensor) -> Tensor:
    """The place of every element in its row."""
    return torch.arange(x[0].numel(), device=x.device).view(1, *x.shape[1:])


def _call(
    subject: Subject,
    trace: Trace,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    request: Request,
    after: Callable[[str, Any], Any] | None,
) -> Any:
    """Run the model on scored values; all operations without a rule are reported together."""
    output: Any = None
    try:
        with trace, module_paths(trace.run, subject.names, _until(request.target_layer, after)):
            output = select_output(_or_reached(subject, arguments, options), request.output)
    except Exception:
        if not trace.problems:
            raise
    finally:
        output = output.state if isinstance(output, Scored) else output
        trace.restore()
    if trace.problems:
        raise _unsupported(trace)
    return output


def plain_output(subject: Subject, batch: Batch, request: Request) -> Tensor:
    """The output of the model as it is, leaving the random numbers of the caller and the model alone."""
    with _RandomNumbers(batch.tensors), subject.kept():
        return _plain(subject, batch, request)


def _plain(subject: Subject, batch: Batch, request: Request) -> Tensor:
    arguments = (*(x.clone() for x in batch.tensors), *batch.extra)
    with torch.no_grad():
        if request.target_layer is None:
            return select_output(subject.model(*arguments, **batch.options), request.output)
        with module_paths(Run(1, subject.sensitivity), subject.names, _until(request.target_layer, None)):
            return select_output(_or_reached(subject, arguments, batch.options), request.output)


def _or_reached(subject: Subject, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    try:
        return subject.model(*arguments, **options)
    except _Reached as reached:
        return reached.output


def _until(layer: str | None, after: Callable[[str, Any], Any] | None) -> Callable[[str, Any], Any] | None:
    """Watch the outputs of modules and end the pass at one of them."""
    if layer is None:
        return after

    def watch(path: str, value: Any) -> Any:
        replaced = after(path, value) if after is not None else None
        if path == layer:
            raise _Reached(value if replaced is None else replaced)
        return replaced

    return watch


def _unsupported(trace: Trace) -> UnsupportedOperation:
    lines = "\n".join(f"  - {problem}" for problem in trace.problems)
    return UnsupportedOperation(
        f"explain(...): {len(trace.problems)} operation(s) of this model cannot be explained:\n{lines}\n"
        "Nothing is approximated instead. Write the operation with supported ones, or register a rule:\n"
        "  @cafexai.rule(torch.some_function)\n  def some_function(x, ...): return x.elementwise(torch.some_function)",
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
    raise ValueError(
        f"explain(...): which output? The model returns {_parts_of(raw)}. Give output= a key, an index or a function."
    )


def _parts_of(raw: Any) -> str:
    if isinstance(raw, Mapping):
        return f"the keys {list(raw)}"
    return f"{len(raw)} entries" if isinstance(raw, (tuple, list)) else f"a {type(raw).__name__}"


def _choose(output: Any, expected: Tensor, batch: Batch, run: Run, request: Request) -> Passed:
    """Compare the output with the plain one and pick the target."""
    if not isinstance(output, (Scores, Frozen)):
        frozen = ", ".join(operation for operation, _ in run.frozen) or "nothing"
        raise ValueError(
            "explain(...): the output does not depend on the input in a way that can be followed. It is a constant, or "
            f"was computed from values that are taken as constants (here: {frozen}), or forward leaves torch."
        )
    scores = output.logits if isinstance(output, Frozen) else output
    found = output.as_subclass(Tensor) if isinstance(output, Frozen) else scores.value
    _check_output(found, None if isinstance(output, Frozen) else scores.reference, expected, run)
    notes: tuple[str, ...] = request.notes
    if isinstance(output, Frozen) or scores.logits is not None:
        scores = scores if isinstance(output, Frozen) else scores.logits or scores
        notes = ("The final sigmoid or softmax is left out: the scores are about its logit.", *notes)
    if scores.rows is not None or not scores.ndim or scores.shape[0] != run.batch:
        raise ValueError(
            f"explain(...): the output of shape {tuple(scores.shape)} does not have one entry per row in dimension 0, for "
            f"{run.batch} row(s). Dimension 0 of the inputs is the batch (a single row is x[None]); the output can be "
            "selected or reshaped: output=lambda out: ..."
        )
    if request.every_class and scores.ndim > 2:
        raise ValueError(
            f'explain(..., target="all"): the output has shape {tuple(scores.shape)}; give it one of (rows, classes): output=.'
        )
    target = 0 if request.every_class else request.target
    pick, index = choose_target(scores.value, target, batch.rows, request.total or run.batch)
    chosen = scores.reshape(pick, aligned=True)
    return Passed(run, *_explained(run, batch, request), found, scores, chosen, index, expected, notes)


def _check_output(found: Tensor, reference: Tensor | None, expected: Tensor, run: Run) -> None:
    """The law, against a number that the engine did not make."""
    if not all_finite(found):
        raise ValueError(
            'explain(...): values under explanation are not finite at the output. check="each" finds the operation.'
        )
    error = gap(found, expected.to(found.dtype), reference)
    run.note_dtype(expected.dtype)
    limit = tolerance(run.coarsest)
    if not error <= limit:
        raise LawBroken(
            f"explain(...): reference + positive - negative differs from model(x) by {error:.3g} relative (allowed "
            f'{limit:.3g}). Either a rule is wrong (check="each" finds the operation) or the model is not deterministic.'
        )
