"""What happens when one model is explained: explained, refused, wrong, or an error that nobody meant."""

from __future__ import annotations

import re
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

import liveliness
import torch
from specimen import Reader, Specimen
from torch import Tensor

from cafexai import CAFE, Explanation, errors, supported

OF_CHANGE, OF_SCORES = 1e-4, 1e-5  # how far a sum may miss: of the change of the output, and of sum |combined|
ROUNDING = 6e-8  # of float32
REPEATS = 5
LONG = 1.0  # seconds: what takes longer is timed once


def judge(build: Callable[[], Specimen], runs: Callable[[], None]) -> dict[str, Any]:
    """The record of one model; ``runs`` is called when it has run by itself."""
    torch.manual_seed(0)
    try:
        specimen = build()
        specimen.model.eval()
        reader = Reader(specimen).eval()
        inputs, constants = tuple(specimen.inputs.values()), dict(specimen.constants)
        plain = liveliness.outputs(specimen)
    except Exception as error:
        return {"verdict": "not run", "why": _said(error)}
    runs()
    record = {"parameters": sum(p.numel() for p in specimen.model.parameters())}
    record |= _explained(reader, inputs, constants, plain)
    start = time.perf_counter()
    try:
        support = supported(reader, inputs, constants or None)
        record |= {"supported": bool(support), "problems": [_anywhere(str(one))[:300] for one in support.problems]}
    except Exception as error:
        record |= {"supported": False, "problems": [_said(error)[:300]]}
    record["supported seconds"] = _short(time.perf_counter() - start)
    if record["verdict"] == "explained":
        record |= _timed(reader, inputs, constants)
    return record


def _explained(reader: Reader, inputs: tuple[Tensor, ...], constants: dict[str, Any], plain: Tensor) -> dict[str, Any]:
    """The verdict, with the sums that were found."""
    cafe = CAFE(reader)
    torch.manual_seed(0)
    try:
        e = cafe.explain(inputs, additional_forward_args=constants or None)
    except Exception as error:
        kind = _kind(error)
        found = {"verdict": kind, "why": _said(error), "error": type(error).__name__}
        return found if kind == "refused" else {**found, "traceback": _frames(error)}
    rows = len(plain)
    output = plain[torch.arange(rows), e.target.reshape(rows, -1)[:, 0]].double()
    sums = sum(part.double().reshape(rows, -1).sum(1) for part in e.combined) + e.bias.double()
    size = sum(part.double().abs().reshape(rows, -1).sum(1) for part in e.combined)
    change = e.output.double() - e.baseline_output.double()
    rounded = (
        ROUNDING * (e.output.abs() + e.baseline_output.abs()).double()
    )  # of the outputs themselves, as they are handed over
    missing, allowed = (sums - change).abs(), OF_CHANGE * change.abs() + OF_SCORES * size + rounded
    apart = _apart(e, output)
    right = bool(torch.isfinite(missing).all() and (missing <= allowed).all() and (apart < 1e-3).all())
    return {
        "verdict": "explained" if right else "wrong",
        "way": "deep" if e.meta.settings["netting"] == "unit" else "published",
        "missing": _short((missing / change.abs().clamp_min(1e-30)).max()),
        "of allowed": _short((missing / allowed.clamp_min(1e-30)).max()),
        "apart": _short(apart.max()),
        "change": _short(change.abs().max()),
        "size": _short((size / e.output.double().abs().clamp_min(1e-30)).max()),
    }


def _apart(e: Explanation, output: Tensor) -> Tensor:
    """How far the explained output is from that of the model; by our own check where a final sigmoid or softmax is left out."""
    if any("is left out" in note for note in e.notes):
        return torch.as_tensor(e.checks.output_error).double()
    return (e.output.double() - output).abs() / output.abs().clamp_min(1e-30)


def _timed(reader: Reader, inputs: tuple[Tensor, ...], constants: dict[str, Any]) -> dict[str, Any]:
    """Median seconds of attribute and of a forward and backward pass, taken in turn."""
    cafe, times = CAFE(reader), {"both": [], "attribute": []}

    def both() -> None:
        leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
        reader(*leaves, **constants).max(1).values.sum().backward()

    ways = {"both": both, "attribute": lambda: cafe.attribute(inputs, additional_forward_args=constants or None)}
    try:
        for repeat in range(REPEATS + 1):
            for name, way in ways.items():
                start = time.process_time()  # others may work on the same machine
                way()
                times[name].append(time.process_time() - start)
            if repeat and sum(taken[-1] for taken in times.values()) > LONG:
                break
    except Exception as error:
        return {"not timed": _said(error)[:200]}
    seconds = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    return {
        "forward + backward": _short(seconds["both"]),
        "attribute": _short(seconds["attribute"]),
        "ratio": _short(seconds["attribute"] / seconds["both"]),
    }


def _kind(error: Exception) -> str:
    """Refused by us, a law that we say is broken, or an error from elsewhere."""
    if isinstance(error, errors.CompletenessError):
        return "broken"
    if isinstance(error, errors.UnsupportedOperation):
        return "refused"
    ours = isinstance(error, ValueError) and re.match(r"[\w.]+\(", str(error)) is not None
    return "refused" if ours and "cafexai" in traceback.extract_tb(error.__traceback__)[-1].filename else "traceback"


def _said(error: BaseException) -> str:
    text = str(error) if isinstance(error, (errors.CompletenessError, NotImplementedError, ValueError)) else ""
    return _anywhere(text or f"{type(error).__name__}: {error}")[:1500]


def _anywhere(text: str) -> str:
    """A text without the folders of this machine."""
    return re.sub(r"/[^\s:]*/(site-packages/|src/(?=cafexai/)|(?=zoo/families/))", "", text)


def _frames(error: Exception) -> list[str]:
    """The last places of a traceback, by file and line."""
    places = traceback.extract_tb(error.__traceback__)[-6:]
    return [f"{'/'.join(place.filename.split('/')[-2:])}:{place.lineno} {place.name}" for place in places]


def _short(number: Any) -> float:
    return float(f"{float(number):.3g}")
