"""The experiments of the paper, each by one command: ``cafexai study NAME``."""

from __future__ import annotations

from . import awareness, infidelity, properties
from .record import Finding, Report, Study, Table, Task, Workplace
from .runner import run

STUDIES: dict[str, Study] = {study.name: study for study in (*infidelity.STUDIES, properties.PROPERTIES, awareness.AWARENESS)}

__all__ = ["STUDIES", "Finding", "Report", "Study", "Table", "Task", "Workplace", "run"]
