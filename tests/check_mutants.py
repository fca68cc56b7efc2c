"""How many wrong numbers the checks of a call let through: changes of the engine's source, each tried on small models.

    python tests/check_mutants.py --each 16 --seed 0

As ``mutants.py``, but no test judges a mutant: the models are explained with it. A mutant is caught if the call raises, and
passes as *silent* if a score differs from the right one by more than 1e-6 without an error.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import multiprocessing
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = (
    *(
        f"rules/{name}.py"
        for name in ("linear", "arithmetic", "elementwise", "norms", "fused_norm", "open_attention", "quotients", "selection")
    ),
    *(f"_carriers/{name}.py" for name in ("totals", "unit", "unit_activation")),
    *(f"_core/{name}.py" for name in ("value", "steps", "math_functions", "mean_flows", "layer_values")),
)
SECONDS = 60  # a mutant that takes longer fails as a whole


def scores() -> dict[str, list[list[float]]]:
    """The scores of small models, of which all layers count as large, or the name of the error."""
    import warnings

    import torch
    from torch import nn

    from cafexai import CAFE

    with contextlib.suppress(ImportError):  # a tree from before
        from cafexai._core import layer_values
        from cafexai._engine import plain_layers

        layer_values.WORTH = plain_layers.LARGE = 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)
            self.norm = nn.LayerNorm(6)

        def forward(self, x):
            x = self.a(x)
            x = x + torch.nn.functional.gelu(self.b(self.norm(x)))
            return self.c(torch.tanh(x) * 0.5 - 0.1 * x)

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(3, 3) for _ in range(4))

        def forward(self, x):
            x = torch.nn.functional.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))
            return self.out(torch.relu(x)).mean(1)

    class Pooled(nn.Sequential):
        pass

    pooled = Pooled(
        *(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 2, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)),
    )
    models = [(Residual(), (3, 4)), (Attending(), (2, 4, 3)), (pooled, (2, 1, 8, 8))]
    found: dict[str, list[list[float]]] = {}
    for place, (model, shape) in enumerate(models):
        generator = torch.Generator().manual_seed(place)
        x, baseline = (torch.randn(shape, generator=generator) for _ in range(2))
        try:
            e = CAFE(model.eval()).explain(x, baseline, target=1, conflict="net")
            found[str(place)] = torch.cat([e.positive.flatten(), e.negative.flatten()]).tolist()
        except Exception as error:
            found[str(place)] = type(error).__name__
    return found


def run(tree: Path) -> dict | None:
    """The scores that a tree gives, in a process of its own; None if it fails as a whole."""
    context = multiprocessing.get_context("fork")  # which has torch already, but nothing of ours
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(send, str(tree / "src")))
    child.start()
    send.close()
    found = None
    with contextlib.suppress(EOFError):
        found = receive.recv() if receive.poll(SECONDS) else None
    child.kill()
    child.join()
    return found


def _tell(send, source):
    sys.path.insert(0, source)
    sys.dont_write_bytecode = True
    with contextlib.suppress(BaseException):  # then nothing is sent
        send.send(scores())


def judge(found, right) -> str:
    """caught, silent, or the same."""
    if isinstance(found, str):
        return "caught"
    pairs = list(zip(found, right, strict=False))
    same = len(found) == len(right) and all(abs(a - b) <= 1e-6 for a, b in pairs)
    return "same" if same else "silent"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=16, help="mutants of every file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tree", type=Path, default=ROOT, help="another tree of the project")
    given = parser.parse_args()
    import torch  # noqa: F401  (before any child)

    from mutants import change, drawn

    counts = Counter()
    broken = total = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        shutil.copytree(given.tree / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(tree / "src", quiet=1)
        right = run(tree)
        assert right is not None
        for file in FILES:
            path = tree / "src" / "cafexai" / file
            if not path.exists():
                continue
            source = path.read_text()
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
                compiled.unlink()  # a change within a second would not be seen
            for mutant in drawn(source, given.each, given.seed):
                path.write_text(mutant)
                total += 1
                found = run(tree)
                if found is None:
                    broken += 1
                    continue
                for place, value in found.items():
                    verdict = judge(value, right[place])
                    counts[verdict] += 1
                    if verdict == "silent":
                        print(f"{file}, model {place}: silent")
                        print(change(source, mutant), flush=True)
            path.write_text(source)
            print(f"{file}: {total} mutants so far, {dict(counts)}", flush=True)
    print(f"{total} mutants, {broken} fail as a whole")
    share = counts["caught"] / max(1, counts["caught"] + counts["silent"])
    print(f"{dict(counts)}, {share:.1%} of those that change a score are caught")


if __name__ == "__main__":
    main()
