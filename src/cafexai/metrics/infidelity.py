"""Infidelity (Yeh et al. 2019): do the scores predict how the output follows a perturbation?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .._inputs import at_least
from .._inputs.baselines import expand_baseline
from .outputs import blocks_of_rows, choose_output, finite_scores
from .perturbations import Perturb
from .registry import Bench, metric


def infidelity(
    model: Callable[[Tensor], Any],
    x: Tensor,
    attributions: Tensor | Mapping[str, Tensor],
    perturb: Perturb,
    *,
    target: Any = None,
    baselines: Tensor | float = 0.0,
    n_samples: int = 20,
    normalize: bool = True,
    multiplies_by_inputs: bool = True,
    seed: int = 0,
) -> Any:
    """How badly the scores predict the change of the output under perturbations (Yeh et al. 2019).

    E[(beta I a - (f(x) - f(x')))^2] over perturbed rows x', with I = (x - x') / (x - baseline), or x - x' where the denominator
    is 0: scores are contributions, and this share of them should be lost.

    Args:
        model: A function of the rows, or a module.
        x: The rows.
        attributions: Scores shaped like x. A mapping of several shares draws and evaluations.
        perturb: From rows and a generator to perturbed rows, such as ``TabularPerturbation``.
        target: The output: an index, or one per row. None is the only output, or the predicted class.
        baselines: What the scores compare rows with: a number, or a tensor shaped like x or like one row.
        n_samples: Perturbed copies of every row.
        normalize: beta is the factor that fits best; else it is 1.
        multiplies_by_inputs: False for scores that are slopes: I = x - x'.
        seed: Decides the draws.

    Returns:
        One number per row; for a mapping, a dictionary of them.

    Raises:
        ValueError: The shapes do not fit, or an argument is not allowed.

    Example:
        >>> from cafexai.metrics import TabularPerturbation
        >>> model, x = torch.nn.Linear(2, 1), torch.rand(3, 2)
        >>> noise = TabularPerturbation(x)
        >>> bool((infidelity(model, x, x * model.weight.detach(), noise) < 1e-9).all())
        True
    """
    given = attributions if isinstance(attributions, Mapping) else {"": attributions}
    at_least("infidelity", 1, n_samples=n_samples)
    many = {name: finite_scores("infidelity", scores) for name, scores in given.items()}
    for name, scores in many.items():
        if scores.shape != x.shape:
            raise ValueError(f"infidelity(...): attributions {name} of shape {tuple(scores.shape)} for x of {tuple(x.shape)}.")
    outputs = choose_output("infidelity", model, x, target)
    generator = torch.Generator(x.device).manual_seed(seed)
    unit = x - expand_baseline(baselines, x, "infidelity") if multiplies_by_inputs else torch.ones_like(x)
    unit = torch.where(unit == 0, torch.ones_like(unit), unit)
    results: dict[str, list[Tensor]] = {name: [] for name in many}
    for rows in blocks_of_rows(x, n_samples):
        original = x[rows, None]
        repeated = x[rows].repeat_interleave(n_samples, 0)
        disturbed = perturb(repeated, generator)
        if not isinstance(disturbed, Tensor) or disturbed.shape != repeated.shape:
            what = f"shape {tuple(disturbed.shape)}" if isinstance(disturbed, Tensor) else type(disturbed).__name__
            raise ValueError(
                f"infidelity(..., perturb): it gives {what}; give perturbed rows of shape {tuple(repeated.shape)}."
            )
        disturbed = disturbed.view(-1, n_samples, *x.shape[1:])
        change = (outputs(original, rows) - outputs(disturbed, rows)).double()
        lost = ((original - disturbed) / unit[rows, None]).flatten(2)
        for name, scores in many.items():
            predicted = (lost @ scores[rows].to(lost).flatten(1)[..., None])[..., 0].double()
            results[name].append(_mean_square(predicted, change, normalize))
    joined = {name: torch.cat(parts) for name, parts in results.items()}
    return joined if isinstance(attributions, Mapping) else joined[""]


def _mean_square(predicted: Tensor, change: Tensor, normalize: bool) -> Tensor:
    if normalize:
        size = predicted.square().sum(1, keepdim=True)
        fit = (predicted * change).sum(1, keepdim=True) / torch.where(size == 0, torch.ones_like(size), size)
        predicted = predicted * fit
    return (predicted - change).square().mean(1)


@metric("infidelity")
def _normalized(bench: Bench) -> Any:
    """How badly the scores predict what perturbations do, whatever their size."""
    return _on_bench(bench, True)


@metric("infidelity_as_is", "infidelity as is")
def _as_is(bench: Bench) -> Any:
    """How badly the scores predict what perturbations do, their size included."""
    return _on_bench(bench, False)


def _on_bench(bench: Bench, normalize: bool) -> Any:
    options: dict[str, Any] = {"target": bench.target, "baselines": bench.baselines, "n_samples": bench.n_samples}
    return infidelity(bench.model, bench.x, bench.scores, bench.perturb, seed=bench.seed, normalize=normalize, **options)
