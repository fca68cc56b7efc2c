"""The experiments of the paper, each by one command: ``cafexai study NAME``."""

from __future__ import annotations

from . import (
    activation_conflicts,
    authors_protocol,
    awareness,
    circuit,
    conflict_truth,
    depth,
    depth_blocks,
    depth_ft,
    examples_images,
    examples_tabular,
    infidelity,
    infidelity_deep,
    language,
    monitoring,
    patching,
    prevalence,
    properties,
    shift_clothes,
    shift_images,
    shift_tabular,
    synthetic,
    synthetic_deep,
    truth_images,
    truth_tables,
    truth_text,
    units,
    worked_tables,
)
from .record import Finding, Report, Study, Table, Task, Workplace
from .runner import run

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        *infidelity.STUDIES,
        *infidelity_deep.STUDIES,
        *synthetic.STUDIES,
        *synthetic_deep.STUDIES,
        *prevalence.STUDIES,
        *depth.STUDIES,
        *depth_ft.STUDIES,
        *depth_blocks.STUDIES,
        *shift_tabular.STUDIES,
        *shift_images.STUDIES,
        *shift_clothes.STUDIES,
        examples_tabular.EXAMPLES,
        examples_images.EXAMPLES,
        circuit.CIRCUIT,
        properties.PROPERTIES,
        *worked_tables.STUDIES,
        *activation_conflicts.STUDIES,
        *authors_protocol.STUDIES,
        awareness.AWARENESS,
        units.UNIT_STUDY,
        *monitoring.STUDIES,
        patching.PATCHING,
        language.LANGUAGE,
        *truth_text.STUDIES,
        *truth_images.STUDIES,
        *truth_tables.STUDIES,
        *conflict_truth.STUDIES,
    )
}

__all__ = ["STUDIES", "Finding", "Report", "Study", "Table", "Task", "Workplace", "run"]
