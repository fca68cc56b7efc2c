"""Times of several ways, taken in turn in one process."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from ways import BASE, COMPILED, SIDE_LINES, Way

WARM_UP = 2
SLOW = 2.0  # seconds: what takes longer is repeated less often


def once(way: Way) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def interleaved(ways: dict[str, Way], repeats: int) -> dict[str, dict[str, Any]]:
    """Median seconds and ratio to forward + backward of each way; those that fail say why."""
    times: dict[str, list[float]] = {}
    results: dict[str, dict[str, Any]] = {}
    for name, way in ways.items():
        try:
            first = once(way)
            if first < SLOW or name.endswith(COMPILED):  # the first run makes the kernels
                first = min(once(way) for _ in range(WARM_UP))
        except Exception as error:  # SHAP's explainer refuses many models
            results[name] = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"}
            continue
        times[name] = []
        slow = SLOW / 10 if name in SIDE_LINES else SLOW
        least = 1 if name in SIDE_LINES else 3
        results[name] = {"repeats": repeats if first < slow else max(least, int(repeats * slow / first / 3))}
    order, chance = list(times), random.Random(0)
    for _ in range(repeats):
        chance.shuffle(order)  # what ran before has filled the caches: no way always follows the same other
        for name in order:
            if len(times[name]) < results[name]["repeats"]:
                times[name].append(once(ways[name]))
    base = statistics.median(times[BASE]) if BASE in times else None
    for name, taken in times.items():
        results[name]["seconds"] = statistics.median(taken)
        if base is not None:
            results[name]["ratio"] = results[name]["seconds"] / base
    return results
