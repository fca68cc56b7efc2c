"""How fast the explorer answers somebody who drags: python benchmarks/explorer.py

A server in a process of its own, requests over HTTP as a page sends them, but without waiting for answers: 60 a second. Answers
that a newer request made superfluous are not given; what counts is how long each given answer took, and how long after the end
of the drag its last one was there. Memory is that of the server, over 1,000 actions.

``--rows 1000000`` only opens a table of so many rows, without a server: seconds of the processor until the first page, a page
sorted by a column, and a search.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from torch import nn

from machine import machine

RATE, FEATURES, SIDE = 60, 20, 32
ROWS = 200


def mlp() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(FEATURES, 256), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(256, 256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 3))


def transformer() -> nn.Module:
    from cafexai.models import FTTransformer

    return FTTransformer([1] * FEATURES, 3)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 3),
    )  # fmt: skip


CASES = {"MLP 4 x 256": mlp, "FT-Transformer": transformer, "CNN 32 x 32": cnn}


def serve(case: str, pipe: Any) -> None:
    """The explorer of one case, until the pipe says so."""
    from cafexai import CAFE, explore

    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = (ROWS, 3, SIDE, SIDE) if case.startswith("CNN") else (ROWS, FEATURES)
    data = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    explorer = explore(CAFE(CASES[case]().eval()), data, open_browser=False, block=False, title=case)
    pipe.send(explorer.url)
    pipe.recv()
    explorer.close()


def slid(step: int) -> dict[str, Any]:
    """The slider for c, dragged to and fro."""
    return {"row": 0, "choice": {"c": abs(step % 200 - 100) / 100}}


def changed(case: str) -> Any:
    """Values of a feature, or regions of a picture."""

    def edit(step: int) -> dict[str, Any]:
        if case.startswith("CNN"):
            return {"row": 0, "edits": {"regions": [[step % 16, step % 13, step % 16 + 8, step % 13 + 8]]}}
        return {"row": 0, "edits": {"cells": {f"x{step % 3}": (step % 100) / 25}}}

    return edit


async def drag(client: httpx.AsyncClient, body: Any, seconds: float) -> dict[str, float]:
    """Send ``RATE`` requests a second; how long answers took, and how many were made superfluous."""
    taken: list[float] = []
    dropped = 0

    async def one(step: int) -> None:
        nonlocal dropped
        begin = time.perf_counter()
        answer = await client.post("/api/row", json={"slot": "drag", **body(step)})
        if answer.status_code == 409:
            dropped += 1
        else:
            answer.raise_for_status()
            taken.append(time.perf_counter() - begin)

    count, start = int(RATE * seconds), time.perf_counter()
    tasks = []
    for step in range(count):
        await asyncio.sleep(max(0.0, start + step / RATE - time.perf_counter()))
        tasks.append(asyncio.create_task(one(step)))
    end = time.perf_counter()
    await asyncio.gather(*tasks)
    after = time.perf_counter() - end
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    return {"median": cuts[49], "p99": cuts[98], "after": after, "answers": len(taken), "dropped": dropped}


async def session(client: httpx.AsyncClient, case: str, actions: int, resident: Any) -> list[int]:
    """The memory of the server after every hundred actions of all kinds."""
    chance, edit = random.Random(0), changed(case)
    found = []
    kinds = ["slide", "edit", "row", "rows", "pairs", "units", "overview"]
    for step in range(actions):
        kind = chance.choice(kinds)
        if kind in ("slide", "edit"):
            await client.post("/api/row", json=(slid if kind == "slide" else edit)(step))
        elif kind in ("row", "pairs", "units"):
            await client.post(f"/api/{kind}", json={"row": chance.randrange(ROWS), "choice": {"c": chance.random()}})
        else:
            await client.post(f"/api/{kind}", json={"by": "conflict", "down": bool(step % 2)} if kind == "rows" else {})
        if step % 100 == 99:
            found.append(resident())
    return found


async def measured(url: str, case: str, seconds: float, actions: int, resident: Any) -> dict[str, Any]:
    root, _, token = url.partition("/?token=")
    limits = httpx.Limits(max_connections=200)
    cookies = {f"cafexai-{root.rpartition(':')[2]}": token}
    async with httpx.AsyncClient(base_url=root, cookies=cookies, limits=limits, timeout=60) as client:
        for body in (slid, changed(case)):
            (await client.post("/api/row", json=body(1))).raise_for_status()
        result: dict[str, Any] = {
            "slider": await drag(client, slid, seconds),
            "edit": await drag(client, changed(case), seconds),
        }
        result["memory"] = await session(client, case, actions, resident) if actions else []
        return result


def open_table(count: int) -> dict[str, float]:
    """Seconds of the processor to open a table, show its first page, sort it and search it, before any row is scored."""
    import pandas

    from cafexai import CAFE, Schema
    from cafexai.explorer.api import Api
    from cafexai.explorer.rows import Rows, table_of
    from cafexai.explorer.session import Session

    chance = np.random.default_rng(0)
    frame = pandas.DataFrame({f"x{place}": chance.normal(size=count) for place in range(6)})
    frame = frame.assign(city=chance.choice(["Lima", "Oslo", "Rome"], count), truth=chance.integers(0, 2, count))
    schema = Schema.from_frame(frame.drop(columns="truth"), one_hot=True)
    model = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 2))
    found: dict[str, float] = {}

    def timed(name: str, call: Any) -> Any:
        begin = time.process_time()
        made = call()
        found[name] = time.process_time() - begin
        return made

    rows = timed("open", lambda: Rows(model, table_of(frame), label="truth", schema=schema))
    session = Session(CAFE(model, schema=schema), rows)
    api = Api(session)
    api._begun = True  # no scoring in the background
    for name, body in (("first page", {}), ("sort", {"by": "x1"}), ("search", {"text": "city=oslo"})):
        timed(name, lambda body=body: api.rows(body))
    session.end()
    return found


def resident_of(process: Any) -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="of each drag")
    parser.add_argument("--actions", type=int, default=1000, help="of the session whose memory is watched")
    parser.add_argument("--out", type=Path, help="write the numbers as JSON")
    parser.add_argument("--rows", type=int, help="open a table of so many rows, nothing else")
    given = parser.parse_args()
    if given.rows is not None:
        print(f"{given.rows:,} rows: " + ", ".join(f"{name} {taken:.2f} s" for name, taken in open_table(given.rows).items()))
        return
    context = multiprocessing.get_context("spawn")
    results: dict[str, Any] = {}
    for case in CASES:
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(case, there))
        process.start()
        results[case] = asyncio.run(measured(here.recv(), case, given.seconds, given.actions, lambda p=process: resident_of(p)))
        here.send("end")
        process.join()
        for name in ("slider", "edit"):
            one = results[case][name]
            print(
                f"{case:15} {name:7} median {1000 * one['median']:6.1f} ms, 99 % {1000 * one['p99']:6.1f} ms, last answer "
                f"{1000 * one['after']:6.1f} ms after the drag ({one['answers']} answers, {one['dropped']} superseded)"
            )
        if results[case]["memory"]:
            print(f"{case:15} memory  " + ", ".join(f"{used / 2**20:.0f}" for used in results[case]["memory"]) + " MiB")
    if given.out is not None:
        given.out.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
