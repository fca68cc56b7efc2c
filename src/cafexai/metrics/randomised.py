"""Do scores depend on what the model has learned? They are held against those of the model with random weights."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._extras import needs, progress
from ..cafe import CAFE
from ..explanation import Explanation
from ..plotting.figures import add_heading, figure, light
from ..plotting.labels import labels
from ..plotting.palette import SERIES
from .occlusion import correlation, rank_values

if TYPE_CHECKING:
    import pandas

    from ..plotting.picture import Picture

ALIKE = 0.7  # from this rank correlation on, a view looks much the same for a random model
VIEWS = ("net", "|net|", "positive", "negative")


@dataclass(frozen=True)
class Randomised:
    """How alike scores are to those of the model with random weights; ``randomised`` makes it.

    Args:
        layers: The layers in the order in which they were randomised, from the output to the input.
        similarity: View -> (layers, rows): Spearman's correlation with the scores of the model as it is. Views are "net",
            "|net|", "positive" and "negative".
        independent: Only the layer itself was random; else also all layers before it in this list.
    """

    layers: tuple[str, ...]
    similarity: Mapping[str, Tensor]
    independent: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each view that looks much the same for a random model; () if there is none."""
        if self.independent:
            return ()
        last = {view: float(values[-1].mean()) for view, values in self.similarity.items()}
        return tuple(
            f"The {view} scores look much the same for a model with random weights (rank correlation {value:.2f}): they show "
            "the input more than what the model has learned."
            for view, value in last.items()
            if value >= ALIKE
        )

    def to_frame(self) -> pandas.DataFrame:
        """One line per layer with the mean over the rows of each view; needs pandas."""
        means = {view: values.mean(1).tolist() for view, values in self.similarity.items()}
        return needs("pandas", "tabular").DataFrame({"layer": self.layers, **means}).set_index("layer")

    def plot(self) -> Picture:
        """A line per view over the layers, with the standard deviation over the rows; needs matplotlib."""
        drawn = figure(7.5, 4.6)
        axes = drawn.subplots()
        places = list(range(len(self.layers)))
        handles: list[Any] = []
        for (view, values), colour in zip(self.similarity.items(), SERIES, strict=False):
            handles += axes.plot(places, values.mean(1).tolist(), marker="o", label=view, color=colour)
            if values.shape[1] > 1:
                low, high = (values.mean(1) + side * values.std(1) for side in (-1, 1))
                axes.fill_between(places, low.tolist(), high.tolist(), alpha=0.15, color=colour, linewidth=0)
        axes.axhline(0, color="0.4", linewidth=0.8)
        axes.set_ylim(-1.05, 1.05)
        axes.set_xticks(places, labels(self.layers, 20), rotation=30, ha="right", parse_math=False)
        axes.set_xlabel("random layer" if self.independent else "random from the output to this layer")
        axes.set_ylabel("rank correlation with the scores")
        light(axes, "both")
        below = "\n".join([f"Mean and standard deviation over {values.shape[1]} rows.", *self.notes])
        add_heading(drawn, "Do the scores depend on what the model has learned?", below, handles, 4)
        return drawn

    def __str__(self) -> str:
        wide = max(map(len, self.layers))
        what = "this layer alone" if self.independent else "all layers from the output to this one"
        lines = [f"Rank correlation with the scores of the model with random weights ({what})"]
        lines.append(" " * wide + "".join(view.rjust(10) for view in self.similarity))
        for place, layer in enumerate(self.layers):
            means = (float(values[place].mean()) for values in self.similarity.values())
            lines.append(layer.ljust(wide) + "".join(f"{mean:10.2f}" for mean in means))
        return "\n".join([*lines, *self.notes])


def randomised(
    cafe: CAFE, x: Any, *, independent: bool = False, seed: int = 0, show_progress: bool | None = None, **options: Any
) -> Randomised:
    """Are the scores those of the trained model, or would any model give them? (Adebayo et al. 2018.)

    The parameters of the layers are randomised from the output to the input, one layer after the other, and the rows are
    explained each time, for the same output. The values of each parameter are shuffled, which keeps their size. Scores that
    stay as they are do not depend on what the model has learned. Features that are as in the baseline have the score 0 in any
    model and are left out. Adebayo et al. draw new initial values instead of shuffling.

    Args:
        cafe: The explainer. Its model is copied and stays as it is.
        x: The rows, as ``explain`` takes them.
        independent: Randomise each layer alone, with all others as they are.
        seed: Decides the shuffles.
        show_progress: Show a progress bar. None shows it for long work only.
        **options: Options of ``explain``, such as ``baselines`` or ``feature_groups`` (for images, groups of pixels).

    Returns:
        Rank correlations by layer and row.

    Raises:
        ValueError: The model has no parameters, or a row has less than three features that differ from the baseline.

    Example:
        >>> import cafexai
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        >>> cafexai.metrics.randomised(cafexai.CAFE(net), torch.rand(5, 8)).layers
        ('2', '0')
    """
    layers = _layers(cafe.model)
    if not layers:
        raise ValueError("randomised(cafe, x): the model has no parameters that could be randomised.")
    options = {"conflict": "net", **options}
    first = cafe.explain(x, **options)
    start = _views(first)
    same = first.at_baseline
    kept = torch.ones_like(start["net"], dtype=torch.bool) if same is None else ~same.cpu().reshape(start["net"].shape)
    if int(kept.sum(1).min()) < 3:
        raise ValueError(
            "randomised(cafe, x): a rank correlation needs at least three features that differ from the baseline in every row."
        )
    options["target"] = _target(first)
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(cafe.model)
    found: dict[str, list[Tensor]] = {view: [] for view in VIEWS}
    for layer in progress(list(layers), "randomising", "layer", show_progress):
        model = copy.deepcopy(cafe.model) if independent else model
        _shuffle(model, layers[layer], generator)
        for view, values in _views(_explainer(cafe, model).explain(x, **options)).items():
            found[view].append(_alike(start[view], values, kept))
    return Randomised(tuple(layers), {view: torch.stack(each) for view, each in found.items()}, independent)


def _layers(model: Any) -> dict[str, list[str]]:
    """Modules that have parameters, the last first, with the names of these."""
    found: dict[str, list[str]] = {}
    for name, _ in model.named_parameters() if isinstance(model, nn.Module) else ():
        found.setdefault(name.rpartition(".")[0] or "the model", []).append(name)
    return dict(reversed(found.items()))


def _shuffle(model: nn.Module, names: list[str], generator: torch.Generator) -> None:
    """Put the values of each of these parameters into a random order."""
    known = dict(model.named_parameters())
    with torch.no_grad():
        for name in names:
            flat = known[name].flatten()
            order = torch.randperm(len(flat), generator=generator).to(flat.device)
            known[name].copy_(flat[order].view_as(known[name]))


def _explainer(cafe: CAFE, model: nn.Module) -> CAFE:
    """The same explainer of another model."""
    known = {field.name: getattr(cafe._info, field.name) for field in dataclasses.fields(cafe._info)}
    return CAFE(model, cafe.c, cafe.variant, **known)


def _alike(one: Tensor, other: Tensor, kept: Tensor) -> Tensor:
    """Spearman's correlation of each row over the features that are kept."""
    rows = zip(one, other, kept, strict=True)
    return torch.stack([correlation(rank_values(a[some]), rank_values(b[some])) for a, b, some in rows])


def _target(explanation: Explanation) -> Any:
    """The explained outputs, as ``explain`` takes them."""
    places = explanation.target.tolist()
    if not places or not places[0]:
        return None
    return [row[0] if len(row) == 1 else tuple(row) for row in places]


def _views(explanation: Explanation) -> dict[str, Tensor]:
    """The scores of each view, (rows, features)."""
    parts = (explanation.combined, explanation.positive, explanation.negative)
    net, up, down = (explanation.flat(part).double().cpu() for part in parts)
    return dict(zip(VIEWS, (net, net.abs(), up, down), strict=True))
