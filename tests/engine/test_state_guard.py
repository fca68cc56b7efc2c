"""Explaining leaves the model as it is, and everybody else: threads that explain, train and draw random numbers."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import random
import threading
import time
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import models
from cafexai import CAFE, supported
from cafexai._torch import DRAWS_LIKE
from cafexai.conflicts.find_units import local_layers
from cafexai.errors import UnsupportedOperation
from cafexai.methods import METHODS

HISTORY: list[torch.Tensor] = []
KNOWN: list[torch.Tensor] = []


class Box:
    """An object that a model holds."""

    def __init__(self):
        self.last = None


@dataclasses.dataclass(slots=True)
class Slots:
    """The same without a dictionary."""

    last: torch.Tensor | None = None
    count: int = 0


class Stateful(nn.Module):
    """A linear layer and something that changes with every call; ``more`` is what it brings."""

    def __init__(self, state, more):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and not name.startswith("plain"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        self.more = more

    def forward(self, x):
        y = self.inner(x)
        return torch.relu(y) * (1 + self.more(self, y))


def counted(m, y):
    m.count += 1
    return m.count


def averaged(m, y):
    before = m.average * 1.0
    m.average.mul_(0.9).add_(0.1 * y.detach().mean(0))
    return before * m.average


def used_then_changed(m, y):
    found = y * m.average
    m.average.mul_(0.5)
    return found * m.average


def through_data(m, y):
    m.average.data.mul_(0.9)
    return m.average


def through_numpy(m, y):
    m.average.numpy()[:] *= 0.5
    return m.average


def replaced(m, y):
    m.average.data = m.average * 2
    return m.average


def through_a_view(m, y):
    m.average.view(-1)[1:].add_(2)
    m.average[0] += 1
    torch.add(m.average, 1, out=m.average)
    return m.average


def unregistered(m, y):
    m.plain[0].add_(1)
    m.plain_list[0].add_(1)
    return m.plain[0] + m.plain_list[0]


def in_numpy(m, y):
    m.table += 1
    return float(m.table.sum())


def in_containers(m, y):
    found = sum((v.sum() for v in m.queue), 0.0) + m.ordered.get("last", 0.0) + m.nested["a"]["b"].get("last", 0.0)
    m.queue.append(y)
    m.ordered["last"] = y
    m.ordered.move_to_end("first")
    m.nested["a"]["b"]["last"] = y
    m.lists["new"].append((y, [y]))
    return found


def in_objects(m, y):
    found = sum(holder.last for holder in (m.box, m.slots, m.space) if holder.last is not None)
    m.box.last = m.box.more = m.slots.last = m.space.last = y
    m.slots.count += 1
    return found + m.slots.count


def in_an_object_of_others(m, y):
    found = m.dictionary.get("last", 0.0)
    m.dictionary["last"] = y
    return found


def in_a_global(m, y):
    found = sum((v.sum() for v in KNOWN), 0.0)
    KNOWN.append(y)
    return found


def reassigned(m, y):
    m.count = m.count + 1
    m.last = y
    return m.count


CHANGING = {
    "count": (counted, lambda: {"count": torch.zeros(1)}),
    "average": (averaged, lambda: {"average": torch.ones(3)}),
    "used then changed": (used_then_changed, lambda: {"average": torch.ones(3)}),
    "data": (through_data, lambda: {"average": torch.ones(3)}),
    "numpy view": (through_numpy, lambda: {"average": torch.ones(3)}),
    "replaced": (replaced, lambda: {"average": torch.ones(3)}),
    "view": (through_a_view, lambda: {"average": torch.ones(3)}),
    "unregistered": (unregistered, lambda: {"plain": (torch.ones(3),), "plain_list": [torch.ones(3)]}),
    "numpy": (in_numpy, lambda: {"table": np.ones(3)}),
    "containers": (
        in_containers,
        lambda: {
            "queue": collections.deque(maxlen=2),
            "ordered": collections.OrderedDict(first=1.0, second=2.0),
            "nested": {"a": {"b": {}}},
            "lists": collections.defaultdict(list),
        },
    ),
    "objects": (in_objects, lambda: {"box": Box(), "slots": Slots(), "space": types.SimpleNamespace(last=None)}),
    "others": (in_an_object_of_others, lambda: {"dictionary": collections.UserDict()}),
    "global": (in_a_global, dict),
    "reassigned": (reassigned, lambda: {"count": torch.zeros(1)}),
}


def stateful(name):
    torch.manual_seed(0)
    more, state = CHANGING[name]
    return Stateful(state(), more)


def followed(explain):
    """Twice, since the first call might leave something behind."""
    explain()
    return explain()


WAYS = {
    "explain": lambda m, x: CAFE(m).explain(x, target=1),
    "attribute": lambda m, x: CAFE(m).attribute(x, target=1),
    "feature": lambda m, x: CAFE(m, variant="published", netting="feature").explain(x, target=1),
    "each": lambda m, x: CAFE(m).explain(x, target=1, check="each"),
    "many rows": lambda m, x: CAFE(m).attribute(torch.randn(6000, 3), target=1),
    "several c": lambda m, x: CAFE(m).explain(x, target=1, c=[0, 1]),
    "baselines": lambda m, x: CAFE(m).explain(x, baselines=torch.ones(2, 1, 3), target=1),
    "supported": supported,
    "deeplift": lambda m, x: METHODS["deeplift_rescale"](m, x, target=1),
    "local": local_layers,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CHANGING)
def test_the_model_is_as_before(name, way):
    x = torch.randn(4, 3)
    KNOWN.clear()
    expected = stateful(name)(x)
    KNOWN.clear()
    model = stateful(name)
    if name in ("numpy view", "replaced", "others", "global") and way in ("many rows", "local"):
        pytest.skip("not seen where calls are not followed")
    followed(lambda: WAYS[way](model, x))
    assert torch.equal(model(x), expected)
    if name == "containers":
        assert list(model.ordered) == ["second", "last", "first"]
        assert model.queue.maxlen == 2
        assert len(model.queue) == 1


@pytest.mark.parametrize("name", CHANGING)
def test_the_scores_are_those_of_the_next_call(name):
    x = torch.randn(4, 3)
    KNOWN.clear()
    expected = stateful(name)(x)
    KNOWN.clear()
    e = followed(lambda: CAFE(stateful(name)).explain(x, target=1))
    torch.testing.assert_close(e.output, expected[:, 1])
    assert e.completeness_error.abs().max() < 1e-5


def test_versions_of_tensors_are_as_before():
    model = stateful("average")
    version = model.average._version
    CAFE(model).explain(torch.randn(4, 3), target=1)
    assert model.average._version == version


def test_norms_of_embeddings_are_not_changed():
    torch.manual_seed(0)
    table = nn.Embedding(5, 4, max_norm=0.5)
    before = table.weight.float()
    CAFE(nn.Sequential(table, nn.Flatten(), nn.Linear(8, 1)).float()).explain(torch.tensor([[0, 3]]))
    assert torch.equal(table.weight, before)


def test_arguments_of_forward_are_not_changed():
    mask, box = torch.ones(3), Box()

    def f(x, mask, box):
        mask += 1
        found = x if box.last is None else x + box.last
        box.last = x
        return (found * mask).sum(1)

    CAFE(f).explain(torch.randn(2, 3), additional_forward_args=(mask, box))
    assert torch.equal(mask, torch.ones(3))
    assert box.last is None


def test_functions_and_callable_objects():
    class Called:
        def __init__(self):
            self.count, self.seen, self.inner = torch.zeros(3), [], stateful("count")

        def __call__(self, x):
            self.count += 1
            self.seen.append(x)
            return self.inner(x) * self.count * len(self.seen)

    def closure():
        calls, count, seen, inner = 0, torch.zeros(3), [], stateful("containers")

        def f(x):
            nonlocal calls
            calls += 1
            count.add_(1)
            seen.append(x)
            return inner(x) * calls * count * len(seen)

        return f

    x = torch.randn(4, 3)
    for make in (Called, closure, lambda: Called().__call__):
        expected = make()(x)
        f = make()
        followed(lambda f=f: CAFE(f).explain(x, target=1))
        assert torch.equal(f(x), expected)


def test_what_is_kept_elsewhere_is_named():
    HISTORY.clear()

    def remember(x):
        HISTORY.append(x)
        return sum(HISTORY)

    model = nn.Sequential(nn.Linear(3, 3))
    model[0].register_forward_hook(lambda module, inputs, output: remember(output))
    with pytest.raises(UnsupportedOperation, match="stored the value outside the module"):
        CAFE.published(model).explain(torch.randn(2, 3), target=0)
    with pytest.raises(ValueError, match="previous explain"):
        CAFE.published(model).explain(torch.randn(2, 3), target=0)
    HISTORY.clear()
    with pytest.raises(UnsupportedOperation, match="stored the value outside the module"):
        CAFE(model).explain(torch.randn(2, 3), target=0)


# ---- random numbers ----------------------------------------------------------------------------------------------------


class Drawing(nn.Module):
    """Draws in many ways."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.own = torch.Generator().manual_seed(3)
        self.register_buffer("noise", torch.zeros(3))

    def forward(self, x):
        self.noise.normal_()
        y = self.inner(x) * torch.rand(3) + self.noise + torch.randperm(3) + torch.randint(0, 4, (3,))
        y = (
            y
            + torch.rand(3, generator=self.own)
            + torch.randn_like(y)
            + torch.rand_like(x)
            + torch.bernoulli(torch.full((3,), 0.5))
        )
        kept = F.dropout(torch.ones(3), 0.5, training=True)
        return torch.relu(y) * kept + torch.distributions.Gamma(1.0, 1.0).sample((3,)) + torch.normal(0.0, torch.ones(3))


def test_all_runs_draw_what_the_next_call_draws():
    torch.manual_seed(0)
    model, x = Drawing(), torch.randn(4, 3)
    generator = model.own.get_state()
    before = torch.get_rng_state()
    for c in (0.5, [0.0, 1.0]):
        e = CAFE(model).explain(x, baselines=torch.ones(2, 1, 3), target=1, c=c)
    CAFE(model).attribute(torch.randn(6000, 3, generator=torch.Generator().manual_seed(1)), target=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(model.own.get_state(), generator)
    assert not model.noise.any()
    torch.testing.assert_close(e[0].output, model(x)[:, 1])


@pytest.mark.parametrize(
    "name", ["cafe_refined", "gradient_shap", "smoothgrad", "lime", "kernel_shap", "shapley_value_sampling"]
)
def test_methods_do_not_touch_the_generator(name, monkeypatch):
    for touch in ("manual_seed", "set_rng_state"):
        monkeypatch.setattr(torch, touch, lambda *args: pytest.fail("the generator is everybody's"))
    METHODS[name](models.mlp(3, 4, 2), torch.randn(2, 3), target=0)


# ---- other threads -----------------------------------------------------------------------------------------------------


class Written(nn.Module):
    """A perceptron with a forward of its own."""

    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Noisy(Written):
    """Its noise is a constant, so that the scores of the features are the same for all draws."""

    def __init__(self, *widths):
        super().__init__(*widths)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        out = super().forward(x) * self.calls
        return out + torch.rand_like(out) + torch.randn(out.shape[1]) + self.calls


def trained(steps):
    """A model after some steps of gradient descent, and a function that makes one more."""
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    x, y = torch.randn(16, 3), torch.randn(16, 1)

    def step():
        model.train()
        slopes = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
        with torch.no_grad():
            for weight, slope in zip(model.parameters(), slopes, strict=True):
                weight -= 0.01 * slope
        model.eval()

    for _ in range(steps):
        step()
    return model, step


@pytest.mark.parametrize(
    ("draw", "args"),
    [(torch.rand_like, ()), (torch.randn_like, ()), (torch.randint_like, (9,)), (torch.randint_like, (-3, 9))],
    ids=["rand_like", "randn_like", "randint_like", "randint_like from low"],
)
@pytest.mark.parametrize("options", [{}, {"dtype": torch.float32}], ids=["its dtype", "float32"])
def test_older_releases_draw_the_same_numbers_from_a_generator(draw, args, options):
    given = torch.zeros(4, 5, 6).permute(2, 0, 1)[:, :, ::2]
    torch.manual_seed(3)
    expected = draw(given, *args, **options)
    own = torch.Generator().manual_seed(3)
    packet = getattr(torch.ops.aten, draw.__name__)
    drawn = DRAWS_LIKE[packet.low_dtype if len(args) == 2 else packet.default](given, *args, generator=own, **options)
    assert drawn.dtype == expected.dtype
    assert drawn.stride() == expected.stride()
    assert torch.equal(drawn, expected)


def test_threads_do_not_disturb_each_other():
    torch.manual_seed(0)
    shared, x = Written(5, 16, 16, 3), torch.randn(3, 5)
    chain = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    noisy = Noisy(5, 16, 3)
    tasks = [
        lambda: CAFE(shared).attribute(x, target=1),
        lambda: CAFE(shared, variant="published", netting="feature").attribute(x, target=2),
        lambda: CAFE(chain).attribute(x, target=0),
        lambda: CAFE(noisy).attribute(x, target=1),
    ]
    expected = [task() for task in tasks]
    model, step = trained(0)
    seen = collections.Counter()
    wrong, draws = [], []
    end = time.monotonic() + 2.5

    def until_the_end(work):
        def run():
            try:
                while time.monotonic() < end:
                    work()
            except BaseException as error:
                wrong.append(error)

        return threading.Thread(target=run)

    def explaining(task, scores):
        def work():
            seen["explained"] += 1
            if not torch.equal(task(), scores):
                wrong.append("scores")

        return work

    def training():
        step()
        seen["steps"] += 1
        for flag in (False, True):  # of a model that is being explained; it has no layer that minds
            shared.train(flag)
            time.sleep(random.random() * 0.02)
            if any(module.training is not flag for module in shared.modules()):
                wrong.append("training")

    def drawing():
        draws.append(torch.rand(3))
        time.sleep(1e-3)

    before = copy.deepcopy([m.state_dict() for m in (shared, chain, noisy)])
    torch.manual_seed(5)
    threads = [until_the_end(explaining(task, scores)) for task, scores in zip(tasks, expected, strict=True)]
    threads += [until_the_end(training), until_the_end(drawing)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, collections.Counter(map(str, wrong))
    assert seen["explained"] > 20
    assert seen["steps"] > 5
    assert len(draws) > 20
    alone = torch.Generator().manual_seed(5)
    assert all(torch.equal(draw, torch.rand(3, generator=alone)) for draw in draws)
    for old, now in zip(before, (shared, chain, noisy), strict=True):
        assert all(torch.equal(value, old[name]) for name, value in now.state_dict().items())
    same, _ = trained(seen["steps"])
    assert all(torch.equal(value, same.state_dict()[name]) for name, value in model.state_dict().items())


def test_hooks_of_the_engine_are_gone_afterwards():
    hooks = nn.modules.module
    barrier = threading.Barrier(3)

    def explain():
        barrier.wait()
        for _ in range(10):
            CAFE(Written(3, 4, 2)).attribute(torch.randn(2, 3), target=0)

    threads = [threading.Thread(target=explain) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks


def test_values_written_into_views_of_plain_tensors():
    """Of new tensors, of tensors that somebody else keeps (and gets back), one part after the other."""
    kept = torch.arange(12.0).view(3, 4).clone()
    column = kept[:, 3]

    def new(v):
        whole = torch.full((3, 5), 7.0)
        whole[:, :2].copy_(v[:, 1:3])
        whole[:, 2].add_(v[:, 0])
        return torch.tanh(whole).sum(1)

    def others(v):
        column.copy_(v[:, 0])
        return torch.tanh(kept[:, 2:]).sum(1)

    def plain(v):
        return torch.tanh(torch.cat([v[:, 1:3], v[:, :1] + 7, torch.full((3, 2), 7.0)], 1)).sum(1)

    x, start = torch.randn(3, 4), torch.randn(3, 4)
    numbers = torch.arange(12.0).view(3, 4)
    for netting in ("path", "feature", "unit"):
        for reference in (None, start):
            e, f = (CAFE(model, variant="published", netting=netting).explain(x, reference) for model in (new, plain))
            torch.testing.assert_close(e.positive, f.positive)
            torch.testing.assert_close(e.bias, f.bias)
            e = CAFE(others, variant="published", netting=netting).explain(x, reference)
            f = CAFE(lambda v: torch.tanh(v[:, 0]) + torch.tanh(numbers[:, 2]), variant="published", netting=netting).explain(
                x, reference
            )
            torch.testing.assert_close(e.combined, f.combined)
            torch.testing.assert_close(e.bias, f.bias)
            assert type(kept) is type(column) is torch.Tensor
            assert torch.equal(kept, numbers)
            assert column._base is kept
