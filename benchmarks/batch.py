"""Files against memory: what ``cafexai.batch`` costs beside ``explain`` on tensors, and how its memory grows.

    python benchmarks/batch.py [--rows 5000000] [--small 100000] [--rounds 3] [--folder FOLDER]

All ratios are of one run of this script, of the fastest of its rounds: what else the machine does can only slow them. The
network is 54-256x4-7. Seconds of processors are those of all processes together.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from cafexai import CAFE
from cafexai.batch import score

FEATURES, CLASSES, GROUP = 54, 7, 1 << 16


def network():
    torch.manual_seed(0)
    widths = [FEATURES, 256, 256, 256, 256]
    hidden = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(256, CLASSES)).eval()


def numbers(rows, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, FEATURES), dtype=np.float32)


def write(path, rows):
    """Row group after row group, so that this script needs little memory, too."""
    names = [f"f{place}" for place in range(FEATURES)]
    writer = None
    for start in range(0, rows, GROUP):
        x = numbers(min(GROUP, rows - start), start)
        table = pa.table({"id": np.arange(start, start + len(x)), **{name: x[:, i] for i, name in enumerate(names)}})
        writer = writer or pq.ParquetWriter(path, table.schema, compression="snappy")
        writer.write_table(table)
    writer.close()
    return path


def tree(root):
    """The process and all that it has started."""
    found, waiting = [], [root]
    while waiting:
        number = waiting.pop()
        found.append(number)
        with contextlib.suppress(OSError):  # it is over
            waiting += [
                int(one) for task in Path(f"/proc/{number}/task").glob("*/children") for one in task.read_text().split()
            ]
    return found


def resident(root):
    """MB of all processes of a run; what they share counts once."""
    total = 0
    for number in tree(root):
        try:
            lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def run(source, out, workers, rows_per_part=GROUP):
    """One run of its own process: what it says, seconds, seconds of processors, and the most memory."""
    shutil.rmtree(out, ignore_errors=True)
    words = [sys.executable, __file__, "--child", str(source), str(out), str(workers), str(rows_per_part)]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    peak, over = [0.0], threading.Event()

    def watch():
        while not over.wait(0.2):
            peak[0] = max(peak[0], resident(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    told = json.loads(process.communicate()[0])
    over.set()
    watcher.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    shutil.rmtree(out, ignore_errors=True)
    return {**told, "clock": time.perf_counter() - begin, "processors": used, "MB": peak[0]}


def child(source, out, workers, rows_per_part):
    torch.set_num_threads(1)
    summary = score(CAFE(network()), source, out, keep=["id"], workers=int(workers), rows_per_part=int(rows_per_part))
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"rows": summary.rows, "seconds": summary.seconds, "scoring": summary.scoring, "writing": summary.writing}
    print(json.dumps({**told, "reading": summary.reading, "own": used.ru_utime + used.ru_stime}))


def plain(rows, seconds):
    """explain on tensors, again and again, with one thread."""
    torch.set_num_threads(1)
    x, cafe, done = torch.from_numpy(numbers(int(rows))), CAFE(network()), 0
    begin = time.perf_counter()
    while (spent := time.perf_counter() - begin) < float(seconds):
        cafe.explain(x)
        done += len(x)
    print(done / spent)


def control(count, seconds=6):
    """What so many processes that have nothing to do with each other reach: more cannot be expected of any."""
    words = [sys.executable, __file__, "--plain", "16384", str(seconds)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return sum(float(process.communicate()[0]) for process in running)


def in_memory(rows, threads):
    """Rows per second, and per second of a processor, of explain on a tensor."""
    x, cafe = torch.from_numpy(numbers(rows)), CAFE(network())
    torch.set_num_threads(threads)
    cafe.explain(x[:20000])
    clock, used = time.perf_counter(), time.process_time()
    cafe.explain(x)
    return rows / (time.perf_counter() - clock), rows / (time.process_time() - used)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--round-rows", type=int, default=262_144)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        folder = Path(place)
        if given.rounds:
            rounds(folder, given)
        if given.rows:
            memory(folder, given)


def rounds(folder, given):
    """Throughput, in turns."""
    source, start = write(folder / "round.parquet", given.round_rows), write(folder / "start.parquet", 1000)
    processors = len(os.sched_getaffinity(0))
    found = {
        name: [] for name in ("memory", "memory 1", "one", "two", "two alone", "one alone", "memory cpu", "one cpu", "two cpu")
    }
    for _ in range(given.rounds):
        # what starting costs is measured on its own and left out, as it does not grow with the rows
        empty = {count: run(start, folder / "out", count) for count in (1, 2)}
        wall, _ = in_memory(given.round_rows, processors)
        single, cpu = in_memory(given.round_rows, 1)
        found["memory"].append(wall)
        found["memory 1"].append(single)
        found["memory cpu"].append(cpu)
        found["one alone"].append(control(1))
        found["two alone"].append(control(2))
        for name, count in (("one", 1), ("two", 2)):
            result = run(source, folder / "out", count, GROUP // 2)  # so many units that two share them evenly
            found[name].append((result["rows"] - 1000) / (result["seconds"] - empty[count]["seconds"]))
            found[f"{name} cpu"].append((result["rows"] - 1000) / (result["processors"] - empty[count]["processors"]))
        print(", ".join(f"{name} {values[-1]:,.0f}" for name, values in found.items()), flush=True)
    best = {name: max(values) for name, values in found.items()}
    print(f"explain in memory, {processors} threads: {best['memory']:,.0f} rows/s; 1 thread: {best['memory 1']:,.0f} rows/s")
    print(f"batch, 1 process: {best['one']:,.0f} rows/s; 2 processes: {best['two']:,.0f} rows/s")
    each = [f"{word} {best[f'{name} cpu']:,.0f}" for word, name in (("memory", "memory"), ("batch", "one"), ("in two", "two"))]
    print(f"rows per second of a processor: {', '.join(each)}")
    print(f"ratio to explain in memory, all processors: {best['two'] / best['memory']:.2f} (wanted: 0.85)")
    print(f"ratio to explain in memory, seconds of processors: {best['one cpu'] / best['memory cpu']:.2f}")
    print(f"ratio of one process to explain in memory with one thread: {best['one'] / best['memory 1']:.2f}")
    print(f"ratio of two processes to one: {best['two'] / best['one']:.2f} (wanted: 1.7)")
    print(f"ratio of two processes to one that only explain: {best['two alone'] / best['one alone']:.2f}", flush=True)


def memory(folder, given):
    """The most memory of few rows and of many."""
    small = run(write(folder / "small.parquet", given.small), folder / "out", 2)
    print(f"{given.small:,} rows: {small['MB']:,.0f} MB, {small['clock']:.0f} s", flush=True)
    large = run(write(folder / "large.parquet", given.rows), folder / "out", 2)
    stages = ", ".join(f"{name} {large[name]:.0f} s" for name in ("reading", "scoring", "writing"))
    print(
        f"{given.rows:,} rows: {large['MB']:,.0f} MB, {large['clock']:.0f} s ({stages}, of {large['processors']:.0f} s in all)"
    )
    print(f"ratio of memory: {large['MB'] / small['MB']:.2f} (wanted: 1.2 at most)", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    elif sys.argv[1:2] == ["--plain"]:
        plain(*sys.argv[2:])
    else:
        main()
