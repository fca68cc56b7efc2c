"""Every method on one model, measured side by side."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from .. import metrics as measure
from .._extras import progress
from .._inputs import at_least, groups_by_word, resolve_old_words
from ..cafe import CAFE
from ..methods import METHODS, Method, scores_groups
from ..methods.case import Case, case
from ..methods.embedded import Embedded, other_tokens
from ..metrics import METRICS
from .result import Comparison, title

NOTES = (
    "Completeness: |sum of the scores - (f(x) - f(baseline))|. CAFE and LRP report the share of the biases apart, bias "
    "back-propagation adds up to f(x), gradient x input and SmoothGrad do not aim at it. In attention and norms our engine "
    "takes the pattern and the statistics of the row as they are, also for the baseline of DeepLIFT.",
)
DEFAULT_METRICS = ("infidelity", "infidelity_as_is", "max_sensitivity", "complexity", "completeness_error")


def default_methods() -> dict[str, Method]:
    """Every method with its usual settings, CAFE with c = 0, 0.5 and 1.

    Example:
        >>> from cafexai.comparison import default_methods
        >>> "integrated_gradients" in default_methods()
        True
    """
    cafes = {f"cafe c={c:g}": functools.partial(METHODS["cafe"], c=c) for c in (0.5, 0.0, 1.0)}
    return {**cafes, **{name: method for name, method in METHODS.items() if name != "cafe"}}


def compare(
    model: Any,
    x: Any,
    target: Any = None,
    methods: Iterable[str | Method] | Mapping[str, Method] | None = None,
    metrics: Iterable[str | Callable[..., Any]] = DEFAULT_METRICS,
    seeds: int | Iterable[int] = (0,),
    *,
    baselines: Any = None,
    feature_groups: Any = None,
    perturb: measure.Perturb | None = None,
    replace: measure.Replace = "baseline",
    truth: Tensor | None = None,
    n_samples: int = 20,
    n_units: int = 50,
    layers: Any = None,
    show_progress: bool | None = None,
    **old: Any,
) -> Comparison:
    """Score the same rows by many methods and measure each. The draws of a metric are the same for all methods.

    A method that cannot run on this model is a line with its reason.

    Args:
        model: A module, or a function of tensors.
        x: The rows, a tensor or a table of floating point numbers, or token ids, (rows, tokens), of a module with one
            embedding layer for them. Gradients are then taken at its vectors, and a token is removed as a whole.
        target: The output to explain: an index, or one per row. None is the only output, or the predicted class of each
            row.
        methods: Names from ``cafexai.methods.METHODS`` and functions with their signature, mixed as you like, or name ->
            function (``{"cafe c=1": functools.partial(METHODS["cafe"], c=1.0)}``). None is all of them. The others are
            tested against the first one of CAFE.
        metrics: Names from ``cafexai.metrics.METRICS``, such as "infidelity", "structural_infidelity" (of ``n_units``
            random units), "rmse" (against ``truth``), "deletion"; and functions ``f(model, x, attributions, ...)`` that give
            one number per row. A function may also take ``target``, ``baselines``, ``feature_groups``, ``seed`` and
            ``truth``. Scores of groups are shared out among their elements.
        seeds: One seed, or several, over which methods with chance are averaged.
        baselines: What rows are compared with, as in ``CAFE.explain``.
        feature_groups: Groups of features, as in ``CAFE.explain``. Metrics remove a group as a whole; images without groups
            are cut into cells of an eighth of their side.
        perturb: What infidelity does to rows. None is noise of half a standard deviation of each column, with every group
            of several columns as one category; for images, patches.
        replace: What metrics put in place of a removed feature: "baseline", "blur" or a function.
        truth: The true scores, for "rmse".
        n_samples: Perturbed copies of every row.
        n_units: Random units for structural metrics.
        layers: Where these units are: classes or names of modules.
        show_progress: Show a progress bar. None shows it for long work only.
        **old: ``feature_mask``, an earlier name of ``feature_groups``.

    Returns:
        The table, as an object with ``to_frame``, ``to_markdown`` and ``plot``.

    Raises:
        ValueError: An argument is not allowed.

    Example:
        >>> import torch
        >>> import cafexai
        >>> result = cafexai.compare(torch.nn.Linear(2, 1), torch.rand(4, 2), methods=["cafe", "lrp"], metrics=["complexity"])
        >>> result.ranking("complexity")
        ['cafe', 'lrp']
    """
    (groups,) = resolve_old_words("compare", old, feature_groups=(feature_groups, None, "feature_mask"))
    asked = _methods(methods)
    wanted = _metrics(metrics, truth)
    draws = (seeds,) if isinstance(seeds, int) else tuple(seeds)
    if not draws:
        raise ValueError("compare(..., seeds=()): give at least one seed.")
    at_least("compare", 1, n_samples=n_samples, n_units=n_units)
    given = case("compare", model, x, baselines, groups, target).aim()
    of_tokens = isinstance(given.model, Embedded)
    groups = given.groups if groups is not None or of_tokens else None
    if len(given.baselines) > 1:
        raise ValueError("compare(..., baselines=...): metrics take one baseline; a stack of them is for single methods.")
    cell = max(1, min(given.x.shape[2:]) // 8) if given.x.ndim == 4 and groups is None else 0
    together = measure.cells(given.x, cell) if cell else given.groups
    disturb = perturb if perturb is not None else _default_perturbation(given)
    values: dict[str, dict[str, list[Tensor]]] = {}
    seconds: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    scores: dict[tuple[str, int], Tensor] = {}
    work = [(name, seed) for name in asked for seed in draws]
    for name, seed in progress(work, "attributing", "run", show_progress):
        if name in reasons:
            continue
        run = functools.partial(_seed_method(asked[name], seed, groups), given.model)
        try:
            if name not in seconds:  # once before the clock starts: what is imported or compiled is not timed
                few = given.some(slice(0, 2))
                run(few.x, target=few.target, baselines=few.baselines[0])
            start = time.perf_counter()
            result = run(given.x, target=given.target, baselines=given.baselines[0])
            seconds.setdefault(name, []).append(time.perf_counter() - start)
            scores[name, seed] = _check_methods(result, given)
        except Exception as error:  # whatever a method raises is its reason
            reasons[name] = _reason(error)
    able = {name: method for name, method in asked.items() if name not in reasons}
    notes = [*(NOTES if "completeness_error" in wanted else ()), *_softmax_note(given)]
    for metric, seed in progress([(m, s) for m in wanted for s in draws], "measuring", "metric", show_progress):
        bench = measure.Bench(
            given.model,
            given.x,
            given.target,
            given.starts[0],
            {name: scores[name, seed] for name in able},
            {name: _seed_method(method, seed, groups) for name, method in able.items()},
            {name: given.groups if scores_groups(_plain(method)) else None for name, method in able.items()},
            disturb,
            truth,
            seed,
            n_samples,
            n_units,
            layers,
            together,
            replace,
        )
        for name, value in _score_guarded(wanted[metric], bench).items():
            if isinstance(value, Tensor):
                values.setdefault(name, {}).setdefault(metric, []).append(value.double().cpu())
            else:
                notes.append(f"No {title(metric)} of {name}: {value}")
    return Comparison(
        {name: {key: torch.stack(per_seed).mean(0) for key, per_seed in of.items()} for name, of in values.items()},
        {name: min(times) for name, times in seconds.items() if name in able},
        reasons,
        next((name for name, method in able.items() if _plain(method) is METHODS["cafe"]), None),
        len(given.x),
        draws,
        tuple(dict.fromkeys(notes)),
        tuple(asked),
    )


def _score_guarded(metric: Callable[[measure.Bench], Any], bench: measure.Bench) -> dict[str, Tensor | str]:
    """The metric of all methods; if one fails, of each by itself, with the reason for those that fail."""
    try:
        return _numbers(metric(bench), bench)
    except Exception as error:  # whatever a method raises here is its reason
        if len(bench.methods) == 1:
            return {name: _reason(error) for name in bench.methods}
    found: dict[str, Tensor | str] = {}
    for name, method in bench.methods.items():
        found |= _score_guarded(metric, dataclasses.replace(bench, scores={name: bench.scores[name]}, methods={name: method}))
    return found


def _numbers(found: Any, bench: measure.Bench) -> dict[str, Tensor | str]:
    """What a metric gives, if it is one vector of numbers for each method."""
    if not isinstance(found, Mapping) or any(not isinstance(value, Tensor) or value.ndim != 1 for value in found.values()):
        raise TypeError("the metric gives no vector of numbers for each method, {name: tensor of one number per row}")
    return {name: found[name] for name in bench.methods}


def _softmax_note(given: Case) -> tuple[str, ...]:
    """Our engine explains the logit behind a final softmax; others cannot know it."""
    with contextlib.suppress(Exception):
        if CAFE(given.model).explain(given.x[:1], target=given.some(slice(0, 1)).target).meta.final is not None:
            return (
                "The model ends in a sigmoid or softmax. CAFE, DeepLIFT, LRP and bias back-propagation explain its logit, the "
                "other methods and the metrics are about the probability: compare on the model without it.",
            )
    return ()


def _seed_method(method: Method, seed: int, groups: Any) -> Method:
    """The method with its groups, and with a seed if it takes one."""
    options = groups_by_word(method, groups) | ({"seed": seed} if "seed" in inspect.signature(method).parameters else {})
    return functools.partial(method, **options)


def _plain(method: Any) -> Any:
    return _plain(method.func) if isinstance(method, functools.partial) else method


def _methods(methods: Any) -> dict[str, Method]:
    if methods is None:
        return default_methods()
    if isinstance(methods, str):
        methods = [methods]
    if not isinstance(methods, Mapping):
        known = {**METHODS, **default_methods()}
        given = [methods] if callable(methods) else list(methods)
        unknown = [one for one in given if not callable(one) and (not isinstance(one, str) or one not in known)]
        if unknown:
            raise ValueError(
                f"compare(..., methods={given}): unknown method {unknown[0]!r}. Give a function, or one of: {', '.join(known)}."
            )
        methods = {}
        for one in given:
            method = known[one] if isinstance(one, str) else one
            methods[_find_unused(one if isinstance(one, str) else _name_of(one), methods)] = method
    if not methods:
        raise ValueError("compare(..., methods=[]): give at least one method, or None for all.")
    return dict(methods)


def _name_of(function: Any) -> str:
    """The name of a function, with the options that are bound to it."""
    if isinstance(function, functools.partial):
        return " ".join([_name_of(function.func), *(f"{key}={value}" for key, value in function.keywords.items())])
    return str(getattr(function, "__name__", type(function).__name__))


def _find_unused(name: str, names: Iterable[str]) -> str:
    """The name, or with a number behind it if it is taken."""
    taken = set(names)
    others = (f"{name} ({i})" for i in range(2, len(taken) + 3))
    return name if name not in taken else next(other for other in others if other not in taken)


def _metrics(metrics: Any, truth: Tensor | None) -> dict[str, Callable[[measure.Bench], Any]]:
    """Metrics by name: those that are registered, and functions of the user."""
    given = [metrics] if isinstance(metrics, str) or callable(metrics) else list(metrics)
    unknown = [one for one in given if not callable(one) and one not in METRICS]
    if unknown:
        raise ValueError(
            f"compare(..., metrics={given}): unknown metric {unknown[0]!r}. Give a function, or one of: {', '.join(METRICS)}."
        )
    wanted: dict[str, Callable[[measure.Bench], Any]] = {}
    for one in given:
        if not isinstance(one, str):
            wanted[_find_unused(_name_of(one), (*wanted, *METRICS))] = functools.partial(_own_metric, one)
            continue
        if METRICS[one].needs_truth and truth is None:
            raise ValueError(f'compare(..., metrics=["{one}"]): give the true scores, truth=, shaped like x.')
        wanted[one] = METRICS[one].of
    return wanted | ({"rmse": METRICS["rmse"].of} if truth is not None else {})


def _own_metric(function: Callable[..., Any], bench: measure.Bench) -> dict[str, Tensor]:
    """A function of the user for all methods; it gets what it has a parameter for."""
    offered = {"target": bench.target, "baselines": bench.baselines, "feature_groups": bench.groups}
    offered |= {"seed": bench.seed, "truth": bench.truth}
    parameters = inspect.signature(function).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        offered = {name: value for name, value in offered.items() if name in parameters}
    found = {}
    for name, scores in bench.shares().items():
        value = torch.as_tensor(function(bench.model, bench.x, scores, **offered))
        if value.shape != (len(bench.x),):
            raise TypeError(f"the metric gives shape {tuple(value.shape)}, not one number for each of {len(bench.x)} rows")
        found[name] = value
    return found


def _check_methods(result: Any, given: Case) -> Tensor:
    if not isinstance(result, Tensor) or result.shape != given.x.shape:
        what = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"it gives {what}, not a tensor shaped like x, {tuple(given.x.shape)}")
    if not bool(result.isfinite().all()):
        raise ValueError("some of its scores are not finite")
    return result.detach()


def _reason(error: Exception) -> str:
    """An error in one line."""
    problems = getattr(error, "problems", ())
    if problems:
        return "; ".join(dict.fromkeys(f"{problem.function}: {problem.reason}" for problem in problems))
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" + ("..." if len(text) > 300 else "")


def _default_perturbation(given: Case) -> measure.Perturb:
    if isinstance(given.model, Embedded):
        return other_tokens
    if given.x.ndim == 4:
        return measure.PatchPerturbation(size=max(1, min(given.x.shape[2:]) // 4))
    if given.x.ndim == 2:
        groups = given.groups.tolist()
        blocks = [[i for i, g in enumerate(groups) if g == group] for group in set(groups)]
        categories = sorted(block for block in blocks if len(block) > 1)
        scale = given.x.std(0) if len(given.x) > 1 else torch.ones_like(given.x[0])
        return measure.TabularPerturbation.small(given.x, categories, scale=scale)
    raise ValueError(
        f"compare(..., perturb=None): there is no default perturbation for rows of shape "
        f"{tuple(given.x.shape[1:])}. Give a function (rows, generator) -> perturbed rows."
    )
