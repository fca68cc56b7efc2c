"""Our faults told from those of the model and of rules that users have registered: by the innermost frame of an error."""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType
from typing import Any

import torch
from torch.overrides import resolve_name

from ..errors import CompletenessError, InternalError, UnsupportedOperation
from ..rules.registry import TABLE

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_HANDED_ON = ("func(", "model(", "output(raw)")  # calls of what is not ours, by the line that makes them


_SLIPS = (AttributeError, NameError, AssertionError, LookupError, TypeError, RecursionError)  # no number leads to these


def refuse_own_slip(error: BaseException) -> None:
    """Where the model may fail as well (at other inputs), only what no input can cause is a fault of ours."""
    if isinstance(error, _SLIPS):
        refuse_own_fault(error, "explain")


def refuse_own_fault(error: BaseException, call: str) -> None:
    """Raise ``InternalError`` if the error was not meant and comes from our own code; one from a rule of the user is told.

    Asked where the model by itself runs on the same inputs.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or is_meant(error):
        return
    rule = next((name for name, codes in _user_rules() if any(frame.f_code in codes for frame, _ in frames)), None)
    place = traceback.extract_tb(error.__traceback__)[-1]
    told = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"
    if rule is not None:
        raise UnsupportedOperation(
            f"{call}(...): the rule that you have registered for {rule} fails: {told} ({place.filename}:{place.lineno}). "
            "Mend it: its arguments are those of the operation, what depends on the input are scored values."
        ) from error
    line = place.line or ""
    if not place.filename.startswith(_PACKAGE) or line.startswith("raise ") or any(word in line for word in _HANDED_ON):
        return
    version, where = getattr(sys.modules["cafexai"], "__version__", "?"), place.filename.removeprefix(_PACKAGE)
    raise InternalError(
        f"{call}(...): internal error of cafexai {version} (torch {torch.__version__}){_operation(frames)}: {told} "
        f"(cafexai/{where}:{place.lineno}). The model runs by itself: this is a fault of ours, not of the model. Please "
        "report it with this message."
    ) from error


def is_meant(error: BaseException) -> bool:
    """One of our own errors, raised as such, one of the values that were given, or a lack of memory."""
    meant = (UnsupportedOperation, CompletenessError, InternalError, MemoryError, torch.OutOfMemoryError)
    if isinstance(error, meant) or "allocate" in str(error):
        return True
    if not isinstance(error, ValueError):
        return False
    place = traceback.extract_tb(error.__traceback__)[-1:]
    own = bool(place) and place[0].filename.startswith(_PACKAGE) and not (place[0].line or "").startswith("raise ")
    return type(error) is not ValueError or not own


def _user_rules() -> list[tuple[str, set[Any]]]:
    """Rules that are not ours, with their code."""
    found = []
    for rule in TABLE.values():
        code = getattr(rule.apply, "__code__", None)
        if code is not None and not code.co_filename.startswith(_PACKAGE):
            found.append((rule.name, {code}))
    return found


def _operation(frames: list[tuple[FrameType, int]]) -> str:
    """The call of torch that was explained when it happened, with the module that made it."""
    for frame, _ in reversed(frames):
        if frame.f_code.co_filename.endswith(os.path.join("_engine", "tracer.py")) and callable(frame.f_locals.get("func")):
            func, trace = frame.f_locals["func"], frame.f_locals.get("self")
            module = getattr(getattr(trace, "run", None), "path", "")
            name = resolve_name(func) or getattr(func, "__name__", str(func))
            return f" at {name}" + (f" in module {module!r}" if module else "")
    return ""
