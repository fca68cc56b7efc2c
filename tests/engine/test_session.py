"""Sessions: the same bits as outside, nothing kept behind them, and a changed model is noticed."""

import copy
import functools
import pickle
import threading

import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai._core.math_functions import add_references
from cafexai._core.session_cache import SessionCache
from cafexai.errors import ModelChanged


class Residual(nn.Module):
    """A forward of its own, with a layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.first, self.twice, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.register_buffer("shift", torch.ones(6))

    def forward(self, x):
        x = self.first(x) + self.shift
        for _ in range(2):
            x = x + torch.tanh(self.twice(x))
        return self.last(torch.relu(x))


def chain():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 2))


def pictures():
    convolutions = (nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 2, 2, stride=2))
    return nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1, enable_nested_tensor=False)


MODELS = [(chain, (3, 4)), (Residual, (3, 4)), (pictures, (2, 1, 8, 8)), (encoder, (1, 3, 4))]


def made(build, shape, seed=0):
    torch.manual_seed(seed)
    return build().eval(), torch.randn(shape), torch.randn(shape)


def same(a, b):
    return all(
        torch.equal(getattr(a, name), getattr(b, name)) for name in ("positive", "negative", "combined", "output", "bias")
    )


def asked(cafe, x, baseline):
    target = None if x.ndim != 3 else (0, 1)
    return [
        cafe.explain(x, target=target),
        cafe.explain(x, baseline, target=target),
        cafe.explain(x, baseline[:1], target=target, conflict="net"),
        cafe.explain(-x, baseline[:1], target=target),
        cafe.replace(c=1.0, biases="scores").explain(x, target=target),
    ]


@pytest.mark.parametrize("variant", ["default", "published", "feature"])
@pytest.mark.parametrize(("build", "shape"), MODELS)
def test_scores_are_bit_for_bit_those_outside(build, shape, variant):
    model, x, baseline = made(build, shape)
    cafe = CAFE(model, variant=variant)
    outside = asked(cafe, x, baseline)
    with cafe.session() as inside:
        assert inside is cafe
        for _ in range(2):
            assert all(map(same, asked(cafe, x, baseline), outside))
    assert all(map(same, asked(cafe, x, baseline), outside))


def test_products_of_references_and_absolute_weights_are_not_repeated():
    model, x, _ = made(Residual, (1, 4))
    cafe = CAFE(model)
    products = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            products.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    def count():
        products.clear()
        with Count():
            cafe.attribute(x, target=0)
        return products.count("addmm"), products.count("abs")

    outside = count()
    with cafe.session():
        count()
        inside = count()
    assert inside[0] < outside[0]
    assert inside[1] < outside[1]
    assert count() == outside


def in_session(cafe, *steps):
    with cafe.session():
        for step in steps:
            step()


def scale(weight, factor):
    with torch.no_grad():
        weight.mul_(factor)


@pytest.mark.parametrize("build", [chain, Residual])
def test_a_change_in_place_is_refused_at_the_next_call(build):
    model, x, _ = made(build, (3, 4))
    cafe = CAFE(model)
    explain, change = functools.partial(cafe.explain, x), functools.partial(scale, next(model.parameters()), 2)
    with pytest.raises(ModelChanged, match=r"explain\(\.\.\.\): '.*weight' of the model changed inside a session"):
        in_session(cafe, explain, change, explain)
    assert same(cafe.explain(x), CAFE(copy.deepcopy(model)).explain(x))


def test_a_change_past_versions_is_noticed_at_the_end():
    model, x, _ = made(chain, (3, 4))
    cafe, weight = CAFE(model), model[2].weight.data.numpy()
    with pytest.raises(ModelChanged, match=r"'2\.weight' of the model changed inside the session.*discard them"):
        in_session(cafe, lambda: cafe.explain(x), lambda: weight.__setitem__(0, -weight[0]))
    assert same(cafe.explain(x), CAFE(copy.deepcopy(model)).explain(x))


def test_another_parameter_or_buffer_is_noticed_at_the_end():
    model, x, _ = made(Residual, (3, 4))
    cafe, right = CAFE(model), []

    def compare():
        right.append(same(cafe.explain(x), CAFE(copy.deepcopy(model)).explain(x)))

    with pytest.raises(ModelChanged, match=r"first\.weight"):
        in_session(cafe, lambda: setattr(model.first, "weight", nn.Parameter(torch.zeros(6, 4))), compare)
    assert right == [True]  # nothing is kept of what is new
    with pytest.raises(ModelChanged, match=r"'more'"):
        in_session(cafe, lambda: model.register_buffer("more", torch.ones(1)))
    with pytest.raises(ModelChanged, match=r"'last\.\w+' and 1 more"):
        in_session(cafe, lambda: setattr(model, "last", nn.Linear(6, 2)))


def test_sessions_in_one_another_share_what_is_kept_until_the_last_ends():
    model, x, _ = made(chain, (3, 4))
    cafe = CAFE(model)
    with cafe.session():
        kept = cafe._subject.session
        with cafe.replace(c=0.0).session() as inner:
            inner.explain(x)
            assert inner._subject.session is kept
        assert cafe._subject.session is kept
    assert cafe._subject.session is None


def test_an_error_ends_a_session_and_stays_the_error():
    model, x, _ = made(chain, (3, 4))
    cafe = CAFE(model)
    with pytest.raises(ZeroDivisionError):
        in_session(cafe, lambda: cafe.explain(x), lambda: scale(model[0].weight, 0), lambda: 1 / 0)
    assert cafe._subject.session is None
    assert same(cafe.explain(x), CAFE(copy.deepcopy(model)).explain(x))


def test_a_pickled_or_copied_explainer_has_no_session():
    model, x, _ = made(chain, (3, 4))
    cafe = CAFE(model)
    with cafe.session():
        right = cafe.explain(x)
        for other in (pickle.loads(pickle.dumps(cafe)), copy.deepcopy(cafe)):
            assert other._subject.session is None
            assert same(other.explain(x), right)


def test_threads_share_a_session():
    model, x, baseline = made(Residual, (3, 4))
    cafe = CAFE(model)
    right, found = cafe.explain(x, baseline[:1]), []

    def work():
        for _ in range(5):
            with cafe.session():
                found.append(cafe.explain(x, baseline[:1]))

    with cafe.session():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 20
    assert all(same(one, right) for one in found)
    assert cafe._subject.session is None


def test_functions_and_weights_made_in_forward_keep_nothing():
    model, x, _ = made(chain, (3, 4))
    cafe = CAFE(lambda v: torch.relu(torch.nn.functional.linear(model(v), torch.eye(2) * 2)))
    right = cafe.explain(x, target=0)
    with cafe.session():
        assert same(cafe.explain(x, target=0), right)
        session = cafe._subject.session
        assert not session.cache._absolute
        assert not session.cache._known


def test_baselines_that_differ_are_not_kept_and_the_size_is_bounded():
    weight, bias = torch.randn(3, 4), torch.randn(3)
    cache = SessionCache([weight, bias])
    calls = []

    def layer(r):
        calls.append(r)
        return torch.nn.functional.linear(r, weight, bias)

    first, second = torch.ones(1, 4), torch.zeros(1, 4)
    for reference, count in ((first, 1), (first.clone(), 1), (second, 2), (first, 3), (first, 4)):
        right = torch.nn.functional.linear(reference, weight, bias)
        assert torch.equal(cache.at_reference("linear", layer, reference, (weight, bias)), right)
        assert len(calls) == count
    cache._limit = 10
    for length in range(2, 6):
        cache.at_reference("linear", layer, torch.ones(length, 4), (weight, bias))
    assert len(cache._known) <= 1
    written = cache.at_reference("linear", layer, torch.ones(1, 4), (weight, None))
    weight.add_(1)
    assert not torch.equal(cache.at_reference("linear", layer, torch.ones(1, 4), (weight, None)), written)


def test_results_that_were_written_to_are_not_reused():
    weight = torch.randn(3, 4)
    cache = SessionCache([weight])
    result = cache.at_reference("linear", lambda r: r @ weight.t(), torch.ones(1, 4), (weight,))
    right = result.clone()
    result.zero_()
    assert torch.equal(cache.at_reference("linear", lambda r: r @ weight.t(), torch.ones(1, 4), (weight,)), right)


def test_a_sum_of_references_that_are_one_row_for_all_stays_one_row():
    one, other = torch.randn(1, 4).expand(3, 4), torch.randn(1, 4).expand(3, 4)
    found = add_references(one, other, -1.5)
    assert found.stride(0) == 0
    assert torch.equal(found, torch.add(one, other, alpha=-1.5))
    assert torch.equal(add_references(one, other.contiguous(), -1.5), found)
    assert add_references(torch.tensor(1.0), torch.tensor(2.0), 1).item() == 3


@pytest.mark.parametrize(
    "odd", [torch.randn(3, dtype=torch.complex64).conj(), torch.empty(3, device="meta")], ids=["conj", "meta"]
)
def test_buffers_that_cannot_be_read_as_bytes(odd):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)).eval()
    model.register_buffer("odd", odd)
    cafe, x = CAFE(model), torch.randn(2, 3)
    with cafe.session():
        found = cafe.explain(x).combined
    assert torch.equal(found, cafe.explain(x).combined)
