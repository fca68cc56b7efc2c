"""Small and large models beside Captum's DeepLIFT, in one run: what a user would otherwise pick.

    python benchmarks/beside_deeplift.py [--only TEXT] [--repeats 7] [--peers] [--output FOLDER]

Every case is measured in a process of its own: first the first call of ``attribute``, then all ways in turn, after one run
each to warm up. Seconds of the processor, medians; a number is a multiple of the gradient of the input, taken in the same
turns. Weights are random. DeepLIFT is not right on several of these models (functional GELU, attention): only its price counts.
Products are the operations of matrix products and convolutions, counted; where ``attribute`` needs more of them than DeepLIFT,
its limit is 1.1 instead of 1.0. Memory is measured in another process. The script ends with 1 if a limit is missed.
With ``--only`` and ``--output`` the results of other cases in that folder stay, so that cases may be measured one by one.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from cafexai import CAFE
from limits import report
from machine import machine
from memory import ALLOCATOR, Peak
from ways import input_gradient
from workloads import Case, Encoder, mlp

RESULTS = Path(__file__).parent / "results"
BASE, DEEPLIFT, FIRST = "input gradient", "DeepLIFT (Captum)", "first attribute"
ATTRIBUTE, EXPLAIN, MEASURED = "attribute", 'explain, conflict="net"', "explain"
COMPARED = (BASE, DEEPLIFT, ATTRIBUTE, EXPLAIN, MEASURED)
LIMITS = {ATTRIBUTE: 1.0, EXPLAIN: 1.3}  # times DeepLIFT
MORE_PRODUCTS = 1.1  # the limit of attribute where it needs more products than DeepLIFT
MEMORY_LIMIT = 3.0  # times the gradient of the input, of explain
SMALL = 16.0  # MB: gradients that need less say nothing of memory
AVAILABLE = 8.0  # GB that a long text needs
FIRST_LIMIT = 1.3  # times a later call
MEASURED_LIMIT = 1.25  # times explain without the evaluations that measure the conflict, on tables


class ResidualMLP(nn.Module):
    """Blocks that are added to what they take, in a forward of its own."""

    def __init__(self, features: int = 30, width: int = 256, blocks: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(blocks))
        self.last = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, features) to (rows, 2)."""
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        scores: Tensor = self.last(x)
        return scores


def cnn() -> nn.Module:
    """Three convolutions and two max pools on 32 x 32 pixels."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 64, 10)),
    )


class Pictures(nn.Module):
    """A classifier of transformers with random weights."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        import transformers

        config = getattr(transformers, f"{kind}Config")(num_labels=10)
        self.model: Any = getattr(transformers, f"{kind}ForImageClassification")(config)

    def forward(self, pixels: Tensor) -> Tensor:
        """(rows, 3, 224, 224) to (rows, 10)."""
        logits: Tensor = self.model(pixel_values=pixels).logits
        return logits


class NextToken(nn.Module):
    """GPT-2 small with random weights: the logits of the next token, from embedded tokens."""

    def __init__(self) -> None:
        super().__init__()
        import transformers

        self.model: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_positions=2048))

    def forward(self, embedded: Tensor) -> Tensor:
        """(rows, tokens, 768) to (rows, 50257)."""
        logits: Tensor = self.model(inputs_embeds=embedded, use_cache=False, logits_to_keep=1).logits[:, -1]
        return logits


TABLES = [
    Case(f"{name}, {rows} rows" if rows > 1 else f"{name}, 1 row", build, (rows, 30))
    for name, build in (("MLP 30-256x4-2", lambda: mlp(30, *[256] * 4, 2)), ("residual MLP", ResidualMLP))
    for rows in (1, 1000)
]
CASES = (
    *TABLES,
    Case("CNN, 32 images of 32 x 32", cnn, (32, 3, 32, 32)),
    Case("BERT-base, 128 tokens, 1 row", Encoder, (1, 128, 768)),
    Case("BERT-base, 128 tokens, 8 rows", Encoder, (8, 128, 768)),
    Case("ViT-B/16, 1 image", lambda: Pictures("ViT"), (1, 3, 224, 224)),
    Case("ResNet-50, 1 image", lambda: Pictures("ResNet"), (1, 3, 224, 224)),
    Case("GPT-2 small, 512 tokens", NextToken, (1, 512, 768)),
    Case("GPT-2 small, 2048 tokens", NextToken, (1, 2048, 768), quick=False),
)


def ways(model: nn.Module, x: Tensor, target: Tensor, peers: bool) -> dict[str, Callable[[], Any]]:
    """What is compared; ``peers``: also our forms of other rules, integrated gradients and SHAP's explainer."""
    from captum.attr import DeepLift, IntegratedGradients

    cafe = CAFE(model)
    found: dict[str, Callable[[], Any]] = {
        BASE: lambda: input_gradient(model, x, target),
        DEEPLIFT: lambda: DeepLift(model).attribute(x, target=target),
        ATTRIBUTE: lambda: cafe.attribute(x, target=target),
        EXPLAIN: lambda: cafe.explain(x, target=target, conflict="net"),
        MEASURED: lambda: cafe.explain(x, target=target),
    }
    if peers:
        from shap import DeepExplainer

        from cafexai.methods import METHODS

        steps = 10  # a fifth of the usual number: the price of a step is all there is to learn
        found["IG, 10 steps (Captum)"] = lambda: IntegratedGradients(model).attribute(
            x, target=target, n_steps=steps, internal_batch_size=len(x)
        )
        for name in ("gim", "attn_lrp"):
            found[name] = lambda name=name: METHODS[name](model, x, target=target)  # type: ignore[misc]
        if x[0].numel() < 1000:
            found["DeepExplainer (SHAP)"] = lambda: DeepExplainer(model, torch.zeros_like(x[:1])).shap_values(x)
    return found


def seconds(way: Callable[[], Any]) -> float:
    """Of the processor."""
    begin = time.process_time()
    way()
    return time.process_time() - begin


class Products(TorchDispatchMode):
    """Counts the operations of matrix products, convolutions and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry:
            self.count += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
        return result


def products(way: Callable[[], Any]) -> int:
    """Of one call."""
    with Products() as counted:
        way()
    return counted.count


def peaks(case: Case) -> dict[str, float]:
    """MB that each way needs beyond what was there before, in this process; one that fails is left out."""
    warnings.simplefilter("ignore")
    model, x, target = case.make()
    found = {}
    for name, way in ways(model, x, target, False).items():
        with contextlib.suppress(Exception):
            way()
            gc.collect()
            with Peak() as watched:
                way()
            found[name] = (watched.highest - watched.start) / 2**20
    return found


def measure(case: Case, repeats: int, peers: bool) -> dict[str, Any]:
    """Multiples of the gradient of the input, in this process."""
    warnings.simplefilter("ignore")
    model, x, target = case.make()
    compared = ways(model, x, target, peers)
    compared[BASE]()
    taken: dict[str, list[float]] = {FIRST: [seconds(compared[ATTRIBUTE])]}
    failed = {}
    for name, way in compared.items():
        try:
            seconds(way)
            taken[name] = []
        except Exception as error:  # a peer that refuses the model
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    for _ in range(repeats):
        for name in taken:
            if name != FIRST:
                taken[name].append(seconds(compared[name]))
    medians = {name: statistics.median(found) for name, found in taken.items()}
    multiples = {name: found / medians[BASE] for name, found in medians.items()}
    counted = {name: products(compared[name]) for name in COMPARED if name in taken}
    return {"multiples": multiples, "seconds": medians, "failed": failed, "products": counted}


def judge(results: dict[str, Any]) -> list[tuple[str, float, float]]:
    """What was found beside its limits."""
    lines = []
    for name, found in results.items():
        multiples = found["multiples"]
        for way, limit in LIMITS.items():
            more = found["products"][way] / found["products"][DEEPLIFT]
            allowed = MORE_PRODUCTS if way == ATTRIBUTE and more > 1 else limit
            counted = f"products {more:.2f}"
            lines.append((f"{name}: {way} / DeepLIFT ({counted})", multiples[way] / multiples[DEEPLIFT], allowed))
        memory = found.get("memory", {})
        if memory.get(BASE, 0) >= SMALL and EXPLAIN in memory:
            lines.append((f"{name}: memory of explain / gradient", memory[EXPLAIN] / memory[BASE], MEMORY_LIMIT))
        lines.append((f"{name}: first / later attribute", multiples[FIRST] / multiples[ATTRIBUTE], FIRST_LIMIT))
        if name in {case.name for case in TABLES}:
            lines.append((f"{name}: measured / net conflict", multiples[MEASURED] / multiples[EXPLAIN], MEASURED_LIMIT))
    return lines


def draw(results: dict[str, Any], path: Path) -> None:
    """Bars of each case."""
    from cafexai.plotting.figures import figure as empty
    from cafexai.plotting.palette import DOWN, PALE_DOWN, SERIES, UP

    colours = {DEEPLIFT: SERIES[4], ATTRIBUTE: UP, EXPLAIN: PALE_DOWN, MEASURED: DOWN}
    figure = empty(11, 5)
    axes = figure.subplots()
    for place, (way, colour) in enumerate(colours.items()):
        heights = [found["multiples"].get(way, 0) for found in results.values()]
        axes.bar([column + place / 5 for column in range(len(heights))], heights, 1 / 6, color=colour, label=way)
    axes.set_xticks(
        [column + 0.3 for column in range(len(results))], [name.replace(", ", "\n") for name in results], fontsize=7
    )
    axes.set_ylabel("processor time / gradient of the input")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def print_line(name: str, found: dict[str, Any]) -> None:
    """One line of the table."""
    numbers = "  ".join(f"{way} {multiple:.2f}" for way, multiple in found["multiples"].items() if way != BASE)
    print(f"{name}: {numbers}  (gradient {found['seconds'][BASE] * 1e3:.2f} ms)", flush=True)
    memory = "  ".join(f"{way} {size:.0f}" for way, size in found["memory"].items())
    print(f"    memory in MB: {memory}", flush=True)
    for way, reason in found["failed"].items():
        print(f"    {way}: {reason}")


def available() -> float:
    """GB of memory that programs may still take; unknown is enough."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return AVAILABLE
    return next(float(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable"))


def run_case(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Times and memory of a case, each in a process of its own."""
    command = [sys.executable, __file__, "--case", case.name, "--repeats", str(options.repeats)]
    command += ["--peers"] * options.peers
    parts = [command, [*command, "--memory"]]
    environments = [dict(os.environ), {**os.environ, **ALLOCATOR}]
    found: list[dict[str, Any]] = []
    for part, environment in zip(parts, environments, strict=True):
        done = subprocess.run(part, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return {**found[0], "memory": found[1]}


def stored_cases(folder: Path) -> dict[str, Any]:
    """What was measured before."""
    path = folder / "beside_deeplift.json"
    cases: dict[str, Any] = json.loads(path.read_text())["cases"] if path.exists() else {}
    return cases


def main() -> None:
    """Print one line per case, the limits, and store both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--peers", action="store_true", help="also IG, GIM, AttnLRP and SHAP")
    parser.add_argument("--output", type=Path, help="folder for the results; without --only they go to results/")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # one case, in this process
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        case = next(case for case in CASES if case.name == options.case)
        print(json.dumps(peaks(case) if options.memory else measure(case, options.repeats, options.peers)))
        return
    folder = options.output or (None if options.only else RESULTS)
    results = stored_cases(options.output) if options.only and options.output else {}
    for case in (case for case in CASES if options.only in case.name):
        if not case.quick and available() < AVAILABLE:
            print(f"{case.name}: left out, it needs {AVAILABLE:.0f} GB of memory and {available():.1f} are there")
            continue
        results[case.name] = {**run_case(case, options), "load": machine()["load"]}
        print_line(case.name, results[case.name])
    results = {case.name: results[case.name] for case in CASES if case.name in results}
    judged = report(judge(results))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        stored = {"machine": machine(), "cases": results, "limits": judged}
        (folder / "beside_deeplift.json").write_text(json.dumps(stored, indent=1) + "\n")
        draw(results, folder / "beside_deeplift.png")
    sys.exit(not all(line["kept"] for line in judged))


if __name__ == "__main__":
    main()
