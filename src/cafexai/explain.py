"""CAFE: conflict-aware feature-wise explanations of a model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from . import netted
from .assemble import assembled, averaged, pieces
from .backward import Shares, check_range, distribute
from .batches import Task, carry_out
from .explanation import Explanation, default_names
from .explanations import Explanations
from .feature import Features, FeatureScores
from .groups import grouped, places
from .inputs import Inputs, Reference, prepare, references, takes_raw
from .pairs import PairedScores
from .path import PathScores
from .request import Passed, Request
from .scores import Scores
from .subject import Sensitivity, Subject

CARRIERS: dict[str, type[Scores]] = {"path": PathScores, "feature": FeatureScores}
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


def with_gradients(method: F) -> F:
    """Callers may have switched gradients off; Captum's metrics do."""

    @functools.wraps(method)
    def wrapped(*args: Any, **options: Any) -> Any:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            return method(*args, **options)
        with torch.inference_mode(False), torch.enable_grad():
            return method(*args, **options)

    return cast(F, wrapped)


class CAFE:
    """Explains a PyTorch module, or any function of tensors. Nothing is ever written on the model.

    ``c`` is the conflict sensitivity constant, a number in [0, 1] or one per pattern of module names
    (``{"encoder.*": 0.0, "head": 1.0}``; other modules 0.5). ``norm_mean`` says what the mean inside a layer, group or
    instance norm is: "bias", a constant as in the paper, or "linear", a map of the features. ``biases`` says what the biases
    are: "scores", as published, gives them scores of their own, held against a model without biases; with "reference" they
    belong to the reference, and the scores of the features explain the change from the output at the baseline, as those of
    DeepLIFT, Integrated Gradients and SHAP do. ``background`` is data for the baselines "mean", "median" and "mode".
    """

    carrier: type[Scores]

    def __init__(
        self,
        model: Any,
        c: float | Mapping[str, float] = 0.5,
        netting: str = "path",
        *,
        norm_mean: str = "bias",
        biases: str = "scores",
        background: Any = None,
    ) -> None:
        if netting not in CARRIERS:
            raise ValueError(
                f'CAFE(..., netting={netting!r}): the words are "path", the method as published, and "feature", which nets the '
                "paths of each feature first."
            )
        if biases not in ("scores", "reference"):
            raise ValueError(
                f'CAFE(..., biases={biases!r}): the words are "scores", as published (biases have scores of their own), and '
                '"reference" (scores explain the change from the model at the baseline).'
            )
        self.carrier = CARRIERS[netting]
        self.c = c
        self.netting = netting
        self.biases = biases
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
        c: Any = None,
        pairs: bool = False,
    ) -> Any:
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

        ``target="all"`` explains every class from one forward pass, a list of values ``c=[0, 0.5, 1]`` the same target for
        each of them; both give ``Explanations``, a dictionary by class or by c. A single ``c`` stands in for the one of the
        explainer. ``pairs=True`` (``netting="feature"`` only) adds ``conflict_pairs``: which features cancel which.
        """
        if pairs and self.netting != "feature":
            raise ValueError(
                'explain(..., pairs=True): which feature cancels which is known with CAFE(model, netting="feature") only.'
            )
        carrier = PairedScores if pairs else self.carrier
        if check not in ("output", "each"):
            raise ValueError(f'explain(..., check={check!r}): the words are "output" and "each".')
        self.subject.has_module("layer", layer)
        self.subject.has_module("target_layer", target_layer)
        given, extra = self._accept(inputs, additional_forward_args, feature_names, display, tokenizer)
        request = Request(
            target,
            output,
            layer,
            start,
            target_layer,
            check,
            total=given.rows,
            notes=tuple(getattr(self.model, "notes", ())) if takes_raw(self.model) else (),
            latent_baselines=baselines,
            carrier=carrier,
            features=self._features(given, feature_groups, layer, start),
            biases_in_reference=self.biases == "reference",
        )
        several = c if isinstance(c, (list, tuple)) else (self.c if c is None else c,)
        if not several:
            raise ValueError("explain(..., c=[]): give at least one value.")
        task = Task(
            self.subject,
            given,
            self._references(given, baselines, request),
            extra,
            request,
            batch_size,
            show_progress,
            tuple(Sensitivity(one, self.subject.names) for one in several),
        )
        finish = netted.pieces if self.netting == "feature" else pieces
        results = carry_out(task, lambda passed: finish(passed, request.every_class))
        entries: dict[Any, Explanation] = {}
        for place, one in enumerate(several):
            for number in range(len(results[0][0][place])):
                parts = [averaged([against[place][number] for against in chunk]) for chunk in results]
                explanation = assembled(parts, given, self._settings(request, one))
                if entries:
                    explanation = _sharing(explanation, next(iter(entries.values())))
                entries[place if isinstance(one, Mapping) else one, number] = explanation
        if feature_groups is not None:
            entries = {key: grouped(explanation, feature_groups) for key, explanation in entries.items()}
        return _by_what_differs(entries, several is c, request.every_class)

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
        if isinstance(target, str):
            raise ValueError(f"attribute(..., target={target!r}): give the class, or ask explain for all of them.")
        given, extra = self._accept(inputs, additional_forward_args)
        request = Request(
            target,
            total=given.rows,
            carrier=self.carrier,
            features=self._features(given, None, None),
            biases_in_reference=self.biases == "reference",
        )
        task = Task(self.subject, given, self._references(given, baselines, request), extra, request)
        chunks = [
            _mean([shares for (shares,) in chunk])
            for chunk in carry_out(task, netted.shares if self.netting == "feature" else _net)
        ]
        combined = tuple(map(_joined, zip(*(features for features, _ in chunks), strict=True)))
        result = combined if given.is_tuple else combined[0]
        return (result, _joined([lack for _, lack in chunks])) if return_convergence_delta else result

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
        feature_names: Sequence[str] | None = None,
        display: Any = None,
        tokenizer: Any = None,
    ) -> tuple[Inputs, Any]:
        """Check everything that can be checked before the model runs."""
        self.subject.ready()
        extra = () if extra is None else extra if isinstance(extra, (tuple, dict)) else (extra,)
        return prepare(inputs, self.model, feature_names, display, tokenizer), extra

    def _features(
        self, given: Inputs, groups: Any, layer: str | None, start: bool = True
    ) -> Callable[[list[torch.Size]], Any] | None:
        """Which elements are one feature, for a carrier that keeps features apart."""
        if self.netting != "feature":
            return None
        if layer is not None and not start:
            raise ValueError(
                'explain(..., layer=..., start=False): with netting="feature" contributions are those of the inputs, or, with '
                'start=True, of that layer. netting="path" reports what passes a layer.'
            )

        def features(shapes: list[torch.Size]) -> Features:
            if groups is None:
                return Features.of(shapes)
            names = given.names if given.names is not None and layer is None else default_names(shapes)
            return Features.of(shapes, places(groups, shapes, lambda: names)[0])

        return features

    def _references(self, given: Inputs, baselines: Any, request: Request) -> list[tuple[Reference, ...]]:
        return references(None if request.latent else baselines, given, self.background, self.model)

    def _settings(self, request: Request, c: float | Mapping[str, float]) -> dict[str, Any]:
        from . import __version__

        return {
            "c": dict(c) if isinstance(c, Mapping) else c,
            "netting": self.netting,
            "norm_mean": self.subject.norm_mean,
            "biases": self.biases,
            "layer": request.layer,
            "start": request.start,
            "target_layer": request.target_layer,
            "version": __version__,
            "torch": str(torch.__version__),
        }


def _net(passed: Passed) -> Shares:
    check_range(passed)
    return distribute(passed, "delta", keep=False)


def _sharing(explanation: Explanation, first: Explanation) -> Explanation:
    """The same with the tensors that it has in common with another one."""
    return dataclasses.replace(explanation, inputs=first.inputs, baselines=first.baselines, display=first.display)


def _by_what_differs(entries: dict[Any, Explanation], several_c: bool, every_class: bool) -> Explanation | Explanations:
    """A single explanation, or several by c, by class or by both."""
    if several_c and every_class:
        return Explanations(("c", "target"), entries)
    if several_c or every_class:
        return Explanations(("c" if several_c else "target",), {key[every_class]: e for key, e in entries.items()})
    return next(iter(entries.values()))


def _joined(chunks: Sequence[Tensor]) -> Tensor:
    return chunks[0] if len(chunks) == 1 else torch.cat(list(chunks))


def _mean(against: list[Shares]) -> tuple[list[Tensor], Tensor]:
    """The combined scores and what they lack, averaged over baselines."""
    if len(against) == 1:
        return against[0].features, against[0].lack
    count = len(against)
    features = [torch.stack(parts).sum(0) / count for parts in zip(*(shares.features for shares in against), strict=True)]
    return features, torch.stack([shares.lack for shares in against]).sum(0) / count
