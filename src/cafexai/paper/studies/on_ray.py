"""Tasks of a study on a Ray cluster. Workers send results back; only this process writes into the folder of the study."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from ..._cluster import ray_cluster
from ..models.checkpoint import Tally, count_trainings
from .processes import Ends
from .record import Settings, Study, Workplace
from .task_results import keep

RETRIES = -1  # a task whose worker is lost is done again, on another one


def do_on_ray(study: Study, settings: Settings, folder: Path, place: Workplace, keys: list[str], address: str | None) -> Ends:
    """Do the tasks with these keys, one processor each; keep every result as it arrives, and count its trainings.

    The data folder must exist on every machine. Each machine has a store of networks of its own unless the folder is shared.
    """
    with ray_cluster(f"study {study.name}", address) as ray:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(run_task)
        waiting = [task.remote(study, settings, place, key) for key in keys]
        try:
            while waiting:
                (first, *_), waiting = ray.wait(waiting)
                key, result, tally = _get(ray, first, study)
                keep(folder, key, result)
                yield tally
        finally:
            for future in waiting:
                ray.cancel(future, force=True)


def _get(ray: Any, future: Any, study: Study) -> tuple[str, Any, Tally]:
    """The result of a task; an error inside it is raised as it was."""
    try:
        found: tuple[str, Any, Tally] = ray.get(future)
    except ray.exceptions.RayTaskError as problem:
        raise problem.cause from None
    except ray.exceptions.RayError as problem:
        message = str(problem).partition("\n")[0]
        raise ChildProcessError(f"study {study.name}: a task was lost on the cluster ({message}). Start it again.") from None
    return found


def run_task(study: Study, settings: Settings, place: Workplace, key: str) -> tuple[str, Any, Tally]:
    """The task with this key on one thread: its key, its result, and the networks it trained."""
    torch.set_num_threads(1)
    tasks = study.tasks(settings, dataclasses.replace(place, show_progress=False))
    with count_trainings() as tally:
        result = next(task for task in tasks if task.key == key).run()
    return key, result, tally
