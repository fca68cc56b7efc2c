"""The same work on the machines of a Ray cluster: actors that score and write, the weights put there once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np

from .._cluster import ray_cluster
from .._extras import needs
from ._part import Done
from ._scorer import Scorer
from ._workers import Surroundings, do, packed_by

SHARE = 0.5  # processors that an actor asks for: with whole ones, nothing would be left for others (ray#44687)


class OnRay:
    """Work of actors, each with one unit at a time, and another that waits."""

    def __init__(self, actors: list[Any]) -> None:
        self._actors, self.count = actors, len(actors)
        self._busy = [0] * len(actors)

    def submit(self, payload: bytes, *rest: Any) -> Future[Done]:
        """Done by and by, by the actor that has least to do."""
        place = min(range(self.count), key=lambda one: self._busy[one])
        self._busy[place] += 1
        future: Future[Done] = self._actors[place].do.remote(payload, *rest).future()
        future.add_done_callback(lambda _: self._less(place))
        return future

    def _less(self, place: int) -> None:
        self._busy[place] -= 1


class _Actor:
    """It may be killed at any time: it is started again, and what it had to do is done again."""

    def __init__(self, packed: Any, around: Surroundings) -> None:
        self._scorer = around.unpacked(packed)

    def do(self, payload: bytes, *rest: Any) -> Done:
        """One unit."""
        return do(self._scorer, payload, *rest)


def put(ray: Any, scorer: Scorer) -> Any:
    """The scorer in Ray's memory, once for each machine; all processes there read the same bytes."""
    return ray.put(np.frombuffer(packed_by(needs("ray.cloudpickle", "ray"), scorer, "ray"), dtype=np.uint8))


@contextlib.contextmanager
def on_ray(scorer: Scorer, workers: int | None, address: str | None) -> Iterator[OnRay]:
    """Actors on a cluster, or on this machine if there is none yet."""
    with ray_cluster("score", address) as ray:
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        weights = put(ray, scorer)
        kind = ray.remote(num_cpus=SHARE, max_restarts=-1, max_task_retries=-1)(_Actor)
        actors = [kind.remote(weights, Surroundings()) for _ in range(count)]
        try:
            yield OnRay(actors)
        finally:
            for actor in actors:
                ray.kill(actor)
