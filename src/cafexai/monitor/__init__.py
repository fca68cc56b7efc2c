"""Watch a model in use: ``Monitor.fit(cafe, reference)``, then ``monitor.check(rows)``."""

from ._prometheus import write_metrics
from ._signals import Signals
from ._verdict import Effect, Moved, MovedPair, Performance, Verdict
from .monitor import Monitor

__all__ = ["Effect", "Monitor", "Moved", "MovedPair", "Performance", "Signals", "Verdict", "write_metrics"]
