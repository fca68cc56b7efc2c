"""What one call costs: ``attribute`` and ``explain`` by default beside forward + backward, on models with their own forwards.

Usage: python benchmarks/calls.py [--repeats 30] [--only TEXT]

Times of one thread, taken in turn in one run; printed are medians as multiples of forward + backward, without compiled kernels.
Models of transformers are small and have random weights; they are left out where that package is missing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from timing import once

os.environ.setdefault("CAFEXAI_COMPILE", "never")
Made = tuple[nn.Module, tuple[Tensor, ...]]


class Categories(nn.Module):
    """Numbers beside embedded categories, joined, through two hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(9, 4) for _ in range(3))
        self.hidden, self.more, self.head = nn.Linear(8 + 12, 32), nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, numbers: Tensor, codes: Tensor) -> Tensor:
        """(rows, 8) and (rows, 3) to (rows, 2)."""
        parts = [table(codes[:, place]) for place, table in enumerate(self.tables)]
        joined = torch.cat([numbers, *parts], 1)
        scores: Tensor = self.head(torch.relu(self.more(torch.relu(self.hidden(joined)))))
        return scores


class Residual(nn.Module):
    """Residual blocks with batch norms, each a gate of ReLU (ReGLU)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(12, 32), nn.Linear(32, 2)
        self.norms = nn.ModuleList(nn.BatchNorm1d(32) for _ in range(3))
        self.wide = nn.ModuleList(nn.Linear(32, 64) for _ in range(3))
        self.back = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 12) to (rows, 2)."""
        x = self.first(x)
        for norm, wide, back in zip(self.norms, self.wide, self.back, strict=True):
            value, gate = wide(norm(x)).chunk(2, -1)
            x = x + back(value * torch.relu(gate))
        scores: Tensor = self.head(torch.relu(x))
        return scores


class Factors(nn.Module):
    """Products of all pairs of embedded categories by factorisation, beside a small network (DeepFM)."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.weights = nn.Embedding(60, 8), nn.Embedding(60, 1)
        self.deep = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, codes: Tensor) -> Tensor:
        """(rows, 6) to (rows, 1)."""
        embedded = self.table(codes)
        pairs = 0.5 * (embedded.sum(1).pow(2) - embedded.pow(2).sum(1)).sum(1, keepdim=True)
        scores: Tensor = self.weights(codes).sum(1) + pairs + self.deep(embedded.flatten(1))
        return scores


class Block(nn.Module):
    """A residual block of convolutions."""

    def __init__(self, channels: int, more: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(channels, more, 3, stride, 1, bias=False), nn.Conv2d(more, more, 3, 1, 1, bias=False)
        self.norm, self.other = nn.BatchNorm2d(more), nn.BatchNorm2d(more)
        self.short = (
            nn.Sequential() if stride == 1 else nn.Sequential(nn.Conv2d(channels, more, 1, stride), nn.BatchNorm2d(more))
        )

    def forward(self, x: Tensor) -> Tensor:
        """(rows, channels, height, width)."""
        kept = self.short(x)
        return torch.relu(self.other(self.two(torch.relu(self.norm(self.one(x))))) + kept)


class ResNet(nn.Module):
    """Six such blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        sizes = [(16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1)]
        self.blocks, self.head = nn.Sequential(*(Block(*size) for size in sizes)), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 3, height, width) to (rows, 10)."""
        scores: Tensor = self.head(self.blocks(torch.relu(self.norm(self.stem(x)))).mean((2, 3)))
        return scores


class Logits(nn.Module):
    """A model of transformers, of which the logits are taken."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the last token where each has its own."""
        logits: Tensor = self.model(x, **self.options).logits
        return logits[:, -1] if logits.ndim == 3 else logits


def _ft_transformer(rows: int) -> Made:
    from cafexai.models import FTTransformer

    return FTTransformer([1] * 12, 2, width=32, blocks=2), (torch.randn(rows, 12),)


def _tiny() -> dict[str, Callable[[], Made]]:
    made: dict[str, Callable[[int], Made]] = {
        "categories": lambda rows: (Categories(), (torch.randn(rows, 8), torch.randint(9, (rows, 3)))),
        "residual ReGLU": lambda rows: (Residual(), (torch.randn(rows, 12),)),
        "FT-Transformer": _ft_transformer,
        "factors": lambda rows: (Factors(), (torch.randint(60, (rows, 6)),)),
    }
    return {f"{name}, {rows} rows": lambda f=f, rows=rows: f(rows) for rows in (1, 256) for name, f in made.items()}  # type: ignore[misc]


def _larger() -> dict[str, Callable[[], Made]]:
    made: dict[str, Callable[[], Made]] = {"ResNet, 8 images": lambda: (ResNet(), (torch.randn(8, 3, 32, 32),))}
    try:
        import transformers as hf
    except ImportError:
        return made
    width = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
    words, pixels = (lambda: (torch.randint(10, 900, (8, 64)),)), (lambda: (torch.randn(8, 3, 64, 64),))
    return made | {
        "BERT, 8 x 64 tokens": lambda: (
            Logits(hf.BertForSequenceClassification(hf.BertConfig(vocab_size=1000, **width))),
            words(),
        ),
        "GPT-2, 8 x 64 tokens": lambda: (
            Logits(hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=1000, n_embd=128, n_layer=4, n_head=4)), use_cache=False),
            words(),
        ),
        "ViT, 8 images": lambda: (
            Logits(hf.ViTForImageClassification(hf.ViTConfig(image_size=64, patch_size=8, **width))),
            pixels(),
        ),
        "T5, 8 x 64 tokens": lambda: (
            Logits(
                hf.T5ForConditionalGeneration(
                    hf.T5Config(vocab_size=1000, d_model=128, d_kv=32, d_ff=512, num_layers=3, num_heads=4)
                ),
                decoder_input_ids=torch.zeros(8, 1, dtype=torch.long),
                use_cache=False,
            ),
            words(),
        ),
        "ConvNeXt, 8 images": lambda: (
            Logits(hf.ConvNextForImageClassification(hf.ConvNextConfig(hidden_sizes=[32, 64, 96, 128], depths=[2, 2, 2, 2]))),
            pixels(),
        ),
    }


def measured(model: nn.Module, inputs: tuple[Tensor, ...], repeats: int) -> tuple[float, float, float]:
    """Median seconds of forward + backward, attribute and explain."""
    from cafexai import CAFE

    cafe, given = CAFE(model), inputs if len(inputs) > 1 else inputs[0]
    ends = list(model.parameters())

    def gradient() -> None:
        starts = [x.clone().requires_grad_() for x in inputs if x.is_floating_point()]
        scores = model(*(starts.pop(0) if x.is_floating_point() else x for x in inputs) if starts else inputs)
        scores.gather(1, scores.argmax(1, keepdim=True)).sum().backward()
        for end in ends:
            end.grad = None

    ways = {"gradient": gradient, "attribute": lambda: cafe.attribute(given), "explain": lambda: cafe.explain(given)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 2):
        for name, way in ways.items():
            seconds = once(way)
            if turn >= 2:
                times[name].append(seconds)
    base, net, both = (statistics.median(taken) for taken in times.values())
    return base, net, both


def main() -> None:
    """Print one line per model, and the median of the larger ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    larger = _larger()
    found: dict[str, tuple[float, float]] = {}
    print("| model | forward + backward, ms | attribute / that | explain / that |\n|" + " --- |" * 4)
    for name, make in (_tiny() | larger).items():
        if options.only not in name:
            continue
        torch.manual_seed(0)
        model, inputs = make()
        base, net, both = measured(model.eval(), inputs, options.repeats)
        found[name] = net / base, both / base
        print(f"| {name} | {base * 1e3:.2f} | {net / base:.1f} | {both / base:.1f} |", flush=True)
    of_larger = [found[name] for name in larger if name in found]
    if of_larger:
        net, both = (statistics.median(column) for column in zip(*of_larger, strict=True))
        print(f"| median of the larger ones | | {net:.1f} | {both:.1f} |")


if __name__ == "__main__":
    main()
