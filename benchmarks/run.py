"""Time and memory of explaining, against gradients, Captum and SHAP, side by side in one process.

    python benchmarks/run.py [--quick] [--only TEXT] [--repeats 25]

Prints tables and the list of limits that are kept or not, and writes results/results.json with the description of the machine,
and the plot results/ratios.png. A partial run (--quick, --only) prints alone unless --output says where to write.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

from limits import verdict
from machine import machine
from memory import peaks
from plot import draw
from startup import startup
from timing import interleaved
from ways import BASE, all_ways, input_gradient, ours, training_step
from workloads import CASES, Case, growth

RESULTS = Path(__file__).parent / "results"


def measure(case: Case, repeats: int, compiled: bool) -> dict[str, Any]:
    """Times, ratios and peak memory on one case."""
    found: dict[str, Any] = {
        "deeplift": case.deeplift,
        "promised": case.promised,
        "ways": interleaved(all_ways(case, compiled), repeats),
    }
    print(f"\n{case.name}    (DeepLIFT: {case.deeplift})")
    for way, entry in found["ways"].items():
        if "failed" in entry:
            print(f"  {way:28} {entry['failed']}")
        else:
            print(f"  {way:28} {entry['seconds'] * 1e3:9.2f} ms   {entry['ratio']:7.2f} x   ({entry['repeats']} repeats)")
    if case.shape[0] > 1:
        found["memory"] = peaks(case.name)
        base = max(found["memory"][BASE], 1)
        for way, size in found["memory"].items():
            print(f"  {way + ', memory':28} {size / 2**20:9.1f} MiB  {size / base:7.2f} x")
    return found


def measure_growth(quick: bool, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Times of our methods while one size grows, and their memory while rows grow."""
    found: dict[str, list[dict[str, Any]]] = {}
    for what, cases in growth(quick).items():
        print(f"\ngrowth with {what}")
        found[what] = []
        for size, case in cases:
            model, x, target = case.make()
            ways = {
                BASE: lambda: training_step(model, x, target),
                "input gradient": lambda: input_gradient(model, x, target),
                **ours(model, x, target, compiled=False),
            }
            times = {way: entry["seconds"] for way, entry in interleaved(ways, repeats).items()}
            line = {"size": size, "seconds": times}
            if what == "rows":
                line["memory"] = peaks(case.name)
            found[what].append(line)
            print(f"  {size:7} " + "  ".join(f"{way} {seconds * 1e3:9.2f} ms" for way, seconds in times.items()), end="")
            print("  " + "  ".join(f"{way} {n / 2**20:.0f} MiB" for way, n in line.get("memory", {}).items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--quick", action="store_true", help="few repeats, small cases")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--no-compile", action="store_true", help="without the fused kernels, which take a minute to make")
    parser.add_argument("--output", type=Path, help="folder for the results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # Captum's notes on hooks, ours on depth
    repeats = 5 if options.quick else options.repeats
    chosen = [case for case in CASES if (case.quick or not options.quick) and (options.only or "") in case.name]
    results: dict[str, Any] = {"machine": machine(), "repeats": repeats}
    print(f"median of {repeats} interleaved repeats; {results['machine']}")
    folder = options.output or (None if options.quick or options.only else RESULTS)
    if not options.only:
        results["startup"] = startup(3 if options.quick else 5)
        print("\n" + "\n".join(f"{what}: {seconds * 1e3:.0f} ms" for what, seconds in results["startup"].items()))
        results["growth"] = measure_growth(options.quick, max(5, repeats // 5))
    results["cases"] = {}
    for case in chosen:
        results["cases"][case.name] = measure(case, repeats, not options.no_compile)
        if folder is not None:  # after every case: the last ones take long
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    results["limits"] = verdict(results)
    if folder is not None:
        (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        draw(results, folder / "ratios.png")


if __name__ == "__main__":
    main()
