"""Log lines of long-running commands: the logger ``cafexai`` and its children, as text or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, form: str) -> None:
    """Write log lines of this library to standard error.

    Args:
        level: "debug", "info", "warning" or "error".
        form: "text", or "json": one object a line, with the fields of a request.

    Raises:
        ValueError: A word is unknown.
    """
    for name, value, allowed in (("log_level", level, LEVELS), ("log_format", form, FORMATS)):
        if value not in allowed:
            raise ValueError(f"configure_logging(..., {name}={value!r}): unknown. Allowed values: {', '.join(allowed)}.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("cafexai")
    logger.handlers = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _USUAL},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
