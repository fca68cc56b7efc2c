"""Explain the models of public packages, one after the other, and write down what happened.

Finished models are skipped, so that a run that was stopped goes on. Each model has a limit of time and memory: a process of its
own does the work, and is ended and replaced when a model takes too long.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS, EXACT = FOLDER / "results.jsonl", FOLDER / "exactness.jsonl"
FAMILIES = [path.stem for path in sorted((FOLDER / "families").glob("[a-z]*.py"))]
GIGABYTE = 2**30
RUNS = "runs"  # what the process says of a model that has run by itself


def work(pipe: Connection, memory: float, exact: bool) -> None:
    """The process that does the work: list the models of a family, or judge one of them; ``exact``: by its sums alone."""
    resource.setrlimit(resource.RLIMIT_AS, (int(memory * GIGABYTE),) * 2)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    sys.path.insert(0, str(FOLDER))
    import stubs  # noqa: F401
    import torch

    torch.set_num_threads(1)
    import exactness
    import verdict

    judge = exactness.hold if exact else verdict.judge
    while True:
        family, name = pipe.recv()
        try:
            module = importlib.import_module(f"families.{family}")
            pipe.send(list(module.names()) if name is None else judge(lambda: module.build(name), lambda: pipe.send(RUNS)))
        except Exception as error:
            pipe.send([] if name is None else {"verdict": "not run", "why": f"{type(error).__name__}: {error}"[:1500]})


class Worker:
    """A process that is replaced whenever it fails or takes too long."""

    def __init__(self, seconds: float, memory: float, exact: bool) -> None:
        self.seconds, self.memory, self.exact, self.process = seconds, memory, exact, None

    def ask(self, family: str, name: str | None) -> Any:
        """The answer, or a record that says why there is none."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, there = context.Pipe()
            self.process = context.Process(target=work, args=(there, self.memory, self.exact), daemon=True)
            self.process.start()
            there.close()
        self.pipe.send((family, name))
        runs = False
        try:
            begun = _processor_time(self.process.pid)
            while _processor_time(self.process.pid) - begun < self.seconds:
                if self.pipe.poll(1):
                    answer = self.pipe.recv()
                    if answer != RUNS:
                        return answer
                    runs = True
            why = f"took more than {self.seconds:.0f} seconds of processor time"
        except EOFError:
            why = f"ended the process, by its limit of {self.memory:.0f} GB of memory or a fault"
        self.end()
        return {"verdict": "no answer" if runs else "not run", "why": why}

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _processor_time(process: int) -> float:
    """Seconds that a process has worked, not counting those in which others did; of the clock, where that cannot be read."""
    try:
        parts = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return time.monotonic()


def known(path: Path) -> dict[str, dict[str, Any]]:
    """The records of a file of results by model; the last one counts."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {record["model"]: record for record in map(json.loads, lines)}


def run(families: Iterable[str], path: Path, options: argparse.Namespace) -> bool:
    """Judge what is not yet judged; False if time was up before the end."""
    worker, until = Worker(options.seconds, options.memory, options.exact), time.monotonic() + options.minutes * 60
    done = known(path)
    listed = {family: worker.ask(family, None) for family in families}
    todo = [(family, name) for family, names in listed.items() if isinstance(names, list) for name in names]
    for family, names in listed.items():
        print(f"{family}: {len(names)} models" if names and isinstance(names, list) else f"{family}: cannot be listed: {names}")
    if options.only:
        todo = [(family, name) for family, name in todo if any(word in name for word in options.only)]
    again = set(options.again or ())
    todo = [(family, name) for family, name in todo if name not in done or done[name]["verdict"] in again]
    todo.sort(key=lambda one: one[1] not in done)  # what is judged anew comes first
    start, counts = time.monotonic(), Counter()
    for number, (family, name) in enumerate(todo):
        if time.monotonic() > until:
            print(f"time is up: {len(todo) - number} models left; run again to go on")
            worker.end()
            return False
        began = time.monotonic()
        record = worker.ask(family, name)
        package = name.split("/")[0]
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = ""
        record = {"model": name, "version": version, **record}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        counts[record["verdict"]] += 1
        left = (time.monotonic() - start) / (number + 1) * (len(todo) - number - 1)
        said = f"sum misses {record.get('missing')}, {record.get('ratio')} x forward + backward"
        why = record.get("why", f"misses {record.get('misses')}, frozen {record.get('frozen')}" if options.exact else said)
        took = time.monotonic() - began
        print(
            f"{number + 1}/{len(todo)} ({left / 60:.0f} min left) {took:.1f} s {name}: {record['verdict']}: {why[:200]}",
            flush=True,
        )
    worker.end()
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) or "nothing to do")
    return True


def compact(path: Path) -> None:
    """One line for each model, sorted."""
    records = known(path)
    path.write_text("".join(json.dumps(records[name]) + "\n" for name in sorted(records)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES, help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so many, to go on later")
    parser.add_argument("--seconds", type=float, default=60, help="limit for one model, of processor time")
    parser.add_argument("--memory", type=float, default=12, help="limit for one model, GB of addresses")
    parser.add_argument("--only", nargs="*", help="models whose name has one of these words")
    parser.add_argument("--again", nargs="*", help="judge anew what has one of these verdicts")
    parser.add_argument("--exact", action="store_true", help="only whether scores sum to model(x) - model(baseline)")
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    options.results = options.results or (EXACT if options.exact else RESULTS)
    finished = run(options.families, options.results, options)
    compact(options.results)
    if finished and options.results in (RESULTS, EXACT):
        import page

        page.write()


if __name__ == "__main__":
    main()
