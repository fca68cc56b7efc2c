"""How near scores of conflict are to the exact one: the largest magnitude of Definition 4 over pairs of sets of features."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import metrics as measure
from ..._inputs.background import Background
from ...cafe import CAFE
from ...explanation import Explanation
from ...explanation.conflict import from_nets, share_of
from ..datasets import load, movie_snippets
from ..models import Recipe, mlp, residual_cnn, seeded, small_cnn, train
from .conflict_truth_report import report
from .distributions import auroc
from .exact_conflict import spearman, true_conflict
from .photos import is_installed
from .record import Settings, Study, Task, Workplace
from .truth_shapley import exact, subsets
from .truth_tables import network_for_table
from .truth_text import PACKAGES, train_on_texts

VARIANTS: dict[str, Callable[[Any], CAFE]] = {
    "measured": CAFE,
    "net": CAFE,
    "s_conf, feature netting": lambda model: CAFE(model, variant="feature"),
    "s_conf, unit netting": CAFE,
    "s_conf, published": CAFE.published,
}
PLANTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gate": lambda a, b: 2 * torch.relu(a - b),
    "xor": lambda a, b: 2 * ((a > 0) != (b > 0)).double(),
    "visible": lambda a, b: 2 * (a - b),
}
COLUMNS = 6  # features of rows with a planted pair


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network and seed, and one per table for baselines."""
    plan: list[tuple[str, str, Callable[..., Any]]] = []
    plan += [(kind, name, of_table) for kind, names in settings["networks"].items() for name in names]
    plan += [("planted", name, of_planted) for name in settings["planted"]]
    plan += [("image", name, of_images) for name in settings["images"]]
    plan += [("text", name, of_texts) for name in settings["texts"] if _can_read(settings)]
    plan += [("baseline", name, of_baselines) for name in settings["tables"]]
    for kind, name, measured in plan:
        for seed in settings["seeds"]:

            def run(kind: str = kind, name: str = name, seed: int = seed, measured: Callable[..., Any] = measured) -> Any:
                return measured(kind, name, seed, settings, place)

            yield Task(f"{kind}/{name}/{seed}".replace("/", "--").replace(" ", "-"), run)


def _can_read(settings: Settings) -> bool:
    return is_installed(*PACKAGES[: 1 if settings["encoder"] == "toy" else None])


def of_table(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """A network for a table; one-hot blocks are one feature, absent ones are zero."""
    table = load(name, folder=place.data)
    model = network_for_table(kind, table, seed, settings, place).double().eval().requires_grad_(False)
    table = table.to(torch.float64)
    x = table.x_test[: settings["rows"]]
    target, mask = model(x).argmax(1), table.feature_mask[0]
    present = subsets(len(table.layout))

    def outputs(row: int) -> Tensor:
        parts = [model(x[row] * some[:, mask])[:, target[row]] for some in present.split(4096)]
        return torch.cat(parts)

    return compare_scores([outputs(row) for row in range(len(x))], _explain(model, x, target=target, feature_groups=mask))


def of_images(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """A network for images by nine cells; absent ones are black."""
    data = load(name.partition(" ")[2], folder=place.data, rows=settings["image_rows"])
    side, channels = data.x_train.shape[-1], data.x_train.shape[1]
    makers: dict[str, Callable[[], nn.Module]] = {
        "cnn": lambda: small_cnn(channels, side, 10, (8, 16, 32)),
        "residual": lambda: residual_cnn(channels, 10, 8),
    }
    recipe = Recipe(settings["image_epochs"], 64, 2e-3, seed=seed, shuffle=True)
    model = seeded(seed, makers[name.partition(" ")[0]])
    model = train(model, data.x_train, data.y_train, recipe, folder=place.models, progress=place.show_progress).model
    model = model.double().eval().requires_grad_(False)
    x = data.x_test[: settings["rows"]].double()
    target, cells = model(x).argmax(1), measure.cells(x, -(-side // 3))
    present = subsets(int(cells.max()) + 1)

    def outputs(row: int) -> Tensor:
        return torch.cat([model(x[row] * some[:, cells])[:, target[row]] for some in present.split(256)])

    groups = cells.expand(x.shape[1:])
    return compare_scores([outputs(row) for row in range(len(x))], _explain(model, x, target=target, feature_groups=groups))


def of_texts(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """MiniLM with a sentiment head on short texts; absent tokens are masked."""
    snippets = movie_snippets(folder=place.data)
    model, encoder, _ = train_on_texts(name, seed, snippets, settings, place)
    held = snippets.texts[settings["train_rows"] + settings["valid_rows"] :]
    short = [text for text in held if len(encoder.tokens(text)) - 2 <= settings["short_tokens"]][: settings["text_rows"]]
    values, found = [], []
    for text in short:
        x, baseline, groups = encoder.sentence(text)
        with torch.no_grad():
            values.append(model.head(encoder.masked_means(text, place.models))[:, 0].double())
        found.append(_explain(model, x, baselines=baseline, target=0, feature_groups=groups))
    scores = {key: torch.cat([one[0][key] for one in found]) for key in found[0][0]}
    shares = torch.cat([one[1] for one in found])
    return compare_scores(values, (scores, shares)) | {"one word": _one_word(model, encoder)}


def _one_word(model: nn.Module, encoder: Any) -> float:
    """The largest conflict of texts of one word."""
    found = []
    for word in ("terrible", "wonderful", "boring", "film"):
        x, baseline, groups = encoder.sentence(word)
        if x.shape[1] == 3:  # not cut into pieces
            found.append(CAFE(model).explain(x, baseline, 0, feature_groups=groups, show_progress=False).conflict.item())
    return max(found, default=0.0)


def of_planted(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """A network that has learned a planted pair: do hidden conflicts find rows with it, and name it?"""
    generator = torch.Generator().manual_seed(seed)
    count = settings["planted_rows"]
    present = torch.rand(count, COLUMNS, generator=generator) < 0.5
    x = present * (0.5 + torch.rand(count, COLUMNS, generator=generator))
    y = PLANTED[name](x[:, 0].double(), x[:, 1].double()) + 0.3 * x[:, 2:].double().sum(1)
    model = seeded(seed, lambda: mlp(COLUMNS, 32, 32, 1))
    recipe = Recipe(settings["planted_epochs"], 64, 3e-3, "mse", seed, shuffle=True, weight_decay=0.0)
    model = train(model, x, y[:, None].float(), recipe, folder=place.models, progress=place.show_progress).model
    model = model.double().eval().requires_grad_(False)
    rows = x[: settings["rows"]].double()
    some = subsets(COLUMNS)
    values = [model(row * some)[:, 0] for row in rows]
    cafe = CAFE(model)
    found = cafe.hidden_conflicts(cafe.explain(rows, show_progress=False))
    strength = found.hidden.flatten(1).max(1).values
    both = present[: settings["rows"], :2].all(1)
    if name == "gate":  # shut: the first does not show because of the second
        both = both & (rows[:, 0] < rows[:, 1])
    named = torch.tensor([[{one.first, one.second} for one in found.top(row, 1)] == [{"x0", "x1"}] for row in range(len(rows))])
    return compare_scores(values, _explain(model, rows)) | {
        "auroc": auroc(strength[~both], strength[both]),
        "named": named[both].double().mean().item(),
        "fit": (model(rows)[:, 0] - y[: len(rows)]).square().mean().sqrt().item(),
    }


def of_baselines(kind: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Nets against several baselines beside exact Shapley values over background rows, and the price."""
    table = load(name, folder=place.data)
    model = network_for_table("2 layers", table, seed, settings, place).double().eval().requires_grad_(False)
    table = table.to(torch.float64)
    x, mask = table.x_test[: settings["shapley_rows"]], table.feature_mask[0]
    target, present = model(x).argmax(1), subsets(len(table.layout))
    drawn = Background(table.x_train, settings["k"], seed)
    rows = table.x_train[drawn.draw(len(table.x_train))]
    truth = []
    for row, label in zip(x, target.tolist(), strict=True):
        values = torch.zeros(len(present), dtype=torch.float64)
        for start in rows:
            values += torch.cat([model(torch.where(some[:, mask], row, start))[:, label] for some in present.split(4096)])
        truth.append(exact(values / len(rows)))
    shapley = torch.stack(truth)
    cafe = CAFE(model, background=table.x_train)
    found: dict[str, Any] = {}
    for called, baselines in {"zero": None, "mean": "mean", "median": "median", "background": drawn}.items():
        begin = time.process_time()
        e = cafe.explain(x, baselines, target, feature_groups=mask, show_progress=False)
        seconds = time.process_time() - begin
        nets = e.flat(e.combined)
        together = torch.corrcoef(torch.stack([nets.flatten(), shapley.flatten()]))[0, 1].item()
        first = (nets.abs().argmax(1) == shapley.abs().argmax(1)).double().mean().item()
        found[called] = {"correlation": together, "first": first, "seconds": seconds, "share": e.conflict_share.mean().item()}
    return {"rows": len(x), "baselines": found}


def _explain(model: Any, x: Tensor, **options: Any) -> tuple[dict[str, Tensor], Tensor]:
    """The scores of conflict of rows, and the measured share."""
    scores: dict[str, Tensor] = {}
    known: dict[Any, Explanation] = {}
    for name, make in VARIANTS.items():
        e = known.get(make)
        if e is None:
            e = known[make] = make(model).explain(x, show_progress=False, **options)
        net = from_nets(e.flat(e.combined)).conflict
        scores[name] = e.conflict if name == "measured" else net if name == "net" else e.s_conf
        if name == "measured" and e.conflict_kind != name:
            raise ValueError(f"conflict-truth: {e.notes}")
    return {name: score.double() for name, score in scores.items()}, known[CAFE].conflict_share.double()


def compare_scores(values: list[Tensor], explained: tuple[dict[str, Tensor], Tensor]) -> dict[str, Any]:
    """Rank correlation and size of each score beside the truth, from the outputs for all ``subsets`` of present features."""
    scores, shares = explained
    truth = torch.stack([true_conflict(one.double()) for one in values])
    left = torch.stack([(one[-1] - one[0]).abs() for one in values]).double()
    size = max(truth.mean().item(), 1e-12)
    return {
        "rows": len(values),
        "truth": truth.mean().item(),
        "share_error": (shares - share_of(truth, left)).abs().mean().item(),
        "share_range": [shares.quantile(q).item() for q in (0.1, 0.9)],
        "above": ((scores["measured"] - truth) / size).max().item(),
        "scores": {name: {"spearman": spearman(one, truth), "size": one.mean().item() / size} for name, one in scores.items()},
    }


SEEDS = [42, 43, 44, 45, 46]
TABLES = ["titanic", "compas", "adult"]
COMMON = {"width": 64, "train_rows": 4000, "epochs": 20, "encoder": "minilm", "short_tokens": 8, "valid_rows": 300, "k": 50}
TOY = {
    "networks": {"1 layer": ["titanic"]}, "planted": ["gate"], "images": [], "texts": [], "tables": ["titanic"], "seeds": [42],
    "rows": 40, "train_rows": 60, "epochs": 2, "image_rows": 50, "image_epochs": 1, "planted_rows": 100, "planted_epochs": 2,
    "text_rows": 2, "shapley_rows": 3, "k": 5, "tuned_epochs": 1,
}  # fmt: skip
SIZES = {"rows": 100, "image_rows": 3000, "image_epochs": 4, "planted_rows": 3000, "planted_epochs": 60, "text_rows": 30,
         "shapley_rows": 20, "tuned_epochs": 2}  # fmt: skip
ALL = {
    "networks": {"1 layer": TABLES, "2 layers": TABLES, "4 layers": TABLES, "ft-2": ["titanic", "compas"]},
    "planted": list(PLANTED), "images": ["cnn mnist", "residual mnist"], "texts": ["linear"], "tables": TABLES,
}  # fmt: skip
CONFLICT_TRUTH = Study(
    "conflict-truth",
    "how near scores of conflict are to the exact one, hidden conflicts, and baselines beside Shapley values (ours)",
    "compas, adult, titanic, mnist; movie_snippets and the extra `truth` for texts",
    {"toy": COMMON | TOY, "quick": COMMON | SIZES | ALL | {"seeds": [42]}, "full": COMMON | SIZES | ALL | {"seeds": SEEDS}},
    {"toy": "0.2", "quick": "4", "full": "20"},
    tasks,
    report,
)
STUDIES = (CONFLICT_TRUTH,)
