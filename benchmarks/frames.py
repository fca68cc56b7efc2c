"""How much Python runs inside the package for one explanation: frames, files, and changes of file between frames.

Usage, for the tree that PYTHONPATH names:

    PYTHONPATH=<tree>/src python benchmarks/frames.py                  a table of all models
    PYTHONPATH=<tree>/src python benchmarks/frames.py --list "MLP"     the frames of one of them, in their order
    python benchmarks/frames.py --beside OLD_TREE                      a table of two trees (benchmarks/results/frames.md)

Every Python call event of a warm call counts whose code lies in the package: functions, lambdas, comprehensions, and each time
that a generator goes on. Calls of C functions, of torch and of the model do not. A change of file is a frame that lies in
another file than the frame that began before it; returns are not counted. ``CAFE(model).explain(x)`` makes the explainer within
the call, ``explain(x)`` has made it before. Python 3.12 and later run list comprehensions without a frame of their own.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

os.environ["CAFEXAI_COMPILE"] = "never"

import torch
import torch.nn.functional as F
from torch import nn

import cafexai
from cafexai import CAFE
from cafexai.models import FTTransformer
from workloads import mlp

PACKAGE = Path(cafexai.__file__).parent
INNER = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")  # no functions with a name
WARM_UP = 3


class CNN(nn.Module):
    """Convolutions with functional ReLUs, one max pool, and a linear layer, in a forward of its own."""

    def __init__(self, convolutions):
        """As many convolutions as asked for, on images of 8 x 8."""
        super().__init__()
        side = 8 - 2 * convolutions
        self.convolutions = nn.ModuleList(nn.Conv2d(4 if place else 1, 4, 3) for place in range(convolutions))
        self.head = nn.Linear(4 * (side // 2) ** 2, 2)

    def forward(self, x):
        """(rows, 1, 8, 8) to (rows, 2)."""
        for convolution in self.convolutions:
            x = F.relu(convolution(x))
        return self.head(torch.flatten(F.max_pool2d(x, 2), 1))


class BERT(nn.Module):
    """A BERT of transformers with random weights, as a function of token ids."""

    def __init__(self, layers=2):
        """Few layers, narrow ones."""
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": 50}
        config = BertConfig(num_hidden_layers=layers, **sizes, attn_implementation="eager")
        self.model = BertForSequenceClassification(config)

    def forward(self, codes):
        """(rows, tokens) to (rows, 2)."""
        return self.model(codes).logits


MODELS = {
    "MLP, one hidden layer": (lambda: mlp(7, 16, 2), (5, 7)),
    "MLP, two hidden layers": (lambda: mlp(7, 16, 16, 2), (5, 7)),
    "CNN, one convolution": (lambda: CNN(1), (5, 1, 8, 8)),
    "CNN, two convolutions": (lambda: CNN(2), (5, 1, 8, 8)),
    "FT-Transformer": (lambda: FTTransformer((1, 1, 3), 3, width=16, heads=4), (3, 5)),
    "BERT": (BERT, (3, 6)),
}


def ways(name):
    """The calls that are counted for one model."""
    torch.manual_seed(0)
    build, shape = MODELS[name]
    model, x = build().eval(), torch.randn(shape)
    x = torch.randint(50, shape) if name == "BERT" else x
    kept = CAFE(model)
    return {
        "CAFE(model).explain(x)": lambda: CAFE(model).explain(x),
        "explain(x)": lambda: kept.explain(x),
        "attribute(x)": lambda: kept.attribute(x),
    }


def inside(path):
    """The path within the package; None elsewhere, and for the models that are explained."""
    own = path.is_relative_to(PACKAGE) and not any(path.is_relative_to(PACKAGE / folder) for folder in ("models", "paper"))
    return str(path.relative_to(PACKAGE)) if own else None


def frames(call):
    """(file, function) of every frame in the package, of a call that has been made before."""
    for _ in range(WARM_UP):
        call()
    found, files = [], {}

    def note(frame, event, _):
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename not in files:
            files[code.co_filename] = inside(Path(code.co_filename))
        if files[code.co_filename] is not None:
            found.append((files[code.co_filename], code.co_name))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def counts(found):
    """Frames, those of functions with a name, files, and changes of file."""
    named = sum(function not in INNER for _, function in found)
    changes = sum(a != b for (a, _), (b, _) in itertools.pairwise(found))
    return len(found), named, len({file for file, _ in found}), changes


def rows():
    """(model, call, counts) of all models and ways."""
    for name in [name for name in MODELS if name != "BERT" or importlib.util.find_spec("transformers")]:
        for way, call in ways(name).items():
            yield name, way, counts(frames(call))


def table():
    """A Markdown table of all models and ways."""
    lines = ["| model | call | frames | of named functions | files | changes of file |", "| --- " * 6 + "|"]
    lines += [f"| {name} | {way} | {' | '.join(map(str, found))} |" for name, way, found in rows()]
    return "\n".join(lines)


def beside(tree):
    """A Markdown table of another tree and this one, each in a process of its own: before, after, and their ratio."""
    before, after = counts_in(Path(tree).resolve()), counts_in(PACKAGE.parents[1])
    lines = ["| model | call | frames | ratio | files | ratio | changes of file | ratio |", "| --- " * 8 + "|"]
    for (name, way, old), (_, _, new) in zip(before, after, strict=True):
        cells = [f"{old[place]} to {new[place]} | {new[place] / old[place]:.2f}" for place in (0, 2, 3)]
        lines.append(f"| {name} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def counts_in(tree):
    """The rows of a tree."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}/src"}
    done = subprocess.run([sys.executable, __file__, "--json"], env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def listing(found):
    """The frames in their order, one line for each stay in a file."""
    lines = []
    for file, stay in itertools.groupby(found, key=lambda frame: frame[0]):
        runs = [(name, len(list(same))) for name, same in itertools.groupby(function for _, function in stay)]
        lines.append(f"{file:28} " + ", ".join(f"{name} x{count}" if count > 1 else name for name, count in runs))
    return "\n".join(lines)


def main():
    """Print the table, or the frames of one model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="MODEL", help=f"one of: {'; '.join(MODELS)}; its beginning is enough")
    parser.add_argument("--call", default="CAFE(model).explain(x)", help="which call to list (default: %(default)s)")
    parser.add_argument("--beside", metavar="OLD_TREE", help="hold another tree against this one")
    parser.add_argument("--json", action="store_true", help="the counts, for --beside")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # as in the tests; float32 warns of lost digits
    if options.json:
        print(json.dumps(list(rows())))
        return
    if options.beside:
        what = "Frames, files and changes of file for one explanation, before and after (`benchmarks/frames.py --beside`)"
        print(f"{what}, Python {platform.python_version()}, torch {torch.__version__}.\n\n{beside(options.beside)}")
        return
    if options.list is None:
        print(f"Python {platform.python_version()}, torch {torch.__version__}\n\n{table()}")
        return
    chosen = next((name for name in MODELS if name.startswith(options.list)), None)
    if chosen is None or options.call not in (known := ways(chosen)):
        parser.error(f"no such model or call. Models: {'; '.join(MODELS)}. Calls: {'; '.join(ways(next(iter(MODELS))))}.")
    found = frames(known[options.call])
    print(listing(found))
    print("{} frames, {} of named functions, {} files, {} changes of file".format(*counts(found)))


if __name__ == "__main__":
    main()
