"""What features are compared with, in the units of the user, and which of them are as in the baseline."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from cafexai import CAFE, Schema
from cafexai.explanation import Explanation

FRAME = pd.DataFrame(
    {
        "sex": ["male", "female", "male", "male"],
        "age": [30.0, 20.0, 40.0, 30.0],
        "class": pd.Categorical(["1", "3", "3", "2"]),
    }
)


def network(inputs, outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.GELU(), nn.Linear(8, outputs)).double()


def by_schema(**options):
    schema = Schema.from_frame(FRAME, one_hot=True)
    return CAFE(network(6), schema=schema, background=FRAME, **options)


def pipeline():
    pytest.importorskip("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from cafexai.sklearn import from_sklearn

    steps = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["sex", "class"]))
    model = make_pipeline(steps, MLPClassifier((4,), max_iter=5, random_state=0))
    with pytest.warns(UserWarning, match="Maximum iterations|converged"):
        model.fit(FRAME, [0, 1, 1, 0])
    return CAFE(from_sklearn(model), background=FRAME)


@pytest.mark.parametrize("make", [by_schema, pipeline])
def test_a_word_is_shown_as_the_row_that_it_stands_for(make):
    e = make().explain(FRAME, "median")
    for row in range(4):
        known = dict(zip(e.names(), e.baseline_values(row), strict=True))
        assert known == {"sex": "male", "age": 30.0, "class": "3"}
        cells = dict(zip(e.names(), e.values(row), strict=True))
        same = dict(zip(e.names(), e.at_baseline[row].tolist(), strict=True))
        assert same == {name: cells[name] == known[name] for name in known}
    assert (e.combined[e.at_baseline] == 0).all()
    assert (e.combined[~e.at_baseline] != 0).all()


@pytest.mark.parametrize("make", [by_schema, pipeline])
def test_several_baselines_are_told_as_such(make):
    stack = [FRAME.iloc[[place]] for place in (0, 1, 2)] if make is pipeline else None
    cafe = make()
    if stack is None:
        stack = torch.from_numpy(np.stack([cafe.schema.encode(FRAME.iloc[[place]])[0] for place in (0, 1, 2)]))
    e = cafe.explain(FRAME, stack)
    known = dict(zip(e.names(), e.baseline_values(0), strict=True))
    assert known == {"sex": "male", "age": 30.0, "class": "3"}
    assert not e.at_baseline.any()  # one of the three differs
    text = e.ledger(0)
    assert "most often male" in text
    assert "mean 30" in text
    same = cafe.explain(FRAME, stack[:1])
    assert same.at_baseline[0].all()
    assert "3 as in the baseline" in same.ledger(0)


def test_zero_is_no_category():
    e = by_schema().replace(background=None).explain(FRAME)
    assert dict(zip(e.names(), e.baseline_values(0), strict=True)) == {"sex": "(none)", "age": 0.0, "class": "(none)"}


def test_a_baseline_for_each_row():
    e = by_schema().explain(FRAME, FRAME.iloc[[3, 3, 0, 1]])
    rows = [dict(zip(e.names(), e.baseline_values(row), strict=True)) for row in range(4)]
    assert [row["sex"] for row in rows] == ["male", "male", "male", "female"]
    assert [row["age"] for row in rows] == [30.0, 30.0, 30.0, 20.0]
    assert e[3].baseline_values() == e.baseline_values(3)


def test_numbers_have_their_baseline_and_groups_the_members():
    torch.manual_seed(0)
    cafe, x = CAFE(network(4)), torch.rand(3, 4).double()
    base = x[:1] + torch.tensor([[0, 0, 1, 1.0]])
    e = cafe.explain(x, base)
    assert e.baseline_values(1) == base[0].tolist()
    assert e.at_baseline.tolist() == (x == base).tolist()
    both = cafe.explain(x, base, feature_groups={"first": [0, 1], "last": [1 + 1, 3]})
    assert both.at_baseline.tolist() == [[True, False], [False, False], [False, False]]
    assert both.baseline_values(0) is None
    one = cafe.explain(x, base, feature_groups={"first": [0, 1]})
    assert one.baseline_values(0) == ["", *base[0, 2:].tolist()]
    assert one.at_baseline[0].tolist() == [True, False, False]


def test_values_with_more_digits_are_in_the_units_of_the_model():
    x = torch.rand(2, 4).double()
    assert CAFE(network(4)).explain(x, 0.5, display=x).baseline_values(0) == [0.5] * 4
    assert CAFE(network(4)).explain(x, 0.5, display=10 * x).baseline_values(0) is None


def test_codes_have_no_baseline_unless_they_are_given_one():
    torch.manual_seed(0)
    table, head = nn.Embedding(5, 3), nn.Linear(3, 1)
    cafe, x = CAFE(lambda ids: head(table(ids)).sum(1)), torch.tensor([[1, 2], [3, 1]])
    assert not cafe.explain(x).at_baseline.any()
    assert cafe.explain(x, torch.tensor([[1, 1]])).at_baseline.tolist() == [[True, False], [False, True]]


def test_views_say_what_is_as_in_the_baseline():
    e = by_schema().explain(FRAME, "median")
    assert "3 as in" not in e.ledger(0)
    assert "2 as in the baseline" in e.ledger(0)  # sex and age
    assert "as in the baseline, so no score: sex = male, age = 30; another baseline shows their effect" in e.ledger(0)
    labels = [label.get_text() for label in e.plot(2).axes[0].get_yticklabels()]
    assert "2 as in the baseline" in labels
    assert not any(label.startswith("sex") for label in labels)
    alone = e.plot(3).axes[0].get_yticklabels()  # sex and age again
    assert len(alone) == 3
    one = by_schema().explain(FRAME, FRAME.iloc[[1]])
    labels = [label.get_text() for label in one.plot(2).axes[0].get_yticklabels()]
    assert "class = 3 (as in the baseline)" in labels
    assert "as in the baseline, so no score: class = 3;" in one.ledger(2)
    assert "as in the baseline, so no score" in one[2]._repr_html_()


def test_baselines_go_into_frames_and_files(tmp_path):
    e = by_schema().explain(FRAME, "median")
    frame = e.to_frame()
    assert frame[frame.feature != "(bias)"]["baseline"].tolist() == ["male", 30.0, "3"] * 4
    assert e.top(0, 3)["baseline"].tolist()[0] == "3"
    e.save(tmp_path / "e.safetensors")
    again = Explanation.load(tmp_path / "e.safetensors")
    assert again.baseline_values(2) == e.baseline_values(2)
    assert again.at_baseline.tolist() == e.at_baseline.tolist()
    assert again.ledger(2) == e.ledger(2)


@pytest.mark.parametrize("make", [by_schema, pipeline])
def test_tables_and_reports_tell_several_baselines_as_the_ledger_does(make):
    from cafexai.reporting.about import about_data

    cafe = make()
    e = cafe.explain(FRAME, "background")
    top = dict(zip(e.top(1).feature, e.top(1).baseline, strict=True))
    assert top["sex"] == "most often male"
    assert top["age"] == "mean 30"
    long = e.to_frame()
    assert set(long[long.feature == "sex"].baseline) == {"most often male"}
    told = str(dict(about_data(e, None))["Baseline"])
    assert told.startswith("each of 4 rows of the background; scores are averages over them: ")
    assert all(one in told for one in ("age mean 30", "sex most often male"))
    told = str(dict(about_data(cafe.explain(FRAME, "median"), None))["Baseline"])
    assert all(one in told for one in ("age = 30", "sex = male", "class = 3"))


DAYS = pd.to_datetime(["2020-01-09", "2021-05-01", None, "2020-03-01", "2024-02-02"])
CITIES = ["Rome", None, None, "Oslo", None]


def dated():
    """A pipeline of a date and a category with missing values."""
    pytest.importorskip("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

    from cafexai.sklearn import from_sklearn

    def days(frame):
        return frame.apply(lambda column: (column - pd.Timestamp("2020-01-01")).dt.days).fillna(0)

    frame = pd.DataFrame({"since": DAYS, "city": CITIES})
    words = make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), OneHotEncoder())
    steps = make_column_transformer((FunctionTransformer(days), ["since"]), (words, ["city"]))
    model = make_pipeline(steps, LinearRegression()).fit(frame, np.arange(5.0))
    return CAFE(from_sklearn(model), background=frame), frame


def test_of_several_baselines_a_date_is_the_median_and_missing_is_a_category():
    cafe, frame = dated()
    e = cafe.explain(frame)
    known = [day for day in DAYS if not pd.isna(day)]
    middle = sorted(known)[(len(known) - 1) // 2].strftime("%Y-%m-%d")
    assert dict(zip(e.names(), e.baseline_values(0), strict=True)) == {"since": middle, "city": None}
    text = e.ledger(0)
    assert f"median {middle}" in text
    assert "most often missing" in text
    long = e.to_frame()
    assert set(long[long.feature == "since"].baseline) == {f"median {middle}"}
    assert set(long[long.feature == "city"].baseline) == {"most often missing"}


def test_missing_in_the_baseline_is_not_no_category():
    cafe, frame = dated()
    e = cafe.explain(frame, "median")
    assert dict(zip(e.names(), e.baseline_values(0), strict=True))["city"] is None
    assert "missing" in e.ledger(0)
    assert "(none)" not in e.ledger(0)
    assert e.at_baseline[:, e.names().index("city")].tolist() == [city is None for city in CITIES]
    assert "as in the baseline, so no score: city = missing;" in e.ledger(1)


@pytest.mark.parametrize("beside", [False, True])
def test_codes_have_no_mean(beside):
    torch.manual_seed(0)
    table, head = nn.Embedding(9, 3), nn.Linear(3, 1)
    codes, numbers = torch.tensor([[1, 2], [8, 2], [1, 5]]), torch.rand(3, 1)
    if beside:  # several inputs
        cafe = CAFE(lambda ids, x: head(table(ids)).sum(1) * (1 + x), background=(codes, numbers))
    else:
        cafe = CAFE(lambda ids: head(table(ids)).sum(1), background=codes)
    x = (codes, numbers) if beside else codes
    e = cafe.explain(x, "background")
    assert e.baseline_values(1)[:2] == [1.0, 2.0]
    assert e.ledger(1).count("most often") == 2
    assert ("mean" in e.ledger(1)) == beside  # of the number
    assert (e.baselines[0] if beside else e.baselines).tolist() == [[1, 2]] * 3
    assert cafe.explain(x).baseline_values(1)[:2] == ["(none)"] * 2
    assert " -1 " not in cafe.explain(x).ledger(1)


def test_the_overview_of_a_report_has_a_range_of_dates_and_counts_what_is_missing():
    from cafexai.reporting.overview import value_ranges

    cafe, frame = dated()
    assert value_ranges(cafe.explain(frame)) == {"since": "2020-01-09 to 2024-02-02", "city": "most often missing"}
    assert value_ranges(cafe.explain(frame[:1])) == {"since": "2020-01-09", "city": "Rome"}
