"""Pictures of columns of dates: places and colours in the order of time, few labels."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from cafexai import CAFE, from_sklearn
from cafexai.plotting.change_plots import days_of

COUNT = 40


def days(rows):
    return rows.apply(lambda column: (column - pd.Timestamp("2020-01-01")).dt.days)


@pytest.fixture(scope="module")
def cafe():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"city": [f"city {i}" for i in range(COUNT)], "age": random.normal(40, 9, COUNT)})
    frame["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(random.permutation(900)[:COUNT], unit="D")
    numbers = make_pipeline(FunctionTransformer(days), StandardScaler())
    steps = make_column_transformer((numbers, ["since"]), (StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    fitted = make_pipeline(steps, LogisticRegression()).fit(frame, frame.since > "2021-02-01")
    return CAFE(from_sklearn(fitted), background=frame)


def dots(figure):
    return np.concatenate([part.get_offsets() for part in figure.axes[0].collections])


def test_scores_stand_at_their_dates(cafe):
    e = cafe.explain(cafe.background, "median")
    figure = e.plot.dependence("since", color="age")
    figure.canvas.draw()
    np.testing.assert_allclose(dots(figure)[:, 0], days_of(list(cafe.background.since)))
    np.testing.assert_allclose(dots(figure)[:, 1], e.combined[:, e.names().index("since")])
    assert len(figure.axes[0].get_xticklabels()) < 12
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    middle = sorted(cafe.background.since)[(COUNT - 1) // 2]
    assert [line.get_xdata()[0] for line in dashed] == days_of([middle]).tolist()


def test_dates_colour_by_time_and_many_words_by_the_most_frequent(cafe):
    e = cafe.explain(cafe.background, "median")
    by_time = e.plot.dependence("age", color="since")
    np.testing.assert_allclose(by_time.axes[0].collections[0].get_array(), days_of(list(cafe.background.since)))
    by_city = e.plot.dependence("age", color="city")
    named = [text.get_text() for text in by_city.axes[0].get_legend().get_texts()]
    assert named[0] == "others"
    assert len(named) == 10
    assert len(dots(by_city)) == COUNT


def test_what_if_curves_over_dates_mark_every_row(cafe):
    curves = cafe.what_if(cafe.background[:3], "since")
    axes = curves.plot().axes[0]
    marks = [line for line in axes.lines if line.get_marker() == "D"]
    assert [line.get_xdata()[0] for line in marks] == days_of(list(cafe.background.since[:3])).tolist()
