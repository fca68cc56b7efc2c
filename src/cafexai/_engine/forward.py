"""The explained forward pass of a batch, compared with the plain one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import BaseTorchFunctionMode

from .. import rules as _rules  # noqa: F401  (fills the table)
from .._core.backward import Passed
from .._core.foreign import call_foreign
from .._core.input_origin import Origin
from .._core.layer_values import LayerValues
from .._core.provenance import of_input
from .._core.run import Leaf, Run, Settings
from .._core.steps import Deltas
from .._core.tensors import Coded, Scored
from .._inputs.baselines import Reference, references
from .._inputs.prepare import Inputs
from ..errors import UnsupportedOperation
from .job import Batch, Job
from .module_paths import module_paths
from .output import select_output, select_target
from .plain_layers import WatchLayers, pays
from .sequential import along, steps_of
from .state_guard import StateGuard
from .tracer import Trace

CHAIN = object()  # in the place of a guard: torch's own layers in a chain neither write nor draw


class _Reached(BaseException):
    """Ends a forward pass at the target layer."""

    def __init__(self, output: Any) -> None:
        self.output = output


def forward(job: Job, batch: Batch, settings: Settings, expected: Tensor | None = None, deltas: Deltas | None = None) -> Passed:
    """Run the model on scored values and pick the target; the result must be ``expected``, by default that of a plain run.

    Both runs draw the same random numbers. ``deltas`` holds what an earlier pass over these rows has computed.
    """
    if deltas is not None:
        deltas.rewind()
    run = Run(batch.tensors[0].shape[0], settings, deltas)
    session = job.subject.session  # read once: another thread may end it
    if session is not None:
        run.use_cache(session.cache)
    run.may_warn, run.only_net = job.subject.first_warning, job.only_net
    try:
        steps = steps_of(job, batch, settings)
        if steps is not None:
            batch.guards[:] = [CHAIN]
            output: Any = along(run, batch, steps)
            return select_target(output, _plain(job, batch) if expected is None else expected, batch, run, job)
        if expected is None and deltas is None and session is None and pays(job, batch, settings):
            run.layers = LayerValues(run.batch)
        return _trace_calls(job, batch, expected, run)
    except BaseException:
        run.release()
        raise


def _trace_calls(job: Job, batch: Batch, expected: Tensor | None, run: Run) -> Passed:
    """Call by call."""
    guard = _guard(job, batch)
    try:
        trace = Trace(run, job.subject.owned_tensors, guard, job.question.check_each)
        if job.features is not None and not job.question.latent:
            features = job.features([x.shape[1:] for x in batch.tensors])
            if all(x.is_floating_point() for x in batch.tensors):
                features = features.keep_changed(_changes(batch.tensors, batch.references))
            run.state.features = features
        if run.layers is not None:
            expected = _plain_layers(job, batch, guard, run.layers)
        arguments = tuple(x.clone() for x in batch.tensors) if job.question.latent else _score_inputs(run, batch)
        begin = _Begin(run, job)
        output = _call(job, trace, (*arguments, *batch.extra), batch.options, begin.after)
        if expected is None:
            guard.restore()
            with guard if guard.needed else contextlib.nullcontext():
                expected = _plain(job, batch)
        return select_target(output, expected, batch, run, job)
    finally:
        guard.restore()


def _plain_layers(job: Job, batch: Batch, guard: StateGuard, layers: LayerValues) -> Tensor | None:
    """The output of a plain run that remembers results of layers; None if it fails: the explained pass says why."""
    try:
        with guard, WatchLayers(layers):
            return _plain(job, batch)
    except Exception:
        layers.clear()
        return None
    finally:
        guard.restore()


def _guard(job: Job, batch: Batch) -> StateGuard:
    """One guard for all passes over the same rows: only a traced pass sees all that the model writes."""
    if not batch.guards or batch.guards[0] is CHAIN:
        batch.guards[:] = [StateGuard(job.subject.model, (*batch.extra, *batch.options.values()), job.random_starts)]
    guard: StateGuard = batch.guards[0]
    return guard


def _leaf(run: Run, x: Tensor, reference: Reference, source: int) -> Scored:
    """An explained tensor as the model gets it."""
    x, dtype = run.wide(x), x.dtype
    reference = None if reference is None else run.wide(reference)
    scores = run.settings.carrier.of_input(run, x, reference)
    if not run.closed:
        scores.made_by = of_input(Origin(source, x, reference))
    if scores.by_feature:
        scores.belongs(source, torch.arange(x[0].numel(), device=x.device).view(1, *x.shape[1:]))  # places in a row
    run.leaves.append(Leaf(scores, source))
    return Scored(scores, dtype)


def _score_inputs(run: Run, batch: Batch) -> tuple[Tensor, ...]:
    """The inputs as the model gets them: numbers carry scores, codes their places."""
    arguments: list[Tensor] = []
    for source, (x, reference) in enumerate(zip(batch.tensors, batch.references, strict=True)):
        if x.is_floating_point():
            arguments.append(_leaf(run, x, reference, source))
        else:
            arguments.append(Coded.of_input(run, x.clone(), None if reference is None else reference.clone(), source))
    return tuple(arguments)


def survey(job: Job, rows: slice | None = None) -> tuple[Trace, Any]:
    """A forward pass for its operations alone, with all that the model gave; None if it cannot be explained."""
    batch, output = job.batch(rows), None
    guard = _guard(job, batch)
    trace = Trace(Run(len(batch.tensors[0]), job.settings), job.subject.owned_tensors, guard)
    try:
        with contextlib.suppress(UnsupportedOperation):
            output = _call(job, trace, (*_score_inputs(trace.run, batch), *batch.extra), batch.options, None)
    finally:
        guard.restore()
    return trace, output


class _Begin:
    """Begins at the output of a hidden module, or remembers its scores."""

    def __init__(self, run: Run, job: Job) -> None:
        self.run = run
        self.job = job
        self.met = False
        self.after = self._after if job.question.layer is not None else None

    def _after(self, path: str, value: Any) -> Any:
        if path != self.job.question.layer:
            return None
        if self.met:
            raise ValueError(f"explain_layer(..., {path!r}): the model calls this module more than once.")
        if not isinstance(value, Tensor):
            raise ValueError(f"explain_layer(..., {path!r}): its output is a {type(value).__name__}, not a tensor.")
        self.met = True
        self.run.closed = True
        self.run.leaves.clear()
        if self.job.question.start:
            return self._begin(value.detach().clone())
        if not isinstance(value, Scored):
            raise ValueError(f"explain_layer(..., {path!r}, from_inputs=True): its output does not depend on the input.")
        scores = value.state.reshape(lambda v: v.view_as(v)).begin()  # behind the layer's own bias
        self.run.leaves.append(Leaf(scores, 0))
        return Scored(scores, value.dtype)

    def _begin(self, value: Tensor) -> Scored:
        (reference,), *more = references(self.job.latent_baselines, Inputs((value,), False, None), None, None)
        if more:
            raise ValueError("explain_layer(..., baselines=...): a hidden layer takes one baseline, not a stack of them.")
        if self.job.features is not None:
            self.run.state.features = self.job.features([value.shape[1:]]).keep_changed(_changes((value,), (reference,)))
        return _leaf(self.run, value, reference, 0)


def _changes(tensors: tuple[Tensor, ...], references: tuple[Reference, ...]) -> list[Tensor]:
    """Which elements differ from their reference."""
    return [(x != (0 if r is None else r)) for x, r in zip(tensors, references, strict=True)]


def _call(
    job: Job,
    trace: Trace,
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    after: Callable[[str, Any], Any] | None,
) -> Any:
    """Run the model on scored values; all operations without a rule are reported together."""
    output: Any = None
    try:
        with trace, module_paths(trace.run, job.subject.names, _until(job.question.target_layer, after)):
            output = select_output(_or_reached(job, arguments, options), job.request.output)
    except Exception:
        if not trace.problems:
            raise
    finally:
        output = output.state if isinstance(output, Scored) else output
        trace.restore()
    if trace.problems:
        raise _unsupported_error(trace)
    return output


def plain_output(job: Job, batch: Batch, slopes: bool = False) -> Tensor:
    """The output of the model as it is, leaving the random numbers of the caller and the model alone; with its graph."""
    if batch.guards and batch.guards[0] is CHAIN:
        return _plain(job, batch, slopes)
    guard = _guard(job, batch)
    try:
        with guard:
            return _plain(job, batch, slopes)
    finally:
        guard.restore()


def chain_output(job: Job, batch: Batch) -> Tensor:
    """The output of a model that is a plain chain of layers (``sequential.py``): it keeps nothing and draws nothing."""
    return _plain(job, batch)


def redraw_output(job: Job, batch: Batch, seed: int) -> Tensor:
    """The output of the model as it is, with other random numbers."""
    guard = _guard(job, batch)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _plain(job, batch)
    finally:
        guard.restore()


def _plain(job: Job, batch: Batch, slopes: bool = False) -> Tensor:
    arguments = (*(x.clone() for x in batch.tensors), *batch.extra)
    with torch.set_grad_enabled(slopes):
        if job.question.target_layer is None:
            return select_output(_call_model(job, arguments, batch.options), job.request.output)
        # under any such mode torch leaves out its fast path for Transformers, which does not call the modules inside
        with (
            BaseTorchFunctionMode(),
            module_paths(Run(1, job.settings), job.subject.names, _until(job.question.target_layer, None)),
        ):
            return select_output(_or_reached(job, arguments, batch.options), job.request.output)


def _or_reached(job: Job, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    try:
        return _call_model(job, arguments, options)
    except _Reached as reached:
        return reached.output


def _call_model(job: Job, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The model on these inputs and further arguments."""
    count = len(job.given.keywords)
    named = dict(zip(job.given.keywords, arguments, strict=False))
    return call_foreign(job.subject.model, *arguments[count:], **named, **options)


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


def _unsupported_error(trace: Trace) -> UnsupportedOperation:
    lines = "\n".join(f"  - {problem}" for problem in trace.problems)
    return UnsupportedOperation(
        f"explain(...): {len(trace.problems)} operation(s) of this model cannot be explained:\n{lines}\n"
        "Nothing is approximated instead. Write the operation with supported ones, or register a rule:\n"
        "  @cafexai.rule(torch.some_function)\n  def some_function(x, ...): return x.elementwise(torch.some_function)",
        tuple(trace.problems),
    )
