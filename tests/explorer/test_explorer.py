"""The parts of the explorer behind its page: the worker, rows and changes, the table, scores in the background."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import cafexai.explorer
from cafexai import CAFE, Schema
from cafexai.explorer.overview import by_group, drift, overview
from cafexai.explorer.requests import Choice, Refused
from cafexai.explorer.row import row_view
from cafexai.explorer.rows import Rows, table_of
from cafexai.explorer.scoring import Scoring
from cafexai.explorer.session import Session
from cafexai.explorer.table import PAGE, Table
from cafexai.explorer.worker import WAITING, Busy, Superseded, Worker


def test_assets_are_small_and_load_nothing_from_elsewhere():
    files = list((Path(cafexai.explorer.__file__).parent / "static").iterdir())
    assert sum(file.stat().st_size for file in files) < 400_000
    for file in files:
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), file


@pytest.fixture
def worker():
    made = Worker("test")
    yield made
    made.end()


def test_newer_requests_take_the_slot_of_those_that_wait(worker):
    begun, go_on = threading.Event(), threading.Event()
    first = worker.ask("row", lambda: (begun.set(), go_on.wait(5), "first")[2])
    assert begun.wait(5)
    done = []
    waiting = [worker.ask("row", lambda i=i: done.append(i) or i) for i in range(5)]
    other = worker.ask("pairs", lambda: done.append("pairs"))
    go_on.set()
    assert first.result(5) == "first"
    assert waiting[-1].result(5) == 4
    for future in waiting[:-1]:
        with pytest.raises(Superseded):
            future.result(5)
    other.result(5)
    assert done == [4, "pairs"]


def test_jobs_wait_for_requests(worker):
    steps, stop = [], threading.Event()

    def job():
        while not stop.is_set():
            steps.append("job")
            time.sleep(0.001)
            yield

    worker.background("scores", job())
    while not steps:
        time.sleep(0.001)
    assert worker.ask("row", lambda: steps.append("row")).result(5) is None
    stop.set()
    assert "row" in steps
    newer = []
    worker.background("scores", iter(newer.append(i) for i in range(3)))
    while len(newer) < 3:
        time.sleep(0.001)


def test_errors_go_to_whoever_asked_and_too_many_are_refused(worker):
    with pytest.raises(ZeroDivisionError):
        worker.ask("a", lambda: 1 / 0).result(5)
    go_on = threading.Event()
    begun = threading.Event()
    worker.ask("hold", lambda: (begun.set(), go_on.wait(5)))
    assert begun.wait(5)
    waiting = [worker.ask(str(i), lambda: 3) for i in range(WAITING)]
    with pytest.raises(Busy):
        worker.ask("one more", lambda: None)
    go_on.set()
    assert [future.result(5) for future in waiting] == [3] * WAITING


def frame():
    random = np.random.default_rng(0)
    found = pd.DataFrame({"age": random.integers(20, 60, 90).astype(float), "debts": random.normal(size=90)})
    found["city"] = random.choice(["Rome", "Oslo", "Lima"], 90)
    found["paid"] = random.choice(["yes", "no"], 90)
    return found


@pytest.fixture
def session():
    data = frame()
    schema = Schema.from_frame(data.drop(columns="paid"), one_hot=True, classes=["no", "yes"], probability="softmax")
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    with torch.no_grad():
        model[0].weight[:, 0] /= 30
        outputs = model(torch.tensor(schema.encode(data.drop(columns="paid"))[0]).to(model[0].weight))
        model[2].bias[1] -= (outputs[:, 1] - outputs[:, 0]).median()  # both classes are predicted
    rows = Rows(model, table_of(data), label="paid", schema=schema)
    made = Session(CAFE(model, schema=schema), rows, second=Rows(model, table_of(data[:30]), label="paid", schema=schema))
    yield made
    made.end()


def scored(session, rows=None):
    scoring = Scoring(session, rows or session.rows, session.start)
    for _ in scoring.run():
        pass
    assert scoring.trouble == ""
    assert scoring.done == scoring.total
    return scoring


def test_scores_of_all_rows_are_those_of_explain(session):
    scoring = scored(session)
    e = session.cafe.explain(frame().drop(columns="paid"))
    np.testing.assert_allclose(scoring.columns["output"], e.output.numpy(), rtol=1e-5)
    np.testing.assert_allclose(scoring.columns["conflict"], e.conflict.numpy(), rtol=1e-5)
    for output, sums in scoring.sums.items():
        own = e.target[:, 0] == output
        np.testing.assert_allclose(sums.up, e.flat(e.positive)[own].sum(0).numpy(), rtol=1e-5)
        assert sums.rows == int(own.sum())
    assert sum(sums.rows for sums in scoring.sums.values()) == 90
    likely = session.outputs(frame().drop(columns="paid")).softmax(1)
    np.testing.assert_allclose(scoring.columns["confidence"], likely.max(1).values.numpy(), rtol=1e-5)
    truth = torch.tensor((frame()["paid"] == "yes").to_numpy()).long()
    np.testing.assert_allclose(scoring.columns["error"], 1 - likely[torch.arange(90), truth].numpy(), rtol=1e-4)
    assert len(scoring.kept) == 90


def test_errors_of_numbers_are_distances():
    data = frame()[["age", "debts"]].assign(truth=np.arange(90.0))
    model = nn.Linear(2, 1).eval()
    session = Session(CAFE(model), Rows(model, table_of(data), label="truth"))
    scoring = scored(session)
    wanted = (model(torch.tensor(data[["age", "debts"]].to_numpy()))[:, 0] - torch.arange(90.0)).abs()
    np.testing.assert_allclose(scoring.columns["error"], wanted.detach().numpy(), rtol=1e-5)
    session.end()


def test_trouble_in_some_row_ends_scoring_and_is_told():
    def model(x):
        if bool((x[:, 0] > 50).any()):
            raise RuntimeError("too old")
        return x.sum(1)

    data = frame()[["age", "debts"]].sort_values("age")
    session = Session(CAFE(model), Rows(model, table_of(data)))
    scoring = Scoring(session, session.rows, session.start)
    for _ in scoring.run():
        pass
    assert 0 < scoring.done < scoring.total
    assert "too old" in scoring.trouble
    session.end()


def test_sorted_while_scores_are_made_covers_what_there_is(session):
    scoring, table = Scoring(session, session.rows, session.start), Table(session.rows)
    steps = scoring.run()
    for _ in range(3):
        next(steps)
    page = table.page({"by": "conflict", "down": True}, scoring)
    assert page["found"] == page["covered"] == scoring.done < scoring.total
    values = [row["scores"]["conflict"] for row in page["rows"]]
    assert values == sorted(values, reverse=True)


def test_pages_filters_and_missing_values(session):
    data = frame()
    data.loc[5:9, "debts"] = np.nan
    data.loc[3, "city"] = None
    table = Table(Rows(None, table_of(data), columns=["age"]))
    scoring = Scoring(session, session.rows, session.start)
    whole = [table.page({"page": page}, scoring) for page in range(2)]
    assert [row["place"] for one in whole for row in one["rows"]] == list(range(90))
    assert (whole[0]["pages"], len(whole[0]["rows"])) == (2, PAGE)
    assert table.page({"page": 99}, scoring)["page"] == 1
    assert whole[0]["rows"][5]["cells"][1] is None
    assert table.page({"by": "debts"}, scoring)["found"] == 85
    words = table.page({"by": "city"}, scoring)
    assert words["found"] == 89
    assert words["rows"][0]["cells"][2] == "Lima"
    assert table.page({"text": "oslo"}, scoring)["found"] == (data["city"] == "Oslo").sum()
    assert table.page({"text": "city=o"}, scoring)["found"] == (data["city"] == "Oslo").sum()
    assert table.page({"only": {"city": "Rome"}}, scoring)["found"] == (data["city"] == "Rome").sum()
    found = table.page({"ranges": {"age": [30, None], "debts": [None, 0]}}, scoring)["found"]
    assert found == ((data["age"] >= 30) & (data["debts"] <= 0)).sum()
    counts = table.distribution("debts")
    assert sum(counts["counts"]) == 85
    assert table.distribution("city")["words"] == data["city"].value_counts().index.tolist()


def test_changes_are_those_of_the_frame(session):
    edits = session.rows.check_edits({"cells": {"age": 33, "city": "Lima"}})
    e = session.explain([4], Choice(c=0.3), edits)
    changed = frame().drop(columns="paid").iloc[[4]].assign(age=33.0, city="Lima")
    wanted = session.cafe.explain(changed, c=0.3)
    torch.testing.assert_close(e.positive, wanted.positive, rtol=0, atol=0)
    assert session.rows.cells(4)["age"] == frame()["age"][4]  # the data stay as they are
    with pytest.raises(Refused) as error:
        session.rows.check_edits({"cells": {"city": "Paris"}})
    assert error.value.field == "city"


def test_baselines_in_the_units_of_the_columns(session):
    data = frame()
    assert session.baseline_cells("zero") == {"age": 0, "debts": 0}
    mean = session.baseline_cells("mean")
    assert mean["age"] == pytest.approx(data["age"].mean())
    assert mean["city"] == data["city"].mode()[0]
    assert session.baseline_cells("row:7") == {name: data[name][7] for name in ("age", "debts", "city")}


def test_overview_groups_and_drift(session):
    scoring, second = scored(session), scored(session, session.second)
    e = session.cafe.explain(frame().drop(columns="paid"))
    share = e.conflict_share.numpy()
    for output, name in enumerate(["no", "yes"]):  # rows are explained for what is predicted: never mixed
        found, own = overview(scoring, output), e.target[:, 0] == output
        assert 0 < int(own.sum()) < 90
        up = dict(zip(e.names(), e.flat(e.positive)[own].mean(0).tolist(), strict=True))
        assert {bar["name"]: pytest.approx(bar["exact"][0]) for bar in found["bars"]} == up
        assert {one["name"]: one["rows"] for one in found["outputs"]}[name] == int(own.sum())
        assert sum(found["shares"]["counts"]) == len(found["swarm"][0]["nets"]) == int(own.sum())
    assert overview(scoring)["output"] == found["outputs"][0]["place"]  # the most frequent one
    groups = by_group(Table(session.rows), scoring, "city")["groups"]
    assert {one["name"]: one["rows"] for one in groups} == frame()["city"].value_counts().to_dict()
    for one in groups:
        assert one["exact"] == pytest.approx(share[(frame()["city"] == one["name"]).to_numpy()].mean(), rel=1e-4)
    ages = by_group(Table(session.rows), scoring, "age")["groups"]
    assert len(ages) == 5
    assert sum(one["rows"] for one in ages) == 90
    apart = drift(scoring, second)
    assert [one["done"] for one in apart["files"]] == [90, 30]
    ranks = [np.mean(part[:, None] <= share, 0) for part in (share, share[:30])]
    assert float(apart["apart"]) == pytest.approx(np.abs(ranks[0] - ranks[1]).max(), abs=1e-3)


@pytest.mark.parametrize(
    "given", [{"c": 1.5}, {"c": None}, {"variant": "x"}, {"baseline": "row:90"}, {"target": 2}, {"other": 1}]
)
def test_choices_are_checked(session, given):
    with pytest.raises(Refused):
        session.read_choice(given)


def test_explore_says_what_it_needs(session):
    from cafexai import explore

    with pytest.raises(ValueError, match="give the explainer"):
        explore(nn.Linear(2, 1), frame())
    with pytest.raises(ValueError, match="no such column"):
        explore(CAFE(nn.Linear(2, 1)), frame(), label="nothing")
    with pytest.raises(ValueError, match="one c for all layers"):
        explore(CAFE(nn.Sequential(nn.Linear(2, 1)), {"0": 0.1}), frame()[["age", "debts"]])


def test_explore_from_python_serves_until_it_is_closed(capsys):
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    from cafexai import explore

    model = nn.Linear(2, 1).eval()
    explorer = explore(CAFE(model), frame()[["age", "debts"]], open_browser=False, block=False)
    assert explorer.url in capsys.readouterr().out
    with httpx.Client(follow_redirects=True, timeout=60) as client:
        assert "cafexai explorer" in client.get(explorer.url).text
        row = client.post(explorer.url.split("?")[0] + "api/row", json={"row": 2}).json()
    e = CAFE(model).explain(frame()[["age", "debts"]].iloc[[2]])
    assert row["now"]["lines"][0]["exact"][0] == pytest.approx(float(e.flat(e.positive).max()), rel=1e-9)
    explorer.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(explorer.url)


def test_the_command_that_is_taken_along_leaves_the_label_out(tmp_path, monkeypatch, capsys):
    from cafexai.cli.app import app
    from cafexai.cli.errors import run
    from cafexai.explorer.exports import command

    torch.manual_seed(0)
    (tmp_path / "own.py").write_text("import torch\nfrom torch import nn\ntorch.manual_seed(0)\nnet = nn.Linear(2, 2).eval()\n")
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0], "income": [2.0, 1.0, 0.0], "truth": [0, 1, 0]})
    frame.to_csv(tmp_path / "people.csv", index=False)
    rows = Rows(nn.Linear(2, 2), table_of(frame), label="truth")
    session = Session(CAFE(nn.Linear(2, 2)), rows, title="people.csv", sources={"model": "own.py:net", "data": "people.csv"})
    try:
        line = command(session, [0, 2], session.start)
    finally:
        session.end()
    assert "--columns age,income" in line
    monkeypatch.chdir(tmp_path)
    assert run(app, line.split()[1:]) == 0, capsys.readouterr().err


def test_features_at_the_baseline_keep_a_line_of_their_own(session):
    """Their values can be changed, which needs a line."""
    choice = session.read_choice({"baseline": "row:3"})
    shown = row_view(session, 3, choice, {}, 20)["now"]["lines"]
    assert [line["name"] for line in shown if line["same"]] == [line["name"] for line in shown if line["single"]]
    assert not any("as in the baseline" in line["name"] for line in shown)
