"""From a call of the user to a job: inputs to tensors, baselines to references, options to settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .._carriers import CARRIERS, PAIRED
from .._core.feature_index import Features
from .._core.run import C, Sensitivity, Settings
from .._core.variant import Variant
from .._inputs import list_names
from .._inputs.background import WORD, Background, draw_rows
from .._inputs.baselines import known_baselines, references
from .._inputs.causal import with_positions
from .._inputs.convert import convert_inputs
from .._inputs.groups import default_names, groups_of_rows, join_groups, places
from .._inputs.prepare import Inputs, has_own_columns, is_frame, model_dtype, prepare, row_names_of
from .._inputs.shown_baselines import with_baseline_values
from .._inputs.words import leave_out_special, mask_words
from .job import Job, as_arguments
from .model import Subject
from .model_options import ModelInfo
from .request import Question, Request, conflict_kind

ZERO_KNOWN = "The baseline is 0 behind the preprocessing; its values are what the preprocessing turns into 0."
PUT_TOGETHER = {
    word: f"The baseline has {what} of each column: it is put together, and no such row needs to exist."
    for word, what in (("mean", "the mean"), ("median", "the median"), ("mode", "the most frequent value"))
}
NO_BACKGROUND = "Compared with zero, as no background is known. CAFE(model, background=rows) compares with typical rows."
ZERO_UNKNOWN = "The baseline is 0 behind the preprocessing, which is not known in the units of the columns."


class Explainer(NamedTuple):
    """A model, and how it is explained."""

    subject: Subject
    c: C
    variant: Variant
    info: ModelInfo


def prepare_job(explainer: Explainer, inputs: Any, request: Request, question: Question, call: str) -> Job:
    """Check the call and bring it into one form, before the model runs. ``call`` is its name, for errors."""
    subject, info, layer = explainer.subject, explainer.info, question.layer
    subject.ready(call)
    for method, name in (("explain_layer", layer), ("explain_neuron", question.target_layer)):
        if name is not None:
            subject.has_module(method, name)
    only_net = call == "attribute"
    conflict_kind(request.conflict, question)  # checks it
    ready = convert_inputs(
        inputs, request.additional_forward_args, info.tokenizer, info.preprocess, request.display, subject.takes_raw
    )
    parts = tuple(ready.inputs) if isinstance(ready.inputs, (tuple, list)) else (ready.inputs,)
    extra, padded = with_positions(subject.model, parts, ready.extra, request, info.tokenizer, call)
    if info.schema is not None and not as_arguments(extra):
        _check_inputs(info.schema, subject, call)
    given = prepare(
        ready.inputs,
        subject.model,
        question.shown_names,
        ready.display,
        info.tokenizer,
        columns=info.feature_names,
        schema=info.schema,
        words=info.words and request.feature_groups is None and layer is None and not only_net,
        mask=ready.mask,
        written=ready.written,
        call=call,
        allow_nan=info.allow_nan,
    )
    if ready.names:
        given = dataclasses.replace(given, keywords=subject.keywords(ready.names))
    groups = request.feature_groups
    baselines = request.baselines
    about: tuple[str, ...] = ()
    if info.tokenizer is not None and len(given.tensors) == 1 and not question.latent:
        baselines, about = mask_words(baselines, given.tensors[0], info.tokenizer)
        if about and given.words is not None:
            given = dataclasses.replace(given, words=leave_out_special(given.words))
    typical = _is_background(baselines)
    if baselines is None and _in_own_columns(inputs, subject, info) and not question.latent:
        if info.background is not None:
            baselines, typical = WORD, True
        elif layer is None and not only_net:
            about = (*about, NO_BACKGROUND)
    if isinstance(baselines, str) and baselines in PUT_TOGETHER and _in_own_columns(inputs, subject, info) and layer is None:
        about = (*about, PUT_TOGETHER[baselines])
    if subject.takes_raw and has_own_columns(subject.model):
        baselines = known_baselines(baselines, info.background, subject.model, call)
    stack = references(None if question.latent else baselines, given, info.background, subject.model, call)
    if info.allow_nan:
        stack = [tuple(map(_without_missing, given.tensors, references)) for references in stack]
    if layer is None and not only_net:
        known = _draw_baselines(baselines)
        if known is None and has_own_columns(subject.model):  # zero behind the preprocessing
            known = subject.model.zero_row()
            about = (*about, _zero_note(subject.model, known is not None))
        shown = with_baseline_values(given, stack, known, subject.model)
        given = dataclasses.replace(shown, row_names=row_names_of(inputs))
        groups = _groups(given, request, explainer.variant, call)
    names = subject.names.values()
    several = question.several_c
    return Job(
        subject,
        given,
        stack,
        make_settings(explainer, given, request.pairs),
        request if groups is request.feature_groups else request.replace(feature_groups=groups),
        question,
        extra=as_arguments(extra),
        class_names=info.class_names,
        probability=info.probability,
        notes=(*_notes_of_model(subject, question), *ready.notes, *padded, *given.notes, *about, *_price(stack, typical)),
        latent_baselines=request.baselines,
        features=find_features(explainer.variant, given, groups, question),
        sensitivities=(None,) if several is None else tuple(Sensitivity(c, names) for c in several),
        per_row=_per_row(info, request, extra, given),
        only_net=only_net,
        typical=typical,
        tokenizer=info.tokenizer,
    )


def _check_inputs(schema: Any, subject: Subject, call: str) -> None:
    """Refuse a schema of one input for a model that cannot do without several."""
    needed = subject.needed_arguments()
    if schema.inputs == ("",) and len(needed) > 1:
        some = ", ".join(f"{name!r}: [...]" for name in needed)
        raise ValueError(
            f"{call}(...): the model takes {len(needed)} inputs, {', '.join(needed)}, and the schema describes one. Say which "
            f"columns go where: Schema.from_frame(frame, inputs={{{some}}})."
        )


def _without_missing(x: torch.Tensor, reference: torch.Tensor | None) -> torch.Tensor | None:
    """The baseline of an input: what is missing there is missing here."""
    missing = x.isnan()
    if not missing.any():
        return reference
    return (torch.zeros_like(x) if reference is None else reference.expand(x.shape)).masked_fill(missing, torch.nan)


def _draw_baselines(baselines: Any) -> Any:
    """Baselines as rows of the user; of a background those that are drawn."""
    return draw_rows(baselines.rows, baselines.k, baselines.seed) if isinstance(baselines, Background) else baselines


def _zero_note(model: Any, known: bool) -> str:
    """What zero behind the preprocessing is in the units of the columns."""
    if not known:
        return ZERO_UNKNOWN
    names = model.unknown_zeros()
    return f"{ZERO_KNOWN[:-1]}, which is not known for {list_names(names, 5)}." if names else ZERO_KNOWN


def _is_background(baselines: Any) -> bool:
    """Rows of the background are asked for as baselines."""
    return isinstance(baselines, Background) or (isinstance(baselines, str) and baselines == WORD)


def _in_own_columns(inputs: Any, subject: Subject, info: ModelInfo) -> bool:
    """The inputs are columns that people know, where zero says nothing: those of a pipeline or of a schema."""
    named = is_frame(inputs) or isinstance(inputs, Mapping)
    return named and (subject.takes_raw or info.schema is not None)


def _price(stack: Sequence[Any], typical: bool) -> tuple[str, ...]:
    if not typical:
        return ()
    many = len(stack)
    return (f"Scores are averages over {many} baselines, rows of the background; the price is about {many} explanations.",)


def _groups(given: Inputs, request: Request, variant: Variant, call: str) -> Any:
    """What one score is of: the user's groups of the features as people know them."""
    groups, known = request.feature_groups, given.grouping
    if groups is None:
        return known
    own = groups_of_rows(groups, known, [x.shape[1:] for x in given.tensors], given.rows, call)
    if own is None:
        return groups if known is None else join_groups(known, groups)
    if CARRIERS[variant.netting].by_feature:
        raise ValueError(
            f'{call}(..., feature_groups=mask per row): netting="feature" needs the same groups in all rows. Explain the rows '
            "one by one, or use the default variant."
        )
    return own


def _per_row(info: ModelInfo, request: Request, extra: Any, given: Inputs) -> tuple[Any, ...] | None:
    """Which further arguments have one entry per row: those that came with an encoding do; others if the user says so."""
    if info.per_row is not None:
        return tuple(info.per_row)
    if request.additional_forward_args is not None or not isinstance(extra, dict):
        return None
    tensors = {key: part for key, part in extra.items() if isinstance(part, torch.Tensor) and part.ndim}
    return tuple(key for key, part in tensors.items() if len(part) == given.rows)


def make_settings(explainer: Explainer, given: Inputs, pairs: bool) -> Settings:
    variant = explainer.variant
    carrier = CARRIERS[variant.netting]
    if pairs and carrier not in PAIRED:
        raise ValueError(
            f'explain(..., pairs=True): netting={variant.netting!r} mixes features. Set CAFE(model, variant="feature").'
        )
    settings = Settings(
        PAIRED[carrier] if pairs else carrier,
        Sensitivity(explainer.c, explainer.subject.names.values()),
        variant.norm_mean,
        variant.biases == "reference",
        norms=variant.norms,
        attention=variant.attention,
        flows=variant.flows,
    )
    if all(x.is_floating_point() for x in given.tensors):
        return settings
    dtype = torch.promote_types(model_dtype(explainer.subject.model)[0], settings.dtype)  # codes have no precision of their own
    return dataclasses.replace(settings, dtype=dtype)


def find_features(
    variant: Variant, given: Inputs, groups: Any, question: Question
) -> Callable[[list[torch.Size]], Features] | None:
    """Which elements are one feature, for a carrier that keeps features apart."""
    if not CARRIERS[variant.netting].by_feature:
        return None
    if question.layer is not None and not question.start:
        raise ValueError(
            'explain_layer(..., from_inputs=True): with netting="feature" contributions are those of the inputs or of the '
            "layer itself. Use another variant, or from_inputs=False."
        )

    def features(shapes: list[torch.Size]) -> Features:
        if groups is None:
            return Features.of(shapes)
        names = given.names if given.names is not None and question.layer is None else default_names(shapes)
        return Features.of(shapes, places(groups, shapes, lambda: names)[0])

    return features


def _notes_of_model(subject: Subject, question: Question) -> tuple[str, ...]:
    """What the model itself says of its output."""
    return tuple(getattr(subject.model, "explanation_notes", ())) if question.target_layer is None else ()
