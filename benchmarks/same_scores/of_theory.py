"""Metrics, conflicts and comparisons on a small net."""

from __future__ import annotations

from functools import partial

import torch
from dtypes import DTYPES, label, seeded
from explaining import cafe, method
from small_models import perceptron, small_cnn

from cafexai import compare, conflicts, metrics
from cafexai.methods import METHODS

MEASURED = ("cafe", "lrp", "deeplift_rescale", "integrated_gradients")
COMPARED = ["cafe", "integrated_gradients", "lime"]
COMPARED_BY = ["infidelity", "structural_infidelity", "max_sensitivity", "complexity", "completeness_error"]


def runs():
    """(name, computation) of everything in every dtype."""
    for dtype in DTYPES:
        net, x, start = seeded(lambda: (perceptron(), torch.randn(6, 6), torch.randn(1, 6)), dtype)
        for group in (measured, conflicting, compared):
            for name, run in group(net, x, start):
                yield f"{group.__name__}/{name}/{label(dtype)}", run


def measured(net, x, start):
    """The metrics of a few attributions."""
    chosen = {name: method(name) for name in MEASURED}
    disturb = metrics.TabularPerturbation.small(x, [[4, 5]])
    scores = {name: method(net, x, target=1) for name, method in chosen.items()}
    infidelity = partial(metrics.infidelity, net, x, scores, disturb, target=1)
    yield "infidelity", infidelity
    yield "infidelity of slopes", partial(infidelity, normalize=False, multiplies_by_inputs=False, seed=3)
    yield "structural infidelity", lambda: metrics.structural_infidelity(chosen, net, x, disturb, n_units=6)
    for name, chosen_method in chosen.items():
        yield f"sensitivity {name}", partial(metrics.max_sensitivity, partial(chosen_method, net), x, target=1)
        yield f"complexity {name}", partial(metrics.complexity, scores[name])
        yield f"completeness {name}", partial(metrics.completeness_error, net, x, scores[name], target=1)
    yield "patches", partial(patch_infidelity, *seeded(lambda: (small_cnn(), torch.randn(3, 1, 8, 8)), x.dtype))


def patch_infidelity(cnn, images):
    """The infidelity of CAFE where patches of images are disturbed."""
    scores = method("cafe")(cnn, images, target=0)
    return metrics.infidelity(cnn, images, scores, metrics.PatchPerturbation(size=2), target=0)


def conflicting(net, x, start):
    """The theory of conflicts."""
    for c in (0.0, 0.5, 1.0):
        yield f"audit c={c}", partial(conflicts.audit, partial(cafe, c=c), net, x)
    yield "audit by feature", lambda: conflicts.audit(partial(cafe, netting="feature"), net, x, start)
    for name in ("lrp", "deeplift_revealcancel", "integrated_gradients"):
        yield f"audit {name}", partial(conflicts.audit, METHODS[name], net, x)
    yield "audit of outputs", lambda: conflicts.audit_outputs(cafe, net, x[:2], 1)
    yield "audit of a CNN", lambda: conflicts.audit(cafe, small_cnn().to(x.dtype), x.repeat(1, 11)[:2, :64].view(2, 1, 8, 8))
    yield "map", lambda: conflicts.conflict_map(net, x[0], output=1)
    yield "map of the strongest", lambda: conflicts.conflict_map(net, x[0], start, output=1, top=4)
    yield "minimal", lambda: conflicts.minimal_conflicts(net, x[0], output=1)
    yield "minimal from a baseline", lambda: conflicts.minimal_conflicts(net, x[1:2], start, 2, 4)
    yield "prevalence", lambda: conflicts.prevalence(net, x)
    yield "magnitude", lambda: conflicts.conflict_magnitude(net, [0], [2, 3], x, output=1)
    yield "counteraction", lambda: conflicts.counteraction_magnitude(net, [0], [2, 3], x, output=1)
    yield "tuned", lambda: conflicts.tune_c(net, x, 1, metric=lambda scores: scores.abs().sum(), layers=["1", "3"])


def compared(net, x, start):
    """Means of a comparison of methods."""

    def means(**options):
        result = compare(net, x, methods=COMPARED, metrics=COMPARED_BY, show_progress=False, n_units=5, **options)
        found = {name: {metric: result.mean(name, metric) for metric in COMPARED_BY} for name in COMPARED}
        return found, result.values, result.reasons, result.notes

    yield "zero", partial(means, target=1)
    yield "baseline", partial(means, baselines=start, seeds=2)
