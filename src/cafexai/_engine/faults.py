"""Our faults told from those of the model and of rules that users have registered: by the code that ran when it happened."""

from __future__ import annotations

import dis
import os
import sys
import sysconfig
import traceback
from types import FrameType
from typing import Any

import numpy
import torch
from torch.overrides import resolve_name

from .._core.foreign import call_foreign, pass_on
from ..errors import CompletenessError, InternalError, UnsupportedOperation
from ..rules.registry import TABLE

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_ENGINE = tuple(
    os.path.join(_PACKAGE, part, "") for part in ("_carriers", "_core", "_engine", "_inputs", "explanation", "rules")
)
_STANDARD = os.path.join(sysconfig.get_paths()["stdlib"], "")
# What others than its caller are not to blame for. Modules of ours outside of the engine are models: converted, of the paper.
_TOOLS = tuple(os.path.join(os.path.dirname(str(package.__file__)), "") for package in (torch, numpy))
_MODES = ("__torch_function__", "__torch_dispatch__")
_MEANT = (UnsupportedOperation, CompletenessError, InternalError, ImportError, MemoryError, Warning, torch.OutOfMemoryError)
_RAISE = dis.opmap["RAISE_VARARGS"]


def refuse_own_fault(error: BaseException, call: str) -> None:
    """Raise ``InternalError`` if the error was not meant and no code of the user ran; one from a rule of the user is told."""
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
    own = _find_own(frames)
    if own is None:
        return
    version, where = getattr(sys.modules["cafexai"], "__version__", "?"), own[0].f_code.co_filename.removeprefix(_PACKAGE)
    raise InternalError(
        f"{call}(...): internal error of cafexai {version} (torch {torch.__version__}){_operation(frames)}: {told} "
        f"(cafexai/{where}:{own[1]}). This is a fault of ours, not of the model. Please report it with this message."
    ) from error


def _find_own(frames: list[tuple[FrameType, int]]) -> tuple[FrameType, int] | None:
    """The frame of the engine in which an error happened; None if code of the user ran then.

    From the innermost frame outwards: tools that the engine and models use (torch, numpy, Python's own library) belong to who
    called them, and so do calls that a mode of the engine has passed on.
    """
    passing = False
    for frame, line in reversed(frames):
        code = frame.f_code
        if code is call_foreign.__code__:
            return None
        if code is pass_on.__code__:
            passing = True
        elif code.co_filename.startswith(_ENGINE):
            if not passing:
                return frame, line
            passing = code.co_name not in _MODES
        elif not _is_tool(code.co_filename):
            return None
    return None


def _is_tool(file: str) -> bool:
    if file.startswith((_PACKAGE, "<frozen ", *_TOOLS)):
        return True
    return file.startswith(_STANDARD) and "-packages" + os.sep not in file


def is_meant(error: BaseException) -> bool:
    """One of our own errors, raised as such, one of the values that were given, or a lack of memory."""
    if isinstance(error, _MEANT) or "allocate" in str(error):
        return True
    if not isinstance(error, ValueError):
        return False
    frames = list(traceback.walk_tb(error.__traceback__))
    return type(error) is not ValueError or _find_own(frames) is None or _is_raised(error)


def _is_raised(error: BaseException) -> bool:
    """By a ``raise`` in our own code, not by something that it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        return False
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


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
