"""The theory of conflicts: definitions, propositions, closed forms against search."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import models
from cafexai.conflicts import (
    conflict_magnitude,
    conflict_map,
    conflicting,
    counteraction_magnitude,
    counteracts,
    inactive_conflicts,
    linear_conflicts,
    minimal_conflicts,
    relu_conflicts,
)

WHOLE = st.integers(-4, 4)


def relu_unit(x):
    return torch.relu(x.sum(1))


def linear_unit(x):
    return x.sum(1) + 3


def neuron(x):
    return torch.relu(0.9 * x[:, 0] - x[:, 1])


def test_the_neuron_of_the_paper():
    x = torch.ones(2)
    assert counteracts(neuron, 1, 0, x) is True
    assert counteracts(neuron, 0, 1, x) is False
    assert conflicting(neuron, [0], [1], x) is True
    assert counteraction_magnitude(neuron, 1, 0, x) == pytest.approx(0.9)
    assert counteraction_magnitude(neuron, 0, 1, x) == 0
    assert conflict_magnitude(neuron, 0, 1, x) == pytest.approx(0.9)
    (only,) = minimal_conflicts(neuron, x)
    assert (only.first, only.second, only.first_counteracts, only.second_counteracts) == ((0,), (1,), False, True)


def test_rows_names_outputs_and_references():
    x = torch.tensor([[1.0, 1.0], [1.0, 0.0], [3.0, 1.0]])

    def two(v):
        return torch.stack([v.sum(1), neuron(v)], 1)

    assert counteracts(two, "b", "a", x, output=1, names=["a", "b"]).tolist() == [True, False, True]
    torch.testing.assert_close(conflict_magnitude(two, "b", "a", x, output=(1,), names=["a", "b"]), torch.tensor([0.9, 0, 1]))
    assert counteracts(neuron, 1, 0, x, reference=x).tolist() == [False] * 3
    assert counteracts(neuron, 1, 0, x, reference=torch.tensor([0.0, 1.0])).tolist() == [False] * 3
    image = torch.randn(2, 1, 2, 2)
    assert counteracts(lambda v: v.sum((1, 2, 3)), [0, 1], [3], image).shape == (2,)


def test_minimal_counteractions_are_not_minimal_conflicts():
    x = torch.tensor([-1.0, -1, -2, 4, 3])
    assert counteracts(relu_unit, [3], [0, 1], x)
    assert not counteracts(relu_unit, [3], [0], x)
    assert not counteracts(relu_unit, [3], [1], x)
    found = minimal_conflicts(relu_unit, x)
    assert found.complete
    assert {len(c.first) + len(c.second) for c in found} == {2}
    assert len(found) == 6


@given(st.lists(WHOLE, min_size=2, max_size=6), st.data())
def test_propositions_1_and_2(values, data):
    x = torch.tensor(values, dtype=torch.float64)
    weights = torch.tensor(data.draw(st.lists(WHOLE, min_size=len(values), max_size=len(values))), dtype=torch.float64)

    def f(v):
        return torch.relu(v @ weights) - torch.relu(v[:, 0] - v[:, 1])

    features = range(len(values))
    C = data.draw(st.sets(st.sampled_from(features), min_size=1, max_size=len(values) - 1))
    D = data.draw(st.sets(st.sampled_from([i for i in features if i not in C]), min_size=1))
    assert conflicting(f, C, D, x) == conflicting(f, D, C, x)
    assert conflict_magnitude(f, C, D, x) == conflict_magnitude(f, D, C, x)
    assert not conflicting(f, C, C, x)
    for conflict in minimal_conflicts(f, x):
        assert all(values[i] != 0 for i in (*conflict.first, *conflict.second))


def as_pairs(found):
    return {(c.first[0], c.second[0]): c for c in found}


@given(st.lists(WHOLE, min_size=1, max_size=8))
def test_proposition_3_linear(values):
    x = torch.tensor(values, dtype=torch.float64)
    closed = linear_conflicts(x)
    found = minimal_conflicts(linear_unit, x)
    compare_pairs(closed, found, len(values))


def compare_pairs(closed, found, count):
    assert found.complete
    assert all(len(c.first) == len(c.second) == 1 for c in found)
    pairs = as_pairs(found)
    for i, j in itertools.combinations(range(count), 2):
        assert closed.conflict[i, j].item() == ((i, j) in pairs)
        if (i, j) in pairs:
            c = pairs[i, j]
            assert closed.counteracts[i, j].item() == c.first_counteracts
            assert closed.counteracts[j, i].item() == c.second_counteracts
            assert closed.magnitude[i, j].item() == c.magnitude


@given(st.lists(WHOLE, min_size=1, max_size=8))
def test_propositions_4_and_5_relu(values):
    x = torch.tensor(values, dtype=torch.float64)
    value = x.sum()
    found = minimal_conflicts(relu_unit, x)
    assert found.complete
    if value > 0:
        compare_pairs(relu_conflicts(x, value), found, len(values))
        return
    covers = inactive_conflicts(x, value.item())
    assert covers.complete
    expected = {(cover, (j,)) for cover in covers.covers for j in covers.positives}
    seen = set()
    for c in found:
        assert c.first_counteracts != c.second_counteracts
        seen.add((c.first, c.second) if c.first_counteracts else (c.second, c.first))
    assert seen == expected


def test_closed_forms_take_batches_of_units():
    contributions = torch.randint(-4, 5, (3, 5, 6)).double()
    value = contributions.sum(-1).abs() + 1
    whole = relu_conflicts(contributions, value)
    one = relu_conflicts(contributions[1, 2], value[1, 2])
    assert torch.equal(whole.counteracts[1, 2], one.counteracts)
    assert torch.equal(whole.magnitude[1, 2], one.magnitude)
    with pytest.raises(ValueError, match="active"):
        relu_conflicts(contributions, -value)


def test_bounds_are_said():
    x = torch.cat([torch.full((16,), -1.0), torch.full((4,), 1.0)])
    covers = inactive_conflicts(x, x.sum().item(), bound=50)
    assert len(covers.covers) == 50
    assert not covers.complete
    large = torch.randn(40)
    found = minimal_conflicts(linear_unit, large)
    assert not found.complete
    assert found.max_size == 4
    assert "up to 4" in str(found)
    limited = minimal_conflicts(relu_unit, torch.tensor([1.0, -2, 1, 1]), max_size=2)
    assert not limited.complete


def test_search_is_exact_on_a_net():
    """Against Definitions 1 and 2 and the definition of minimality, pair by pair."""
    net, x = models.mlp(4, 6, 1), torch.randn(4)

    def f(v):
        return net(v)[:, 0]

    sets = [set(s) for k in (1, 2, 3) for s in itertools.combinations(range(4), k)]
    conflicts = [(C, D) for C in sets for D in sets if not C & D and min(C) < min(D) and conflicting(f, C, D, x)]
    both = conflicts + [(D, C) for C, D in conflicts]
    minimal = {
        (tuple(sorted(C)), tuple(sorted(D)))
        for C, D in conflicts
        if not any(S <= C and T <= D and (S, T) != (C, D) for S, T in both)
    }
    assert {(c.first, c.second) for c in minimal_conflicts(f, x)} == minimal


def test_map_of_conflicts():
    net, x = models.mlp(5, 8, 3), torch.randn(5)
    chart = conflict_map(net, x, output=2, names=list("abcde"))
    assert torch.equal(chart.magnitude, chart.magnitude.T)
    for i, j in itertools.combinations(range(5), 2):
        assert chart.magnitude[i, j].item() == pytest.approx(conflict_magnitude(net, i, j, x, output=2), abs=1e-12)
    best = chart.top(1)[0]
    assert best[2] == chart.magnitude.max().item()
    assert best[0] in "abcde"
    small = conflict_map(net, x, output=2, top=3)
    assert len(small.features) == 3
    kept = torch.tensor([i for (i,) in small.features])
    torch.testing.assert_close(small.magnitude, chart.magnitude[kept][:, kept])
    assert "no two" in str(conflict_map(lambda v: v.sum(1), torch.ones(3)))
    assert " against " in str(conflict_map(lambda v: v.sum(1), torch.tensor([1.0, -2.0])))


def test_groups_of_features():
    net, x = models.mlp(5, 8, 1), torch.randn(5)
    groups = {"left": [0, 1], "right": [3, 4], "middle": [2]}
    chart = conflict_map(net, x, groups=groups)
    assert chart.names == ("left", "right", "middle")
    expected = conflict_magnitude(net, [0, 1], [3, 4], x)
    assert chart.magnitude[0, 1].item() == pytest.approx(expected, abs=1e-12)
    assert conflict_magnitude(net, "left", "right", x, names=groups) == expected
    with pytest.raises(ValueError, match="more than one group"):
        conflict_map(net, x, groups={"a": [0, 1], "b": [1]})


X = torch.ones(3)
BAD = {
    "overlap": (lambda: counteracts(F.relu, [0, 1], [1, 2], X), "share"),
    "empty": (lambda: counteracts(F.relu, [], [1], X), "empty"),
    "range": (lambda: conflicting(F.relu, [0], [3], X), "no feature 3 among 3"),
    "negative": (lambda: conflicting(F.relu, [-1], [2], X), "no feature -1"),
    "name": (lambda: conflicting(F.relu, ["age"], [2], X, names=["a", "b", "c"]), "'age'; the names are a, b, c"),
    "no names": (lambda: conflicting(F.relu, ["age"], [2], X), "no names are given"),
    "integers": (lambda: counteracts(F.relu, 0, 1, torch.ones(3, dtype=torch.long)), "floating point"),
    "reference": (lambda: counteracts(relu_unit, 0, 1, X, reference=torch.zeros(4)), "does not fit"),
    "function": (lambda: counteracts(lambda v: v.sum(), 0, 1, X), "one entry per row"),
    "output": (lambda: counteracts(lambda v: v[:, :, None], 0, 1, X), "tuples of 2"),
    "rows": (lambda: minimal_conflicts(relu_unit, torch.ones(2, 3)), "one row"),
    "size": (lambda: minimal_conflicts(relu_unit, X, max_size=1), "at least two"),
    "map rows": (lambda: conflict_map(relu_unit, torch.ones(2, 3), top=2), "different strongest features"),
    "map names": (lambda: conflict_map(relu_unit, X, names=["a"]), "1 names"),
    "map features": (lambda: conflict_map(relu_unit, X, features=[0, 5]), "different places"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_old_words_and_forms_are_taken():
    net, x = models.mlp(4, 6, 3), torch.randn(4)
    new = conflict_magnitude(net, [0], [2], x, baselines=0.5, target=2, feature_names=list("abcd"))
    for words in ({"output": 2}, {"output": -1}, {"output": [2]}, {"output": (2,)}):
        assert conflict_magnitude(net, ["a"], "c", x, reference=0.5, names=list("abcd"), **words) == new
    with pytest.raises(ValueError, match="Give one of the two"):
        counteracts(net, 0, 1, x, target=1, output=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'base'"):
        counteracts(net, 0, 1, x, base=0)
    assert conflict_magnitude(lambda v: {"a": net(v), "b": -net(v)}, 0, 2, x, target=2, output="b") == pytest.approx(
        conflict_magnitude(net, 0, 2, x, target=2)
    )


def test_the_class_is_that_of_the_row_as_it_is():
    net, rows = models.mlp(4, 6, 3), torch.randn(5, 4)
    classes = net(rows).argmax(1)
    for target in (None, classes, classes.tolist()):
        found = conflict_magnitude(net, [0, 1], [2, 3], rows, target=target)
        each = [conflict_magnitude(net, [0, 1], [2, 3], row, target=int(k)) for row, k in zip(rows, classes, strict=True)]
        torch.testing.assert_close(found, torch.tensor(each))
    charts = [conflict_map(net, rows[0], target=target, top=3) for target in (None, int(classes[0]))]
    assert torch.equal(charts[0].magnitude, charts[1].magnitude)
