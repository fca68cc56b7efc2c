"""What was promised, held against what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ways import BASE, COMPILED, DEEPLIFT

OURS = ("attribute", "explain")
SLOWER = {"attribute": 1.0, "explain": 1.8}  # times DeepLIFT, where DeepLIFT is right
RATIOS = {  # times forward + backward, the faster of compiled and eager
    "54-256x4-7 GELU, 1000 rows": {"attribute": 2.7, "explain": 4.0},
    "54-1024x4-7 ReLU, 1000 rows": {"attribute": 2.4, "explain": 3.5},
    "FT-Transformer, 256 rows": {"attribute": 2.1, "explain": 2.8},
}
EAGER = {"54-256x4-7 GELU, 1000 rows": {"explain": 5.5}}
MEMORY = 3.0  # times forward + backward
LINEAR = 1.2  # time per row of the most rows, and per layer of the deepest net, against a hundredth and half of that
FLAT = 1.5  # working memory of the most rows against a tenth of them: chunks differ a little in size
RESULT_COLUMNS = {"attribute": 1, "explain": 5}  # tensors shaped like the input that are returned
STARTUP = {"import on top of torch": 0.3, "first explanation": 0.05}  # seconds

Line = tuple[str, float, float]  # what, found, allowed


def lines(results: dict[str, Any]) -> Iterator[Line]:
    """Every limit that these results say something about."""
    for what, seconds in results.get("startup", {}).items():
        limit = next(limit for start, limit in STARTUP.items() if what.startswith(start))
        yield f"{what}, s", seconds, limit
    for name, case in results["cases"].items():
        yield from _of_case(name, case)
    growth = results.get("growth", {})
    if growth:
        yield from _of_rows(growth["rows"])
        yield from _of_depth(growth["depth"])


def _of_case(name: str, case: dict[str, Any]) -> Iterator[Line]:
    seconds = {way: entry["seconds"] for way, entry in case["ways"].items() if "seconds" in entry}
    best = {way: min(seconds[way], seconds.get(way + COMPILED, seconds[way])) for way in OURS}
    for way in OURS:
        if DEEPLIFT in seconds and case["deeplift"] == "right" and case["promised"]:
            yield f"{name}: {way} / DeepLIFT", best[way] / seconds[DEEPLIFT], SLOWER[way]
        if way in RATIOS.get(name, {}):
            yield f"{name}: {way} / forward + backward", best[way] / seconds[BASE], RATIOS[name][way]
        if way in EAGER.get(name, {}):
            yield f"{name}: {way}, eager / forward + backward", seconds[way] / seconds[BASE], EAGER[name][way]
    if "memory" in case:
        yield f"{name}: memory of explain", case["memory"]["explain"] / max(case["memory"][BASE], 1), MEMORY


def _of_rows(found: list[dict[str, Any]]) -> Iterator[Line]:
    by_rows = {line["size"]: line for line in found}
    most = max(by_rows)
    for way in OURS:
        per_row = by_rows[most]["seconds"][way] / most / (by_rows[1000]["seconds"][way] / 1000)
        yield f"time of {way} per row, {most} rows / 1000", per_row, LINEAR
        working = [_working(by_rows[rows], way) for rows in (most, most // 10)]
        if most > 10_000:
            yield f"working memory of {way}, {most} rows / {most // 10}", working[0] / working[1], FLAT


def _working(line: dict[str, Any], way: str) -> float:
    """Bytes beyond the results; of 54 features in float32."""
    return float(line["memory"][way] - line["size"] * 54 * 4 * RESULT_COLUMNS[way])


def _of_depth(found: list[dict[str, Any]]) -> Iterator[Line]:
    before, last = found[-2:]
    for way in OURS:
        per_layer = last["seconds"][way] / last["size"] / (before["seconds"][way] / before["size"])
        yield f"time of {way} per layer, {last['size']} layers / {before['size']}", per_layer, LINEAR


def verdict(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The limits with what was found, as they are printed and stored."""
    return report(lines(results))


def report(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """Print which limits are kept; the same to be stored."""
    judged = [{"what": what, "found": found, "allowed": allowed, "kept": found <= allowed} for what, found, allowed in lines]
    width = max((len(str(line["what"])) for line in judged), default=0)
    print(f"\n{sum(bool(line['kept']) for line in judged)} of {len(judged)} limits kept")
    for line in judged:
        print(
            f"  {'kept' if line['kept'] else 'NOT '}  {line['what']:{width}}  {line['found']:8.3f}  (at most {line['allowed']})"
        )
    return judged
