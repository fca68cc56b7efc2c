"""The theory of conflicts: who counteracts whom, how strongly, and which conflicts are minimal."""

from .definitions import conflict_magnitude, conflicting, counteraction_magnitude, counteracts
from .maps import ConflictMap, conflict_map
from .minimal import Conflict, MinimalConflicts, minimal_conflicts
from .units import inactive_conflicts, linear_conflicts, relu_conflicts

__all__ = [
    "Conflict",
    "ConflictMap",
    "MinimalConflicts",
    "conflict_magnitude",
    "conflict_map",
    "conflicting",
    "counteraction_magnitude",
    "counteracts",
    "inactive_conflicts",
    "linear_conflicts",
    "minimal_conflicts",
    "relu_conflicts",
]
