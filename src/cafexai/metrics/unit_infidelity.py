"""Infidelity on random units inside a model, not only on its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .._engine.diagnose import answer, rows_for
from .._inputs import at_least, groups_by_word, resolve_old_words
from .._torch import Convolution
from .infidelity import infidelity
from .perturbations import Perturb
from .registry import Bench, metric

LAYERS = (nn.Linear, Convolution)


class _Reached(BaseException):
    """Ends a forward pass at a layer."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


class UnitModel(nn.Module):
    """A model that ends at one unit of one of its layers: rows to (rows, 1).

    Args:
        model: The whole model.
        layer: The name of a module.
        index: The place of the unit in the output of the layer, without rows.
        call: Which call of the layer, if forward makes several.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> UnitModel(net, "0", [3])(torch.ones(5, 2)).shape
        torch.Size([5, 1])
    """

    def __init__(self, model: nn.Module, layer: str, index: Sequence[int], call: int = 0) -> None:
        super().__init__()
        self.model = model
        self.layer, self.index, self.call = layer, tuple(index), call

    def forward(self, x: Tensor) -> Tensor:
        """The value of the unit for each row.

        Args:
            x: The rows.

        Returns:
            (rows, 1).

        Raises:
            ValueError: The model did not call the layer as often as ``call`` says.
        """
        calls = 0

        def stop(module: nn.Module, args: Any, output: Tensor) -> None:
            nonlocal calls
            if calls == self.call:
                raise _Reached(output)
            calls += 1

        handle = self.model.get_submodule(self.layer).register_forward_hook(stop)
        try:
            self.model(x)
        except _Reached as reached:
            place: Any = (slice(None), *self.index)
            return reached.output[place].unsqueeze(1)
        finally:
            handle.remove()
        raise ValueError(f"The model called {self.layer!r} {calls} time(s), not {self.call + 1}.")

    def __str__(self) -> str:
        return f"{self.layer}[{', '.join(map(str, self.index))}]" + (f" (call {self.call + 1})" if self.call else "")


def random_units(model: nn.Module, x: Tensor, count: int = 50, seed: int = 0, layers: Any = LAYERS) -> list[UnitModel]:
    """Draw units as in the paper: a layer, then a place in its output. The output layer is among them.

    Layers that do not depend on x, or that do not see one entry per row, are left out, as is what a module computes without
    calling layers (nn.MultiheadAttention, nn.LSTM). Of a layer that is called several times one call is drawn.

    Args:
        model: The model, a module.
        x: Some rows, to find the shapes.
        count: How many units.
        seed: Decides the draws.
        layers: Classes of modules, or the names of some.

    Returns:
        One model per unit.

    Raises:
        ValueError: The model is not a module, or calls none of these layers.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        >>> len(random_units(net, torch.rand(5, 2), count=3))
        3
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"random_units({type(model).__name__}): units belong to the layers of a torch module.")
    at_least("random_units", 1, count=count)
    x = rows_for("random_units", model, x)
    answer("random_units", model, x)
    wanted = (layers,) if isinstance(layers, (str, type)) else tuple(layers)
    modules = {
        name: module
        for name, module in model.named_modules()
        if name in wanted or isinstance(module, tuple(kind for kind in wanted if isinstance(kind, type)))
    }
    here, elsewhere = _outputs(model, x, modules), _outputs(model, x + 1, modules)
    found = {  # layer -> the shapes of its outputs, call by call; without those that do not depend on x
        name: shapes
        for name in here
        if (shapes := [a.shape[1:] for a, b in zip(here[name], elsewhere.get(name, []), strict=False) if not torch.equal(a, b)])
    }
    if not found:
        raise ValueError(
            f"random_units(...): forward called none of the layers {layers} with one output per row. Give layers= the names of "
            "modules that it calls, or their classes."
        )
    generator = torch.Generator().manual_seed(seed)

    def draw(limit: int) -> int:
        return int(torch.randint(limit, (), generator=generator))

    units = []
    for _ in range(count):
        name = list(found)[draw(len(found))]
        call = draw(len(found[name]))
        units.append(UnitModel(model, name, [draw(size) for size in found[name][call]], call).train(model.training))
    return units


def group_draws(units: Sequence[UnitModel]) -> list[tuple[UnitModel, list[int]]]:
    """Every unit once, with the places at which it was drawn: a small layer is drawn as often as a large one."""
    found: dict[str, tuple[UnitModel, list[int]]] = {}
    for number, unit in enumerate(units):
        found.setdefault(str(unit), (unit, []))[1].append(number)
    return list(found.values())


def _outputs(model: nn.Module, x: Tensor, modules: Mapping[str, nn.Module]) -> dict[str, list[Tensor]]:
    """What each module gives, call by call, where that has one entry per row."""
    found: dict[str, list[Tensor]] = {}
    handles = []
    for name, module in modules.items():

        def note(module: nn.Module, args: Any, output: Any, name: str = name) -> None:
            if isinstance(output, Tensor) and output.ndim > 1 and len(output) == len(x):
                found.setdefault(name, []).append(output)

        handles.append(module.register_forward_hook(note))
    try:
        with torch.no_grad():
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return found


def structural_infidelity(
    methods: Mapping[str, Callable[..., Tensor]] | Callable[..., Tensor],
    model: nn.Module,
    x: Tensor,
    perturb: Perturb,
    *,
    n_units: int = 50,
    seed: int = 0,
    layers: Any = LAYERS,
    baselines: Any = None,
    feature_groups: Any = None,
    n_samples: int = 20,
    normalize: bool = True,
    progress: Callable[[Any], Any] = list,
    **old: Any,
) -> Any:
    """Infidelity of attributions to random units of the model; the same units and draws for all methods.

    Args:
        methods: A method, or several by name, each called as ``method(unit, x, target=0, baselines=...)``, with
            ``feature_groups=...`` if there are any.
        model: The model, a module.
        x: The rows.
        perturb: From rows and a generator to perturbed rows.
        n_units: How many units.
        seed: Decides units and draws.
        layers: Classes of modules, or the names of some.
        baselines: What rows are compared with.
        feature_groups: Groups of features, passed on to the methods.
        n_samples: Perturbed copies of every row.
        normalize: See ``infidelity``.
        progress: Wraps the units, like tqdm.
        **old: ``feature_mask``, an earlier name of ``feature_groups``.

    Returns:
        (rows, units); for a mapping, a dictionary of these.

    Raises:
        ValueError: The model is not a module, or an argument is not allowed.

    Example:
        >>> from cafexai.methods import METHODS
        >>> from cafexai.metrics import TabularPerturbation
        >>> net, x = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)), torch.rand(5, 2)
        >>> structural_infidelity(METHODS["cafe"], net, x, TabularPerturbation(x), n_units=3).shape
        torch.Size([5, 3])
    """
    (groups,) = resolve_old_words("structural_infidelity", old, feature_groups=(feature_groups, None, "feature_mask"))
    many = dict(methods) if isinstance(methods, Mapping) else {"": methods}
    results: dict[str, dict[int, Tensor]] = {name: {} for name in many}
    at_least("structural_infidelity", 1, n_units=n_units, n_samples=n_samples)
    rows_for("structural_infidelity", model, x)
    start = 0.0 if baselines is None else baselines
    for unit, numbers in progress(group_draws(random_units(model, x, n_units, seed, layers))):
        options = {"target": 0, "baselines": baselines}
        scores = {name: method(unit, x, **options, **groups_by_word(method, groups)) for name, method in many.items()}
        for number in numbers:
            draws: dict[str, Any] = {"n_samples": n_samples, "seed": seed + number, "normalize": normalize}
            for name, value in infidelity(unit, x, scores, perturb, target=0, baselines=start, **draws).items():
                results[name][number] = value
    joined = {name: torch.stack([values[number] for number in range(n_units)], 1) for name, values in results.items()}
    return joined if isinstance(methods, Mapping) else joined[""]


@metric("structural_infidelity", "structural infidelity")
def _normalized(bench: Bench) -> Any:
    """Infidelity on random units."""
    return _on_bench(bench, True)


@metric("structural_infidelity_as_is", "structural infidelity as is")
def _as_is(bench: Bench) -> Any:
    """Infidelity as is on random units."""
    return _on_bench(bench, False)


def _on_bench(bench: Bench, normalize: bool) -> Any:
    options: dict[str, Any] = {"n_units": bench.n_units, "n_samples": bench.n_samples, "seed": bench.seed}
    options |= {"baselines": bench.baselines} | ({} if bench.layers is None else {"layers": bench.layers})
    found = structural_infidelity(bench.methods, bench.model, bench.x, bench.perturb, normalize=normalize, **options)
    return {name: value.mean(1) for name, value in found.items()}
