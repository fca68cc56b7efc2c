"""Hugging Face transformers: every architecture, from a configuration that is made small, with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import liveliness
import torch
import transformers
from families._proportions import LARGEST, in_proportion
from families._shrink import shrunken
from families._transformers_inputs import inputs_of
from families._transformers_search import searched, with_pictures
from specimen import Specimen
from transformers.models.auto import configuration_auto, modeling_auto

# What is explained of an architecture: the first of these heads that it has and that runs.
HEADS = [
    "SEQUENCE_CLASSIFICATION", "IMAGE_CLASSIFICATION", "AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION", "CAUSAL_LM", "MASKED_LM",
    "SEQ_TO_SEQ_CAUSAL_LM", "TIME_SERIES_PREDICTION", "TIME_SERIES_CLASSIFICATION", "SEMANTIC_SEGMENTATION",
    "DEPTH_ESTIMATION", "OBJECT_DETECTION", "CTC", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "TEXT_ENCODING",
]  # fmt: skip


# Models that are explained a second time, by codes and pictures at once: with this head, or those above.
AND_PICTURES = "+pictures"
PICTURED = {
    "clip": "CLIPModel", "siglip": "SiglipModel", "llava": "", "paligemma": "", "internvl": "", "idefics2": "", "idefics3": "",
    "smolvlm": "", "vipllava": "", "aya_vision": "", "got_ocr2": "", "git": "", "florence2": "",
}  # fmt: skip
Finder = Callable[[Any, Callable[[Specimen], Any]], Specimen]
# What our ways of making a configuration small leave at more than a minute.
TOO_LARGE = set("blt textnet timesfm2_5 vibevoice vibevoice_acoustic_tokenizer vits".split())


def heads(kind: str) -> list[str]:
    """The classes of one architecture, in the order in which they are tried."""
    found = [getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES", {}).get(kind) for head in HEADS]
    found.append(modeling_auto.MODEL_MAPPING_NAMES.get(kind))
    flat = [one for names in found if names for one in ([names] if isinstance(names, str) else names)]
    return list(dict.fromkeys(flat))


def names() -> Iterator[str]:
    for kind in configuration_auto.CONFIG_MAPPING_NAMES:
        if heads(kind):
            yield f"transformers/{kind}"
        if kind in PICTURED:
            yield f"transformers/{kind}{AND_PICTURES}"


def build(name: str) -> Specimen:
    kind = name.split("/")[1]
    if kind in TOO_LARGE:
        raise ValueError("it is not made small enough")
    failures: dict[str, None] = {}
    for head, config, find in attempts(kind):
        try:
            return _specimen(getattr(transformers, head), config, find)
        except Exception as error:
            failures[f"{head}: {type(error).__name__}: {error}"[:250]] = None
    raise ValueError("; ".join(failures) or "its configuration cannot be made small")


def attempts(kind: str) -> Iterator[tuple[str, Any, Finder]]:
    """Heads, configurations and ways to find arguments, the simplest first."""
    if kind.endswith(AND_PICTURES):
        kind = kind.removesuffix(AND_PICTURES)
        for head in (PICTURED[kind],) if PICTURED[kind] else heads(kind)[:2]:
            yield from ((head, config, with_pictures) for config in in_proportion(kind))
        return
    yield from ((head, config, first_of) for head in heads(kind)[:2] for config in shrunken(kind))
    for head in heads(kind):
        yield from ((head, config, searched) for config in (*shrunken(kind), *in_proportion(kind)))


def _specimen(head: Any, config: Any, find: Finder) -> Specimen:
    if find is not first_of and (count := _parameters(head, config)) > LARGEST:
        raise ValueError(f"{count} parameters are too many")
    torch.manual_seed(0)
    model = head(config).eval()
    for parameter in model.parameters():  # some are left empty, or begin at 0, where nothing would pass
        if not torch.isfinite(parameter).all() or (parameter == 0).all():
            torch.nn.init.normal_(parameter.data, std=0.05)
    return find(model, liveliness.outputs)


def _parameters(head: Any, config: Any) -> int:
    """How many there are, without making them."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in head(config).parameters())
    except Exception:  # it computes with its weights
        return 0


def first_of(model: Any, runs: Callable[[Specimen], Any]) -> Specimen:
    """The likeliest inputs with which a model runs."""
    failures = []
    for inputs, constants in inputs_of(model):
        specimen = Specimen(model, inputs, constants)
        try:
            runs(specimen)
            return specimen
        except Exception as error:
            failures.append(f"{'+'.join(inputs)}: {type(error).__name__}: {error}"[:200])
    raise ValueError("; ".join(failures) or f"forward({', '.join(inspect.signature(model.forward).parameters)})")
