"""Watch a model in use: ``Monitor.fit(cafe, reference)``, then ``monitor.check(rows)``."""

from ._page import write_page
from ._prometheus import write_metrics
from ._signals import Signals
from ._verdict import Effect, Histogram, Moved, MovedPair, OddRow, Performance, Verdict
from .monitor import Monitor

__all__ = [
    "Effect",
    "Histogram",
    "Monitor",
    "Moved",
    "MovedPair",
    "OddRow",
    "Performance",
    "Signals",
    "Verdict",
    "write_metrics",
    "write_page",
]
