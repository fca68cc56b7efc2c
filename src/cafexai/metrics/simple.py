"""Metrics that need little more than the scores."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._inputs import at_least, resolve_old_words
from .._inputs.baselines import expand_baseline
from .._inputs.prepare import check_numbers
from .outputs import choose_output, finite_scores
from .registry import Bench, metric


def max_sensitivity(
    attribute: Callable[..., Tensor], x: Tensor, *, radius: float = 0.02, n_samples: int = 2, seed: int = 0, **options: Any
) -> Tensor:
    """The largest relative change of the scores under uniform noise of the rows (Yeh et al. 2019).

    Args:
        attribute: The method, called as ``attribute(x, **options)``.
        x: The rows.
        radius: The noise lies between -radius and radius.
        n_samples: Noisy copies of every row.
        seed: Decides the noise.
        **options: Options of the method. A ``target`` with one entry per row and ``baselines`` shaped like x follow the
            rows. Without a target, every noisy row is explained for the class that is predicted for it.

    Returns:
        One number per row.

    Raises:
        ValueError: x is not finite, or ``n_samples`` is not a positive integer.

    Example:
        >>> model, x = torch.nn.Linear(2, 1), torch.ones(3, 2)
        >>> max_sensitivity(lambda x: x * model.weight.detach(), x).shape
        torch.Size([3])
    """
    at_least("max_sensitivity", 1, n_samples=n_samples)
    check_numbers(x, "x", "max_sensitivity")
    generator = torch.Generator(x.device).manual_seed(seed)
    repeated = x.repeat_interleave(n_samples, 0)
    noise = torch.rand(repeated.shape, generator=generator, dtype=x.dtype, device=x.device) * 2 - 1
    scores = attribute(x, **options).flatten(1)
    follow = dict(options)
    target, start = options.get("target"), options.get("baselines")
    if isinstance(target, (list, np.ndarray, Tensor)) and np.ndim(target) and len(target) == len(x) > 1:
        follow["target"] = [entry for entry in target for _ in range(n_samples)]
        if not isinstance(target, list):
            follow["target"] = torch.as_tensor(target).repeat_interleave(n_samples, 0)
    if isinstance(start, Tensor) and start.shape == x.shape:
        follow["baselines"] = start.repeat_interleave(n_samples, 0)
    others = attribute(repeated + radius * noise, **follow).flatten(1).view(len(x), n_samples, -1)
    size = scores.norm(dim=1, keepdim=True)
    change = (others - scores[:, None]).norm(dim=2)
    return (change / torch.where(size == 0, torch.ones_like(size), size)).amax(1)


def complexity(attributions: Tensor) -> Tensor:
    """Entropy of the shares |a_i| / sum |a| (Bhatt et al. 2020); 0 where all scores are 0.

    Args:
        attributions: Scores, (rows, ...).

    Returns:
        One number per row.

    Raises:
        ValueError: Scores are not finite.

    Example:
        >>> round(complexity(torch.tensor([[1.0, 1.0]])).item(), 4)
        0.6931
    """
    size = finite_scores("complexity", attributions).flatten(1).abs().double()
    share = size / size.sum(1, keepdim=True).clamp_min(torch.finfo(size.dtype).tiny)
    return -torch.special.xlogy(share, share).sum(1)


def rmse(attributions: Tensor, truth: Tensor) -> Tensor:
    """Root mean square error over the rows; the paper reports the mean over features.

    Args:
        attributions: Scores, (rows, ...).
        truth: The true scores, of the same shape.

    Returns:
        One number per feature.

    Raises:
        ValueError: The shapes differ, or scores are not finite.

    Example:
        >>> rmse(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor([0., 2.])
    """
    attributions, truth = finite_scores("rmse", attributions), finite_scores("rmse", truth)
    if attributions.shape != truth.shape:
        raise ValueError(f"rmse(...): scores of shape {tuple(attributions.shape)}, true ones of shape {tuple(truth.shape)}.")
    return (attributions - truth).flatten(1).square().mean(0).sqrt()


def completeness_error(
    model: Callable[[Tensor], Any],
    x: Tensor,
    attributions: Tensor,
    *,
    baselines: Tensor | float = 0.0,
    target: Any = None,
    bias: Tensor | None = None,
    feature_groups: Any = None,
    **old: Any,
) -> Tensor:
    """Sum of the scores minus f(x) - f(baselines).

    Args:
        model: A function of the rows, or a module.
        x: The rows.
        attributions: Scores shaped like x.
        baselines: A number, or a tensor shaped like x or like one row.
        target: The output: an index, or one per row. None is the only output, or the predicted class.
        bias: The scores of the biases, one number per row, if a method gives them apart.
        feature_groups: An integer mask shaped like a row. Every group is counted once, for methods that give the score of a
            group to all its elements.
        **old: ``feature_mask``, an earlier name of ``feature_groups``.

    Returns:
        One number per row.

    Raises:
        ValueError: The shapes do not fit.

    Example:
        >>> model, x = torch.nn.Linear(2, 1), torch.ones(3, 2)
        >>> bool((completeness_error(model, x, x * model.weight.detach()).abs() < 1e-6).all())
        True
    """
    (groups,) = resolve_old_words("completeness_error", old, feature_groups=(feature_groups, None, "feature_mask"))
    outputs = choose_output("completeness_error", model, x, target)
    start = expand_baseline(baselines, x, "completeness_error")
    everything = slice(0, len(x))
    change = (outputs(x[:, None], everything) - outputs(start[:, None], everything))[:, 0]
    flat = finite_scores("completeness_error", attributions).flatten(1)
    if groups is not None:
        mask = torch.as_tensor(groups).flatten().tolist()
        flat = flat[:, [mask.index(group) for group in sorted(set(mask))]]
    return flat.sum(1) + (0 if bias is None else bias) - change


def runtime(run: Callable[[], Any], repeats: int = 3) -> float:
    """The median time of a call.

    Args:
        run: The function to call.
        repeats: How often it is called.

    Returns:
        Seconds.

    Raises:
        ValueError: ``repeats`` is not a positive integer.

    Example:
        >>> runtime(lambda: None) < 1
        True
    """
    at_least("runtime", 1, repeats=repeats)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@metric("max_sensitivity", "max-sensitivity")
def _max_sensitivity(bench: Bench) -> Any:
    """How much the scores change with the rows."""
    options = {"target": bench.target, "baselines": bench.baselines, "seed": bench.seed}
    runs = {name: functools.partial(method, bench.model) for name, method in bench.methods.items()}
    return {name: max_sensitivity(attribute, bench.x, **options) for name, attribute in runs.items()}


@metric("complexity")
def _complexity(bench: Bench) -> Any:
    """Over how many features the scores are spread."""
    return {name: complexity(values) for name, values in bench.scores.items()}


@metric("completeness_error", "completeness error", best=None)
def _completeness_error(bench: Bench) -> Any:
    """Do the scores add up?"""
    options = {"target": bench.target, "baselines": bench.baselines}
    given = ((name, values, {**options, "feature_groups": bench.once[name]}) for name, values in bench.scores.items())
    return {name: completeness_error(bench.model, bench.x, values, **where).abs() for name, values, where in given}


@metric("rmse", "RMSE", per="feature", needs_truth=True)
def _rmse(bench: Bench) -> Any:
    """How far the scores are from the known ones; one number per feature."""
    assert bench.truth is not None
    return {name: rmse(values, torch.as_tensor(bench.truth).to(values)) for name, values in bench.scores.items()}
