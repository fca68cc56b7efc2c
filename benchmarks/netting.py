"""Path, unit and the default side by side; netting="feature" against Integrated Gradients (50 steps) and cheaper variants.

    python benchmarks/netting.py [--quick]

Prints the median of interleaved repeats as ratios, the peak of resident memory, and how well cheaper variants agree with the
scores of all features by themselves.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from cafexai import CAFE
from cafexai.methods import METHODS
from cafexai.models import mlp, seeded
from memory import Peak

DENSE, ONE_HOT = 54, (10, (4, 40))  # Covertype: 10 numbers, two categorical columns of 4 and 40 values
GROUPS, REFINED = 9, 2


def rows_of(count: int, dense: bool) -> Tensor:
    """Random rows of 54 columns, all of them numbers or most of them one-hot."""
    x = torch.randn(count, DENSE)
    if not dense:
        numbers, blocks = ONE_HOT
        start = numbers
        for width in blocks:
            x[:, start : start + width] = torch.nn.functional.one_hot(torch.randint(width, (count,)), width)
            start += width
    return x


def refined(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    """Groups first; then the features of the strongest groups of each row, the other groups being one feature each."""
    mask = torch.arange(x.shape[1]) // (x.shape[1] // GROUPS)
    cafe = CAFE(model, 0.5, "published", netting="feature")
    coarse = cafe.explain(x, target=target, feature_groups=mask)
    strong = (coarse.positive + coarse.negative).topk(REFINED, 1).indices.sort(1).values
    result = torch.zeros_like(x)
    for chosen in strong.unique(dim=0):
        rows = (strong == chosen).all(1)
        single = torch.isin(mask, chosen)
        fine = torch.where(single, GROUPS + torch.arange(x.shape[1]), mask)
        place = fine.unique(return_inverse=True)[1]
        e = cafe.explain(x[rows], target=target[rows], feature_groups=fine)
        result[rows] = torch.where(single, e.combined[:, place], 0.0)
    return result


def bert(quick: bool) -> tuple[nn.Module, Tensor]:
    """An encoder of BERT-base's size with random weights, or a small one, and a row of 128 tokens."""
    import transformers  # heavy: only here

    small = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} if quick else {}
    encoder = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=2, **small)).eval()
    return encoder, torch.randint(1000, 20_000, (1, 128))


def compared(name: str, ways: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Medians of interleaved repeats, printed as ratios to the first."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(repeats + 1):
        for way, run in ways.items():
            start = time.perf_counter()
            run()
            if turn:
                times[way].append(time.perf_counter() - start)
    medians = {way: statistics.median(values) for way, values in times.items()}
    first = next(iter(medians.values()))
    print(f"{name}:", ", ".join(f"{way} {value * 1e3:.1f} ms ({value / first:.2f})" for way, value in medians.items()))
    return medians


def by_unit(quick: bool) -> None:
    """``attribute`` by path, by unit and by default beside gradient x input, one thread, as ratios to path."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for activation in (nn.ReLU, nn.GELU):
        model = seeded(0, lambda a=activation: mlp(DENSE, 256, 256, 256, 256, 7, activation=a)).eval()
        x = torch.randn(1024 if quick else 8192, DENSE)
        target = model(x).argmax(1)
        cafes = {
            "path": CAFE.published(model),
            "unit": CAFE(model, variant="published", netting="unit"),
            "unit, mean flows": CAFE(model, variant="published", netting="unit", flows="mean"),
            "default": CAFE(model),
        }
        ways: dict[str, Callable[[], object]] = {
            name: lambda c=cafe, x=x, t=target: c.attribute(x, target=t) for name, cafe in cafes.items()
        }
        ways["gradient x input"] = lambda m=model, x=x, t=target: METHODS["gradient_x_input"](m, x, target=t)
        compared(f"54-256x4-7 {activation.__name__}, {len(x)} rows, attribute, one thread", ways, 3 if quick else 5)
    torch.set_num_threads(threads)


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats, a smaller encoder")
    quick = parser.parse_args().quick
    repeats = 3 if quick else 9
    warnings.simplefilter("ignore")  # path netting says that its totals are large
    torch.manual_seed(0)
    by_unit(quick)
    model = seeded(0, lambda: mlp(DENSE, 256, 256, 256, 256, 7, activation=nn.GELU)).eval()
    for dense in (True, False):
        x = rows_of(250 if quick else 1000, dense)
        target = model(x).argmax(1)
        ways: dict[str, Callable[[], object]] = {
            "Integrated Gradients": lambda x=x, t=target: METHODS["integrated_gradients"](model, x, target=t),
            "feature netting, attribute": lambda x=x, t=target: CAFE(model, 0.5, "published", netting="feature").attribute(
                x, target=t
            ),
            "feature netting, explain": lambda x=x, t=target: CAFE(model, 0.5, "published", netting="feature").explain(
                x, target=t, show_progress=False
            ),
            "path netting, explain": lambda x=x, t=target: CAFE(model, 0.5).explain(x, target=t),
            "groups, then the strongest": lambda x=x, t=target: refined(model, x, t),
        }
        compared(f"54-256x4-7 GELU, {len(x)} rows, {'all numbers' if dense else '12 of 54 columns not 0'}", ways, repeats)
        exact = CAFE(model, 0.5, "published", netting="feature").attribute(x, target=target)
        cheap = refined(model, x, target)
        top, guess = (scores.abs().topk(5, 1).indices for scores in (exact, cheap))
        hits = (top[:, :, None] == guess[:, None]).any(2).double().mean().item()
        kept = cheap != 0
        off = ((cheap - exact)[kept].abs().mean() / exact[kept].abs().mean()).item()
        print(f"  groups, then the strongest: {hits:.0%} of the five strongest features found, their scores off by {off:.0%}")
    encoder, codes = bert(quick)
    with Peak() as peak:
        start = time.perf_counter()
        CAFE(encoder, 0.5, "published", netting="feature").explain(codes, target=0, show_progress=False)
        seconds = time.perf_counter() - start
    grown = (peak.highest - peak.start) / 2**20
    print(f"encoder of BERT-base's size, {codes.shape[1]} tokens as features: {seconds:.0f} s, {grown:.0f} MiB at its peak")


if __name__ == "__main__":
    main()
