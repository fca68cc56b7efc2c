"""CAFE: conflict-aware feature-wise explanations of a model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import torch
from torch import Tensor

from ._carriers.feature import FeatureScores
from ._carriers.paired import PairedScores
from ._carriers.path import PathScores
from ._carriers.unit import UnitScores
from ._core.backward import Outcome, Passed
from ._core.feature_index import Features
from ._core.run import C, Sensitivity, Settings
from ._core.value import Scores
from ._engine.ablation import cut_features, model_at_baseline
from ._engine.assemble import Piece, assembled, averaged, by_word, grouped, pieces
from ._engine.batches import R, Results, carry_out
from ._engine.diagnose import refuse_chance, refuse_explained, refuse_rows
from ._engine.forward import PROBABILITY, drawn_output, plain_output
from ._engine.job import Job, as_arguments
from ._engine.model import Subject, with_gradients
from ._engine.variant import Way, chosen
from ._inputs import different
from ._inputs.baselines import Reference, background_rows, references
from ._inputs.convert import taken
from ._inputs.groups import default_names, joined, places
from ._inputs.prepare import Inputs, model_dtype, prepare
from ._inputs.words import masked
from .explanation import Explanation
from .explanations import Explanations
from .refinement.refine import Refine, refined
from .schema import Schema

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Unpack

    Target = int | str | Sequence[Any] | Tensor | np.ndarray | None


class Options(TypedDict, total=False):
    """What ``CAFE.explain`` takes by name."""

    output: Any
    layer: str | None
    start: bool
    target_layer: str | None
    feature_groups: Any
    feature_names: Sequence[str] | None
    against: Any
    tokenizer: Any
    words: bool
    preprocess: Callable[[Any], Any] | None
    display: Any
    batch_size: int | None
    per_row: Sequence[int | str] | None
    show_progress: bool | None
    check: str
    pairs: bool
    refine: int | Refine | None


class _More(Options, total=False):
    additional_forward_args: Any


class _Every(_More, total=False):
    c: Any


CARRIERS: dict[str, type[Scores]] = {"path": PathScores, "feature": FeatureScores, "unit": UnitScores}
PAIRED: dict[type[Scores], type[Scores]] = {FeatureScores: PairedScores}  # carriers that know which feature cancels which


class CAFE:
    """Explains a PyTorch module, or any function of tensors. Nothing is ever written on the model.

    ``c`` is the conflict sensitivity constant, a number in [0, 1] or one per pattern of module names
    (``{"encoder.*": 0.0, "head": 1.0}``; other modules 0.5). ``norm_mean`` says what the mean inside a layer, group or
    instance norm is: "bias", a constant as in the paper, or "linear", a map of the features. ``biases`` says what the biases
    are: "scores", as published, gives them scores of their own, held against a model without biases; with "reference" they
    belong to the reference, and the scores of the features explain the change from the output at the baseline (of the model
    with its attention and norms frozen; ``model_at_baseline`` is that of the model itself). ``norms="open"`` follows what the
    features do to the statistics of norms, which else are frozen. ``background`` is data for the baselines "mean", "median"
    and "mode".

    Who names none of ``netting``, ``flows``, ``biases``, ``norms`` and ``norm_mean`` leaves the choice to the model, at its
    first call: as published for at most two nonlinear operations in a row without attention and norms, else
    ``netting="unit", flows="mean", biases="reference", norms="open"`` (docs/default.md). ``way`` is what was chosen. Who names
    one gets the published value of the others.
    ``feature_names`` are the columns that the model was trained on, in their order: data frames are put in this order by
    name and must have just these columns, other inputs as many. ``schema`` (``cafexai.Schema``) says more of them: categories,
    one-hot blocks, several inputs, classes. ``class_names`` name the outputs; ``probability`` ("softmax" or "sigmoid") says
    what makes probabilities of them, where the model itself ends in logits.
    """

    def __init__(
        self,
        model: Any,
        c: C = 0.5,
        netting: str | None = None,
        *,
        flows: str | None = None,
        norms: str | None = None,
        norm_mean: str | None = None,
        biases: str | None = None,
        background: Any = None,
        feature_names: Sequence[str] | None = None,
        schema: Schema | None = None,
        class_names: Sequence[Any] | None = None,
        probability: str | None = None,
    ) -> None:
        words = {"netting": netting, "flows": flows, "biases": biases, "norms": norms}
        named = {name: word for name, word in words.items() if word is not None}
        way = Way(**named)
        if way.netting not in CARRIERS:
            known = ", and ".join(f'"{word}", {carrier.meaning}' for word, carrier in CARRIERS.items())
            raise ValueError(f"CAFE(..., netting={netting!r}): the words are {known}.")
        if way.flows not in ("peak", "mean"):
            raise ValueError(
                f'CAFE(..., flows={flows!r}): the words are "peak", as published (what was cancelled shows in the larger of '
                'the two ways in which it can), and "mean" (in the mean of both).'
            )
        if way.biases not in ("scores", "reference"):
            raise ValueError(
                f'CAFE(..., biases={biases!r}): the words are "scores", as published (biases have scores of their own), and '
                '"reference" (scores explain the change from the model at the baseline).'
            )
        if way.norms not in ("frozen", "open") or (way.norms == "open" and way.biases == "scores"):
            raise ValueError(
                f'CAFE(..., norms={norms!r}): the words are "frozen", as published, and, with biases="reference", "open" (what '
                "the features do to the statistics of a norm counts)."
            )
        if norm_mean not in (None, "bias", "linear"):
            raise ValueError(f'CAFE(..., norm_mean={norm_mean!r}): the words are "bias" and "linear".')
        self.c = c
        self.way: Way | None = way if named or norm_mean is not None else None
        self.norm_mean = norm_mean or "bias"
        self.background = background
        self.feature_names = None if feature_names is None else different(feature_names, "CAFE(..., feature_names=...)")
        self._subject = Subject(model)
        self._know(schema, class_names, probability)
        Sensitivity(c, self._subject.names.values())  # c is checked

    @classmethod
    def published(cls, model: Any, c: C = 0.5, **known: Any) -> CAFE:
        """The paper to the letter, whatever ``CAFE(model)`` chooses: paths, peak flows, biases with scores of their own."""
        return cls(model, c, "path", flows="peak", biases="scores", **known)

    def _know(self, schema: Any, class_names: Sequence[Any] | None, probability: str | None) -> None:
        """Columns, classes and probabilities: from the user, else from the schema, else from the model."""
        own = self.model if self._subject.takes_raw else None
        if schema is not None and not isinstance(schema, Schema):
            raise ValueError(
                f"CAFE(..., schema={type(schema).__name__}): give a cafexai.Schema, such as Schema.from_frame(frame)."
            )
        if schema is not None and (self.feature_names is not None or own is not None):
            word = "feature_names=..." if own is None else "a model with its own preprocessing"
            raise ValueError(f"CAFE(..., schema=...): {word} names the columns, too. Give one of the two.")
        classes = class_names if class_names is not None else schema.classes if schema is not None else None
        classes = getattr(own, "class_names", ()) if classes is None else classes
        likely = probability or (None if schema is None else schema.probability) or getattr(own, "probability", None)
        if likely not in (None, *PROBABILITY):
            raise ValueError(f"CAFE(..., probability={likely!r}): the words are {', '.join(map(repr, PROBABILITY))}.")
        self.schema = schema
        self.class_names = different(classes, "CAFE(..., class_names=...)")
        self.probability = likely

    def _decided(self, given: Inputs, stack: Sequence[tuple[Reference, ...]], extra: Any) -> Settings:
        """The settings, the way being chosen now if it was left open."""
        if self.way is None:
            self.way = chosen(Job(self._subject, given, stack, Settings(PathScores), extra=extra))
        way, sensitivity = self.way or Way(), Sensitivity(self.c, self._subject.names.values())
        in_reference = way.biases == "reference"
        settings = Settings(CARRIERS[way.netting], sensitivity, self.norm_mean, in_reference, norms=way.norms, flows=way.flows)
        if not all(x.is_floating_point() for x in given.tensors):  # codes have no precision of their own
            dtype = torch.promote_types(model_dtype(self.model)[0], settings.dtype)
            return dataclasses.replace(settings, dtype=dtype)
        return settings

    @property
    def model(self) -> Any:
        """The model, unwrapped."""
        return self._subject.model

    @overload
    def explain(
        self, inputs: Any, baselines: Any, target: Literal["all"], extra: Any = None, /, **options: Unpack[_Every]
    ) -> Explanations: ...

    @overload
    def explain(
        self, inputs: Any, baselines: Any = None, *, target: Literal["all"], **options: Unpack[_Every]
    ) -> Explanations: ...

    @overload
    def explain(
        self, inputs: Any, baselines: Any = None, target: Target = None, *, c: Sequence[C], **options: Unpack[_More]
    ) -> Explanations: ...

    @overload
    def explain(
        self,
        inputs: Any,
        baselines: Any = None,
        target: Target = None,
        additional_forward_args: Any = None,
        *,
        c: C | None = None,
        **options: Unpack[Options],
    ) -> Explanation: ...

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
        against: Any = None,
        tokenizer: Any = None,
        words: bool = True,
        preprocess: Callable[[Any], Any] | None = None,
        display: Any = None,
        batch_size: int | None = None,
        per_row: Sequence[int | str] | None = None,
        show_progress: bool | None = None,
        check: str = "output",
        c: Any = None,
        pairs: bool = False,
        refine: int | Refine | None = None,
    ) -> Any:
        """Positive and negative scores of every feature and of the biases for one output of each row.

        ``inputs``: numbers in floating point, or integer codes (categories, token ids), which are explained at their
        embedding; a tuple for several; texts, or what a tokenizer makes of them; pictures. ``baselines``: None (zeros; for
        codes, a zero embedding; for texts the mask token of the ``tokenizer``, if it has one), a number, a tensor or data
        frame shaped like the inputs or like one row, a stack of these (averaged over), a callable, or "mean", "median", "mode"
        of the background; a tuple for several inputs. ``target``: an index or the name of a class for all rows, one per row,
        tuples for outputs of more dimensions; None is the only output, or else the predicted class.
        ``against``, given like a target: why this one rather than that, the difference of the two outputs.
        ``additional_forward_args``: further arguments of forward, a tuple or a dictionary of keywords; with
        ``batch_size``, tensors among them that have one entry per row are cut along with the rows. ``per_row`` names these, by
        place or keyword; else tensors that are as long as there are rows are tried on the first two chunks.

        ``output`` selects from an output of several tensors: a key, an index, a function or a path (``"logits[:, -1]"``).
        ``layer`` names a module: with ``start`` its output is the input to be explained (baselines are in its shape; what
        passes around it counts as bias), without, the scores flow from the inputs and are reported there. ``target_layer``
        makes ``target`` a neuron of that module. ``feature_groups`` gives one score per group: ``{"sex": [3, 4]}`` or an
        integer mask shaped like a row. ``tokenizer`` makes token ids of texts, and words of these; the scores of the tokens of
        a word are summed, those of padding and special tokens, too (``words=False``: one for each token). ``preprocess`` makes
        a tensor of each picture. ``display`` holds the features in the units of the user, if the inputs are scaled.
        ``check="each"`` checks the law after every operation.

        ``target="all"`` explains every class from one forward pass, a list of values ``c=[0, 0.5, 1]`` the same target for
        each of them; both give ``Explanations``, a dictionary by class or by c. A single ``c`` stands in for the one of the
        explainer. ``pairs=True`` (``netting="feature"`` only) adds ``conflict_pairs``: which features cancel which.

        ``refine=20`` evaluates the model at perturbed versions of every row, at the price of 20 evaluations, and adds
        ``correction`` and ``refined``, scores that predict better what such changes do; ``Refine(20, perturb=...)`` for more.
        """
        subject = self._subject
        subject.ready()
        if check not in ("output", "each"):
            raise ValueError(f'explain(..., check={check!r}): the words are "output" and "each".')
        several = c if isinstance(c, (list, tuple)) else (self.c if c is None else c,)
        if not several:
            raise ValueError("explain(..., c=[]): give at least one value.")
        how = Refine(refine) if refine is not None and not isinstance(refine, Refine) else refine
        if how is not None and layer is not None:
            raise ValueError("explain(..., refine=..., layer=...): rows are perturbed at the inputs; refine scores of these.")
        for option, name in (("layer", layer), ("target_layer", target_layer)):
            if name is not None:
                subject.has_module(option, name)
        ready = taken(inputs, additional_forward_args, tokenizer, preprocess, display, subject.takes_raw)
        given = prepare(
            ready.inputs,
            subject.model,
            feature_names,
            ready.display,
            tokenizer,
            columns=self.feature_names,
            schema=self.schema,
            words=words and feature_groups is None and layer is None,
            mask=ready.mask,
        )
        if ready.names:
            given = dataclasses.replace(given, keywords=subject.keywords(ready.names))
        _refuse_together(given, target, against, how is not None)
        if given.grouping is not None and layer is None:
            feature_groups = given.grouping if feature_groups is None else joined(given.grouping, feature_groups)
        latent = layer is not None and start
        about: tuple[str, ...] = ()
        if tokenizer is not None and len(given.tensors) == 1 and not latent:
            baselines, about = masked(baselines, given.tensors[0], tokenizer)
        arguments = as_arguments(ready.extra)
        stack = references(None if latent else baselines, given, self.background, subject.model)
        settings = self._decided(given, stack, arguments)
        if pairs and settings.carrier not in PAIRED:
            raise ValueError(
                'explain(..., pairs=True): which feature cancels which is known with CAFE(model, netting="feature") only.'
            )
        job = Job(
            subject,
            given,
            stack,
            dataclasses.replace(settings, carrier=PAIRED[settings.carrier]) if pairs else settings,
            target,
            extra=arguments,
            against=against,
            class_names=self.class_names,
            probability=self.probability,
            output=output,
            layer=layer,
            start=start,
            target_layer=target_layer,
            check=check,
            notes=(*self._notes(target_layer), *ready.notes, *given.notes, *about),
            latent_baselines=baselines,
            features=self._features(given, feature_groups, layer, start),
            sensitivities=(None,) if c is None else tuple(Sensitivity(one, subject.names.values()) for one in several),
            batch_size=batch_size,
            per_row=None if per_row is None else tuple(per_row),
            show_progress=show_progress,
        )
        results = self._results(job, functools.partial(pieces, every_class=job.every_class), averaged, "explain")
        entries: dict[Any, Explanation] = {}
        for (place, number), chunks in results.items():
            one = several[place]
            explanation = assembled(chunks, given, self._described(job, one))
            if explanation.frozen and layer is None:
                explanation = self._with_what_was_frozen(job, chunks, explanation, feature_groups is not None)
            if entries:  # what all have in common is there once
                one_of = next(iter(entries.values()))
                shared = {name: getattr(one_of, name) for name in ("inputs", "baselines", "display")}
                explanation = dataclasses.replace(explanation, **shared)
            entries[place if isinstance(one, Mapping) else one, number] = explanation
        if how is not None:
            entries = refined(job, entries, how, functools.partial(self._background, given), feature_groups)
        if feature_groups is not None:
            entries = {key: grouped(explanation, feature_groups) for key, explanation in entries.items()}
        if given.words is not None:
            entries = {key: by_word(explanation, given.words) for key, explanation in entries.items()}
        return _by_what_differs(entries, several is c, job.every_class)

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
        if isinstance(target, str) and target == "all":
            raise ValueError(f"attribute(..., target={target!r}): give the class, or ask explain for all of them.")
        self._subject.ready("attribute")
        given = prepare(inputs, self._subject.model, columns=self.feature_names, schema=self.schema, call="attribute")
        stack = references(baselines, given, self.background, self._subject.model, "attribute")
        extra = as_arguments(additional_forward_args)
        settings, features, classes = self._decided(given, stack, extra), self._features(given), self.class_names
        job = Job(
            self._subject, given, stack, settings, target, extra=extra, features=features, class_names=classes, only_net=True
        )
        (outcomes,) = self._results(job, lambda passed: (job.settings.carrier.net(passed),), _mean, "attribute").values()
        combined = tuple(map(_joined, zip(*(outcome.net for outcome in outcomes), strict=True)))
        result = combined if given.is_tuple else combined[0]
        return (result, _joined([outcome.lack for outcome in outcomes])) if return_convergence_delta else result

    def _results(
        self, job: Job, finish: Callable[[Passed], Sequence[R]], mean: Callable[[list[R]], R], call: str
    ) -> Results[R]:
        """Carry out the job; where the model itself does not take such rows, say so."""
        try:
            return carry_out(job, finish, mean)
        except Exception as error:
            if isinstance(error, (RuntimeError, ValueError)):
                one = job.batch(slice(0, 1))
                refuse_rows(error, call, self.model, job.given.tensors, lambda: plain_output(job, one))
            refuse_chance(error, call, lambda seed: drawn_output(job, job.batch(), seed))
            refuse_explained(error, call, lambda: plain_output(job, job.batch()))
            raise

    # Captum's helpers ask these of an explainer.
    def has_convergence_delta(self) -> bool:
        """attribute can return its convergence delta."""
        return True

    @property
    def multiplies_by_inputs(self) -> bool:
        """Scores are contributions, not sensitivities."""
        return True

    def _features(
        self, given: Inputs, groups: Any = None, layer: str | None = None, start: bool = True
    ) -> Callable[[list[torch.Size]], Features] | None:
        """Which elements are one feature, for a carrier that keeps features apart."""
        if self.way is None or not CARRIERS[self.way.netting].by_feature:
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

    def _notes(self, target_layer: str | None) -> tuple[str, ...]:
        """What the model itself has to say of its output."""
        return tuple(getattr(self.model, "explanation_notes", ())) if target_layer is None else ()

    def _background(self, given: Inputs, place: int) -> Tensor:
        """The background of one input, whose noise perturbs rows."""
        if self.background is None:
            raise ValueError(
                "explain(..., refine=...): perturbed by the noise of which data? Give them: CAFE(model, background=x_train), "
                "or a function: refine=Refine(20, perturb=lambda rows, generator: ...)."
            )
        return background_rows(self.background, place, self.model, given.columns, given.schema)

    def _with_what_was_frozen(self, job: Job, chunks: Sequence[Piece], explanation: Explanation, groups: bool) -> Explanation:
        """The explanation with what the model does that its scores do not say."""
        cut: Mapping[str, Tensor] = {}
        if all(chunk.cut is not None for chunk in chunks):
            reached = [torch.cat(same) for same in zip(*(chunk.cut or [] for chunk in chunks), strict=True)]
            cut = cut_features(job, explanation, reached, not (groups and job.features is not None))
        at_baseline = explanation.model_at_baseline
        if job.settings.biases_in_reference:
            at_baseline = model_at_baseline(job, explanation)
        return dataclasses.replace(explanation, cut=cut, model_at_baseline=at_baseline)

    def _described(self, job: Job, c: C) -> dict[str, Any]:
        from . import __version__

        way = self.way or Way()
        return {
            "c": dict(c) if isinstance(c, Mapping) else c,
            "netting": way.netting,
            "flows": way.flows,
            "norms": way.norms,
            "norm_mean": self.norm_mean,
            "biases": way.biases,
            "chosen": way.reason,
            "layer": job.layer,
            "start": job.start,
            "target_layer": job.target_layer,
            "probability": job.probability,
            "version": __version__,
            "torch": str(torch.__version__),
        }


def _refuse_together(given: Inputs, target: Any, against: Any, refines: bool) -> None:
    """What cannot be asked for at the same time."""
    if against is not None and isinstance(target, str) and target == "all":
        raise ValueError('explain(..., target="all", against=...): a difference is of two outputs; give one target.')
    if refines and given.words is not None:
        raise ValueError("explain(..., refine=..., tokenizer=...): corrections are those of tokens; give words=False, too.")


def _by_what_differs(entries: dict[Any, Explanation], several_c: bool, every_class: bool) -> Explanation | Explanations:
    """A single explanation, or several by c, by class or by both."""
    if several_c and every_class:
        return Explanations(("c", "target"), entries)
    if several_c or every_class:
        return Explanations(("c" if several_c else "target",), {key[every_class]: e for key, e in entries.items()})
    return next(iter(entries.values()))


def _joined(chunks: Sequence[Tensor]) -> Tensor:
    return chunks[0] if len(chunks) == 1 else torch.cat(list(chunks))


def _mean(against: list[Outcome]) -> Outcome:
    """The combined scores and what they lack, averaged over baselines."""
    if len(against) == 1:
        return against[0]
    count = len(against)
    features = [torch.stack(parts).sum(0) / count for parts in zip(*(one.net for one in against), strict=True)]
    return Outcome(features, {}, torch.stack([one.lack for one in against]).sum(0) / count)
