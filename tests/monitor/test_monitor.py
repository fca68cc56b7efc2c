"""The monitor: statistics against their definitions, merging, files, verdicts on shifts of a trained network."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE, Schema
from cafexai.monitor import Monitor
from cafexai.monitor import _statistics as statistics
from cafexai.monitor._bins import FEW, LEVELS, MISSING, NEW, WIDTH, Bins
from cafexai.monitor._odd_rows import _log_density

NAMES = ["age", "income", "debts", "rooms", "kind"]


def draw(rows, seed):
    """Two columns that move together, two others, and one with three values."""
    random = np.random.default_rng(seed)
    base = random.normal(size=(rows, 4))
    base[:, 2] = 0.9 * base[:, 1] + 0.4 * base[:, 2]
    return torch.tensor(np.column_stack([base, random.integers(0, 3, rows)]), dtype=torch.float32)


def label(x):
    return ((x[:, 1] * x[:, 2] + x[:, 0]) > 0.5).long()


@pytest.fixture(scope="module")
def cafe():
    torch.manual_seed(0)
    with torch.random.fork_rng():
        net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1)).float()
        x = draw(3000, 1)
        optimiser = torch.optim.Adam(net.parameters(), 1e-2)
        for _ in range(150):
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], label(x).float()).backward()
            optimiser.step()
    return CAFE(net.eval(), feature_names=NAMES)


@pytest.fixture(scope="module")
def fitted(cafe):
    x = draw(3000, 2)
    return Monitor.fit(cafe, x, label(x), false_alarms=0.05)


@pytest.fixture
def monitor(fitted):
    return fitted.copy()


def counts(bins, values):
    return np.bincount(bins.place(values), minlength=WIDTH)


def moved(bins, one, two):
    """Wasserstein's distance from counts and sums in bins."""
    parts = []
    for values in (one, two):
        count = counts(bins, values)
        parts += [count, statistics.bin_means(count, np.bincount(bins.place(values), values, WIDTH))]
    return statistics.wasserstein(*parts)


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.lists(st.integers(-4, 4), min_size=1, max_size=30))
def test_distance_of_few_values_is_that_of_the_samples(one, two):
    one, two = np.array(one, float), np.array([v for v in two if v in one] or one[:1], float)
    bins = Bins.fit(one)
    points = np.unique(np.concatenate([one, two]))
    naive = max(abs((one <= p).mean() - (two <= p).mean()) for p in points)
    assert statistics.kolmogorov_smirnov(counts(bins, one), counts(bins, two)) == pytest.approx(naive)
    grid = np.unique(one)
    area = sum(abs((one <= a).mean() - (two <= a).mean()) * (b - a) for a, b in itertools.pairwise(grid))
    assert moved(bins, one, two) == pytest.approx(area)


def test_distance_of_many_values_is_never_too_large():
    random = np.random.default_rng(0)
    one, two = random.normal(size=2000), random.normal(0.3, 1, size=500)
    bins = Bins.fit(one)
    points = np.concatenate([one, two])
    exact = max(abs((one <= p).mean() - (two <= p).mean()) for p in points)
    found = statistics.kolmogorov_smirnov(counts(bins, one), counts(bins, two))
    assert exact - 1.5 / LEVELS <= found <= exact + 1e-12
    assert moved(bins, one, two) == pytest.approx(0.3, abs=0.06)


def test_new_and_missing_values_have_places_of_their_own():
    few = Bins.fit(np.array([1.0, 2.0, np.nan]))
    assert few.place(np.array([1.0, 2.0, 3.0, 1.5, np.nan])).tolist() == [0, 1, NEW, NEW, MISSING]
    many = Bins.fit(np.arange(FEW + 1.0))
    assert many.place(np.array([-5.0, 500.0, np.nan])).tolist() == [0, len(many.points), MISSING]
    assert Bins.fit(np.array([np.nan, np.nan])).place(np.array([0.0, np.nan])).tolist() == [NEW, MISSING]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_correction_of_many_tests(p):
    p = np.array(p)
    factor = sum(1 / k for k in range(1, len(p) + 1))
    ranks = [sorted(p).index(value) + 1 for value in p]  # ties have the first rank: the minimum below makes them equal
    naive = [min(1.0, *(sorted(p)[k - 1] * len(p) * factor / k for k in range(rank, len(p) + 1))) for rank in ranks]
    assert statistics.correct(p) == pytest.approx(np.minimum(naive, 1.0))


@pytest.mark.parametrize(("scaled", "p"), [(1.3581, 0.05), (1.6276, 0.01), (0.1, 1.0), (0.8276, 0.5)])
def test_p_values_of_kolmogorov(scaled, p):
    assert statistics.smirnov_p(np.array(scaled)) == pytest.approx(p, rel=2e-3)


def test_correlations_are_those_of_numpy():
    x = np.random.default_rng(0).normal(size=(200, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 1]])
    found = statistics.correlations(x.sum(0), x.T @ x, len(x))
    assert found == pytest.approx(np.corrcoef(x.T))
    x[:, 1] = 4.0
    assert statistics.correlations(x.sum(0), x.T @ x, len(x))[1].tolist() == [0, 0, 0]


def test_ten_monitors_are_one(monitor):
    x = draw(1000, 3)
    whole = monitor.copy().update(x)
    parts = [monitor.copy().update(part) for part in x.split(100)]
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    assert np.array_equal(merged.window.counts, whole.window.counts)
    assert merged.window.products == pytest.approx(whole.window.products, rel=1e-12, abs=1e-9)
    assert str(merged.check()) == str(whole.check())
    assert whole.check().statistics["inputs"] == merged.check().statistics["inputs"]


@pytest.mark.parametrize("other", ["nothing", "rows", "model", "c", "false_alarms"])
def test_other_monitors_are_not_merged(cafe, other):
    """One thing differs; the other monitor has the same bins unless it has other rows."""

    def fit(cafe, rows=0, false_alarms=0.2):
        return Monitor.fit(cafe, draw(400, rows), false_alarms=false_alarms)

    changed = {"rows": {"rows": 9}, "false_alarms": {"false_alarms": 0.3}}.get(other, {})
    model = copy.deepcopy(cafe.model)
    if other == "model":
        next(model.parameters()).data[0, 0] += 1e-6
    explainer = CAFE(model, feature_names=cafe.feature_names, **({"c": 1} if other == "c" else {}))
    first, second = fit(cafe), fit(explainer, **changed)
    if other == "nothing":
        assert first.merge(second.update(draw(50, 1))).window.rows == 50
    else:
        with pytest.raises(ValueError, match="another reference, model or settings"):
            first.merge(second)


def test_files(monitor, cafe, tmp_path):
    monitor.update(draw(300, 4))
    path = tmp_path / "monitor.safetensors"
    monitor.save(path)
    again = Monitor.load(path, cafe)
    assert again.check() == monitor.check()
    assert again.merge(monitor).window.rows == 600
    with pytest.raises(ValueError, match=r"Changed: c\. Give"):
        Monitor.load(path, cafe.replace(c=1))
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="checksum"):
        Monitor.load(path, cafe)


def test_false_alarms_are_within_the_stated_rate(fitted):
    alarms = sum(fitted.check(draw(500, 100 + seed)).kind != "none" for seed in range(60))
    # 5 % are stated; 10 or more of 60 would happen by chance in less than one case in a thousand
    chance = sum(math.comb(60, k) * 0.05**k * 0.95 ** (60 - k) for k in range(10, 61))
    assert chance < 1e-3
    assert alarms < 10


def shuffled(x):
    x[:, 2] = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0)), 2]


def frozen(x):
    x[:, 0] = 0.25


def shifted(x):
    x[:, 1] += 1.0


def scaled(x):
    x[:, 1] *= 1000.0  # beyond the range of the correlations, but not frozen


def unknown(x):
    x[:40, 4] = 7


@pytest.mark.parametrize(
    ("change", "kind", "named"),
    [
        (shuffled, "correlation shift", "`income` and `debts`"),
        (frozen, "missing or frozen column", "`age` no longer varies"),
        (shifted, "covariate shift", "`income`"),
        (scaled, "covariate shift", "`income`"),
        (unknown, "new values", "`kind` has values never seen"),
    ],
)
def test_kinds_of_shift(monitor, change, kind, named):
    x = draw(500, 5)
    change(x)
    verdict = monitor.check(x)
    assert verdict.kind == kind
    assert named in str(verdict)
    assert verdict.severity != "none"


def test_pairs_are_named_beside_columns(monitor):
    x = draw(500, 5)
    shuffled(x)
    x[:, 0] += 1.0
    assert "`age` has other values than in the reference; `income` and `debts` no longer move together" in str(monitor.check(x))
    x[:, 0] = 0.25
    frozen = str(monitor.check(x))
    assert frozen.startswith("`age` no longer varies; `income` and `debts` no longer move together")
    assert "`age` and" not in frozen
    x[:, 3] += 1.0
    assert "`age` no longer varies; `rooms` has other values than in the reference; `income`" in str(monitor.check(x))


def test_rows_to_look_at_of_a_pair(monitor):
    """Rows in which the two columns contradict each other; the ratio is that of two normal distributions."""
    x = draw(500, 5)
    shuffled(x)
    found = monitor.find_odd_rows(x, count=20)
    assert all({"income", "debts"} <= set(one.values) for one in found)
    both = x[[one.row for one in found]][:, [1, 2]]
    assert (both[:, 0] * both[:, 1] < 0).all()
    assert [one.size for one in found] == sorted((one.size for one in found), reverse=True)
    assert found[0].size > 1
    for r in (-0.6, 0.0, 0.9):
        normal = torch.distributions.MultivariateNormal(torch.zeros(2), torch.tensor([[1.0, r], [r, 1.0]]))
        naive = normal.log_prob(both).numpy() + math.log(2 * math.pi)
        assert _log_density(both[:, 0].numpy(), both[:, 1].numpy(), r) == pytest.approx(naive, abs=1e-4)


def test_a_shift_that_does_not_matter_is_no_alert(monitor):
    x = draw(500, 6)
    x[:, 3] += 1.0  # the label does not depend on it
    verdict = monitor.check(x, label(x))
    assert verdict.kind == "covariate shift"
    assert verdict.output.size < 0.35
    assert verdict.to_dict()["moved"][0]["feature"] == "rooms"


def test_labels(monitor):
    x = draw(500, 7)
    found = monitor.check(x, label(x)).performance
    assert abs(found.accuracy_before - found.accuracy_now) < 0.05
    output = monitor.read(x).output
    up, down = output[label(x).numpy() == 1], output[label(x).numpy() == 0]
    naive = np.mean([(one > other) + (one == other) / 2 for one in up for other in down])
    assert found.auc_now == pytest.approx(naive, abs=0.01)  # ties inside of bins count half
    wrong = monitor.check(x, 1 - label(x))
    assert wrong.severity == "alert"
    assert wrong.performance.accuracy_now < 0.2


def test_what_cannot_be_watched(cafe, monitor):
    with pytest.raises(ValueError, match="at least 200"):
        Monitor.fit(cafe, draw(100, 0))
    with pytest.raises(ValueError, match="It needs at least"):
        monitor.check(draw(10, 0))
    with pytest.raises(ValueError, match="share between 0 and 1"):
        Monitor.fit(cafe, draw(300, 0), false_alarms=0)
    several = CAFE(nn.Linear(5, 3).float())
    with pytest.raises(ValueError, match="Give target="):
        Monitor.fit(several, draw(300, 0))
    assert Monitor.fit(several, draw(300, 0), target=1, false_alarms=0.2).check(draw(300, 8)).rows == 300
    with pytest.raises(ValueError, match="watches tables"):
        Monitor.fit(CAFE(nn.Sequential(nn.Flatten(), nn.Linear(48, 1)).float()), torch.randn(2, 3, 4, 4).float())


def test_update_keeps_memory_constant(monitor):
    size = monitor.update(draw(200, 0)).window.counts.nbytes
    assert monitor.update(draw(5000, 0)).window.counts.nbytes == size
    assert monitor.window.rows == 5200
    assert monitor.reset().window.rows == 0


def test_accuracy_where_all_rows_have_one_class():
    """All rows are predicted as class 0, with logits on both sides of 0: that is no threshold of a single output."""
    model = nn.Linear(5, 3).float()
    with torch.no_grad():
        model.weight.mul_(0.01)
        model.bias.copy_(torch.tensor([0.0, -2.0, -3.0]))
    ones = torch.ones(300)
    monitor = Monitor.fit(CAFE(model), draw(300, 0), 0 * ones, target=0, false_alarms=0.2)
    assert monitor.check(draw(300, 1), 0 * ones).performance.accuracy_now == 1
    assert monitor.check(draw(300, 1), ones).performance.accuracy_now == 0
    assert monitor.check(draw(300, 1), ones).performance.auc_now is None


def test_rows_that_cannot_be_scored_are_counted(monitor):
    x = draw(500, 11)
    x[:150, 1] = math.nan
    verdict = monitor.check(x)
    assert verdict.kind == "missing or frozen column"
    assert verdict.severity == "alert"
    assert verdict.missing == {"income": 0.3}
    assert (verdict.rows, verdict.scored) == (500, 350)
    assert "`income` is missing in 30% of the rows" in str(verdict)
    x[:, 1] = math.nan
    verdict = monitor.check(x)
    assert verdict.scored == 0
    assert verdict.output is None
    assert "missing in all rows; 500 of 500 rows could not be scored" in str(verdict)


def test_a_lost_column_and_a_new_category_of_a_frame():
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": random.normal(size=600), "city": random.choice(["Oslo", "Rome"], 600)})
    cafe = CAFE(nn.Linear(3, 1).float(), schema=Schema.from_frame(frame, one_hot=True))
    monitor = Monitor.fit(cafe, frame, false_alarms=0.2)
    assert monitor.check(frame.drop(columns="age")).columns == {"age": "missing"}
    new = frame.assign(city=["Lima"] * 60 + list(frame["city"][60:]))
    verdict = monitor.check(new)
    assert verdict.kind == "new values"
    assert verdict.columns == {"city": "new values"}
    assert verdict.scored == 540


def test_the_interval_of_an_effect_covers_the_truth(cafe):
    """Outputs that are normal, moved by 0.5 standard deviations: about nine of ten intervals cover it."""
    model = CAFE(nn.Linear(1, 1).float())
    random = np.random.default_rng(0)
    monitor = Monitor.fit(model, random.normal(size=(4000, 1)).astype(np.float32), false_alarms=0.2)
    found = [monitor.check(random.normal(0.5, 1, size=(500, 1)).astype(np.float32)).output for _ in range(40)]
    assert sum(one.low <= 0.5 <= one.high for one in found) >= 30
    far = monitor.check(random.normal(30, 1, size=(500, 1)).astype(np.float32)).output
    assert far.size == pytest.approx(30, rel=0.05)  # values beyond the reference are not cut off
    weight = abs(model.model.weight.item())
    assert far.in_units == pytest.approx(30 * weight, rel=0.05)


@pytest.mark.parametrize(("count", "expected"), [(1, 0.5), (4, 0.1), (30, 2.0)])
def test_surprise_is_the_tail_of_poisson(count, expected):
    naive = 1 - sum(math.exp(-expected) * expected**k / math.factorial(k) for k in range(count))
    if naive > 1e-12:
        assert statistics.surprise(count, expected) == pytest.approx(-math.log10(naive), rel=1e-6)
    assert statistics.surprise(0, expected) == 0


def test_harm_is_unknown_without_labels_and_seen_with_them():
    random = torch.Generator().manual_seed(0)
    shared = torch.randn(4000, 1, generator=random)
    rows = shared + 0.3 * torch.randn(4000, 2, generator=random)
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -1.0]]))
        model.bias.zero_()
    labels = (model(rows)[:, 0] > 0).long()
    monitor = Monitor.fit(CAFE(model), rows[:3000], labels[:3000])
    same, true = rows[3000:], labels[3000:]
    assert monitor.check(same).harm == "none"
    assert monitor.check(same, true).harm == "not seen"
    # The mean of both columns is lost; their difference, the output, is the same in every row.
    difference = same[:, :1] - same[:, 1:]
    apart = torch.cat([difference, -difference], 1) / 2
    changed = monitor.check(apart)
    assert (changed.kind != "none", changed.severity, changed.harm) == (True, "warn", "unknown")
    assert "unknown without labels" in str(changed)
    assert monitor.check(same + torch.tensor([2.0, 0.0])).harm == "likely"
    wrong = monitor.check(apart, 1 - true)
    assert (wrong.severity, wrong.harm) == ("alert", "seen")
