"""Metrics that put features away: equal to their definitions, loop by loop, and right where the truth is known."""

from __future__ import annotations

import inspect
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

import models
from cafexai import CAFE, compare, metrics
from cafexai.methods import METHODS

METRICS = {
    name: getattr(metrics, name)
    for name in (
        "occlusion_correlation",
        "sign_agreement",
        "comprehensiveness",
        "sufficiency",
        "deletion",
        "insertion",
        "normalized_aopc",
    )
}
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)


# ---- naive twins: one row, a function f of the set of groups that are away --------------------------------------------


def order(scores):
    return sorted(range(len(scores)), key=lambda g: (-scores[g], g))


def effects(f, scores):
    return [f(()) - f((g,)) for g in range(len(scores))]


def correlation(f, scores):
    found = effects(f, scores)
    if len(set(scores)) == 1 or len(set(found)) == 1:
        return 0.0
    return stats.pearsonr(scores, found).statistic


def rank_correlation(f, scores):
    found = effects(f, scores)
    return stats.spearmanr(scores, found).statistic


def agreement(f, scores):
    pairs = list(zip(effects(f, scores), scores, strict=True))
    total = sum(abs(e) for e, _ in pairs)
    return sum(abs(e) for e, s in pairs if np.sign(e) == np.sign(s)) / total


def unweighted_agreement(f, scores):
    return float(np.mean([np.sign(e) == np.sign(s) for e, s in zip(effects(f, scores), scores, strict=True)]))


def eraser(f, scores, alone):
    falls = []
    for share in SHARES:
        best = order(scores)[: math.ceil(share * len(scores))]
        falls.append(f(()) - f([g for g in range(len(scores)) if (g in best) != alone]))
    return float(np.mean(falls))


def area(f, scores, back, normalize=True):
    curve = []
    for k in range(len(scores) + 1):
        best = order(scores)[:k]
        curve.append(f([g for g in range(len(scores)) if (g in best) != back]))
    if normalize:
        bottom = f(range(len(scores)))
        curve = [(value - bottom) / abs(f(()) - bottom) for value in curve]
    return sum((a + b) / 2 / len(scores) for a, b in itertools.pairwise(curve))


def normalised_aopc(f, scores):
    def aopc(way):
        return np.mean([f(()) - f(way[:k]) for k in range(1, len(way) + 1)])

    every = [aopc(way) for way in itertools.permutations(range(len(scores)))]
    return (aopc(order(scores)) - min(every)) / (max(every) - min(every))


TWINS = {
    "occlusion_correlation": (correlation, {}),
    "occlusion_correlation by ranks": (rank_correlation, {"ranks": True}),
    "sign_agreement": (agreement, {}),
    "sign_agreement of all": (unweighted_agreement, {"weighted": False}),
    "comprehensiveness": (lambda f, s: eraser(f, s, alone=False), {}),
    "sufficiency": (lambda f, s: eraser(f, s, alone=True), {}),
    "deletion": (lambda f, s: area(f, s, back=False), {}),
    "insertion": (lambda f, s: area(f, s, back=True), {}),
    "deletion as is": (lambda f, s: area(f, s, back=False, normalize=False), {"normalize": False}),
    "insertion as is": (lambda f, s: area(f, s, back=True, normalize=False), {"normalize": False}),
    "normalized_aopc": (normalised_aopc, {}),
}


def by_hand(twin, model, x, target, scores, groups, fill):
    """One number per row, by loops; ``groups``: the elements of each group, ``fill(row, elements)``: the row without them."""
    found = []
    for row, chosen, values in zip(x, target, scores, strict=True):

        def f(away, row=row, chosen=chosen):
            elements = [element for g in away for element in groups[g]]
            return model(fill(row, elements)[None])[0, chosen].item()

        flat = values.flatten().tolist()
        found.append(twin(f, [sum(flat[element] for element in group) for group in groups]))
    return torch.tensor(found)


def filled(other):
    def fill(row, elements):
        new = row.clone().flatten()
        new[elements] = other.flatten()[elements]
        return new.view(row.shape)

    return fill


@pytest.mark.parametrize("name", TWINS)
def test_tables(name):
    twin, options = TWINS[name]
    model, x, start = models.mlp(5, 8, 3), torch.randn(4, 5), torch.randn(5)
    scores, target = torch.randn(4, 5).round(decimals=1), torch.tensor([0, 2, 1, 1])
    found = METRICS[name.split()[0]](model, x, scores, target=target, baselines=start, **options)
    singles = [[i] for i in range(5)]
    torch.testing.assert_close(found, by_hand(twin, model, x, target, scores, singles, filled(start)))


@pytest.mark.parametrize("name", TWINS)
def test_groups(name):
    twin, options = TWINS[name]
    model, x = models.mlp(6, 8, 3), torch.randn(3, 6)
    scores, target = torch.randn(3, 6), torch.tensor([0, 2, 1])
    mask = torch.tensor([7, 3, -1, 3, 5, 7])  # the third column stays; groups are in the order of their numbers
    groups = [[1, 3], [4], [0, 5]]
    how = {"target": target, **options}
    found = METRICS[name.split()[0]](model, x, scores, feature_groups=mask, **how)
    torch.testing.assert_close(found, by_hand(twin, model, x, target, scores, groups, filled(torch.zeros(6))))
    sums = torch.stack([scores[:, group].sum(1) for group in groups], 1)
    torch.testing.assert_close(METRICS[name.split()[0]](model, x, sums, feature_groups=mask, **how), found)
    masks = torch.stack([mask, torch.tensor([0, 0, 0, 1, 2, 2]), mask])  # groups of each row
    apart = METRICS[name.split()[0]](model, x, scores, feature_groups=masks, **how)
    torch.testing.assert_close(apart[::2], found[::2])
    how["target"] = target[1:2]
    torch.testing.assert_close(
        apart[1:2], METRICS[name.split()[0]](model, x[1:2], scores[1:2], feature_groups=masks[1:2], **how)
    )


def test_groups_by_name():
    model, x, scores = models.mlp(4, 8, 1), torch.randn(3, 4), torch.randn(3, 4)
    named = metrics.deletion(model, x, scores, feature_groups={"group -1": [1, 3]})
    torch.testing.assert_close(named, metrics.deletion(model, x, scores, feature_groups=[0, 1, 2, 1]))


@pytest.mark.parametrize("replace", ["baseline", "blur", "own"])
@pytest.mark.parametrize("name", TWINS)
def test_images_in_cells(name, replace):
    twin, options = TWINS[name]
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 6 * 4, 2))
    x, scores = torch.randn(2, 2, 8, 6), torch.randn(2, 2, 8, 6)
    groups = [
        [c * 48 + i * 6 + j for c in range(2) for i in range(8) for j in range(6) if (i // 4, j // 4) == cell]
        for cell in itertools.product(range(2), range(2))
    ]
    mask = metrics.cells(x, 4)
    assert [(mask.flatten() == g).nonzero()[:, 0].tolist() for g in range(4)] == groups
    target = torch.tensor([0, 1])
    how = {"baseline": "baseline", "blur": "blur", "own": lambda rows: rows.flip(3)}[replace]
    found = METRICS[name.split()[0]](model, x, scores, target=target, replace=how, feature_groups=mask, **options)

    def other(row):
        if replace == "baseline":
            return torch.zeros_like(row)
        if replace == "own":
            return row.flip(2)
        new = torch.empty_like(row)
        for c, i, j in itertools.product(*map(range, row.shape)):  # the mean of the neighbours
            new[c, i, j] = row[c, max(0, i - 1) : i + 2, max(0, j - 1) : j + 2].mean()
        return new

    expected = by_hand(twin, model, x, target, scores, groups, lambda row, elements: filled(other(row))(row, elements))
    torch.testing.assert_close(found, expected)


class Tokens(nn.Module):
    """Takes rows of any length."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, ids):
        h = self.embed(ids)
        place = torch.arange(1, ids.shape[1] + 1)[:, None] / 3
        return self.out(torch.tanh(self.mix(h * place)).mean(1))


@pytest.mark.parametrize("replace", ["mask", "baseline", "delete"])
@pytest.mark.parametrize("name", TWINS)
def test_tokens(name, replace):
    twin, options = TWINS[name]
    model, ids = Tokens(), torch.randint(1, 10, (3, 6))
    scores, target = torch.randn(3, 6), torch.tensor([0, 1, 1])
    mask = torch.tensor([-1, 0, 1, 1, 2, -2])  # a word of two tokens between tokens that stay

    def fill(row, elements):
        if replace == "delete":
            return row[[place for place in range(len(row)) if place not in elements]]
        return filled(torch.full_like(row, 10))(row, elements)

    found = METRICS[name.split()[0]](
        model, ids, scores, target=target, replace=replace, baselines=10, feature_groups=mask, **options
    )
    torch.testing.assert_close(found, by_hand(twin, model, ids, target, scores, [[1], [2, 3], [4]], fill))


def test_sentences_of_different_lengths():
    """Padding and the ends of a sentence stay; every row has words of its own, and equals the row alone."""
    model = Tokens()
    ids = torch.tensor([[1, 5, 6, 7, 2, 0], [1, 8, 2, 0, 0, 0]])
    words = torch.tensor([[-1, 0, 1, 1, -1, -1], [-1, 0, -1, -1, -1, -1]])
    scores = CAFE(model).explain(ids, target=1).combined
    for metric, replace in itertools.product(METRICS.values(), ("mask", "delete")):
        how = {"target": 1, "replace": replace, "baselines": 10}
        alone = [metric(model, ids[i : i + 1], scores[i : i + 1], feature_groups=words[i], **how) for i in range(2)]
        torch.testing.assert_close(metric(model, ids, scores, feature_groups=words, **how), torch.cat(alone))


# ---- where the truth is known -----------------------------------------------------------------------------------------


@st.composite
def linear(draw, least=2):
    """A linear model, rows, and its contributions; no two of them alike."""
    width, seed = draw(st.integers(least, 12)), draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(width, 1)
    model.weight.data = torch.randn(1, width, generator=generator)
    x = torch.randn(3, width, generator=generator)
    return model, x, (x * model.weight).detach()


@given(linear(), st.sampled_from([1e-30, 1.0, 1e30]))
def test_contributions_of_a_linear_model_are_right(case, size):
    model, x, truth = case
    ones = torch.ones(3)
    torch.testing.assert_close(metrics.occlusion_correlation(model, x, truth * size), ones)
    torch.testing.assert_close(metrics.occlusion_correlation(model, x, truth * size, ranks=True), ones)
    torch.testing.assert_close(metrics.occlusion_correlation(model, x, -truth * size), -ones)
    for weighted in (True, False):
        torch.testing.assert_close(metrics.sign_agreement(model, x, truth * size, weighted=weighted), ones)
        torch.testing.assert_close(metrics.sign_agreement(model, x, -truth, weighted=weighted), ones * 0)
    torch.testing.assert_close(metrics.normalized_aopc(model, x, truth * size), ones)
    torch.testing.assert_close(metrics.normalized_aopc(model, x, -truth), ones * 0)


@given(linear(), st.integers(0, 99), st.integers(1, 12))
def test_no_order_is_better_than_that_of_the_contributions(case, seed, steps):
    model, x, truth = case
    scores = {"truth": truth, "other": torch.randn(truth.shape, generator=torch.Generator().manual_seed(seed))}
    for metric, sign in (("comprehensiveness", 1), ("sufficiency", -1), ("deletion", -1), ("insertion", 1)):
        options = {"steps": steps} if metric in ("deletion", "insertion") else {}
        found = METRICS[metric](model, x, scores, **options)
        assert (sign * (found["truth"] - found["other"]) >= -1e-9).all()
    away, back = (METRICS[metric](model, x, scores["other"], steps=steps) for metric in ("deletion", "insertion"))
    torch.testing.assert_close(away + back, truth.sum(1).sign())  # what is taken first and what is given first make one


@given(linear(), st.integers(0, 99))
def test_normalised_aopc_is_a_share(case, seed):
    _, x, _ = case
    generator = torch.Generator().manual_seed(seed)
    deep = nn.Sequential(nn.Linear(x.shape[1], 4), nn.Tanh(), nn.Linear(4, 1))
    for layer in (deep[0], deep[2]):
        layer.weight.data = 3 * torch.randn(layer.weight.shape, generator=generator)
    scores = {name: torch.randn(x.shape, generator=generator) for name in "ab"}
    found = metrics.normalized_aopc(deep, x, scores, beam=1)
    both = torch.stack(list(found.values()))
    assert (both >= 0).all()
    assert (both <= 1).all()


def test_a_wide_beam_is_exact_and_a_narrow_one_close():
    model, x, scores = models.mlp(9, 8, 1), torch.randn(3, 9), torch.randn(3, 9)
    exact = metrics.normalized_aopc(model, x, scores, beam=math.comb(9, 4))
    naive = by_hand(normalised_aopc_of_sets, model, x, [0] * 3, scores, [[i] for i in range(9)], filled(torch.zeros(9)))
    torch.testing.assert_close(exact, naive)
    assert (metrics.normalized_aopc(model, x, scores) - exact).abs().max() < 0.05


def normalised_aopc_of_sets(f, scores):
    """The bounds of all orders from the bounds of all sets."""
    fall = {frozenset(s): f(()) - f(s) for k in range(len(scores) + 1) for s in itertools.combinations(range(len(scores)), k)}
    ends = []
    for best in (min, max):
        value = {frozenset(): 0.0}
        for away in sorted(fall, key=len)[1:]:
            value[away] = fall[away] + best(value[away - {g}] for g in away)
        ends.append(value[frozenset(range(len(scores)))])
    way = order(scores)
    return (sum(fall[frozenset(way[:k])] for k in range(1, len(way) + 1)) - ends[0]) / (ends[1] - ends[0])


# ---- edges ------------------------------------------------------------------------------------------------------------


def test_what_does_not_vary():
    model, x = nn.Linear(3, 1), torch.rand(2, 3) + 1
    same = torch.full((2, 3), 0.1)
    assert metrics.occlusion_correlation(model, x, same).tolist() == [0, 0]
    assert metrics.occlusion_correlation(model, x, 0 * same, ranks=True).tolist() == [0, 0]
    assert metrics.occlusion_correlation(model, x, torch.tensor([[0.1 + 0.2, 0.3, 0.3]] * 2)).tolist() == [0, 0]
    silent = nn.Linear(3, 1)
    silent.weight.data.zero_()
    assert metrics.occlusion_correlation(silent, x, x).tolist() == [0, 0]
    assert metrics.sign_agreement(silent, x, x).tolist() == [0, 0]
    assert metrics.sign_agreement(silent, x, x * torch.tensor([1.0, 0.0, 0.0])).tolist() == pytest.approx([2 / 3, 2 / 3])
    assert metrics.normalized_aopc(silent, x, x).tolist() == [1, 1]
    for name in ("comprehensiveness", "sufficiency", "deletion", "insertion"):
        assert METRICS[name](silent, x, x).tolist() == [0, 0]


def test_one_feature_and_rows_of_one_number():
    for x in (torch.tensor([[2.0], [-1.0]]), torch.tensor([2.0, -1.0])):
        found = {name: metric(lambda v: 3 * v.view(-1), x, x).tolist() for name, metric in METRICS.items()}
        assert found == {
            "occlusion_correlation": [0, 0],
            "sign_agreement": [1, 1],
            "comprehensiveness": [6, -3],
            "sufficiency": [0, 0],
            "deletion": [0.5, -0.5],
            "insertion": [0.5, -0.5],
            "normalized_aopc": [1, 1],
        }


def test_equal_scores_go_in_the_order_of_their_places():
    model, x = nn.Linear(4, 1), torch.randn(3, 4)
    for name in ("comprehensiveness", "deletion", "insertion", "normalized_aopc"):
        first = METRICS[name](model, x, torch.arange(4.0, 0, -1).expand(3, 4))
        torch.testing.assert_close(METRICS[name](model, x, torch.ones(3, 4)), first)


def test_what_is_within_rounding_is_no_effect():
    x = torch.ones(1, 2, dtype=torch.float32)
    noisy = metrics.sign_agreement(lambda v: 1000 + v[:, 0] + 3e-4 * v[:, 1], x, torch.tensor([[1.0, 0.0]]), weighted=False)
    assert noisy.tolist() == [1]


@pytest.mark.parametrize("name", METRICS)
def test_portions_change_nothing(name, monkeypatch):
    from cafexai.metrics import outputs

    model, x, seen = models.mlp(6, 8, 2), torch.randn(7, 6), []
    scores = {"a": torch.randn(7, 6), "b": torch.randn(7, 6)}

    def watched(v):
        seen.append(v.numel())
        return model(v)

    whole = METRICS[name](model, x, scores, target=1)
    monkeypatch.setattr(outputs, "AT_ONCE", 60)
    portions = []
    cut = METRICS[name](watched, x, scores, target=1, progress=lambda items: portions.extend(items) or portions)
    assert len(portions) == 7
    assert max(seen[1:]) <= 60  # the first asks which class is meant
    for key, value in whole.items():
        torch.testing.assert_close(cut[key], value)
        torch.testing.assert_close(METRICS[name](model, x, scores[key].numpy(), target=1), value)


def test_help_says_what_all_of_them_take():
    for metric in METRICS.values():
        assert "replace: What stands in place of a removed element" in metric.__doc__
        assert {"replace", "feature_groups"} <= set(inspect.signature(metric).parameters)
    assert "steps" in inspect.signature(metrics.deletion).parameters


def test_shares_are_rounded_up():
    x = torch.ones(1, 100)
    for share, count in ((0.07, 7), (0.071, 8), (1e-9, 1), (1, 100)):
        assert metrics.comprehensiveness(lambda v: v.sum(1), x, x, shares=[share]).tolist() == [count]


def test_few_steps():
    model, x, scores = models.mlp(9, 8, 1), torch.randn(2, 9), torch.randn(2, 9)
    curve = []
    for k in (0, 4, 9):
        new = x.clone()
        new.scatter_(1, scores.argsort(1, descending=True)[:, :k], 0.0)
        curve.append(model(new)[:, 0].detach())
    expected = (curve[0] + curve[1]) / 2 * 4 / 9 + (curve[1] + curve[2]) / 2 * 5 / 9
    torch.testing.assert_close(metrics.deletion(model, x, scores, steps=2, normalize=False), expected)


@pytest.mark.parametrize("name", METRICS)
def test_what_is_refused(name):
    metric, model, x = METRICS[name], models.mlp(4, 6, 2), torch.randn(3, 4)
    ids, tokens = torch.randint(1, 10, (2, 4)), Tokens()
    for match, call in {
        r"attributions  of shape \(3, 3\) for x of \(3, 4\) and 4 groups": lambda: metric(model, x, x[:, :3]),
        "attributions hold NaN": lambda: metric(model, x, x / 0 * 0),
        r'replace="blur"\): only images': lambda: metric(model, x, x, replace="blur"),
        r'replace="delete"\): that is for integer token ids': lambda: metric(model, x, x, replace="delete"),
        r'replace="mask"\): that is for integer token ids': lambda: metric(model, x, x, replace="mask"),
        "Allowed values": lambda: metric(model, x, x, replace="zero"),
        r"replace\): it gives shape \(3, 2\)": lambda: metric(model, x, x, replace=lambda rows: rows[:, :2]),
        "NaN, infinite or complex": lambda: metric(model, x, x, replace=lambda rows: rows / 0),
        "the id that replaces": lambda: metric(tokens, ids, ids, replace="mask"),
        "x holds integer ids": lambda: metric(tokens, ids, ids, baselines=0.5),
        "all of its numbers are negative": lambda: metric(model, x, x, feature_groups=torch.full((4,), -1)),
        "does not fit one row": lambda: metric(model, x, x, feature_groups=torch.zeros(5, dtype=torch.long)),
        "the model gives NaN": lambda: metric(lambda v: v.sum(1).log(), -x.abs(), x),
        "target": lambda: metric(model, x, x, target=5),
    }.items():
        with pytest.raises(ValueError, match=match) as error:
            call()
        assert str(error.value).startswith(f"{name}(")
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'stepz'"):
        metric(model, x, x, stepz=3)


def test_options_are_checked():
    model, x = models.mlp(4, 6, 2), torch.randn(3, 4)
    for shares in ((), (0.0,), (1.5,), (float("nan"),)):
        with pytest.raises(ValueError, match=r"sufficiency\(..., shares="):
            metrics.sufficiency(model, x, x, shares=shares)
    with pytest.raises(ValueError, match=r"deletion\(..., steps=0\)"):
        metrics.deletion(model, x, x, steps=0)
    with pytest.raises(ValueError, match=r"normalized_aopc\(..., beam=0\)"):
        metrics.normalized_aopc(model, x, x, beam=0)
    with pytest.raises(ValueError, match=r"cells\(x, size\)"):
        metrics.normalized_aopc(lambda v: v.sum(1), torch.ones(1, 300), torch.ones(1, 300))
    with pytest.raises(ValueError, match=r"cells\(x, 2\): images are"):
        metrics.cells(x, 2)
    with pytest.raises(ValueError, match=r"cells\(..., size=0\)"):
        metrics.cells(torch.randn(1, 1, 4, 4), 0)
    with pytest.raises(ValueError, match="nothing is left of a row"):
        metrics.deletion(Tokens(), torch.randint(1, 10, (2, 4)), torch.ones(2, 4), replace="delete", target=0)
    fixed = nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="does not take rows of 3 tokens"):
        metrics.occlusion_correlation(fixed, torch.randint(9, (2, 4)), torch.ones(2, 4), replace="delete", target=0)


# ---- in tables --------------------------------------------------------------------------------------------------------


def test_compare_knows_them_and_their_directions():
    model, x = models.mlp(5, 8, 2), torch.randn(8, 5)
    mask = torch.tensor([0, 0, 1, 2, 2])
    methods = ["cafe", "kernel_shap", "gradient_x_input"]
    result = compare(model, x, 1, methods, [*METRICS, "completeness_error"], feature_groups=mask, show_progress=False)
    assert not result.reasons
    assert result.metrics == (*METRICS, "completeness_error")
    options = {"target": 1, "feature_groups": mask}
    for name, metric in METRICS.items():
        expected = metric(model, x, METHODS["cafe"](model, x, target=1), **options)
        torch.testing.assert_close(result.values["cafe"][name], expected)
        once = METHODS["kernel_shap"](model, x, seed=0, **options)[:, [0, 2, 3]]  # every element has the score of its group
        expected = metric(model, x, once, **options)
        torch.testing.assert_close(result.values["kernel_shap"][name], expected)
        means = [result.mean(method, name) for method in result.ranking(name)]
        assert means == sorted(means, reverse=name not in ("sufficiency", "deletion"))
        assert result.best(name)[0][0] == result.ranking(name)[0]
    assert result.best("completeness_error") == ((), ())
    assert "less is better, but more of occlusion correlation, sign agreement, comprehensiveness, insertion, n" in str(result)
    only = compare(model, x, 1, methods, ["insertion"], show_progress=False)
    assert "; more is better, best in bold" in str(only)


def test_compare_puts_cells_of_images_away():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 14 * 14, 2)).eval()
    x, methods = torch.randn(2, 1, 16, 16), ["cafe", "gradient_x_input"]
    chosen = ["occlusion_correlation", "insertion"]
    result = compare(model, x, 0, methods, chosen, replace="blur", show_progress=False)
    scores = METHODS["cafe"](model, x, target=0)
    for name in chosen:
        options = {"target": 0, "replace": "blur", "feature_groups": metrics.cells(x, 2)}
        torch.testing.assert_close(result.values["cafe"][name], METRICS[name](model, x, scores, **options))


def test_infidelity_as_is_stands_beside_the_normalised_one():
    model, x = nn.Linear(4, 1), torch.randn(6, 4)

    def doubled(model, x, *, target=None, baselines=None):
        return 2 * x * model.weight.detach()

    chosen = {"doubled": doubled, "cafe": METHODS["cafe"]}
    result = compare(model, x, methods=chosen, show_progress=False)
    assert result.metrics[:2] == ("infidelity", "infidelity_as_is")
    assert "| infidelity | infidelity as is |" in str(result)
    assert result.mean("doubled", "infidelity") < 1e-20
    assert result.mean("doubled", "infidelity_as_is") > 1e-3
    assert result.mean("cafe", "infidelity_as_is") < 1e-20
    units = compare(model, x, methods=["cafe"], metrics=["structural_infidelity_as_is"], n_units=1, show_progress=False)
    assert units.mean("cafe", "structural_infidelity_as_is") < 1e-20
