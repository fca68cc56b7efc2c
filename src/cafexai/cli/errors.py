"""What goes wrong, in one line and a code."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any

from ..loading.file_errors import DataProblem, ModelProblem, OutputProblem, short

CODES = {
    0: "done",
    1: "unexpected: a fault of this program",
    2: "wrong use: a command, an option or its value",
    3: "data: not there, not readable, not what the model takes",
    4: "model: not there, not readable, not trusted, or with an operation that has no rule",
    5: "the result cannot be written",
    6: "a package is missing",
    10: "monitor check --fail-on: something changed (warn)",
    11: "monitor check --fail-on: something changed that matters (alert)",
    130: "stopped by the user",
}
OPTIONS = {"baselines": "baseline"}  # words of Python that are other words here
OPTIONS |= {
    word: word.replace("_", "-")
    for word in """target against output c netting flows biases norms batch_size methods metrics
                   keep scores top workers rows_per_part max_bad engine address kernels encoding
                   partition_by compression append log_level log_format""".split()
}


class UseProblem(ValueError):
    """An option is not what it should be."""


def run(app: Any, words: list[str]) -> int:
    """Run a command; whatever goes wrong ends in one line and a code. ``--debug`` anywhere shows where it comes from."""
    debug = "--debug" in words
    warnings.showwarning = _print_warning
    if not debug:
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", message="X has feature names")  # a pipeline that was fitted without
    try:
        result = app([word for word in words if word != "--debug"], prog_name="cafexai", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except BrokenPipeError:  # head, or a pager that was left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:
        if type(error).__name__ == "Exit":
            return int(getattr(error, "exit_code", 0))
        if debug:
            import traceback

            traceback.print_exc()
        message, code = describe_error(error)
        print(f"cafexai: {message}" if message else "", file=sys.stderr, end="\n" if message else "")
        return code


def describe_error(error: BaseException) -> tuple[str, int]:
    """The line and the code of an error."""
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return "stopped.", 130
    if hasattr(error, "format_message"):  # typer's own
        return _describe_misuse(error), 2
    for kind, code in ((UseProblem, 2), (DataProblem, 3), (ModelProblem, 4), (OutputProblem, 5)):
        if isinstance(error, kind):
            return short(error, 2000), code
    if isinstance(error, ModuleNotFoundError):
        return short(error), 6
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return "there is not enough memory. Explain fewer rows at a time (--batch-size 10), or fewer (--rows 0:100).", 3
    problems = getattr(error, "problems", None)
    if problems is not None:
        return _describe_unsupported(error, problems), 4
    if isinstance(error, (ValueError, OSError, NotImplementedError, ArithmeticError)):
        return short(error, 2000), 2 if isinstance(error, ValueError) else 1
    return f"unexpected {type(error).__name__}: {short(error)}. This should not happen; --debug shows where.", 1


def blame_option(error: ValueError, data: str) -> ValueError:
    """An error of a call of ours as one of the option, or of the data, that led to it."""
    if type(error) is not ValueError:
        return error
    call = re.match(r"\w+\((?:[\w.]+, )*?(\w+)=(.*?)\): (.*)", str(error), re.DOTALL) or re.match(
        r"\w+\(\.\.\., (\w+)=(.*?)\): (.*)", str(error), re.DOTALL
    )
    if call is not None and call[1] in OPTIONS:
        given = "" if call[2] in ("...", "tensor", "frame") else f" {call[2]}"
        return UseProblem(f"--{OPTIONS[call[1]]}{given}: {call[3]}")
    rows = re.match(r"\w+\([\w.]*\): (.*)", str(error), re.DOTALL)
    return DataProblem(f"{data}: {rows[1] if rows is not None else error}")


def _describe_unsupported(error: BaseException, problems: Any) -> str:
    if not problems:
        return short(error, 2000)
    more = f" {len(problems) - 1} more such calls:" if len(problems) > 1 else ""
    return (
        f"the model cannot be explained: {short(ValueError(problems[0]), 600)}.{more} cafexai supported MODEL DATA lists all."
    )


def _describe_misuse(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = f" See {context.command_path} --help." if context is not None else ""
    text = short(ValueError(error.format_message()))
    return f"{text}{'' if text.endswith(('.', '?', ')')) else '.'}{command}" if text else ""


def _print_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning in one line."""
    print(f"cafexai: note: {short(ValueError(message), 600)}", file=sys.stderr)
