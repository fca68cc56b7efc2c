"""The theory of conflicts: who counteracts whom, how strongly, and which conflicts are minimal."""

from .audit import Audit, Offence, audit, audit_outputs
from .closed_form import inactive_conflicts, linear_conflicts, relu_conflicts
from .definitions import conflict_magnitude, conflicting, counteraction_magnitude, counteracts
from .maps import ConflictMap, conflict_map
from .minimal import Conflict, MinimalConflicts, minimal_conflicts
from .prevalence import Prevalence, prevalence
from .tuning import Tuned, tune_c

__all__ = [
    "Audit",
    "Conflict",
    "ConflictMap",
    "MinimalConflicts",
    "Offence",
    "Prevalence",
    "Tuned",
    "audit",
    "audit_outputs",
    "conflict_magnitude",
    "conflict_map",
    "conflicting",
    "counteraction_magnitude",
    "counteracts",
    "inactive_conflicts",
    "linear_conflicts",
    "minimal_conflicts",
    "prevalence",
    "relu_conflicts",
    "tune_c",
]
