"""The exact map of pairs and hidden conflicts against their definitions, and the scale of conflict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cafexai import CAFE, Explanation
from cafexai.conflicts import conflict_magnitude, conflict_map
from cafexai.explanation import ConflictScale
from cafexai.explanation.hidden_conflicts import HiddenPair
from cafexai.plotting.conflict_words import fighting_sentence, hidden_sentence

close = torch.testing.assert_close


def network(inputs: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 12), nn.ReLU(), nn.Linear(12, 2)).double()


def naive_map(f, x, baseline):
    """M, V and hidden of one row, straight from the definitions."""

    def value(*removed):
        row = x.clone()
        row[list(removed)] = baseline[list(removed)]
        return float(f(row[None]).detach())

    n, y = len(x), value()
    alone = [y - value(i) for i in range(n)]
    found = torch.zeros(2, n, n).double()
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            sizes = []
            for first, second in ((i, j), (j, i)):
                one, two = y - value(first), value(first) - value(first, second)
                sizes.append(min(abs(one), abs(two)) if one * two < 0 else 0.0)
            visible = min(abs(alone[i]), abs(alone[j])) if alone[i] * alone[j] < 0 else 0.0
            found[0, i, j], found[1, i, j] = max(sizes), max(0.0, max(sizes) - visible)
    return found


def test_hidden_conflicts_follow_their_definition():
    model, x, baseline = network(4), torch.randn(3, 4).double(), torch.randn(4).double()
    cafe = CAFE(model)
    e = cafe.explain(x, baseline, target=1)
    found = cafe.hidden_conflicts(e)
    assert found.evaluations == 1 + 4 + 6
    for row in range(3):
        conflict, hidden = naive_map(lambda v: model(v)[0, 1], x[row], baseline)
        close(found.conflict[row], conflict)
        close(found.hidden[row], hidden)
    one = cafe.hidden_conflicts(e, 2)
    close(one.conflict[0], found.conflict[2])
    shared = conflict_map(model, x, baseline, target=1)
    close(shared.magnitude, found.conflict)
    assert shared.top(1, row=2)[0][2] == pytest.approx(found.conflict[2].max().item())
    close(conflict_map(cafe, x, baseline, target=1).magnitude, found.conflict)


def test_a_gate_that_is_held_shut_is_named():
    cafe = CAFE(lambda v: torch.relu(v[:, 0] - v[:, 1]) + v[:, 2], feature_names=["income", "debt", "age"])
    found = cafe.hidden_conflicts(cafe.explain(torch.tensor([[1.0, 2.0, 1.0]])))
    assert found.top()[0][:3] == ("income", "debt", 1.0)
    told = "income alone seems not to matter, but only because debt holds it down; without debt it would move the score by 1."
    assert str(found) == f"row 0: {told}"
    visible = cafe.hidden_conflicts(cafe.explain(torch.tensor([[3.0, 1.0, 1.0]])))
    assert visible.conflict[0, 0, 1] == 1
    assert visible.top() == []


def test_groups_codes_frames_and_several_inputs_are_compared():
    pandas = pytest.importorskip("pandas")
    model, x = network(4), torch.randn(2, 4).double()
    cafe = CAFE(model, feature_names=list("abcd"))
    grouped = cafe.explain(pandas.DataFrame(x.numpy(), columns=list("abcd")), target=0, feature_groups={"ad": ["a", "d"]})
    found = cafe.hidden_conflicts(grouped)
    assert found.names[0] == ("ad", "b", "c")
    close(found.conflict[1, 0, 1].item(), conflict_magnitude(model, [0, 3], [1], x[1], target=0))
    by_frame = conflict_map(cafe, pandas.DataFrame(x.numpy(), columns=list("abcd")), target=0)
    close(by_frame.magnitude, conflict_map(model, x).magnitude)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.inside = nn.Embedding(7, 2).double(), network(4)

        def forward(self, numbers, codes):
            return self.inside(torch.cat([numbers, self.table(codes)], 1))

    torch.manual_seed(1)
    two, codes = Two(), torch.tensor([3, 5])
    pairs = conflict_map(CAFE(two), (x[:, :2], codes), (0.0, 1), target=1)
    assert pairs.magnitude.shape == (2, 3, 3)

    def f(row):
        return two(row[:, :2], row[:, 2].long())[:, 1]

    for row in range(2):
        whole = torch.cat([x[row, :2], codes[row : row + 1].double()])
        expected = naive_map(lambda v: f(v)[0], whole, torch.tensor([0.0, 0.0, 1.0]).double())[0]
        close(pairs.magnitude[row], expected)


def test_of_many_features_the_strongest_are_compared():
    torch.manual_seed(0)
    weight = torch.zeros(30).double()
    weight[[4, 17]] = torch.tensor([5.0, -5.0]).double()
    cafe = CAFE(lambda v: torch.relu((v * weight).sum(1)) + 0.01 * v.sum(1))
    e = cafe.explain(torch.ones(2, 30).double())
    found = cafe.hidden_conflicts(e)
    assert found.conflict.shape == (2, 8, 8)
    assert {"x4", "x17"} <= set(found.names[0])
    assert cafe.hidden_conflicts(e, features=2).names == (("x4", "x17"),) * 2


def test_what_cannot_be_compared_is_refused(tmp_path):
    cafe, x = CAFE(network(4)), torch.randn(2, 4).double()
    e = cafe.explain(x)
    e.save(tmp_path / "e.safetensors")
    with pytest.raises(ValueError, match="read from a file"):
        cafe.hidden_conflicts(Explanation.load(tmp_path / "e.safetensors"))
    with pytest.raises(ValueError, match="units of a layer"):
        cafe.hidden_conflicts(cafe.explain_layer(x, "1"))
    with pytest.raises(ValueError, match=r"baseline=1\): there are 1 baselines"):
        cafe.hidden_conflicts(e, baseline=1)
    with pytest.raises(ValueError, match="different strongest features"):
        conflict_map(cafe, x, top=2)


def test_the_scale_ranks_conflict_among_background_rows(tmp_path):
    background = torch.randn(300, 4).double()
    cafe = CAFE(network(4), background=background)
    scale = cafe.conflict_scale(target=1)
    assert len(scale.shares) == 200
    assert cafe.conflict_scale(target=1) == scale
    assert len(cafe.conflict_scale(rows=30, seed=3).shares) == 30
    e = cafe.explain(torch.randn(5, 4).double(), target=1)
    ranked = e.rank_conflict(scale)
    expected = [np.mean(np.array(scale.shares) < share) for share in e.conflict_share.tolist()]
    assert ranked.conflict_rank.tolist() == pytest.approx(expected)
    assert e.conflict_rank is None
    assert f"more than {100 * expected[0]:.0f} % of the background rows" in ranked.ledger(0)
    scale.save(tmp_path / "scale.json")
    assert ConflictScale.load(tmp_path / "scale.json") == scale
    ranked.save(tmp_path / "e.safetensors")
    assert torch.equal(Explanation.load(tmp_path / "e.safetensors").conflict_rank, ranked.conflict_rank)
    with pytest.raises(ValueError, match="same conflict="):
        scale.rank(cafe.explain(torch.randn(5, 4).double(), conflict="net"))
    with pytest.raises(ValueError, match="background=x_train"):
        CAFE(network(4)).conflict_scale()
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(ValueError, match="no scale"):
        ConflictScale.load(tmp_path / "no.json")


def test_who_fights_whom_is_listed_and_drawn():
    pytest.importorskip("matplotlib")
    names = ["income", "debt", "age", "rent"]
    cafe = CAFE(lambda v: torch.relu(v[:, 0] - v[:, 1]) + v[:, 2] - v[:, 3], feature_names=names)
    e = cafe.explain(torch.tensor([[1.0, 2.0, 1.0, 0.5], [3.0, 1.0, 1.0, 0.5]]))
    found = cafe.hidden_conflicts(e)
    expected = [("income", "debt", 1.0, 1.0), ("debt", "age", 1.0, 0.0), ("age", "rent", 0.5, 0.0)]
    assert [pair[:4] for pair in found.fights(0)] == expected
    told = [fighting_sentence(pair) for pair in found.fights(0)]
    assert told[0] == "income and debt: 1 cancelled, which removing either alone does not show."
    assert told[1:] == [
        f"age speaks for it, {name} against it: {size} cancelled." for name, size in (("debt", 1), ("rent", 0.5))
    ]
    drawn = e.plot.pairs(0, exact=found)
    texts = [text.get_text() for text in drawn.axes[0].texts]
    assert sorted(map(float, texts)) == [0.5, 0.5, 1.0, 1.0, 1.0, 1.0]  # the map is symmetric
    assert len(drawn.axes[0].patches) == 2  # the hidden pair has a frame
    assert "1 between the strongest pair" in drawn.get_suptitle()
    with pytest.raises(ValueError, match=r"Use exact\.plot"):
        e.plot.pairs(0, exact=cafe.hidden_conflicts(e, 0))
    with pytest.raises(ValueError, match=r"exact=cafe\.hidden_conflicts"):
        e.plot.pairs(0)


def test_of_several_baselines_the_middle_one_is_taken_and_named():
    model, x = network(3), torch.randn(2, 3).double()
    cafe = CAFE(model, background=torch.randn(9, 3).double())
    e = cafe.explain(x, "background", target=0)
    found = cafe.hidden_conflicts(e)
    starts = e.sides[:, :, 0].mean(0)
    assert starts[found.baseline] == starts.sort().values[4]
    assert found.against == f"row {found.baseline + 1} of 9 typical rows, the one whose output is in the middle"
    close(found.conflict, cafe.hidden_conflicts(e, baseline=found.baseline).conflict)
    assert str(found).endswith(f"Held against {found.against}.")


@pytest.mark.parametrize(("alone", "told"), [(0.0, "by 2."), (-1.0, "it by -2."), (1.0, "it by -2.")])
def test_a_hidden_effect_has_its_sign_where_the_visible_one_has(alone, told):
    assert hidden_sentence(HiddenPair("income", "debt", 1.0, alone, -2.0)).endswith(told)


def test_a_pair_is_told_only_if_it_is_large_in_its_row():
    """Planted pairs are told, the interactions of networks that have learned nothing rarely are."""
    x = torch.tensor([[1.0, 1.0, 0.4, 0.3]]).double()
    xor = CAFE(lambda v: 2 * (v[:, 0] + v[:, 1] - 2 * v[:, 0] * v[:, 1]) + 0.3 * v[:, 2:].sum(1))
    told = xor.hidden_conflicts(xor.explain(x)).sentences(0)
    assert told == ["x1 moves the score by -2 as things are; with x0 at its baseline it would move it by +2."]
    large = CAFE(lambda v: 2 * (v[:, 0] + v[:, 1] - 2 * v[:, 0] * v[:, 1]) + 30 * v[:, 2:].sum(1))
    found = large.hidden_conflicts(large.explain(x))
    assert found.top(0)[0].hidden == pytest.approx(2)
    assert found.sentences(0) == []
    assert "No large conflict is hidden." in str(found)
    count = 0
    for seed in range(4):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1)).double()
        cafe = CAFE(model)
        found = cafe.hidden_conflicts(cafe.explain(torch.randn(50, 6).double(), show_progress=False))
        count += sum(len(found.sentences(row)) for row in range(50))
    assert count <= 0.3 * 200


def test_the_number_of_evaluations_is_said_before_they_run(caplog):
    ran = []

    def model(v):
        ran.append(any("evaluations" in one.message for one in caplog.records))
        return torch.relu(v[:, 0] - v[:, 1]) + v[:, 2]

    cafe = CAFE(model)
    e = cafe.explain(torch.rand(2, 3))
    ran.clear()
    with caplog.at_level("INFO", "cafexai"):
        cafe.hidden_conflicts(e)
    assert ran
    assert all(ran)
    assert caplog.messages == ["hidden conflicts: 7 evaluations of the model for each of 2 rows"]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"baselines": "median"}, "baseline one row"),
        ({"baselines": "background"}, "baseline 50 rows of the background"),
        ({"target": 0}, "is of output 0, the scale of output 1"),
    ],
)
def test_a_scale_ranks_only_rows_that_are_explained_alike(other, told):
    cafe = CAFE(network(4), background=torch.randn(60, 4).double())
    scale, x = cafe.conflict_scale(target=1, rows=30), torch.randn(2, 4).double()
    assert scale.rank(cafe.explain(x, target=1)).shape == (2,)
    with pytest.raises(ValueError, match=told):
        scale.rank(cafe.explain(x, **{"target": 1, **other}))
    for another in (cafe.replace(c=0.1), cafe.replace(variant="published")):
        with pytest.raises(ValueError, match=r"c 0\.1|variant netting=path"):
            scale.rank(another.explain(x, target=1))


def test_rows_keep_their_names():
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"pain": [1.0, 1.0], "breath": [1.0, 0.0]}, index=["ann", "bob"])
    cafe = CAFE(lambda x: torch.relu(0.9 * x[:, 0] - x[:, 1]))
    found = cafe.hidden_conflicts(cafe.explain(rows))
    assert found.row_names == ("ann", "bob")
    assert str(found).startswith("ann: pain alone")
    assert found.fights("ann") == found.fights(0)
    assert found.sentences("bob") == []
    with pytest.raises(KeyError, match="no row has this name"):
        found.top("eve")
