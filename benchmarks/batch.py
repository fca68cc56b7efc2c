"""Files against memory: what ``cafexai.batch`` costs beside ``explain`` on tensors, and how its memory grows.

    python benchmarks/batch.py [--rows 5000000] [--small 100000] [--turns 2] [--folder FOLDER]  # whole runs
    python benchmarks/batch.py --rows 0 --rounds 4 --round-rows 524288  # throughput without what starting costs

All ratios are of one run of this script. Everything is measured in turns, and of each ratio there is one for each turn; of
rounds their median and range, and the ratio of the fastest, as what else the machine does can only slow them. The network is
54-256x4-7. Seconds of processors are those of all processes together.

Whole runs are as a user has them: from the first call to the last score, in processes of their own. ``batch`` starts its
processes in that time, and both make their kernels in it, ``explain`` when it finds that they pay, ``batch`` before its first
row if there are enough. In rounds, what starting costs is measured and left out, kernels of ``explain`` are ready before it is
timed, and ``batch`` does without them, unless CAFEXAI_COMPILE=always is set.
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
from cafexai._core.kernels import use_kernels
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


def run(source, out, workers, rows_per_part=GROUP, watched=0.0):
    """One run of its own process: what it says, seconds, seconds of processors, and, if watched, the most memory.

    ``watched``: seconds between two looks. Each takes a processor for some time, which a run that is timed would miss.
    """
    shutil.rmtree(out, ignore_errors=True)
    words = [sys.executable, __file__, "--child", str(source), str(out), str(workers), str(rows_per_part)]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    peak, over = [0.0], threading.Event()

    def watch():
        while not over.wait(watched):
            peak[0] = max(peak[0], resident(process.pid))

    watcher = threading.Thread(target=watch)
    if watched:
        watcher.start()
    told = json.loads(process.communicate()[0])
    over.set()
    if watched:
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


def whole(rows):
    """explain on a tensor, all at once, with all processors: seconds of the call."""
    parts = [numbers(min(GROUP, rows - at), at) for at in range(0, rows, GROUP)]
    x, cafe = torch.from_numpy(np.concatenate(parts)), CAFE(network())
    begin = time.perf_counter()
    cafe.explain(x, show_progress=False)
    print(time.perf_counter() - begin)


def control(count, seconds=6):
    """What so many processes that have nothing to do with each other reach: more cannot be expected of any."""
    words = [sys.executable, __file__, "--plain", "16384", str(seconds)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return sum(float(process.communicate()[0]) for process in running)


def in_memory(rows, threads, kernels="always"):
    """Rows per second, and per second of a processor, of explain on a tensor."""
    x, cafe = torch.from_numpy(numbers(rows)), CAFE(network())
    torch.set_num_threads(threads)
    with use_kernels(kernels):  # what the environment says is for batch
        cafe.explain(x[:20000])
        clock, begin = time.perf_counter(), time.process_time()
        cafe.explain(x)
        spent = time.perf_counter() - clock, time.process_time() - begin
    return rows / spent[0], rows / spent[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--round-rows", type=int, default=262_144)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--ones", type=int, default=1, help="turns that have a run with one process, too")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        folder = Path(place)
        if given.rounds:
            rounds(folder, given)
        if given.rows:
            whole_runs(folder, given)


def rounds(folder, given):
    """Throughput, in turns."""
    source, start = write(folder / "round.parquet", given.round_rows), write(folder / "start.parquet", 1000)
    processors = len(os.sched_getaffinity(0))
    found = {}

    def note(name, wall, cpu=None):
        found.setdefault(name, []).append(wall)
        if cpu is not None:
            found.setdefault(f"{name} cpu", []).append(cpu)

    for _ in range(given.rounds):
        for name, count in (("one", 1), ("two", 2)):
            note("memory 1", *in_memory(given.round_rows, 1))
            # what starting costs is measured on its own and left out, as it does not grow with the rows
            empty = run(start, folder / "out", count)
            result = run(source, folder / "out", count, GROUP // 2)  # so many units that two share them evenly
            note(name, *((result["rows"] - 1000) / (result[key] - empty[key]) for key in ("seconds", "processors")))
            note("memory", in_memory(given.round_rows, processors)[0])
        note("eager 1", *in_memory(given.round_rows, 1, "never"))
        note("one alone", control(1))
        note("two alone", control(2))
        print(", ".join(f"{name} {values[-1]:,.0f}" for name, values in found.items()), flush=True)
    best = {name: max(values) for name, values in found.items()}
    # of what is measured twice in a round, the faster counts
    for name in ("memory", "memory 1", "memory 1 cpu"):
        found[name] = [max(pair) for pair in zip(found[name][::2], found[name][1::2], strict=True)]

    def ratio(what, one, other, wanted=""):
        each = sorted(a / b for a, b in zip(found[one], found[other], strict=True))
        middle = (each[len(each) // 2] + each[~(len(each) // 2)]) / 2
        span = f"median {middle:.2f}, {each[0]:.2f} to {each[-1]:.2f}; of the fastest {best[one] / best[other]:.2f}"
        print(f"{what}: {span}{wanted}", flush=True)

    print(f"explain in memory, {processors} threads: {best['memory']:,.0f} rows/s; 1 thread: {best['memory 1']:,.0f} rows/s")
    print(f"batch, 1 process: {best['one']:,.0f} rows/s; 2 processes: {best['two']:,.0f} rows/s")
    each = {"memory": "memory 1", "without kernels": "eager 1", "batch": "one", "in two": "two"}
    told = ", ".join(f"{word} {best[f'{name} cpu']:,.0f}" for word, name in each.items())
    print(f"rows per second of a processor: {told}")
    ratio("two processes to explain in memory, all processors", "two", "memory", " (wanted: 0.85)")
    ratio("one process to explain in memory, 1 thread", "one", "memory 1")
    ratio("one process to explain in memory, seconds of processors", "one cpu", "memory 1 cpu")
    ratio("one process to explain in memory without kernels, seconds of processors", "one cpu", "eager 1 cpu")
    ratio("two processes to one", "two", "one", " (wanted: 1.7)")
    ratio("two processes to one that only explain", "two alone", "one alone")


def whole_runs(folder, given):
    """Throughput and memory of few rows and of many."""
    small, large = write(folder / "small.parquet", given.small), write(folder / "large.parquet", given.rows)
    found = {}
    for turn in range(given.turns):
        few = run(small, folder / "out", 2, watched=0.2)
        seconds = float(subprocess.check_output([sys.executable, __file__, "--whole", str(given.rows)]))
        two = run(large, folder / "out", 2, watched=2.0)
        one = run(large, folder / "out", 1) if turn < given.ones else None
        stages = ", ".join(f"{name} {two[name]:.0f} s" for name in ("reading", "scoring", "writing"))
        print(
            f"explain in memory {seconds:.0f} s; batch {two['seconds']:.0f} s ({stages}, of {two['processors']:.0f} s in all), "
            f"{two['rows'] / two['seconds']:,.0f} rows/s, {two['MB']:,.0f} MB; {given.small:,} rows: {few['MB']:,.0f} MB"
            + (f"; one process {one['seconds']:.0f} s" if one else ""),
            flush=True,
        )
        found.setdefault("throughput to explain in memory, all processors (wanted: 0.85)", []).append(seconds / two["seconds"])
        found.setdefault("memory to that of few rows (wanted: 1.2 at most)", []).append(two["MB"] / few["MB"])
        if one:
            found.setdefault("two processes to one (wanted: 1.7)", []).append(one["seconds"] / two["seconds"])
    for name, each in found.items():
        print(f"{given.rows:,} rows, {name}: {', '.join(f'{value:.2f}' for value in each)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    elif sys.argv[1:2] == ["--plain"]:
        plain(*sys.argv[2:])
    elif sys.argv[1:2] == ["--whole"]:
        whole(int(sys.argv[2]))
    else:
        main()
