"""Integer inputs: never a code that is lost, mixed up with another, or changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cafexai import CAFE, CompletenessError, UnsupportedOperation, rule
from cafexai._carriers.path import PathScores


@pytest.fixture
def table():
    return nn.Embedding(20, 4)


def test_codes_used_as_numbers_beside_an_embedding(table):
    head = nn.Linear(6, 1)
    ids = torch.randint(0, 10, (4, 3))
    numbers = ids[:, 1:].double()
    expected = CAFE(lambda c, v: head(torch.relu(torch.cat([table(c), v / 10.0], 1)))).explain((ids[:, 0], numbers))
    for f in (
        lambda x: head(torch.relu(torch.cat([table(x[:, 0]), x[:, 1:] / 10.0], 1))),
        lambda x: head(torch.relu(torch.cat([table(x[:, 0]), x[:, 1:] * 0.1], 1))),
        lambda x: head(torch.relu(torch.cat([table(x[:, 0]), x[:, 1:].double() / 10], 1))),
    ):
        e = CAFE(f).explain(ids)
        torch.testing.assert_close(e.positive[:, 1:], expected.positive[1].to(e.positive.dtype))
        torch.testing.assert_close(e.positive[:, 0], expected.positive[0])
    scaled = CAFE(lambda x: (table(x[:, 0]) * x[:, 1:2]).sum(1)).explain(ids)
    assert (scaled.positive + scaled.negative)[:, 1][ids[:, 1] > 0].min() > 0


def test_quotient_and_remainder(table):
    """Two small tables instead of a large one: the same codes, twice looked up."""
    one, two, head = nn.Embedding(10, 4), nn.Embedding(10, 4), nn.Linear(4, 1)
    whole = nn.Embedding(100, 4)
    whole.weight.data = one.weight[torch.arange(100) % 10].data + two.weight[torch.arange(100) // 10].data
    ids = torch.randint(0, 100, (3, 2))
    for baseline in (None, 17):
        e = CAFE(lambda x: head(torch.relu(one(x % 10) + two(x // 10)).sum(1))).explain(ids, baseline)
        f = CAFE(lambda x: head(torch.relu(whole(x)).sum(1))).explain(ids, baseline)
        torch.testing.assert_close(e.combined, f.combined)
        torch.testing.assert_close(e.baseline_output, f.baseline_output)


def test_flipped_and_shifted_codes(table):
    other, head = nn.Embedding(20, 4), nn.Linear(12, 1)
    ids = torch.randint(0, 20, (3, 3))
    e = CAFE(lambda x: head((table(x.flip(1)) + other(x)).flatten(1))).explain(ids)
    close = CAFE(lambda x: head((table(x)[:, [2, 1, 0]] + other(x)).flatten(1))).explain(ids)
    torch.testing.assert_close(e.combined, close.combined)


def start_and(x):
    """The codes one place to the right, behind a start code, in ways that models use."""
    moved = x.new_zeros(x.shape)
    moved[:, 1:] = x[:, :-1].clone()
    moved[:, 0] = 7
    return moved.masked_fill_(moved == -100, 1)


def in_its_own_place(x):
    moved = x.clone()
    moved[..., 1:] = x[..., :-1]
    moved[:, 0].shape  # noqa: B018  (a view that nobody uses)
    moved.index_fill_(1, torch.tensor([0]), 7)
    return moved


SHIFTS = {
    "setitem": start_and,
    "own": in_its_own_place,
    "copy": lambda x: torch.zeros_like(x).copy_(torch.nn.functional.pad(x, (1, -1), value=7)),
    "offset": lambda x: start_and(x).sub_(3).add_(3),
    "gather": lambda x: torch.nn.functional.pad(x.gather(1, torch.arange(x.shape[1] - 1).expand(len(x), -1)), (1, 0), value=7),
}


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
@pytest.mark.parametrize("shift", SHIFTS)
def test_codes_that_are_written_stay_codes_of_their_features(shift, netting):
    table, head = nn.Embedding(20, 4), nn.Linear(16, 2)
    ids, baseline = torch.randint(0, 20, (3, 4)), torch.randint(0, 20, (3, 4))
    baseline[:, 1] = ids[:, 1]
    before = ids.clone(), baseline.clone()

    def plain(x):  # by the embeddings alone
        start = table(torch.tensor([[7]])).expand(len(x), 1, 4)
        return head(torch.tanh(torch.cat([start, table(x)[:, :-1]], 1)).flatten(1))

    for reference in (None, baseline):
        e = CAFE(lambda x: head(torch.tanh(table(SHIFTS[shift](x))).flatten(1)), variant="published", netting=netting).explain(
            ids, reference, 1
        )
        f = CAFE(plain, variant="published", netting=netting).explain(ids, reference, 1)
        for part in ("positive", "negative", "bias_positive", "bias_negative", "baseline_output"):
            torch.testing.assert_close(getattr(e, part), getattr(f, part))
        assert (e.positive[:, -1] == 0).all()
        row = CAFE(lambda x: head(torch.tanh(table(SHIFTS[shift](x))).flatten(1)), variant="published", netting=netting)
        one = row.explain(ids[1:2], None if reference is None else reference[1:2], 1)
        torch.testing.assert_close(one.positive[0], e.positive[1])
    assert torch.equal(ids, before[0])
    assert torch.equal(baseline, before[1])


def test_codes_that_cannot_be_written(table):
    ids = torch.randint(0, 5, (3, 2))

    def stale(x):
        moved = x.clone()
        view = moved[:, 1:]
        moved[:, 1] = 3
        return table(view).sum((1, 2))

    with pytest.raises(UnsupportedOperation, match="change a copy"):
        CAFE(stale).explain(ids)

    def into_numbers(x, cast=False):
        numbers = torch.zeros(3, 2)
        numbers[:, 0] = x[:, 0].double() if cast else x[:, 0]
        return numbers.sum(1)

    with pytest.raises(UnsupportedOperation, match=r"codes\.float"):
        CAFE(into_numbers).explain(ids)
    assert torch.equal(CAFE(lambda x: into_numbers(x, True)).explain(ids).combined[:, 0], ids[:, 0].double())
    with pytest.raises(UnsupportedOperation, match="itself"):
        CAFE(lambda x: table(torch.zeros(3, 2).long()[:, :1].copy_(x[:, :1])).sum((1, 2))).explain(ids)


def test_what_is_read_off_codes_is_listed(table):
    e = CAFE(lambda x: table(x).sum((1, 2)) + (x == 3).sum(1)).explain(torch.randint(0, 5, (3, 2)))
    assert "eq of codes" in " ".join(e.frozen)


def test_two_codes_in_one_are_refused(table):
    with pytest.raises(UnsupportedOperation, match="several codes"):
        CAFE(lambda x: table(x[:, 0] + 10 * x[:, 1]).sum(1)).explain(torch.randint(0, 2, (3, 2)))
    with pytest.raises(UnsupportedOperation, match="different inputs"):
        CAFE(lambda a, b: table(torch.cat([a, b], 1)).sum((1, 2))).explain((torch.ones(2, 1).long(), torch.ones(2, 1).long()))


def test_codes_of_the_caller_stay_as_they_are(table):
    def writes(x):
        x += 1
        return table(x).sum((1, 2))

    ids, baseline = torch.randint(0, 5, (3, 2)), torch.randint(0, 5, (3, 2))
    before = ids.clone(), baseline.clone()
    e = CAFE(writes).explain(ids, baseline)
    torch.testing.assert_close(e.combined, CAFE(lambda x: table(x + 1).sum((1, 2))).explain(ids, baseline).combined)
    assert torch.equal(ids, before[0])
    assert torch.equal(baseline, before[1])


def test_a_layer_that_codes_bypass(table):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.g, self.h = nn.Embedding(5, 2), nn.Embedding(5, 2), nn.Linear(4, 1)

        def forward(self, x):
            return self.h(torch.relu(self.e(x).flatten(1))) * 0 + self.h(torch.relu(self.g(x).flatten(1)))

    with pytest.raises(CompletenessError, match="bypass"):
        CAFE(Two()).explain(torch.randint(0, 5, (1, 2)), layer="e", start=False)


def test_baselines_of_codes(table):
    ids = torch.randint(0, 5, (3, 2))
    cafe = CAFE(lambda x: table(x).sum((1, 2)), background=ids)
    assert (cafe.explain(ids, ids).combined == 0).all()
    mode = cafe.explain(ids, "mode")
    assert torch.equal(mode.baselines[0], ids.mode(0).values)
    assert (cafe.explain(ids).baselines == -1).all()
    frame = mode.to_frame()
    assert frame.value.isna().sum() == 3
    for bad in (1.5, torch.rand(3, 2), "mean"):
        with pytest.raises(ValueError, match="code"):
            cafe.explain(ids, bad)


def test_mixed_precision_of_leaf_and_model():
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).double()
    e = CAFE(lambda x: net(x.double())).explain(torch.randn(3, 5, dtype=torch.float32))
    assert e.completeness_error.abs().max() < 1e-5


@pytest.mark.usefixtures("shipped_rules")
def test_a_lost_path_is_seen_in_a_deep_net():
    """However large the cancelled influence, the combined scores are checked against their own size."""

    @rule(torch.special.i1)
    def lost(v):
        result = v.elementwise(torch.special.i1, True)
        return PathScores(v.run, result.reference, *(p.detach().requires_grad_() for p in result.parts), result.rows)

    layers = []
    for _ in range(20):
        layers += [nn.utils.parametrizations.orthogonal(nn.Linear(16, 16)), nn.LeakyReLU(0.97)]
    deep = nn.Sequential(*layers, nn.Linear(16, 1))
    cafe = CAFE.published(lambda x: deep(x) + 5 * torch.special.i1(x).sum(1, keepdim=True))
    for method in (cafe.explain, cafe.attribute):
        with pytest.raises(CompletenessError, match="a path from the input was lost"):
            method(torch.randn(3, 16))


def test_influence_beyond_float32_is_explained_in_float64():
    torch.manual_seed(0)
    layers = []
    for _ in range(40):
        layers += [nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU()]
    net = nn.Sequential(*layers, nn.Linear(64, 1))
    x = torch.randn(2, 64)
    exact = CAFE.published(net, 1.0).explain(x)
    e = CAFE.published(net.float(), 1.0).explain(x.float())
    assert any("in float64" in note for note in e.notes)
    assert e.positive.dtype == torch.float64
    torch.testing.assert_close(e.combined, exact.combined, rtol=1e-3, atol=1e-3 * exact.combined.abs().max().item())
    assert CAFE.published(net, 1.0).attribute(x.float()).dtype == torch.float64


def test_keyword_only_arguments():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    e = CAFE.published(lambda v: torch.add(v, other=y, alpha=2).sum(1)).explain(x, check="each")
    torch.testing.assert_close(e.bias, 2 * y.sum(1))
    CAFE(lambda v: torch.sum(input=v, dim=1, dtype=torch.float64)).explain(x)
    b = torch.randn(2, 3, 3)
    CAFE(
        lambda v: torch.zeros(2, 3, 3).baddbmm(batch1=v[:, :, None] * b[:, :1], batch2=b, beta=0.5, alpha=2).sum((1, 2))
    ).explain(x)


def test_a_table_indexed_by_codes_and_more_is_named(table):
    weight = torch.randn(5, 3)
    with pytest.raises(UnsupportedOperation, match=r"1 operation\(s\)[\s\S]*other indices"):
        CAFE(lambda x: weight[x, 0].sum(1)).explain(torch.randint(0, 5, (2, 3)))


@pytest.mark.parametrize("netting", ["path", "feature"])
@pytest.mark.parametrize("baseline", [None, 3])
def test_codes_looked_up_in_a_table_of_integers_stay_codes(table, netting, baseline):
    """Hashing, merging rare words, a permutation: the same as an embedding whose rows were put in that order."""
    hashed, head = torch.randint(0, 20, (10,)), nn.Linear(8, 1)
    ids = torch.randint(0, 10, (3, 2))
    e = CAFE(lambda x: head(torch.relu(table(hashed[x]).flatten(1))), variant="published", netting=netting).explain(
        ids, baseline
    )
    f = CAFE(lambda x: head(torch.relu(table.weight[hashed][x].flatten(1))), variant="published", netting=netting).explain(
        ids, baseline
    )
    torch.testing.assert_close(e.positive, f.positive)
    torch.testing.assert_close(e.negative, f.negative)
    several = torch.randint(0, 20, (10, 2))
    e = CAFE(lambda x: head(torch.relu(table(several[x[:, 0]]).flatten(1))), variant="published", netting=netting).explain(
        ids[:, :1], baseline
    )
    f = CAFE(
        lambda x: head(torch.relu(table.weight[several][x[:, 0]].flatten(1))), variant="published", netting=netting
    ).explain(ids[:, :1], baseline)
    torch.testing.assert_close(e.positive, f.positive)
    kept = torch.tensor([True, False]).repeat(5)
    e = CAFE(lambda x: (table(x).sum(2) * kept[x]).sum(1), variant="published", netting=netting).explain(ids, baseline)
    assert any("by codes" in line for line in e.frozen)


def test_codes_that_choose_slices_are_named():
    weight = torch.randn(5, 3)
    with pytest.raises(UnsupportedOperation, match=r"look them up by table\[codes\]"):
        CAFE(lambda x: weight.index_select(0, x).sum(1)).explain(torch.randint(0, 5, (4,)))


@pytest.mark.parametrize("netting", ["path", "feature"])
@pytest.mark.parametrize("baseline", [None, 3])
def test_padded_codes_stay_codes(table, netting, baseline):
    head, ids = nn.Linear(16, 1), torch.randint(0, 10, (3, 2))
    for number in (0, 7):
        start = torch.full((3, 2), number)
        e = CAFE(
            lambda x: head(torch.relu(table(nn.functional.pad(x, (2, 0), value=number)).flatten(1))),
            variant="published",
            netting=netting,
        )
        f = CAFE(lambda x: head(torch.relu(table(torch.cat([start, x], 1)).flatten(1))), variant="published", netting=netting)
        e, f = e.explain(ids, baseline), f.explain(ids, baseline)
        for name in ("positive", "negative", "bias_positive", "bias_negative"):
            torch.testing.assert_close(getattr(e, name), getattr(f, name))


CHOSEN = torch.tensor([True, False, True])
CHOICES = {  # of which the second place is a constant, or made of a code of its own
    "number": (lambda x: torch.where(CHOSEN, x, 7), None),
    "tensor": (lambda x: torch.where(~CHOSEN, torch.full_like(x, 7), x), None),
    "method": (lambda x: x.where(CHOSEN, torch.tensor(7)), None),
    "filled": (lambda x: x.masked_fill(~CHOSEN, 7), None),
    "filled in place": (lambda x: x.clone().masked_fill_(~CHOSEN, 7), None),
    "itself": (lambda x: torch.where(CHOSEN, x, x + 1), 1),
    "others": (lambda x: torch.where(CHOSEN, x, x.flip(1)), 0),
}


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
@pytest.mark.parametrize("name", CHOICES)
def test_codes_that_are_chosen(name, netting):
    """Constants in their place have no feature; of two codes the one that was taken has the score."""
    table, head = nn.Embedding(20, 4), nn.Linear(12, 2)
    choose, more = CHOICES[name]
    ids, baseline = torch.randint(0, 18, (3, 3)), torch.randint(0, 18, (3, 3))

    def plain(x):  # by the embeddings alone
        second = table(torch.full_like(x[:, :1], 7)) if more is None else table(x[:, 1:2] + more)
        return head(torch.tanh(torch.cat([table(x[:, :1]), second, table(x[:, 2:])], 1)).flatten(1))

    for reference in (None, baseline):
        e = CAFE(lambda x: head(torch.tanh(table(choose(x))).flatten(1)), variant="published", netting=netting).explain(
            ids, reference, 1
        )
        f = CAFE(plain, variant="published", netting=netting).explain(ids, reference, 1)
        for part in ("positive", "negative", "bias_positive", "bias_negative", "baseline_output"):
            torch.testing.assert_close(getattr(e, part), getattr(f, part))
        assert (e.positive[:, 1] > 0).any() == (more is not None)


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "positions",
    [
        lambda x: torch.arange(x.shape[1]).expand_as(x),
        lambda x: torch.arange(x.shape[1]).expand(x.shape).reshape(-1).view_as(x),
        lambda x: torch.arange(x.shape[1]).repeat(len(x)).reshape_as(x),
        lambda x: torch.broadcast_tensors(torch.arange(x.shape[1]), x)[0],
    ],
)
def test_positions_that_take_their_shape_from_codes_are_constants(table, positions, rows, netting):
    """Their embeddings belong to no feature, and their differences to none either."""
    places, distances, head = nn.Embedding(4, 4), nn.Embedding(9, 1), nn.Linear(4, 2)
    ids = torch.randint(0, 20, (rows, 4))

    def model(x, at):
        where = at(x)
        weights = distances(where[:, None] - where[:, :, None] + 4)[..., 0].softmax(-1)
        return head(torch.tanh(weights @ (table(x) + places(where))).mean(1))

    e = CAFE(lambda x: model(x, positions), variant="published", netting=netting).explain(ids, target=1)
    f = CAFE(lambda x: model(x, lambda x: torch.arange(4).expand(x.shape)), variant="published", netting=netting).explain(
        ids, target=1
    )
    for part in ("positive", "negative", "bias_positive", "bias_negative", "output", "baseline_output"):
        torch.testing.assert_close(getattr(e, part), getattr(f, part))


def test_rows_of_constants_alone_stay_rows(table):
    ids = torch.randint(0, 5, (3, 2))
    assert (CAFE(lambda x: table(torch.where(x > 5, x, 0)).sum((1, 2))).explain(ids).combined == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_embeddings_of_bounded_size_and_categories_in_the_precision_of_the_model(dtype):
    ids = torch.randint(0, 10, (3, 2))
    short = nn.Embedding(10, 4, max_norm=0.5).to(dtype)
    before = short.weight.clone()
    e = CAFE(nn.Sequential(short, nn.Flatten(), nn.Linear(8, 1).to(dtype), nn.Tanh())).explain(ids)
    assert e.checks.output_error < (1e-5 if dtype == torch.float32 else 1e-12)
    assert torch.equal(short.weight, before)

    class Categories(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(20, 1, dtype=dtype)

        def forward(self, x):
            return torch.tanh(self.layer(nn.functional.one_hot(x, 10).to(dtype).flatten(1)))

    torch.set_default_dtype(torch.float32)
    e = CAFE(Categories()).explain(ids)
    assert e.combined.dtype == dtype
    assert e.completeness_error.abs().max() < (1e-5 if dtype == torch.float32 else 1e-14)
