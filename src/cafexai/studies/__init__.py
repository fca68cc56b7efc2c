"""The experiments of the paper, each by one command: ``cafexai study NAME``."""

from __future__ import annotations

from . import infidelity, prevalence, shift_images, shift_tabular, synthetic
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
    )
}

__all__ = ["STUDIES", "Finding", "Report", "Study", "Table", "Task", "Workplace", "run"]
