"""conflict_pairs: a naive twin of the definition in cafexai/_carriers/paired.py, unit by unit, and what follows from it."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import cafexai
from architectures import ARCHITECTURES
from cafexai import CAFE
from whole_models.test_architectures import prepared

ACTIVATIONS = {"relu": nn.ReLU(), "gelu": nn.GELU(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid()}


def naive(layers, x, target, c, reference=None):
    """(features + 1, features + 1) of one row of a plain network: weights, biases and the function between them."""
    weights, phi = layers
    count = len(x)
    reference = torch.zeros_like(x) if reference is None else reference
    shares = [torch.zeros(count).double() for _ in range(count + 1)]
    for f in range(count):
        shares[f][f] = x[f] - reference[f]
    r = reference
    value = x
    pairs = torch.zeros(count + 1, count + 1).double()
    for depth, (weight, bias) in enumerate(weights[:-1]):
        shares = [weight @ k for k in shares]
        shares[-1] = shares[-1] + bias
        r, value = weight @ r, weight @ value + bias

        def rest(activated, depth=depth):
            for i, (w, b) in enumerate(weights[depth + 1 :], depth + 1):
                activated = w @ activated + b
                activated = phi(activated) if i < len(weights) - 1 else activated
            return activated[target]

        activated = phi(value).detach().requires_grad_()
        slopes = torch.autograd.grad(rest(activated), activated)[0]
        new = at_units(pairs, shares, r, value, phi, slopes, c)
        shares, r, value = new, phi(r), phi(value)
    weight, bias = weights[-1]
    return pairs + at_output([k.tolist() for k in shares], weight[target].tolist(), bias[target].item())


def at_units(pairs, shares, r, value, phi, slopes, c):
    """The contributions behind phi; what is cancelled at each unit and does not go on is added to the pairs."""
    new = [k.clone() for k in shares]
    for u in range(len(value)):
        ks, ru, a = [k[u].item() for k in shares], r[u], value[u]
        p, n = sum(max(k, 0) for k in ks), sum(max(-k, 0) for k in ks)
        up, down = phi(ru + p) - phi(max(a, ru)), phi(min(a, ru)) - phi(ru - n)
        big, small = max(up, down, torch.zeros(())), max(-up, -down, torch.zeros(()))
        d, change = a - ru, phi(a) - phi(ru)
        h = min(p, n) * (change / d if d != 0 else torch.zeros(()))
        k_all = c * big + (1 - c) * min(max(h, torch.zeros(())), big)
        m_all = c * small + (1 - c) * min(max(-h, torch.zeros(())), small)
        add(pairs, ks, slopes[u].item() * (big - small - (k_all - m_all)).item())
        plus = ((change if d >= 0 else 0) + k_all - m_all) / p if p else 0
        minus = ((-change if d < 0 else 0) + k_all - m_all) / n if n else 0
        for f, k in enumerate(ks):
            new[f][u] = k * (plus if k > 0 else minus)
    return new


def at_output(shares, weights, bias):
    """First at the values that the last weighted sum takes, then what is left of the scores."""
    features = len(shares)
    pairs = torch.zeros(features, features).double()
    up, down = [0.0] * features, [0.0] * features
    for u, w in enumerate(weights):
        ks = [k[u] for k in shares]
        add(pairs, ks, w * min(sum(max(k, 0) for k in ks), sum(max(-k, 0) for k in ks)))
        for f, k in enumerate(ks):
            up[f] += max(w * k, 0)
            down[f] += max(-w * k, 0)
    up[-1] += max(bias, 0)
    down[-1] += max(-bias, 0)
    all_of_it = min(sum(up), sum(down))
    up = [one - pairs[f].sum().item() for f, one in enumerate(up)]
    down = [one - pairs[:, f].sum().item() for f, one in enumerate(down)]
    larger = max(sum(up), sum(down))
    for f in range(features):
        for g in range(features):
            pairs[f, g] += up[f] * down[g] / larger if larger > 0 else 0
    assert pairs.sum().item() == pytest.approx(all_of_it)
    return pairs


def add(pairs, ks, effect):
    p, n = sum(max(k, 0) for k in ks), sum(max(-k, 0) for k in ks)
    for f, one in enumerate(ks):
        for g, two in enumerate(ks):
            if one > 0 > two:
                up, down = (f, g) if effect > 0 else (g, f)
                pairs[up, down] += abs(effect) * one / p * -two / n


def network(activation, widths, seed, bias=True):
    torch.manual_seed(seed)
    steps = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        steps += [nn.Linear(a, b, bias=bias)] + ([ACTIVATIONS[activation]] if i < len(widths) - 2 else [])
    return nn.Sequential(*steps).double()


def layers_of(model, phi):
    linear = [m for m in model if isinstance(m, nn.Linear)]
    return [
        (m.weight.detach(), torch.zeros(m.out_features).double() if m.bias is None else m.bias.detach()) for m in linear
    ], phi


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(ACTIVATIONS)), st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]), st.booleans(), st.booleans()
)
def test_pairs_are_those_of_the_definition(activation, seed, c, with_reference, bias):
    model = network(activation, [3, 5, 4, 2], seed, bias)
    x = torch.randn(2, 3).double()
    x[0, 0] = 0.0
    reference = torch.randn(1, 3).double() if with_reference else None
    found = CAFE(model, c, "published", netting="feature").explain(x, reference, target=1, pairs=True).conflict_pairs
    for row in range(2):
        twin = naive(layers_of(model, ACTIVATIONS[activation]), x[row], 1, c, None if reference is None else reference[0])
        torch.testing.assert_close(found[row], twin, rtol=1e-9, atol=1e-10)


def pooling(seed):
    """Units, the larger of each two, and a weighted sum."""
    torch.manual_seed(seed)
    first, last = nn.Linear(3, 6), nn.Linear(3, 2)
    return first, last, lambda x: last(nn.functional.max_pool1d(first(x).relu(), 2))


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
def test_a_maximum_takes_part_in_pairs_with_the_weights_of_its_mix(seed, c, with_reference):
    """w is what the engine's maximum gives to each element: tau where it won at the reference, 1 - tau at the input."""
    first, last, model = pooling(seed)
    x = torch.randn(1, 3)
    reference = torch.randn(1, 3) if with_reference else None
    found = CAFE(model, c, "published", netting="feature").explain(x, reference, target=1, pairs=True).conflict_pairs[0]
    start = torch.zeros(3) if reference is None else reference[0]
    weight, bias = first.weight.detach(), first.bias.detach()
    shares = [weight[:, f] * (x[0, f] - start[f]) for f in range(3)] + [bias]
    r, value = weight @ start, weight @ x[0] + bias
    taus = torch.zeros(6)
    for one, two in ((0, 1), (2, 3), (4, 5)):
        a, b = value[[one, two]].relu().tolist(), r[[one, two]].relu().tolist()
        now = [float(v == max(a)) / a.count(max(a)) for v in a]
        then = [float(v == max(b)) / b.count(max(b)) for v in b]
        behind = max(b) - sum(w * v for w, v in zip(now, b, strict=True))
        ahead = max(a) - sum(w * v for w, v in zip(then, a, strict=True))
        tau = behind / (behind + ahead) if behind + ahead > 0 and with_reference else 0.0
        taus[[one, two]] = torch.tensor([tau * t + (1 - tau) * n for t, n in zip(then, now, strict=True)])
    out = last.weight.detach()[1]
    pairs = torch.zeros(4, 4)
    behind = at_units(pairs, shares, r, value, torch.relu, out.repeat_interleave(2) * taus, c)
    pooled = [(k * taus).view(3, 2).sum(1).tolist() for k in behind]
    expected = pairs + at_output(pooled, out.tolist(), last.bias[1].item())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_what_cancels_at_a_unit_before_a_maximum_does_not_depend_on_c():
    """Half of the maximum is the unit that won at the reference: half of the 3 that cancel there count, wherever it shows."""

    def model(x):
        mine = torch.relu(3 * x[:, 0] - 2 * x[:, 1] + x[:, 3])
        return torch.maximum(mine, 3 * x[:, 2])

    x, reference = torch.tensor([[1.0, 1.0, 4 / 3, 1.0]]), torch.tensor([[0.0, 0.0, 0.0, 2.0]])
    expected = torch.zeros(5, 5)
    expected[0, 1], expected[0, 3] = 1.0, 0.5
    for c in (0.0, 0.4, 1.0):
        torch.testing.assert_close(
            CAFE(model, c, "published", netting="feature").explain(x, reference, pairs=True).conflict_pairs[0], expected
        )


def test_a_single_unit():
    """relu(3 x0 - 2 x1) and relu(2 x0 - 3 x1), times 2 and times -1: 2 are cancelled, wherever that shows."""
    for weight, (up, down) in ((2.0, (0, 1)), (-1.0, (1, 0))):
        for first, c in itertools.product(([3.0, -2.0], [2.0, -3.0]), (0.0, 0.4, 1.0)):
            model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False)).double()
            with torch.no_grad():
                model[0].weight.copy_(torch.tensor([first]))
                model[2].weight.fill_(weight)
            e = CAFE(model, c, "published", netting="feature").explain(torch.ones(1, 2).double(), pairs=True)
            expected = torch.zeros(3, 3).double()
            expected[up, down] = 2 * abs(weight)
            torch.testing.assert_close(e.conflict_pairs[0], expected)
            assert e.pairs() == [(f"x{up}", f"x{down}", pytest.approx(2 * abs(weight)))]


def test_two_fights_are_told_apart():
    """x0 against x1 in one unit, x2 against x3 in another: nobody fights across."""
    model = nn.Sequential(nn.Linear(4, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, -1.0, 0.0, 0.0], [0.0, 0.0, 5.0, -2.0]]))
        model[2].weight.fill_(1.0)
    e = CAFE(model, 1.0, "published", netting="feature").explain(torch.ones(1, 4).double(), pairs=True)
    assert e.pairs() == [("x2", "x3", pytest.approx(2)), ("x0", "x1", pytest.approx(1))]
    assert "  x2 up, x3 down: 2\n  x0 up, x1 down: 1\n" in e.ledger()


def test_asking_for_pairs_changes_no_score():
    model = network("gelu", [4, 6, 5, 3], 0)
    x = torch.randn(5, 4).double()
    cafe = CAFE(model, 0.5, "published", netting="feature")
    plain, paired = cafe.explain(x, target=2), cafe.explain(x, target=2, pairs=True)
    assert plain.conflict_pairs is None
    for name in ("positive", "negative", "combined", "output", "bias"):
        assert torch.equal(getattr(plain, name), getattr(paired, name))
        assert not getattr(paired, name).requires_grad
    assert not paired.conflict_pairs.requires_grad
    assert (paired.conflict_pairs >= 0).all()


def test_batches_classes_constants_baselines_groups_and_files(tmp_path):
    model = network("relu", [4, 6, 5, 3], 1)
    x = torch.randn(5, 4).double()
    cafe = CAFE(model, 0.5, "published", netting="feature")
    whole = cafe.explain(x, target="all", pairs=True)
    for target in range(3):
        one = cafe.explain(x, target=target, pairs=True, batch_size=2, show_progress=False)
        torch.testing.assert_close(whole[target].conflict_pairs, one.conflict_pairs)
    several = cafe.explain(x, target=0, c=[0.0, 1.0], pairs=True)
    torch.testing.assert_close(
        several[1.0].conflict_pairs,
        CAFE(model, 1.0, "published", netting="feature").explain(x, target=0, pairs=True).conflict_pairs,
    )
    stack = torch.randn(2, 4).double()
    each = [cafe.explain(x, b, target=0, pairs=True).conflict_pairs for b in stack]
    torch.testing.assert_close(
        cafe.explain(x, stack[:, None].expand(2, 5, 4), target=0, pairs=True).conflict_pairs, sum(each) / 2
    )
    groups = cafe.explain(x, target=0, pairs=True, feature_groups={"both": [1, 3]})
    assert groups.conflict_pairs.shape == (5, 4, 4)
    assert {name for pair in groups.pairs(most=99) for name in pair[:2]} <= {"x0", "both", "x2", "(bias)"}
    groups[2].save(tmp_path / "one.safetensors")
    again = cafexai.Explanation.load(tmp_path / "one.safetensors")
    assert torch.equal(again.conflict_pairs, groups.conflict_pairs[2:3])
    assert again.pairs() == groups.pairs(2)


class Sequences(nn.Module):
    """Time first inside, and an attention: rows in another place, frozen weights."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        x = x.transpose(0, 1)
        y, _ = self.attention(x, x, x)
        return self.out(torch.nn.functional.gelu(x + y).mean(0))


def test_rows_in_other_places_and_attention():
    torch.manual_seed(0)
    model = Sequences().double().eval()
    x = torch.randn(3, 5, 4).double()
    cafe = CAFE(model, 0.5, "published", netting="feature")
    whole = cafe.explain(x, target=0, pairs=True).conflict_pairs
    single = torch.cat([cafe.explain(row[None], target=0, pairs=True).conflict_pairs for row in x])
    torch.testing.assert_close(whole, single)
    assert whole.shape == (3, 21, 21)
    assert whole.sum() > 0


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_at_c_1_pairs_split_the_conflict_of_every_architecture(name):
    model, inputs, references, options = prepared(name, torch.float64)
    cafe = CAFE(model, 1.0, "published", netting="feature")
    e = cafe.explain(inputs, references, target=1, pairs=True, feature_groups=thirds(inputs), **options)
    plain = cafe.explain(inputs, references, target=1, feature_groups=thirds(inputs), **options)
    torch.testing.assert_close(e.combined, plain.combined)
    sides = e.positive.sum(1) + e.bias_positive, e.negative.sum(1) + e.bias_negative
    torch.testing.assert_close(e.conflict_pairs.sum((1, 2)), torch.minimum(*sides), rtol=1e-8, atol=1e-9)


def thirds(inputs):
    """One mask for all rows: three groups, whatever their shape."""
    return tuple(torch.arange(x[0].numel()).reshape(1, *x.shape[1:]) % 3 for x in inputs)


def test_errors_say_what_to_do():
    model = network("relu", [3, 4, 1], 0)
    x = torch.randn(2, 3).double()
    with pytest.raises(ValueError, match='variant="feature"'):
        CAFE(model).explain(x, pairs=True)
    with pytest.raises(ValueError, match="pairs=True"):
        CAFE(model, variant="published", netting="feature").explain(x).pairs()


@pytest.mark.parametrize("name", ["twice", "joined", "with a layer"])
def test_pairs_behind_values_whose_scores_wait(name):
    """At c = 1 they add up to what cancelled, however often such a value is used."""
    torch.manual_seed(3)
    query, key, layer = nn.Linear(4, 3), nn.Linear(4, 6), nn.Linear(2, 2)
    end = {
        "twice": lambda v: v + v,
        "joined": lambda v: torch.cat([v.amax(1, keepdim=True), v], 1),
        "with a layer": lambda v: v + layer(v),
    }[name]

    def model(x):
        scores = key(x).view(len(x), 2, 3) @ query(x)[:, :, None]
        return end(scores[:, :, 0])

    e = CAFE(model, 1.0, variant="published", netting="feature").explain(torch.randn(3, 4), target=0, pairs=True)
    up, down = (part.sum(1) + bias for part, bias in ((e.positive, e.bias_positive), (e.negative, e.bias_negative)))
    torch.testing.assert_close(e.conflict_pairs.sum((1, 2)), torch.minimum(up, down))


def _several_ends():
    torch.manual_seed(3)
    before, layer, one, two = nn.Linear(4, 4), nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 5)

    def after(end):
        return lambda x: end(layer(before(x).tanh()))

    def written(h):
        y = h.clone()
        y[:, :2].copy_(h[:, 2:4])
        y = y.tanh()
        y[:, 1:3] += h[:, :2]
        first, _ = y.chunk(2, 1)
        first.mul_(2)
        return y

    ends = {
        "twice": lambda h: h + h,
        "less itself": lambda h: h - h / 2,
        "with a layer of it": lambda h: h + one(h),
        "less its mean": lambda h: h - h.mean(1, keepdim=True),
        "with its maximum": lambda h: h.amax(1, keepdim=True) + h,
        "with a product": lambda h: h * one(h) + h,
        "joined to a layer of it": lambda h: torch.cat([h, one(h)], 1).view(-1, 2, 5).sum(1),
        "a stream": lambda h: (h + one(h)) + two(h + one(h)),
        "a copied stream": lambda h: (h + one(h)).clone() + two(h),
        "written through a view": written,
    }
    return {name: after(end) for name, end in ends.items()}


@pytest.mark.parametrize("name", _several_ends())
@pytest.mark.parametrize("with_reference", [False, True])
def test_at_c_1_pairs_add_up_however_often_a_value_is_used(name, with_reference):
    model = _several_ends()[name]
    x, reference = torch.randn(3, 4), torch.randn(1, 4) if with_reference else None
    cafe = CAFE(model, 1.0, variant="published", netting="feature")
    e = cafe.explain(x, reference, target=0, pairs=True)
    up, down = (part.sum(1) + bias for part, bias in ((e.positive, e.bias_positive), (e.negative, e.bias_negative)))
    torch.testing.assert_close(e.conflict_pairs.sum((1, 2)), torch.minimum(up, down))
    plain = cafe.explain(x, reference, target=0)
    assert torch.equal(e.positive, plain.positive)
    assert torch.equal(e.negative, plain.negative)
