"""The experiments of the paper, each by one command: ``cafexai study NAME``."""

from __future__ import annotations

from . import (
    awareness,
    circuit,
    examples_images,
    examples_tabular,
    infidelity,
    prevalence,
    properties,
    shift_images,
    shift_tabular,
    synthetic,
)
from .record import Finding, Report, Study, Table, Task, Workplace
from .runner import run

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        *infidelity.STUDIES,
        *synthetic.STUDIES,
        *prevalence.STUDIES,
        *shift_tabular.STUDIES,
        *shift_images.STUDIES,
        examples_tabular.EXAMPLES,
        examples_images.EXAMPLES,
        circuit.CIRCUIT,
        properties.PROPERTIES,
        awareness.AWARENESS,
    )
}

__all__ = ["STUDIES", "Finding", "Report", "Study", "Table", "Task", "Workplace", "run"]
