"""The conflict between features: measured as the definition says, for every form of inputs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE, Explanation
from cafexai.conflicts import conflict_magnitude
from cafexai.explanation.conflict import from_nets, from_sides

close = torch.testing.assert_close


def small(inputs: int, outputs: int, seed: int = 0, last: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Linear(inputs, 16), nn.GELU(), nn.Linear(16, outputs)]
    return nn.Sequential(*layers, *([] if last is None else [last])).double()


def naive(f, x, baseline, net, groups):
    """The conflict of one row, from the definition: ``f`` of a row, and which elements each feature has."""
    up = [e for group in groups if sum(float(net[e]) for e in group) > 0 for e in group]
    down = [e for group in groups if sum(float(net[e]) for e in group) < 0 for e in group]

    def value(removed):
        row = x.clone()
        for place in removed:
            row[place] = baseline[place]
        return float(f(row).detach())

    y, r, p, q = value([]), value(range(len(x))), value(down), value(up)
    sizes = [min(abs(y - u), abs(u - r)) if (y - u) * (u - r) < 0 else 0.0 for u in (p, q)]
    return max(sizes), (r, p, q, y)


@pytest.mark.parametrize("make", [CAFE, CAFE.published, lambda model: CAFE(model, variant="feature")])
@pytest.mark.parametrize("seed", range(3))
def test_conflict_is_measured_between_the_two_sides(make, seed):
    model = small(5, 3, seed)
    x, baseline = torch.randn(4, 5).double(), torch.randn(5).double()
    e = make(model).explain(x, baselines=baseline, target=1)
    assert e.conflict_kind == "measured"
    assert e.sides.shape == (4, 1, 4)
    for row in range(4):
        expected, sides = naive(lambda v: model(v[None])[0, 1], x[row], baseline, e.combined[row], [[i] for i in range(5)])
        close(e.conflict[row].item(), expected)
        close(e.sides[row, 0], torch.tensor(sides).double())
        change = abs(sides[3] - sides[0])
        close(e.conflict_share[row].item(), expected / (expected + change))
        up = [i for i in range(5) if e.combined[row, i] > 0]
        down = [i for i in range(5) if e.combined[row, i] < 0]
        if up and down:
            close(expected, conflict_magnitude(model, up, down, x[row], baseline, target=1))


def test_conflict_of_groups_words_and_differences_of_outputs():
    model, x = small(5, 3), torch.randn(3, 5).double()
    e = CAFE(model).explain(x, target=0, against=2, feature_groups={"a": [0, 3], "b": [1, 2]})
    for row in range(3):
        single = CAFE(model).explain(x[row : row + 1], target=0, against=2).combined[0]
        expected, _ = naive(
            lambda v: model(v[None])[0, 0] - model(v[None])[0, 2], x[row], torch.zeros(5), single, [[0, 3], [1, 2], [4]]
        )
        close(e.conflict[row].item(), expected)


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.Sigmoid(), nn.LogSoftmax(1)])
def test_a_final_softmax_is_left_out_of_the_sides(last):
    model, x = small(4, 2), torch.randn(3, 4).double()
    plain = CAFE(model).explain(x, target=1)
    for wrapped in (nn.Sequential(model, last), lambda v: last(model(v)).flip(1).flip(1)):
        e = CAFE(wrapped).explain(x, target=1)
        assert e.conflict_kind == "measured"
        close(e.sides, plain.sides)


def test_several_baselines_have_sides_of_their_own():
    model, x = small(4, 1), torch.randn(3, 4).double()
    stack = torch.randn(5, 1, 4).double()
    e = CAFE(model).explain(x, baselines=stack)
    each = [CAFE(model).explain(x, baselines=one) for one in stack]
    assert e.sides.shape == (3, 5, 4)
    close(e.sides, torch.cat([one.sides for one in each], 1))
    conflict, left = (torch.stack([getattr(one, name) for one in each]).mean(0) for name in ("conflict", "conflict_left"))
    close(e.conflict, conflict)
    close(e.conflict_share, conflict / (conflict + left))
    net = CAFE(model).explain(x, baselines=stack, conflict="net")
    close(net.conflict, torch.stack([from_nets(one.combined).conflict for one in each]).mean(0))


def test_images_are_measured_by_cells():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 100, 2)).double()
    x = torch.randn(2, 3, 12, 12).double()
    e = CAFE(model).explain(x, target=0)
    cells = [[(c, i, j) for c in range(3) for i in range(12) for j in range(12) if (i * 8 // 12, j * 8 // 12) == cell]
             for cell in ((a, b) for a in range(8) for b in range(8))]  # fmt: skip
    flat = [[c * 144 + i * 12 + j for c, i, j in cell] for cell in cells]
    for row in range(2):
        f = lambda v: model(v.view(1, 3, 12, 12))[0, 0]  # noqa: E731
        expected, _ = naive(f, x[row].flatten(), torch.zeros(432), e.combined[row].flatten(), flat)
        close(e.conflict[row].item(), expected)
    assert any("8 x 8" in note for note in e.notes)


class Fails(nn.Module):
    """Takes no rows in which the first feature is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = small(3, 1)

    def forward(self, x):
        if bool((x[:, 0].detach() == 0).any()) and not bool((x == 0).all()):
            raise RuntimeError("the first feature is missing")
        return self.inside(x)


def test_what_cannot_be_measured_comes_from_nets_with_a_note():
    x = torch.randn(4, 3).double()
    e = CAFE(Fails()).explain(x)
    assert e.conflict_kind == "net"
    assert any("the first feature is missing" in note for note in e.notes)
    close(e.conflict, from_nets(e.combined).conflict)
    up, down = e.combined.clamp_min(0).sum(1), (-e.combined).clamp_min(0).sum(1)
    close(e.conflict_share, torch.minimum(up, down) / torch.maximum(up, down))


def test_layers_classes_and_sweeps_take_nets():
    cafe, x = CAFE(small(4, 3)), torch.randn(3, 4).double()
    assert cafe.explain_classes(x)[0].conflict_kind == "net"
    assert cafe.explain_classes(x, conflict="measured")[0].conflict_kind == "measured"
    assert cafe.sweep(x, [0, 1])[0].conflict_kind == "net"
    assert cafe.explain_layer(x, "1").conflict_kind == "net"
    assert cafe.explain_neuron(x, "1", target=2).conflict_kind == "measured"
    assert cafe.explain(x, conflict="net").sides is None
    with pytest.raises(ValueError, match="Allowed values: 'measured', 'net'"):
        cafe.explain(x, conflict="all")
    with pytest.raises(ValueError, match='Allowed values: "net"'):
        cafe.explain_layer(x, "1", conflict="measured")


def test_a_single_feature_is_in_no_conflict():
    e = CAFE(small(1, 1)).explain(torch.randn(20, 1).double())
    assert e.conflict_kind == "measured"
    assert e.conflict.tolist() == [0.0] * 20
    assert bool((e.s_conf > 0).any())


def test_files_keep_the_conflict_and_old_files_take_it_from_nets(tmp_path):
    e = CAFE(small(4, 2)).explain(torch.randn(3, 4).double(), baselines=torch.randn(2, 1, 4).double())
    e.save(tmp_path / "new.safetensors")
    new = Explanation.load(tmp_path / "new.safetensors")
    assert torch.equal(new.conflict, e.conflict)
    assert torch.equal(new.sides, e.sides)
    assert new.conflict_kind == "measured"
    assert torch.equal(e[1].conflict, e.conflict[1:2])
    e.replace(conflict_info=None).save(tmp_path / "old.safetensors")  # as files were before
    old = Explanation.load(tmp_path / "old.safetensors")
    assert old.conflict_kind == "net"
    close(old.conflict, from_nets(e.combined).conflict)
    assert any("before conflict was measured" in note for note in old.notes)
    wrong = e.replace(conflict=e.conflict + 1)
    wrong.save(tmp_path / "wrong.safetensors")
    with pytest.raises(ValueError, match="conflict does not follow from its sides"):
        Explanation.load(tmp_path / "wrong.safetensors")


@given(st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4))
def test_conflict_of_sides_is_bounded_and_symmetric(sides):
    r, p, q, y = sides
    found = from_sides(torch.tensor([[sides]], dtype=torch.float64))
    swapped = from_sides(torch.tensor([[[r, q, p, y]]], dtype=torch.float64))
    mirrored = from_sides(-torch.tensor([[sides]], dtype=torch.float64))
    assert found.conflict.item() == swapped.conflict.item() == mirrored.conflict.item()
    assert 0 <= found.conflict.item() <= max(abs(y - p), abs(y - q))
    assert found.left.item() == abs(y - r)


class Codes(nn.Module):
    """Codes with an offset per column, looked up in one table, beside numbers; a mask is made of the codes."""

    def __init__(self, last: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.inside = nn.Embedding(20, 3).double(), small(8, 2)
        self.last = nn.Identity() if last is None else last

    def forward(self, codes, numbers, replaced=None):
        ids = torch.cat([codes[:, :1], codes[:, 1:]], 1) + torch.tensor([0, 10])
        found = self.table(ids) * (codes != 7)[..., None] if replaced is None else replaced
        return self.last(self.inside(torch.cat([found.flatten(1), numbers], 1)))


@pytest.mark.parametrize("last", [None, nn.Softmax(1)])
def test_codes_without_a_baseline_code_have_zero_embeddings(last):
    model, plain = Codes(last), Codes()
    codes, numbers = torch.tensor([[1, 4], [5, 7], [3, 9]]), torch.randn(3, 2).double()
    e = CAFE(model).explain((codes, numbers), target=1)
    assert e.conflict_kind == "measured", e.notes
    for row in range(3):
        found = plain.table(codes[row] + torch.tensor([0, 10])) * (codes[row] != 7)[:, None]

        def f(kept, found=found, row=row):
            return plain(codes[row : row + 1], (numbers[row] * kept[2:])[None], replaced=(found * kept[:2, None])[None])[0, 1]

        expected, sides = naive(f, torch.ones(4).double(), torch.zeros(4), e.flat(e.combined)[row], [[i] for i in range(4)])
        close(e.sides[row, 0], torch.tensor(sides).double())
        close(e.conflict[row].item(), expected)


def test_nothing_is_said_to_be_measured_if_one_baseline_could_not_be():
    found = CAFE(lambda v: torch.log(9 - (v[:, 0] - v[:, 1]).square())).explain(
        torch.tensor([[1.0, 2.0]]), torch.tensor([[[0.0, 0.0]], [[-2.0, 0.5]]])
    )
    assert found.conflict_kind == "net"
    assert not any("is measured" in note for note in found.notes)
    assert any("come from net scores" in note or "comes from net scores" in note for note in found.notes)


def test_a_ledger_takes_the_explainer_as_its_check():
    cafe = CAFE(torch.nn.Linear(4, 1))
    e = cafe.explain(torch.rand(2, 4))
    assert cafe.check_by_changing(e, 1).sentence in e.ledger(1, check=cafe)
    with pytest.raises(ValueError, match="Give the explainer, or what"):
        e.ledger(1, check="yes")


class _ByPlaceOfRow(nn.Module):
    """A constant for each place of a row in its batch, as a positional encoding along the wrong dimension has it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)
        self.register_buffer("places", torch.randn(50, 8) * 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x) + self.places[: len(x)]))


@pytest.mark.parametrize("rows", [1, 2])
def test_sides_are_measured_at_the_place_of_the_row(rows):
    """More rows in one pass would have constants of other places."""
    torch.manual_seed(0)
    model, x = _ByPlaceOfRow().double().eval(), torch.randn(rows, 4, dtype=torch.float64)
    e = CAFE(model).explain(x)
    with torch.no_grad():
        expected = [model(x * 0), model(torch.where(e.net < 0, 0, x)), model(torch.where(e.net > 0, 0, x)), model(x)]
    assert torch.allclose(e.sides[:, 0], torch.cat(expected, 1))
