"""How the scores of both nettings grow with the depth of a network, and what that does to their use."""

from __future__ import annotations

import functools
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from ... import metrics as measure
from ..._torch import TorchDispatchMode, tree_leaves
from ...cafe import CAFE
from ...methods import METHODS
from ..datasets import synthetic_conflicts
from ..models import Recipe, mlp, residual_mlp, seeded, train
from .depth_report import BESIDE, OWN, networks, report
from .methods import WAYS, large_scores
from .record import Settings, Study, Task, Workplace


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network and seed."""
    for network in networks(settings):
        for seed in settings["seeds"]:

            def run(network: str = network, seed: int = seed) -> Any:
                with large_scores():
                    return measure_network(network, seed, settings, place)

            yield Task(f"{network}-{seed}", run)


def measure_network(network: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Everything for one network; random ones have no task, so that only sizes, time and memory mean something there."""
    kind, shape, layers = network.split("-")
    data = synthetic_conflicts(dimension=settings["dimension"], rows=settings["data_rows"], seed=seed)
    model = build(shape, data.x_train.shape[1], settings["width"], int(layers), seed)
    if kind == "trained":
        recipe = Recipe(settings["epochs"], 64, 1e-3, "mse", seed, shuffle=True, best=True)
        assert data.x_valid is not None
        assert data.y_valid is not None
        known, asked = (data.x_train, data.y_train), (data.x_valid, data.y_valid)
        model = train(model, *known, recipe, validation=asked, folder=place.models, progress=place.show_progress).model
    model = model.double().eval()
    exact = data.to(torch.float64)
    x = exact.x_test[: settings["rows"]]
    with torch.no_grad():
        output = model(x)[:, 0]
        error = (model(exact.x_test) - exact.y_test).square().mean().sqrt().item()
    found: dict[str, Any] = {"test": error, "spread": exact.y_test.std().item(), "methods": {}}
    scores = {}
    for key in OWN:
        cafe = find_method(key, model)
        scores[key] = cafe.attribute(x)
        e: Any = cafe.explain(x)
        total = sum(part.sum(1) for part in (e.positive, e.negative)) + e.bias_positive + e.bias_negative
        found["methods"][key] = {
            "total": (total.mean() / output.abs().mean()).item(),
            "features": ((e.positive + e.negative).sum(1).mean() / output.abs().mean()).item(),
            "float32": _rounding_error(model, x, key),
            **_cost(functools.partial(cafe.explain, x)),
        }
    if kind == "trained":
        for name in BESIDE:
            scores[name] = METHODS[name](model, x).detach()
            found["methods"][name] = {}
        disturb = measure.TabularPerturbation.small(exact.x_test, [list(c) for c in data.categories.values()])
        infidelity = measure.infidelity(model, x, scores, disturb, n_samples=20, seed=seed)
        assert exact.truth_test is not None
        truth = exact.truth_test[: len(x)].to(x.dtype)
        for key, attributed in scores.items():
            entry = found["methods"][key]
            entry["combined"] = (attributed.abs().sum(1).mean() / output.abs().mean()).item()
            entry["infidelity"] = infidelity[key].mean().item()
            entry["rmse"] = measure.rmse(attributed, truth).mean().item()
            entry["sensitivity"] = measure.max_sensitivity(_attribute(key, model), x, seed=seed).mean().item()
    return found


def build(shape: str, inputs: int, width: int, layers: int, seed: int) -> nn.Module:
    """A plain network with He's initialisation and no biases at first, or a residual one as torch makes it."""
    if shape == "residual":
        return seeded(seed, lambda: residual_mlp(inputs, width, layers, 1))
    model = seeded(seed, lambda: mlp(inputs, *[width] * layers, 1))
    draw = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=draw)
            nn.init.zeros_(module.bias)
    return model


def find_method(key: str, model: nn.Module) -> CAFE:
    """ "unit c=0.5" as in ``method``; "path c=0.5" is the published method."""
    kind, _, c = key.partition(" c=")
    return CAFE(model, float(c), **WAYS["cafe" if kind == "path" else kind])


def _attribute(key: str, model: nn.Module) -> Callable[..., Tensor]:
    if " c=" in key:
        return lambda x, **options: find_method(key, model).attribute(x)
    return lambda x, **options: METHODS[key](model, x).detach()


def _rounding_error(model: nn.Module, x: Tensor, key: str) -> float:
    """The largest error of the combined scores when all is computed in float32, relative to the largest score."""
    single = model.float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # computed again in float64 where float32 cannot hold it
        found = find_method(key, single).attribute(x.float())
    rounded = find_method(key, single.double()).attribute(x.float().double())  # the same weights and inputs
    return ((found.double() - rounded).abs().max() / rounded.abs().max()).item()


def _cost(run: Callable[[], Any]) -> dict[str, float]:
    """Seconds, the median of three runs, and the largest number of bytes in tensors at any time."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    with Peak() as peak:
        run()
    return {"seconds": statistics.median(seconds), "bytes": float(peak.highest)}


class Peak(TorchDispatchMode):
    """Watches how many bytes the tensors hold that are made while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.highest = 0
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self._live.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self._live = {key: entry for key, entry in self._live.items() if not entry[0].expired()}
        self.highest = max(self.highest, sum(size for _, size in self._live.values()))
        return result


COMMON = {"kinds": ["random", "trained"], "shapes": ["plain", "residual"], "dimension": 5, "width": 64}
DEPTH = Study(
    "depth",
    "both nettings against depth: size of the scores, infidelity, sensitivity, distance to known attributions, cost (ours)",
    "nothing: the data are made",
    {
        "toy": COMMON | {"layers": [1, 3], "width": 8, "seeds": [42], "rows": 10, "data_rows": 200, "epochs": 2},
        "quick": COMMON | {"layers": [1, 2, 4, 8, 16, 32], "seeds": [42], "rows": 100, "data_rows": 5000, "epochs": 40},
        "full": COMMON | {"layers": [1, 2, 4, 8, 16, 32], "seeds": [42, 43, 44], "rows": 200, "data_rows": 10_000,
                          "epochs": 60},
    },
    {"toy": "0.2", "quick": "2", "full": "10"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (DEPTH,)
