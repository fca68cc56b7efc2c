"""The explorer as a place to work: predictions and truth, thresholds, cohorts, what-if curves, dates, methods that run."""

from __future__ import annotations

import itertools
import queue
import re
import time
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

pytest.importorskip("sklearn")
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from cafexai import CAFE, Schema, from_sklearn
from cafexai._engine.pauses import at_pauses, pause, timed_stretches
from cafexai.explorer.api import Api
from cafexai.explorer.circuits import units_view
from cafexai.explorer.classes import classes_of, truth_of, usual_threshold
from cafexai.explorer.curves import curve
from cafexai.explorer.exports import python_lines
from cafexai.explorer.methods import Runs, label
from cafexai.explorer.requests import Refused
from cafexai.explorer.row import row_view
from cafexai.explorer.rows import Rows, table_of
from cafexai.explorer.scoring import Scoring
from cafexai.explorer.session import Session

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def frame():
    random = np.random.default_rng(0)
    found = pd.DataFrame({"age": random.normal(40, 9, 60), "grade": random.integers(1, 4, 60)})
    found["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, 60), unit="D")
    found["paid"] = np.where(found.age + 5 * found.grade + random.normal(0, 6, 60) > 50, "yes", "no")
    return found


def days(rows):
    return rows.apply(lambda column: (column - pd.Timestamp("2020-01-01")).dt.days)


def fitted():
    dates = make_pipeline(FunctionTransformer(days), StandardScaler())
    steps = ColumnTransformer([("n", StandardScaler(), ["age"]), ("g", OneHotEncoder(), ["grade"]), ("d", dates, ["since"])])
    last = MLPClassifier((5,), max_iter=60, random_state=0)
    return make_pipeline(steps, last).fit(frame().drop(columns="paid"), frame().paid)


@pytest.fixture(scope="module")
def api():
    model = from_sklearn(fitted())
    session = Session(CAFE(model), Rows(model, table_of(frame()), label="paid"))
    made = Api(session)
    for _ in made.scoring.run():
        pass
    assert made.scoring.trouble == ""
    made._begun = True
    yield made
    session.end()


def test_words_of_a_binary_perceptron_are_its_classes(api):
    assert classes_of(api.session) == ["no", "yes"]
    assert usual_threshold(api.session) == 0.5
    likely = fitted().predict_proba(frame().drop(columns="paid"))[:, 1]
    truth = (frame().paid == "yes").to_numpy()
    np.testing.assert_array_equal(truth_of(api.session, api.session.rows), truth.astype(int))
    np.testing.assert_allclose(api.scoring.columns["chance"], likely, rtol=1e-5)
    np.testing.assert_allclose(api.scoring.columns["error"], np.abs(likely - truth), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("threshold", [None, 0.2, 0.9])
def test_wrong_rows_follow_the_threshold(api, threshold):
    likely = fitted().predict_proba(frame().drop(columns="paid"))[:, 1]
    wrong = (likely > (threshold or 0.5)) != (frame().paid == "yes").to_numpy()
    page = api.rows({"wrong": True, "threshold": threshold})
    assert [row["place"] for row in page["rows"]] == np.flatnonzero(wrong).tolist()
    assert page["accuracy"] == {"known": int(wrong.sum()), "wrong": int(wrong.sum())}
    every = api.rows({"threshold": threshold})
    assert every["accuracy"] == {"known": 60, "wrong": int(wrong.sum())}
    for row in every["rows"]:
        assert row["truth"] == frame().paid[row["place"]]
        assert row["wrong"] == wrong[row["place"]]
        assert row["predicted"] == ("yes" if likely[row["place"]] > (threshold or 0.5) else "no")
    with pytest.raises(Refused, match="0 to 1"):
        api.rows({"threshold": 2})


def test_the_overview_is_that_of_the_cohort(api):
    only = {"ranges": {"age": [None, 40]}}
    inside = np.flatnonzero(frame().age <= 40)
    found = api.cohort({"table": only})
    e = api.session.cafe.explain(frame().drop(columns="paid").iloc[inside])
    means = dict(zip(e.names(), e.flat(e.combined).mean(0).tolist(), strict=True))
    assert found["cohort"] == len(inside)
    assert found["rows"] == 60
    for bar in found["bars"]:
        assert bar["exact"][2] == pytest.approx(means[bar["name"]], abs=1e-9)
    assert sum(found["shares"]["counts"]) == len(inside)
    groups = api.groups({"column": "grade", "table": only})
    assert sum(one["rows"] for one in groups["groups"]) == len(inside)
    assert "cohort" not in api.cohort({"table": {}})
    with pytest.raises(Refused, match="No row fits"):
        api.cohort({"table": {"ranges": {"age": [1000, None]}}})


def test_a_curve_is_the_model_at_changed_rows(api):
    rows, own = frame().drop(columns="paid"), fitted()
    for name in ("age", "grade", "since"):
        found = api.curve({"row": 3, "column": name})
        changed = pd.concat([rows.iloc[[3]]] * len(found["values"]), ignore_index=True)
        values = pd.Series(found["values"])
        changed[name] = pd.to_datetime(values) if name == "since" else values.astype(rows[name].dtype)
        np.testing.assert_allclose(found["chances"], own.predict_proba(changed)[:, 1], rtol=1e-7)
    grades = api.curve({"row": 3, "column": "grade"})
    assert (grades["kind"], grades["values"], grades["now"]) == ("category", ["1", "2", "3"], str(frame().grade[3]))
    assert api.curve({"row": 3, "column": "age"})["now"] in api.curve({"row": 3, "column": "age"})["values"]
    with pytest.raises(Refused):
        curve(api.session, 0, api.session.start, {}, "paid")


def test_dates_are_shown_and_changed_as_dates(api):
    assert api.session.rows.editable["since"].kind == "date"
    assert api.session.rows.editable["grade"].words == ("1", "2", "3")
    day = str(frame().since[0].date())
    assert api.rows({})["rows"][0]["cells"][2] == day
    edits = {"cells": {"since": "2021-06-30", "grade": "2"}}
    view = api.row({"row": 0, "edits": edits})
    assert view["cells"]["since"] == "2021-06-30"
    assert "pandas.Timestamp('2021-06-30 00:00:00')" in api.lines({"rows": [0], "edits": edits})["python"]
    changed = frame().drop(columns="paid").iloc[[0]].assign(since=pd.Timestamp("2021-06-30"), grade=2)
    expected = api.session.cafe.explain(changed).output.item()
    assert float(view["now"]["end"]) == pytest.approx(expected, abs=1e-3)
    for bad in ("yesterday", "2021-02-31", 5):
        with pytest.raises(Refused):
            api.row({"row": 0, "edits": {"cells": {"since": bad}}})


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.out(self.embed(x).sum(1))


def test_methods_are_offered_if_they_run(api):
    found = Runs(api.session).able()
    names = [one["name"] for one in found["methods"]]
    assert names[0] == "cafe"
    assert {"integrated_gradients", "gradient_x_input"} <= set(names)
    assert label("integrated_gradients") == "Integrated gradients"
    assert label("deeplift_rescale") == "DeepLIFT (Rescale)"
    codes = Session(CAFE(Odd().eval()), Rows(Odd(), table_of((np.array([[0, 1], [2, 3]]),))))
    only = Runs(codes).able()
    codes.end()
    assert [one["name"] for one in only["methods"]] == ["cafe"]
    assert "codes" in only["refused"][0]["reason"]


def test_one_output_without_probabilities_changes_at_zero():
    torch.manual_seed(0)
    data = pd.DataFrame({"a": [1.0, -1.0, 2.0], "truth": [1, 0, 0]})
    from sklearn.svm import LinearSVC

    model = from_sklearn(LinearSVC(random_state=0).fit(data[["a"]], [1, 0, 1]))
    session = Session(CAFE(model), Rows(model, table_of(data), label="truth"))
    api = Api(session)
    for _ in api.scoring.run():
        pass
    assert usual_threshold(session) == 0.0
    assert [row["wrong"] for row in api.rows({})["rows"]] == [False, False, True]
    session.end()


def test_typical_rows_are_an_average_over_the_background():
    rows = frame().drop(columns="paid")
    model = from_sklearn(fitted())
    cafe = CAFE(model, background=rows)
    session = Session(cafe, Rows(model, table_of(frame()), label="paid"))
    assert session.start.baseline == "background"  # zero is no typical value
    view = Api(session).row({"row": 0, "choice": {"baseline": "background"}})
    expected = cafe.explain(rows[:1], baselines="background")
    assert float(view["now"]["start"]) == pytest.approx(expected.baseline_output.item(), abs=1e-3)
    zero = Api(session).row({"row": 0, "choice": {"baseline": "zero"}})
    assert float(zero["now"]["start"]) == pytest.approx(cafe.explain(rows[:1], "zero").baseline_output.item(), abs=1e-3)
    assert zero["now"]["start"] != view["now"]["start"]
    session.end()
    plain = Session(CAFE(model), Rows(model, table_of(frame()), label="paid"))
    assert plain.start.baseline == "zero"
    own = plain.explain([0], plain.read_choice({"baseline": "background"}))
    assert any("50 baselines" in note for note in own.notes)
    plain.end()


def test_from_the_command_line_typical_rows_are_those_of_the_data():
    rows, model = frame().drop(columns="paid"), from_sklearn(fitted())
    session = Session(CAFE(model), Rows(model, table_of(frame()), label="paid"), typical=True)
    assert session.start.baseline == "background"
    cafe = CAFE(model, background=rows)
    assert torch.equal(session.explain([3], session.start).combined, cafe.explain(rows[3:4]).combined)
    units = units_view(session, 3, session.start, {})
    assert re.fullmatch(r"Row \d+, row \d+ of 50 typical rows, the one whose output is in the middle", units["against"])
    place = int(units["against"].split(",")[0].removeprefix("Row "))
    alone = units_view(session, 3, session.read_choice({"baseline": f"row:{place}"}), {})
    assert alone["layers"] == units["layers"]
    assert alone["units"] == units["units"]
    now = row_view(session, 3, session.start, {}, 20)["now"]
    assert now["conflict_sentence"] not in now["sentences"]
    session.end()


def test_rows_that_a_schema_refuses_are_not_typical():
    people = pd.DataFrame({"age": np.arange(60.0), "city": ["Oslo", "Rome"] * 30})
    schema = Schema.from_frame(people, one_hot=True)
    people.loc[1::2, "city"] = "Paris"
    cafe = CAFE(torch.nn.Linear(3, 1), schema=schema)
    session = Session(cafe, Rows(cafe.model, table_of(people), schema=schema), typical=True)
    assert set(session.typical_rows(50)["age"] % 2) == {0}
    session.end()


def test_python_lines_read_a_pipeline_from_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    joblib.dump(_numbers_alone(), "paid.joblib")
    frame()[["age", "grade", "paid"]].to_csv("people.csv", index=False)
    model = from_sklearn(_numbers_alone())
    sources = {"model": "paid.joblib", "data": "people.csv"}
    table = table_of(pd.read_csv("people.csv"))
    session = Session(CAFE(model), Rows(model, table, label="paid"), typical=True, sources=sources)
    made: dict = {}
    exec(python_lines(session, [4, 7], session.start, {}), made)
    assert torch.equal(made["e"].combined, session.explain([4, 7], session.start).combined)
    session.end()


def _numbers_alone():
    last = MLPClassifier((5,), max_iter=20, random_state=0)
    return make_pipeline(StandardScaler(), last).fit(frame()[["age", "grade"]], frame().paid)


def test_a_row_is_checked_by_changing_it(api):
    body = {"row": 3, "choice": {**vars(api.session.start), "baseline": "median"}}
    told = api.check(body)
    e = api.session.explain([3], api.session.fix_target(3, api.session.read_choice(body["choice"])))
    check = api.session.cafe.check_by_changing(e, 0)
    assert told["evaluations"] == check.evaluations
    assert told["sentence"] == f"C{check.sentence[1:]}."


PASSES, TO_ASK, ASKED = itertools.count(), queue.SimpleQueue(), queue.SimpleQueue()


class Asking(nn.Linear):
    """Something is asked while it runs."""

    def forward(self, x):
        next(PASSES)
        if not TO_ASK.empty():
            ASKED.put(TO_ASK.get()())
        return super().forward(x)


def test_requests_are_answered_between_two_baselines_of_a_step():
    torch.manual_seed(0)
    people = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "b", "c"])
    cafe = CAFE(nn.Sequential(Asking(3, 4), nn.ReLU(), nn.Linear(4, 1)), schema=Schema.from_frame(people))
    session = Session(cafe, Rows(cafe.model, table_of(people), schema=cafe.schema), typical=True)
    assert session.start.baseline == "background"
    zero = session.read_choice({"baseline": "zero"})
    expected, alone = cafe.replace(background=people).explain(people), session.explain([1], zero)
    scoring, begin = Scoring(session, session.rows, session.start), next(PASSES)

    def answer():
        return scoring.done, next(PASSES) - begin, session.explain([1], zero)

    TO_ASK.put(lambda: session.worker.ask("row", answer))
    session.worker.background("scores", scoring.run())
    done, passes, found = ASKED.get(timeout=20).result(20)
    assert done == 0  # it is answered within the first step,
    assert passes < 10  # between the first two of 50 baselines
    assert torch.equal(found.combined, alone.combined)
    while scoring.done < len(people) and not scoring.trouble:
        time.sleep(0.001)
    session.end()
    for name, exact in (("output", expected.output), ("conflict", expected.conflict), ("share", expected.conflict_share)):
        np.testing.assert_allclose(scoring.columns[name], exact, rtol=1e-5, atol=1e-6)


def test_what_is_done_at_pauses_does_not_count_as_work(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("cafexai._engine.pauses.time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def advance(seconds):
        clock[0] += seconds

    with at_pauses(lambda: advance(100)), timed_stretches() as took:
        for seconds in (1, 3, 2):
            advance(seconds)
            pause()
    assert (took.total, took.longest, clock[0]) == (6, 3, 306)
    pause()
    assert clock[0] == 306  # nobody waits any more
