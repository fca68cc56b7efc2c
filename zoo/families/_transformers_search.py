"""The arguments that a model of transformers runs with: those that it must have, then those that its errors ask for."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from families._arguments import CONSTANTS, EXPLAINED, Sizes, flat_patches
from specimen import ROWS, Specimen, first_numbers
from torch import Tensor, nn

PAIRS = ["pixel_values", "input_features", "input_values", "pixel_values_videos", "visual_feats"]  # beside codes
TRIES = 24  # of one model
INSTEAD = {"inputs_embeds", "hidden_states", "encoder_hidden_states", "query_embeds", "attention_mask"}  # of other arguments
OF_PAIRS = "logits_per_image logits_per_video logits_per_audio logits_audio_text logits_video_text logits_audio_video".split()
UNEQUAL = r"(\w+) features and \w+ tokens do not match, tokens: (\d+), features: (\d+)"
GRIDS = ("grid_thw", "image_grid_thw")


class Folded(nn.Module):
    """A model whose pictures are patches one after the other, as a function of rows."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, **given: Any) -> Any:
        patches = given.pop(self.name)
        rows = len(patches)
        output = self.model(**{self.name: patches.flatten(0, 1)}, **given)
        numbers = first_numbers(output, None)
        return numbers.reshape(rows, -1)


def searched(model: Any, runs: Callable[[Specimen], Any], begin: frozenset[str] | None = None) -> Specimen:
    """The first arguments with which a model runs, from these names on if there are some; ``runs`` raises where it does not."""
    failures: dict[str, None] = {}
    waiting, seen = list(_beginnings(model)) if begin is None else [begin], set()
    asked = inspect.signature(model.forward).parameters
    queries = getattr(model.config, "num_query_tokens", None)  # what a picture becomes, in those that do not count
    tries, places = 0, {} if queries is None else {"image": queries}
    while waiting:
        names = waiting.pop(0)
        if (names, *places.items()) in seen:
            continue
        seen.add((names, *places.items()))
        last = None
        for specimen in _specimens(model, names, places):
            if (tries := tries + 1) > TRIES:
                raise ValueError("; ".join(failures))
            try:
                runs(specimen)
                return specimen
            except Exception as error:
                failures[f"{'+'.join(sorted(names))}: {type(error).__name__}: {error}"[:200]] = None
                wanted = {word for word in re.findall(r"\w+", str(error)) if word in asked and _known(word)} - names
                if match := re.search(
                    r"(\w+) features and \w+ tokens do not match, tokens: (\d+), features: (\d+)", str(error)
                ):
                    width = 1 if match[2] != match[3] else Sizes(model.config).get("hidden_size", 64)  # some count numbers
                    places[match[1].lower()] = int(match[3]) // ROWS // width
                    waiting.insert(0, names)
                    break
                if wanted:
                    waiting.insert(0, frozenset(names | wanted))
                if wanted or (last := str(error) if str(error) != last else None) is None:  # other shapes make no difference
                    break
    raise ValueError("; ".join(failures) or f"forward({', '.join(asked)})")


def with_pictures(model: Any, runs: Callable[[Specimen], Any]) -> Specimen:
    """Codes and pictures, both to be explained."""
    return searched(model, runs, frozenset({"input_ids", "pixel_values"}))


def _known(name: str) -> bool:
    return name in EXPLAINED or name in CONSTANTS


def _beginnings(model: Any) -> Iterator[frozenset[str]]:
    """Sets of names to begin with: what must be given, with the main input, with codes and something beside them."""
    asked = inspect.signature(model.forward).parameters
    open_ended = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    needed = {name for name, one in asked.items() if one.default is one.empty and one.kind not in open_ended}
    if not all(map(_known, needed)):
        raise ValueError(f"forward({', '.join(asked)})")
    main = {getattr(model, "main_input_name", "input_ids")} & asked.keys() & EXPLAINED.keys()
    if needed & EXPLAINED.keys():
        yield frozenset(needed)
    yield frozenset(needed | (main or {"input_ids"} & asked.keys()))
    yield from (frozenset(needed | {"input_ids", name}) for name in PAIRS if {"input_ids", name} <= asked.keys())
    if "decoder_input_ids" in asked:
        yield frozenset(needed | main | {"decoder_input_ids"})
    yield frozenset(name for name in asked if _known(name) and name not in INSTEAD)


def _with_places(codes: Tensor, config: Any, places: dict[str, int]) -> Tensor:
    """Codes with as many places for pictures and the like as there are features of them."""
    for kind, count in places.items():
        mark = next(getattr(config, name) for name in (f"{kind}_token_id", f"{kind}_token_index") if hasattr(config, name))
        codes = torch.cat([codes[:, :1], torch.full((len(codes), count), mark), codes[:, 1:]], 1)
    return codes


def _specimens(model: Any, names: frozenset[str], places: dict[str, int]) -> Iterator[Specimen]:
    sizes = Sizes(model.config)
    torch.manual_seed(0)
    constants = {name: CONSTANTS[name](sizes) for name in sorted(names) if name in CONSTANTS}
    explained = [name for name in sorted(names) if name in EXPLAINED]
    if not explained:
        return
    for name in ("pixel_values", "hidden_states"):
        if name in names and any(grid in names for grid in GRIDS):
            yield Specimen(Folded(model, name), {name: torch.randn(ROWS, *flat_patches(sizes))}, constants)
            return
    if "decoder_input_ids" in explained and len(explained) > 1:
        explained.remove("decoder_input_ids")
        constants["decoder_input_ids"] = next(EXPLAINED["decoder_input_ids"](sizes))
    for values in itertools.product(*(EXPLAINED[name](sizes) for name in explained)):
        inputs: dict[str, Tensor] = dict(zip(explained, values, strict=True))
        if "input_ids" in inputs:
            inputs["input_ids"] = _with_places(inputs["input_ids"], model.config, places)
        yield Specimen(model, inputs, constants, _of_pairs)


def _of_pairs(output: Any) -> Tensor | None:
    """How well each picture or sound fits the text of its own row, where a model compares all with all."""
    for name in OF_PAIRS:
        if isinstance(output, Mapping) and output.get(name) is not None:
            return output[name].diagonal()[:, None]
    return None
