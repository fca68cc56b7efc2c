"""What belongs to a monitor: baselines, background, schema, scores made elsewhere; and faults of few rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from cafexai import CAFE, Schema
from cafexai.monitor import Monitor, write_page
from cafexai.monitor._sentence import show_share

pandas = pytest.importorskip("pandas")


def draw(rows, seed):
    random = np.random.default_rng(seed)
    return pandas.DataFrame({"age": random.normal(40, 9, rows), "city": random.choice(["Oslo", "Rome"], rows)})


def explainer(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 1)).float()
    return CAFE(model, schema=Schema.from_frame(draw(600, 0), one_hot=True), **options)


@pytest.mark.parametrize("baselines", ["median", "mean", "mode"])
def test_words_need_no_background_later(tmp_path, baselines):
    path = tmp_path / "m.safetensors"
    known = explainer(background=draw(300, 1))
    monitor = Monitor.fit(known, draw(600, 0), baselines=baselines, false_alarms=0.2)
    monitor.save(path)
    again = Monitor.load(path, explainer())
    assert again.fingerprint == monitor.fingerprint
    assert again.check(draw(300, 5)) == monitor.check(draw(300, 5))


def test_another_background_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    monitor = Monitor.fit(explainer(background=draw(60, 1)), draw(300, 0), false_alarms=0.2)
    monitor.save(path)
    other = explainer(background=draw(60, 2))
    with pytest.raises(ValueError, match="Changed: background"):
        Monitor.load(path, other)
    assert Monitor.load(path, explainer(background=draw(60, 1))).fingerprint == monitor.fingerprint
    with pytest.raises(ValueError, match="another reference, model or settings"):
        monitor.merge(Monitor(other, monitor.reference, monitor.options))


def test_an_explanation_of_another_model_is_refused():
    monitor = Monitor.fit(explainer(), draw(600, 0), false_alarms=0.2)
    rows = draw(300, 3)
    own = monitor.cafe.explain(rows, show_progress=False)
    assert monitor.check(own) == monitor.check(rows)
    other = CAFE(nn.Linear(3, 1).float(), schema=monitor.cafe.schema)
    for cafe in (monitor.cafe.replace(variant="published"), explainer(background=draw(60, 1)), other):
        with pytest.raises(ValueError, match="scores differ"):
            monitor.check(cafe.explain(rows, show_progress=False))
    assert Monitor.fit(explainer(), monitor.cafe.explain(draw(600, 0), show_progress=False), false_alarms=0.2).check(own)


def test_labels_with_an_explanation():
    rows, reference = draw(300, 3), draw(600, 0)
    cafe = explainer()
    labels = [(cafe.explain(part, show_progress=False).output > 0).long() for part in (reference, rows)]
    monitor = Monitor.fit(cafe, reference, labels[0], false_alarms=0.2)
    found = monitor.check(cafe.explain(rows, show_progress=False), labels[1])
    assert found.performance.accuracy_now == 1
    with pytest.raises(ValueError, match="3 labels for 300 rows"):
        monitor.check(cafe.explain(rows, show_progress=False), labels[1][:3])


def test_few_missing_values_where_there_were_none_are_a_warning():
    monitor = Monitor.fit(explainer(), draw(2000, 0), false_alarms=0.05)
    rows = draw(500, 4)
    assert monitor.check(rows).kind == "none"
    rows.loc[:11, "age"] = None
    verdict = monitor.check(rows)
    assert (verdict.kind, verdict.severity, verdict.columns) == ("new values", "warn", {"age": "new missing"})
    assert "`age` is missing in 2% of the rows and never was in the reference" in str(verdict)
    rows.loc[:11, "age"] = math.inf
    verdict = monitor.check(rows)
    assert verdict.columns == {"age": "new infinite"}
    assert "`age` is not finite in 2% of the rows" in str(verdict)
    rows.loc[:498, "age"] = -math.inf
    verdict = monitor.check(rows)
    assert verdict.columns == {"age": "not finite"}
    assert "not finite in 99.80% of the rows" in str(verdict)
    assert "too few to judge them" in str(verdict)


@pytest.mark.parametrize(("share", "shown"), [(0, "0%"), (1, "100%"), (0.3, "30%"), (299 / 300, "99.67%"), (1e-7, "0.01%"),
                                              (0.9999999, "99.99%"), (0.004, "0.40%")])  # fmt: skip
def test_only_everything_is_all(share, shown):
    assert show_share(share) == shown


def test_page_is_closed_and_escapes_names():
    monitor = Monitor.fit(explainer(), draw(600, 0), false_alarms=0.2)
    signals = monitor.read(draw(300, 4).assign(age=90.0, city=["<b>Lima</b>"] * 40 + ["Oslo"] * 260))
    verdict, odd = monitor.check(signals), monitor.find_odd_rows(signals)
    assert odd[0].values["city"] == "a new category"
    page = verdict.html(odd, title="<script>alert(1)</script>")
    assert "<script" not in page
    assert "default-src 'none'" in page.replace("&#x27;", "'")
    assert page.count("<svg") >= 4
    assert {one.kind for one in verdict.histograms} == {"output", "input", "positive", "negative"}
    for one in verdict.histograms:
        assert sum(one.before) == pytest.approx(1)
        assert sum(one.now) == pytest.approx(1)
        assert len(one.before) == len(one.labels) + max(len(one.edges) - 1, 0)
    many = write_page({"monday": monitor.check(draw(300, 5)), "tuesday": verdict}, {"tuesday": odd})
    assert "Windows over time" in many
    assert "href=#w1" in many
