"""What a session saves: processor time and products inside over outside, in turns, and rows a second of the server's answerer.

    python benchmarks/session.py [--only TEXT] [--repeats 15]

Cases are those of ``beside_deeplift.py``. Scores inside are compared with those outside; they must be the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import torch

from beside_deeplift import CASES, mlp, products, seconds
from cafexai import CAFE
from cafexai.serving.rows import Answerer, Asked
from workloads import Case

SERVED = (1, 64)  # rows of a request


def in_turns(cafe: CAFE, call: Callable[[], Any], repeats: int) -> tuple[float, float, float]:
    """Medians outside and inside of one session, and the first call in it."""
    subject, outside, inside = cafe._subject, [], []
    with cafe.session():
        session, first = subject.session, seconds(call)
        for _ in range(repeats):
            subject.session = None  # as outside, without a checksum in between
            outside.append(seconds(call))
            subject.session = session
            inside.append(seconds(call))
    return statistics.median(outside), statistics.median(inside), first


def measure(case: Case, repeats: int) -> None:
    """Print one line."""
    model, x, target = case.make()
    cafe = CAFE(model)
    calls: dict[str, Callable[[], Any]] = {
        "attribute": lambda: cafe.attribute(x, target=target),
        'explain, conflict="net"': lambda: cafe.explain(x, target=target, conflict="net").combined,
    }
    parts = []
    for name, call in calls.items():
        right, before = call(), products(call)
        with cafe.session():
            call()
            after, same = products(call), torch.equal(call(), right)
        outside, inside, first = in_turns(cafe, call, repeats)
        assert same, f"{case.name}: {name} gives other bits in a session"
        parts.append(f"{name} {inside / outside:.2f} (first {first / outside:.2f}, products {after / before:.2f})")
    print(f"{case.name}: {'; '.join(parts)}", flush=True)


def serve(repeats: int) -> None:
    """The server's answers, without the network around them."""
    torch.manual_seed(0)
    answerer = Answerer(CAFE(mlp(54, *[256] * 4, 2).eval()))
    for rows in SERVED:
        given, asked = torch.randn(rows, 54).tolist(), [Asked()] * rows
        answerer(given, asked)
        outside, inside, first = in_turns(answerer.cafe, lambda given=given, asked=asked: answerer(given, asked), repeats)  # type: ignore[misc]
        print(
            f"serve, {rows} rows: {rows / outside:,.0f} rows/s without, {rows / inside:,.0f} with a session "
            f"({inside / outside:.2f} of the time, first {first / outside:.2f})",
            flush=True,
        )


def main() -> None:
    """All cases."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    serve(options.repeats)
    for case in CASES:
        if options.only in case.name and case.quick:
            measure(case, options.repeats)


if __name__ == "__main__":
    main()
