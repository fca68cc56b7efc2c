"""CAFE: conflict-aware feature-wise explanations of a model."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from .assemble import assembled, averaged, piece
from .backward import Shares, SumBroken, distribute
from .chunks import plain_outputs, rows_at_a_time
from .explanation import Explanation
from .forward import Batch, Passed, Request, forward, plain_output
from .groups import grouped
from .inputs import Inputs, Reference, prepare, references
from .subject import Subject

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


def with_gradients(method: F) -> F:
    """Callers may have switched gradients off; Captum's metrics do."""

    @functools.wraps(method)
    def wrapped(*args: Any, **options: Any) -> Any:
        with torch.inference_mode(False), torch.enable_grad():
            return method(*args, **options)

    return cast(F, wrapped)


class CAFE:
    """Explains a PyTorch module, or any function of tensors. Nothing is ever written on the model.

    ``c`` is the conflict sensitivity constant, a number in [0, 1] or one per pattern of module names
    (``{"encoder.*": 0.0, "head": 1.0}``; other modules 0.5). ``norm_mean`` says what the mean inside a layer, group or
    instance norm is: "bias", a constant as in the paper, or "linear", a map of the features. ``background`` is data for
    the baselines "mean", "median" and "mode".
    """

    def __init__(
        self,
        model: Any,
        c: float | Mapping[str, float] = 0.5,
        netting: str = "path",
        *,
        norm_mean: str = "bias",
        background: Any = None,
    ) -> None:
        if netting != "path":
            raise ValueError(f'CAFE(..., netting={netting!r}): only "path", the method as published, exists in this version.')
        self.c = c
        self.netting = netting
        self.background = background
        self.subject = Subject(model, c, norm_mean)

    @property
    def model(self) -> Any:
        """The model, unwrapped."""
        return self.subject.model

    @with_gradients
    def explain(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        *,
        output: Any = None,
        layer: str | None = None,
        start: bool = True,
        target_layer: str | None = None,
        feature_groups: Any = None,
        feature_names: Sequence[str] | None = None,
        tokenizer: Any = None,
        display: Any = None,
        batch_size: int | None = None,
        show_progress: bool | None = None,
        check: str = "output",
    ) -> Explanation:
        """Positive and negative scores of every feature and of the biases for one output of each row.

        ``inputs``: numbers in floating point, or integer codes (categories, token ids), which are explained at their
        embedding; a tuple for several. ``baselines``: None (zeros; for codes, a zero embedding), a number, a tensor or
        data frame shaped like the inputs or like one row, a stack of these (averaged over), a callable, or "mean",
        "median", "mode" of the background; a tuple for several inputs. ``target``: an index for all rows, one per row,
        tuples for outputs of more dimensions; None is the only output, or else the predicted class.
        ``additional_forward_args``: further arguments of forward, a tuple or a dictionary of keywords; with
        ``batch_size``, tensors among them that have one entry per row are cut along with the rows.

        ``output`` selects from an output of several tensors (key, index or function). ``layer`` names a module: with
        ``start`` its output is the input to be explained (baselines are in its shape; what passes around it counts as
        bias), without, the scores flow from the inputs and are reported there. ``target_layer`` makes ``target`` a
        neuron of that module. ``feature_groups`` gives one score per group: ``{"sex": [3, 4]}`` or an integer mask
        shaped like a row. ``tokenizer`` turns token ids into words for tables and plots, ``display`` holds the features
        in the units of the user, if the inputs are scaled. ``check="each"`` checks the law after every operation.
        """
        request = Request(target, output, layer, start, target_layer, check, latent_baselines=baselines)
        given, extra = self._accept(inputs, additional_forward_args, request, feature_names, display, tokenizer)
        notes = tuple(getattr(self.model, "notes", ())) if hasattr(self.model, "from_raw") else ()
        request = dataclasses.replace(request, total=given.rows, notes=notes)
        stack = self._references(given, baselines, request)
        pieces = [
            averaged(against) for against in self._over_rows(piece, given, stack, extra, request, batch_size, show_progress)
        ]
        explanation = assembled(pieces, given, self._settings(request))
        return explanation if feature_groups is None else grouped(explanation, feature_groups)

    @with_gradients
    def attribute(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        additional_forward_args: Any = None,
        return_convergence_delta: bool = False,
    ) -> Any:
        """The combined scores in the form of Captum: shaped like the inputs, a tuple for a tuple.

        One backward pass instead of two. The convergence delta is the sum of the scores of features and biases minus
        (output - baseline output).
        """
        request = Request(target)
        given, extra = self._accept(inputs, additional_forward_args, request)
        stack = self._references(given, baselines, request)
        chunks = [_mean(against) for against in self._over_rows(_net, given, stack, extra, request)]
        combined = tuple(torch.cat(parts) for parts in zip(*(features for features, _ in chunks), strict=True))
        result = combined if given.is_tuple else combined[0]
        return (result, torch.cat([lack for _, lack in chunks])) if return_convergence_delta else result

    # Captum's helpers ask these of an explainer.
    def has_convergence_delta(self) -> bool:
        """attribute can return its convergence delta."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Scores are contributions, not sensitivities."""
        return True

    def _accept(
        self,
        inputs: Any,
        extra: Any,
        request: Request,
        feature_names: Sequence[str] | None = None,
        display: Any = None,
        tokenizer: Any = None,
    ) -> tuple[Inputs, Any]:
        """Check everything that can be checked before the model runs."""
        if request.check not in ("output", "each"):
            raise ValueError(f'explain(..., check={request.check!r}): the words are "output" and "each".')
        self.subject.has_module("layer", request.layer)
        self.subject.has_module("target_layer", request.target_layer)
        self.subject.ready()
        extra = () if extra is None else extra if isinstance(extra, (tuple, dict)) else (extra,)
        return prepare(inputs, self.model, feature_names, display, tokenizer), extra

    def _over_rows(
        self,
        finish: Callable[[Passed], R],
        given: Inputs,
        stack: list[tuple[Reference, ...]],
        extra: Any,
        request: Request,
        batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> list[list[R]]:
        """Every chunk of rows against every reference; chunks are those asked for, or of a fitting size."""
        step = given.rows if batch_size is None else batch_size
        if batch_size is None:
            step = rows_at_a_time(self.subject, _batch(given, stack[0], extra, slice(0, 1)), given.rows, request)
        chunks = _chunks(given.rows, step)

        def explained(rows: slice, expected: Tensor | None) -> list[R]:
            return [self._finished(finish, _batch(given, reference, extra, rows), request, expected) for reference in stack]

        def plain(rows: slice) -> Tensor:
            return plain_output(self.subject, _batch(given, stack[0], extra, rows), request)

        if batch_size is None and len(chunks) > 1:
            try:
                pairs = zip(_with_progress(chunks, show_progress), plain_outputs(plain, chunks), strict=True)
                return [explained(rows, expected) for rows, expected in pairs]
            except Exception:  # rows depend on each other, or something is wrong that the whole will show as well
                chunks = _chunks(given.rows, given.rows)
        return [explained(rows, None) for rows in _with_progress(chunks, show_progress)]

    def _finished(self, finish: Callable[[Passed], R], batch: Batch, request: Request, expected: Tensor | None = None) -> R:
        """Forward and backward; once more in float64 where float32 is too small for the scores."""
        try:
            return finish(forward(self.subject, batch, request, expected))
        except SumBroken:
            if all(x.dtype == torch.float64 or x.device.type == "mps" for x in batch.tensors):
                raise
        result = finish(forward(self.subject, batch, dataclasses.replace(request, double=True), expected))
        warnings.warn(
            "The influence inside the model is larger than float32 can hold, so these rows were explained in float64. The "
            "published scores grow with depth.",
            stacklevel=4,
        )
        return result

    def _references(self, given: Inputs, baselines: Any, request: Request) -> list[tuple[Reference, ...]]:
        return references(None if request.latent else baselines, given, self.background, self.model)

    def _settings(self, request: Request) -> dict[str, Any]:
        from . import __version__

        return {
            "c": dict(self.c) if isinstance(self.c, Mapping) else self.c,
            "netting": self.netting,
            "norm_mean": self.subject.norm_mean,
            "layer": request.layer,
            "start": request.start,
            "target_layer": request.target_layer,
            "version": __version__,
            "torch": str(torch.__version__),
        }


def _net(passed: Passed) -> Shares:
    return distribute(passed, passed.chosen.delta, keep=False)


def _batch(given: Inputs, reference: tuple[Reference, ...], extra: Any, rows: slice) -> Batch:
    """Some rows; further arguments of forward that have one entry per row go with them."""
    count = given.rows

    def cut(part: Any) -> Any:
        whole = rows == slice(0, count) or not isinstance(part, Tensor) or not part.ndim or part.shape[0] != count
        return part if whole else part[rows]

    return Batch(
        tuple(cut(x) for x in given.tensors),
        tuple(cut(r) for r in reference),
        () if isinstance(extra, dict) else tuple(cut(part) for part in extra),
        {name: cut(part) for name, part in extra.items()} if isinstance(extra, dict) else {},
        rows,
    )


def _mean(against: list[Shares]) -> tuple[list[Tensor], Tensor]:
    """The combined scores and what they lack, averaged over baselines."""
    if len(against) == 1:
        return against[0].features, against[0].lack
    count = len(against)
    features = [torch.stack(parts).sum(0) / count for parts in zip(*(shares.features for shares in against), strict=True)]
    return features, torch.stack([shares.lack for shares in against]).sum(0) / count


def _chunks(rows: int, step: int) -> list[slice]:
    if step < 1:
        raise ValueError(f"explain(..., batch_size={step}): give a positive number of rows.")
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


def _with_progress(chunks: list[slice], show: bool | None) -> Iterable[slice]:
    """The chunks, with a bar if it is asked for, or by default if there are several and somebody looks."""
    if show is False or (show is None and len(chunks) == 1):
        return chunks
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        if show:
            raise ModuleNotFoundError("This needs tqdm: pip install 'cafexai[progress]'.") from None
        return chunks
    progress: Iterable[slice] = tqdm(chunks, desc="explaining", unit="batch", disable=False if show else None)
    return progress
