"""Every method on one model, measured side by side."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import metrics as measure
from .comparison import TITLES, Comparison, summary
from .methods import GROUP_SCORES, METHODS, Method
from .methods.case import Case, case
from .progress import progress

DEFAULT_METRICS = ("infidelity", "max_sensitivity", "complexity", "completeness_error")


def default_methods() -> dict[str, Method]:
    """Every method with its usual settings, CAFE with c = 0, 0.5 and 1."""
    cafes = {f"cafe c={c:g}": functools.partial(METHODS["cafe"], c=c) for c in (0.5, 0.0, 1.0)}
    return {**cafes, **{name: method for name, method in METHODS.items() if name != "cafe"}}


def compare(
    model: Any,
    x: Any,
    target: Any = None,
    methods: Iterable[str] | Mapping[str, Method] | None = None,
    metrics: Iterable[str] = DEFAULT_METRICS,
    seeds: Iterable[int] = (0,),
    *,
    baselines: Any = None,
    feature_mask: Any = None,
    perturb: measure.Perturb | None = None,
    truth: Tensor | None = None,
    n_samples: int = 20,
    n_units: int = 50,
    layers: Any = None,
    show_progress: bool | None = None,
) -> Comparison:
    """Attribute the same rows by many methods and measure each; the draws of a metric are the same for all of them.

    ``methods``: names from ``cafexai.methods.METHODS``, or name -> function with their signature
    (``{"cafe c=1": functools.partial(METHODS["cafe"], c=1.0)}``); None is all of them. The others are tested against the
    first one of CAFE. ``metrics``: "infidelity", "structural_infidelity" (of ``n_units`` random units), "max_sensitivity",
    "complexity", "completeness_error", "rmse" (against ``truth``). ``perturb`` is what infidelity does to rows; by default
    noise of half a standard deviation of each column, with every group of several columns in ``feature_mask`` as one
    category, and patches for images. A method that cannot run on this model is a line with its reason.
    """
    asked = _methods(methods)
    wanted = _metrics(metrics, truth)
    draws = tuple(seeds)
    if not draws:
        raise ValueError("compare(..., seeds=()): give at least one seed.")
    given = case("compare", model, x, target, baselines, feature_mask)
    if len(given.baselines) > 1:
        raise ValueError("compare(..., baselines=...): metrics take one baseline; a stack of them is for single methods.")
    disturb = perturb if perturb is not None else _default_perturbation(given)
    values: dict[str, dict[str, list[Tensor]]] = {}
    seconds: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    scores: dict[tuple[str, int], Tensor] = {}
    work = [(name, seed) for name in asked for seed in draws]
    for name, seed in progress(work, "attributing", "run", show_progress):
        if name in reasons:
            continue
        run = _bound(asked[name], given, feature_mask, seed)
        try:
            start = time.perf_counter()
            result = run(given.x, target=given.target, baselines=given.baselines[0])
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            scores[name, seed] = _checked(result, given)
        except Exception as error:  # whatever a method raises is its reason
            reasons[name] = _reason(error)
    able = {name: method for name, method in asked.items() if name not in reasons}
    for metric, seed in progress([(m, s) for m in wanted for s in draws], "measuring", "metric", show_progress):
        found = {name: scores[name, seed] for name in able}
        bound = {name: _bound(method, given, feature_mask, seed) for name, method in able.items()}
        for name, value in _measured(
            metric, found, bound, given, disturb, seed, truth, n_samples, n_units, layers, reasons, feature_mask
        ).items():
            values.setdefault(name, {}).setdefault(metric, []).append(value)
    return Comparison(
        {name: {metric: summary(per_seed) for metric, per_seed in of.items()} for name, of in values.items()},
        {name: min(times) for name, times in seconds.items() if name in able},
        reasons,
        next((name for name, method in able.items() if _plain(method) is METHODS["cafe"]), None),
        len(given.x),
        draws,
        _notes(wanted, given),
    )


def _measured(
    metric: str,
    scores: dict[str, Tensor],
    bound: dict[str, Callable[..., Tensor]],
    given: Case,
    disturb: measure.Perturb,
    seed: int,
    truth: Tensor | None,
    n_samples: int,
    n_units: int,
    layers: Any,
    reasons: dict[str, str],
    feature_mask: Any,
) -> dict[str, Tensor]:
    """One metric with one seed for all methods."""
    start, where = given.baselines[0], _target_for_metrics(given)
    if metric == "infidelity":
        return measure.infidelity(
            given.model, given.x, scores, disturb, target=where, baselines=start, n_samples=n_samples, seed=seed
        )
    if metric == "structural_infidelity":
        options: dict[str, Any] = {} if layers is None else {"layers": layers}
        units = {name: functools.partial(_on_unit, method, given) for name, method in bound.items()}
        found = measure.structural_infidelity(
            units, given.model, given.x, disturb, n_units=n_units, seed=seed, n_samples=n_samples, baselines=start, **options
        )
        return {name: value.mean(1) for name, value in found.items()}
    result = {}
    for name, values in scores.items():
        if metric == "complexity":
            result[name] = measure.complexity(values)
        elif metric == "completeness_error":
            once = given.groups if _plain(bound[name].keywords["method"]) in GROUP_SCORES else None  # type: ignore[attr-defined]
            result[name] = measure.completeness_error(
                given.model, given.x, values, baselines=start, target=where, feature_mask=once
            ).abs()
        elif metric == "rmse":
            assert truth is not None
            result[name] = measure.rmse(values, truth.to(values))
        else:
            result[name] = measure.max_sensitivity(bound[name], given.x, seed=seed, target=given.target, baselines=start)
    return result


def _bound(method: Method, given: Case, feature_mask: Any, seed: int) -> Callable[..., Tensor]:
    """The method on this model with one seed, as a function of the rows."""
    return functools.partial(_call, method=method, model=given.model, feature_mask=feature_mask, seed=seed)


def _call(x: Tensor, *, method: Method, model: Any, feature_mask: Any, seed: int, **options: Any) -> Tensor:
    if "seed" in inspect.signature(method).parameters:
        options["seed"] = seed
    return method(model, x, feature_mask=feature_mask, **options)


def _on_unit(bound: Callable[..., Tensor], given: Case, unit: Any, x: Tensor, **options: Any) -> Tensor:
    options.pop("feature_mask", None)
    return bound(x, model=unit, **options)


def _plain(method: Any) -> Any:
    return _plain(method.func) if isinstance(method, functools.partial) else method


def _methods(methods: Any) -> dict[str, Method]:
    if methods is None:
        return default_methods()
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Mapping):
        known = {**METHODS, **default_methods()}
        unknown = [name for name in methods if not isinstance(name, str) or name not in known]
        if unknown:
            raise ValueError(f"compare(..., methods={list(methods)}): there is no {unknown[0]!r}. There are: {', '.join(known)}.")
        methods = {name: known[name] for name in methods}
    if not methods:
        raise ValueError("compare(..., methods=[]): give at least one method, or None for all.")
    return dict(methods)


def _metrics(metrics: Any, truth: Tensor | None) -> list[str]:
    wanted = [metrics] if isinstance(metrics, str) else list(metrics)
    unknown = [name for name in wanted if name not in TITLES]
    if unknown:
        raise ValueError(f"compare(..., metrics={wanted}): there is no {unknown[0]!r}. There are: {', '.join(TITLES)}.")
    if "rmse" in wanted and truth is None:
        raise ValueError('compare(..., metrics=["rmse"]): give the known attributions, truth=, shaped like x.')
    return wanted + ["rmse"] * (truth is not None and "rmse" not in wanted)


def _checked(result: Any, given: Case) -> Tensor:
    if not isinstance(result, Tensor) or result.shape != given.x.shape:
        what = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"it gives {what}, not a tensor shaped like x, {tuple(given.x.shape)}")
    if not bool(result.isfinite().all()):
        raise ValueError("some of its scores are not finite")
    return result.detach()


def _reason(error: Exception) -> str:
    """The first lines of an error, in one."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" + ("..." if len(text) > 300 else "")


def _target_for_metrics(given: Case) -> Any:
    return tuple(given.index.unbind(1)) if given.sizes else None


def _default_perturbation(given: Case) -> measure.Perturb:
    if given.x.ndim == 4:
        return measure.PatchPerturbation(size=max(1, min(given.x.shape[2:]) // 4))
    if given.x.ndim == 2:
        groups = given.groups.tolist()
        blocks = [[i for i, g in enumerate(groups) if g == group] for group in set(groups)]
        categories = sorted(block for block in blocks if len(block) > 1)
        scale = given.x.std(0) if len(given.x) > 1 else torch.ones_like(given.x[0])
        return measure.TabularPerturbation.small(given.x, categories, scale=scale)
    raise ValueError(
        f"compare(..., perturb=None): there is no usual way to disturb rows of shape {tuple(given.x.shape[1:])}. Give one: a "
        "function (rows, generator) -> disturbed rows."
    )


def _notes(wanted: list[str], given: Case) -> tuple[str, ...]:
    notes = []
    if "completeness_error" in wanted:
        notes.append(
            "Completeness: |sum of the scores - (f(x) - f(baseline))|. CAFE and LRP report the share of the biases apart, and "
            "gradient x input and SmoothGrad do not aim at it."
        )
    return tuple(notes)
