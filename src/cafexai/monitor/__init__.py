"""Watch a model in use: ``Monitor.fit(cafe, reference)``, then ``monitor.check(rows)``."""

from ._verdict import Effect, Moved, MovedPair, Verdict
from .monitor import Monitor

__all__ = ["Effect", "Monitor", "Moved", "MovedPair", "Verdict"]
