"""Every rule against its naive twin, in float64, with random references and scores."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._pytree import tree_flatten, tree_unflatten

import cases
import naive
from cafexai._carriers.path import PathScores
from cafexai._core.run import Run, Settings
from cafexai._core.tensors import Scored, Softmaxed
from cafexai._engine.state_guard import StateGuard
from cafexai._engine.tracer import Trace
from cafexai._torch import NEW_NAMES
from cafexai.rules import registry
from cases import CASES, K, S

JOIN_ROWS = (
    "vstack",
    "row_stack",
    "block_diag",
    "_pad_packed_sequence",
)  # constants become rows here, so only one row can be explained


def instances():
    by_name = {}
    for function, rule in registry.rules():
        by_name.setdefault(rule.name, []).append((function, rule))
    for case in CASES:
        for function, rule in by_name.get(case.name, []):
            if case.where(function):
                where = getattr(function, "__module__", None) or "method"
                yield pytest.param(case, function, rule, id=f"{case.name}-{where}-{case.twin}")


def test_every_rule_has_a_case_and_every_case_a_rule():
    names = {rule.name for _, rule in registry.rules()}
    missing_here = {name for name in NEW_NAMES if not registry.functions_named(name)}  # from a newer torch
    assert {case.name for case in CASES} - missing_here == names - cases.WITHOUT_NUMBERS - cases.COMPOSED
    assert names >= cases.COMPOSED
    tested = {param.values[1] for param in instances()}
    missing = [
        str(function)
        for function, rule in registry.rules()
        if rule.name not in cases.WITHOUT_NUMBERS | cases.COMPOSED
        and function not in tested
        and not isinstance(function, OpOverload)
    ]
    assert not missing


def make(spec, generator):
    """A scored value with p, n > 0, its naive pair, or a constant."""
    if isinstance(spec, K):
        return torch.rand(spec.shape, generator=generator) * (spec.high - spec.low) + spec.low
    reference = torch.rand(spec.shape, generator=generator) * (spec.high - spec.low) + spec.low
    positive, negative = (torch.rand(spec.shape, generator=generator) * spec.scores for _ in range(2))
    return naive.Pair(reference, positive, negative)


def build(case, seed, edit=None):
    generator = torch.Generator().manual_seed(seed)
    leaves, structure = tree_flatten((case.args, case.kwargs))
    leaves = [make(leaf, generator) if isinstance(leaf, (S, K)) else leaf for leaf in leaves]
    pairs = [leaf for leaf in leaves if isinstance(leaf, naive.Pair)]
    if edit:
        for pair in pairs:
            edit(pair)
    return leaves, structure, pairs


def scored(pair, run):
    delta = (pair.positive - pair.negative).requires_grad_()
    total = (pair.positive + pair.negative).requires_grad_()
    return run.settings.carrier(run, pair.reference, delta, total, None)


def call(case, function, seed, c, edit=None, carrier=PathScores):
    """The engine's result and what the twin needs."""
    leaves, structure, pairs = build(case, seed, edit)
    rows = {pair.reference.shape[0] for pair in pairs}
    run = Run(
        rows.pop() if len(rows) == 1 and case.name not in JOIN_ROWS else 1, Settings(carrier, lambda path: c, **case.settings)
    )
    states = [scored(pair, run) for pair in pairs]
    queue = iter(states)
    arguments = [Scored(next(queue), torch.float64) if isinstance(leaf, naive.Pair) else leaf for leaf in leaves]
    args, kwargs = tree_unflatten(arguments, structure)
    trace = Trace(run, dict, StateGuard(None))
    with trace:
        result = function(*args, **kwargs)
    assert not trace.problems, trace.problems[0]
    if result is None:
        result = args[0]

    def plain(*values):
        order = iter(values)
        filled = [
            next(order).clone() if isinstance(leaf, naive.Pair) else leaf.clone() if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        args, kwargs = tree_unflatten(filled, structure)
        out = function(*args, **kwargs)
        return args[0] if out is None else out

    return run, states, pairs, result, plain


def outputs(result):
    """The floating point results, by place."""
    if isinstance(result, Tensor):
        return [(None, result)]
    return [(k, part) for k, part in enumerate(result) if isinstance(part, Tensor) and part.is_floating_point()]


def twin_of(case, f, pairs, c):
    if case.frozen == "glu":
        half = pairs[0].reference.shape[1] // 2
        value, gate = (
            naive.Pair(*(t.split(half, 1)[k] for t in (pairs[0].reference, pairs[0].positive, pairs[0].negative)))
            for k in (0, 1)
        )
        twin = naive.elementwise(torch.sigmoid, [gate], c)
        positive, negative = twin.scores([gate])
        gated = naive.Pair(twin.reference, positive, negative)
        inner = naive.product(torch.mul, [value, gated])
        return inner, [value, gated]
    if case.frozen is not None:
        f = case.frozen(*(pair.value for pair in pairs))
    if case.twin in ("linear", "rounded"):
        return naive.linear(f, pairs), pairs
    if case.twin in ("product", "softmax"):
        return getattr(naive, case.twin)(f, pairs), pairs
    if case.twin == "elementwise":
        return naive.elementwise(f, pairs, c), pairs
    if case.twin == "soft":
        return naive.soft_selection(f, pairs), pairs
    return naive.selection(f, pairs, 1 if case.twin == "largest" else -1), pairs


def close(found, expected, scale=1.0):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize(("case", "function", "rule"), list(instances()))
def test_rule_equals_its_naive_twin(case, function, rule):
    for seed, c in ((0, 0.0), (1, 0.5), (2, 1.0)):
        run, states, pairs, result, plain = call(case, function, seed, c)
        if case.twin in ("constant", "shaped"):
            expected = plain(*(pair.value for pair in pairs))
            found = result.as_subclass(Tensor) if isinstance(result, Softmaxed) else result
            assert not isinstance(found, Scored)
            if isinstance(expected, Tensor):
                close(found, expected)
            else:
                close(torch.tensor(found), torch.tensor(expected))
            assert bool(run.frozen) == (case.twin == "constant")
            continue
        assert isinstance(result, (Scored, tuple, list))
        for place, part in outputs(result):
            if not isinstance(part, Scored):
                continue

            def f(*values, place=place):
                out = plain(*values)
                return out if place is None else out[place]

            if case.twin == "rounded":

                def f(x):
                    return x

            twin, twins = twin_of(case, f, pairs, c)
            compare(case, part.state, twin, twins, states, run)


def compare(case, state, twin, twins, states, run):
    positive, negative = twin.scores(twins)
    tolerance = 1e3 if case.twin == "rounded" else 1.0
    if case.twin == "rounded" and state.delta.dtype == torch.float32:
        tolerance = 1e3
    found = state.value.double()
    reference = (torch.zeros_like(state.delta) if state.reference is None else state.reference).double()
    close(reference, twin.reference, tolerance)
    close((state.total + state.delta).double() / 2, positive, tolerance)
    close((state.total - state.delta).double() / 2, negative, tolerance)
    close(found, twin.reference + positive - negative, tolerance)
    if case.frozen == "glu" or case.twin == "rounded":
        return
    generator = torch.Generator().manual_seed(7)
    u, v = (torch.rand(state.shape, generator=generator) for _ in range(2))
    leaves = [tensor for s in states for tensor in (s.delta, s.total)]
    gradients = torch.autograd.grad(
        (u * state.delta).sum() + (v * state.total).sum(), leaves, allow_unused=True, retain_graph=True
    )
    page = run.biases.take()
    to_positive, to_negative = (u + v).flatten(), (v - u).flatten()
    for k, (pair, s) in enumerate(zip(twins, states, strict=True)):
        g_delta, g_total = (torch.zeros_like(s.delta) if g is None else g for g in gradients[2 * k : 2 * k + 2])
        from_positive = (twin.pp[k].T @ to_positive + twin.np[k].T @ to_negative).view(s.shape)
        from_negative = (twin.pn[k].T @ to_positive + twin.nn[k].T @ to_negative).view(s.shape)
        close((g_delta + g_total) * pair.positive, from_positive * pair.positive)
        close((g_total - g_delta) * pair.negative, from_negative * pair.negative)
    bias = twin.bias.flatten()
    expected = (to_positive * bias.clamp_min(0) + to_negative * (-bias).clamp_min(0)).sum()
    close(sum((share.sum() for share in page.values()), torch.zeros(())), expected)


ELEMENTWISE = [p for p in instances() if p.values[0].twin == "elementwise" and p.values[0].args[0] == cases.X]


@pytest.mark.parametrize(("case", "function", "rule"), ELEMENTWISE)
@pytest.mark.parametrize("edge", ["no positive", "no negative", "none", "equal", "zero reference"])
def test_elementwise_edges(case, function, rule, edge):
    """Zeros and ties: 0 / 0 is 0, and nothing is lost."""

    def edit(pair):
        if edge in ("no positive", "none"):
            pair.positive.zero_()
        if edge in ("no negative", "none"):
            pair.negative.zero_()
        if edge == "equal":
            pair.negative.copy_(pair.positive)
        if edge == "zero reference":
            pair.reference.zero_()

    for c in (0.0, 0.5, 1.0):
        run, states, pairs, result, plain = call(case, function, 3, c, edit)
        twin = naive.elementwise(plain, pairs, c)
        compare(case, result.state, twin, pairs, states, run)


@pytest.mark.parametrize(
    "function", [F.relu, F.gelu, torch.tanh, torch.sin, torch.cos, torch.sigmoid, F.leaky_relu, F.softplus]
)
def test_zero_reference_is_never_materialised_but_gives_the_same(function):
    case = cases.Case("x", "elementwise", (cases.X,))
    _, _, _, with_zeros, _ = call(case, function, 0, 0.5, lambda pair: pair.reference.zero_())
    _, _, pairs = build(case, 0, lambda pair: pair.reference.zero_())
    run = Run(2, Settings(PathScores))
    state = scored(pairs[0], run)
    state.reference = None
    with Trace(run, dict, StateGuard(None)):
        without = function(Scored(state, torch.float64)).state
    close(without.delta, with_zeros.state.delta)
    close(without.total, with_zeros.state.total)
    assert (without.reference is None) == (function(torch.zeros(())) == 0)


@pytest.mark.parametrize("twin", ["largest", "smallest"])
def test_ties_share_equally(twin):
    """Equal inputs, as behind dead ReLU units, share what is selected; padding never wins."""
    reference = torch.zeros(1, 1, 4, 4)
    positive = torch.ones(1, 1, 4, 4)
    positive[0, 0, 0, 0] = 2.0
    pair = naive.Pair(reference, positive, torch.full_like(positive, 3.0))  # all values negative
    run = Run(1, Settings(PathScores))
    state = scored(pair, run)
    sign = 1 if twin == "largest" else -1
    with Trace(run, dict, StateGuard(None)):
        result = F.max_pool2d(Scored(state, torch.float64) * sign, 3, 2, 1) * sign
    expected = naive.selection(lambda x: F.max_pool2d(x * sign, 3, 2, 1) * sign, [pair], sign)
    p, n = expected.scores([pair])
    close((result.state.total + result.state.delta) / 2, p)
    close((result.state.total - result.state.delta) / 2, n)


def test_a_variant_of_the_path_carrier_is_a_subclass(monkeypatch):
    """Every word of the rules gives values of the carrier that runs."""
    from cafexai import CAFE
    from cafexai._carriers import CARRIERS
    from cafexai._core.variant import ALLOWED

    seen = []

    class Watched(PathScores):
        def _carry_function(self, phi, keeps_zero):
            seen.append(type(self))
            return super()._carry_function(phi, keeps_zero)

    monkeypatch.setitem(CARRIERS, "watched", Watched)
    monkeypatch.setitem(ALLOWED["netting"], "watched", "a carrier of this test")
    model = nn.Sequential(
        nn.Conv1d(2, 3, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2)
    )
    x = torch.randn(3, 2, 5)
    one, two = (CAFE(model, variant="published", netting=word).explain(x, target=0) for word in ("watched", "path"))
    assert seen == [Watched, Watched]
    assert torch.equal(one.positive, two.positive)


def test_exported_functions_of_torch_special_have_the_rules_of_torch():
    from cafexai import CAFE

    class Special(nn.Module):
        def forward(self, x):
            return torch.special.expit(torch.special.sinc(x)).sum(1, keepdim=True)

    x = torch.randn(2, 3)
    program = torch.export.export(Special(), (x,)).module()
    assert torch.equal(CAFE(program).explain(x).positive, CAFE(Special()).explain(x).positive)


@pytest.mark.usefixtures("shipped_rules")
def test_a_rule_in_the_place_of_another_has_its_kinds():
    before = {name: registry.TABLE[getattr(torch, name)].kinds for name in ("relu", "gather", "clone")}
    for name in before:
        registry.rule(name)(registry.TABLE[getattr(torch, name)].apply)
        assert registry.TABLE[getattr(torch, name)].kinds == before[name] != frozenset()
    registry.rule("relu", kinds=[])(lambda x: x.elementwise(torch.relu, True))
    assert not registry.TABLE[torch.relu].kinds
    with pytest.raises(ValueError, match="unknown kinds"):
        registry.rule("relu", kinds=["moves"])(lambda x: x)


def _largest_of(x, reference):
    """The scores of max(x) against max(reference), in exact arithmetic: ties share, tau mixes both winners."""
    x, reference = ([Fraction(v) for v in values.tolist()] for values in (x, reference))
    best, best_then = max(x), max(reference)
    now, then = ([k for k, v in enumerate(values) if v == top] for values, top in ((x, best), (reference, best_then)))
    r_now, x_then = sum(reference[k] for k in now) / len(now), sum(x[k] for k in then) / len(then)
    gap = best_then - r_now + best - x_then
    tau = (best_then - r_now) / gap if gap > 0 else 0
    weights = [(k in then) * tau / len(then) + (k in now) * (1 - tau) / len(now) for k in range(len(x))]
    return torch.tensor([float(w * (a - r)) for w, a, r in zip(weights, x, reference, strict=True)])


_LARGEST = {
    "amax": lambda v: v.amax(1),
    "max": lambda v: v.max(1).values,
    "max_pool1d": lambda v: F.max_pool1d(v[:, None], v.shape[1])[:, 0, 0],
    "adaptive": lambda v: F.adaptive_max_pool1d(v[:, None], 1)[:, 0, 0],
    "amin": lambda v: -(-v).amin(1),
}


@given(st.data())
@pytest.mark.parametrize("name", _LARGEST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ties_against_a_reference_are_not_decided_by_rounding(name, dtype, data):
    from cafexai import CAFE

    size = data.draw(st.integers(2, 6))
    seed = data.draw(st.integers(0, 10**6))
    generator = torch.Generator().manual_seed(seed)
    levels = torch.rand(3, generator=generator)  # few values, so that most windows have ties
    x = levels[torch.randint(0, 3, (1, size), generator=generator)].to(dtype)
    reference = (torch.rand(1, size, generator=generator) * 10 ** data.draw(st.integers(-3, 1))).to(dtype)
    found = CAFE(_LARGEST[name]).explain(x, reference).combined[0].double()
    torch.testing.assert_close(
        found, _largest_of(x[0], reference[0]), rtol=0, atol=100 * torch.finfo(dtype).eps * float(reference.max() + 1)
    )


def test_what_counts_as_a_tie_is_rounding_alone():
    """Behind a convolution too; values that differ by more, or have nothing to be rounded with, are told apart."""
    from cafexai import CAFE

    reference = torch.tensor([[0.0634, 0.0490, 0.3]]).float()
    for value in torch.linspace(0.5, 0.9, 50).tolist():
        equal = torch.tensor([[value, value, 0.4]]).float()
        assert (CAFE(lambda v: v.amax(1)).explain(equal, reference).combined[0, :2] > 0.05).all()
        apart = torch.tensor([[value, value * (1 + 2e-5), 0.4]]).float()
        assert CAFE(lambda v: v.amax(1)).explain(apart, reference).combined[0, 0] == 0
    close_by = torch.tensor([[0.7, 0.7 + 1e-7, 0.1]]).float()
    for zeros in (None, torch.zeros(1, 3).float()):
        assert CAFE(lambda v: v.amax(1)).explain(close_by, zeros).combined[0].tolist() == [0, close_by[0, 1].item(), 0]
    torch.manual_seed(1)
    convolution = nn.Conv2d(3, 4, 3)
    image, noise = torch.rand(1, 3, 1, 1).expand(1, 3, 8, 8), torch.rand(1, 3, 8, 8)
    model = nn.Sequential(convolution, nn.GELU(), nn.MaxPool2d(6), nn.Flatten(), nn.Linear(4, 1))
    exact = CAFE(model).explain(image, noise).combined
    short = CAFE(model.float()).explain(image.float(), noise.float()).combined
    torch.testing.assert_close(short.double(), exact, rtol=1e-3, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_rows_of_moves_by_their_shapes_are_those_of_every_element(data):
    """What is known of a move by its shape is what moving the numbers of the rows says."""
    shape = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    batch = shape[0]
    x = Scored(PathScores.of_input(Run(batch, Settings(PathScores)), torch.randn(*shape), None), torch.float32)
    dims = st.integers(0, len(shape) - 1)
    one, two, order = data.draw(dims), data.draw(dims), data.draw(st.permutations(range(len(shape))))
    moves = [
        lambda v: v.transpose(one, two),
        lambda v: v.flatten(min(one, two), max(one, two)),
        lambda v: v.flip(one),
        lambda v: v.permute(*order),
        lambda v: v.unsqueeze(one),
        lambda v: v[..., :1],
        lambda v: v[:, None],
        lambda v: v[::1, 0],
        lambda v: v.reshape(-1, shape[-1]),
        lambda v: v.roll(1, one),
        lambda v: v.expand(2, *shape),
    ]
    move = data.draw(st.sampled_from(moves))
    run = x.state.run
    with Trace(run, dict, StateGuard(None)):
        found = move(x).state.rows
    numbers = torch.arange(1, batch + 1, dtype=torch.int32).view(-1, *(1,) * (len(shape) - 1)).expand(shape)
    expected = move(numbers)
    if found is None:
        usual = torch.arange(1, batch + 1, dtype=torch.int32).view(-1, *(1,) * (expected.ndim - 1))
        assert batch == 1 or torch.equal(expected, usual.expand(expected.shape))
    else:
        assert torch.equal(found.expand(expected.shape), expected)
