"""Typical rows: categories that are integers, what is missing, dates; ``CAFE.baseline_row``."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, TargetEncoder
from torch import nn

from cafexai import CAFE, Schema, from_sklearn
from cafexai._inputs.table_values import typical_value

DAYS = pd.to_datetime(["2020-01-01", "2020-01-11", "2020-01-03", "2020-02-01", "2020-01-05"])


def table():
    return pd.DataFrame(
        {
            "grade": [3, 1, 3, 2, 3],
            "branch": [10, 20, 20, 30, 20],
            "city": ["Rome", None, None, "Oslo", None],
            "since": DAYS,
            "amount": [1.0, 2.0, np.nan, 40.0, 5.0],
        }
    )


def days(frame):
    return frame.apply(lambda column: (column - pd.Timestamp("2020-01-01")).dt.days)


def explainer():
    words = make_pipeline(SimpleImputer(strategy="constant", fill_value="none"), OneHotEncoder())
    steps = ColumnTransformer(
        [
            ("grade", OneHotEncoder(), ["grade"]),
            ("branch", TargetEncoder(cv=2), ["branch"]),
            ("city", words, ["city"]),
            ("since", FunctionTransformer(days), ["since"]),
            ("amount", SimpleImputer(), ["amount"]),
        ]
    )
    many = pd.concat([table()] * 4, ignore_index=True)
    fitted = make_pipeline(steps, LinearRegression()).fit(many, np.arange(20.0) + 0.5)
    return CAFE(from_sklearn(fitted), background=table())


@pytest.mark.parametrize(
    ("word", "since", "amount"), [("mean", "2020-01-10", 12.0), ("median", "2020-01-05", 3.5), ("mode", "2020-01-01", 1.0)]
)
def test_a_typical_row_has_values_that_occur(word, since, amount):
    cafe = explainer()
    row = cafe.baseline_row(word)
    assert row.columns.tolist() == table().columns.tolist()
    assert row.loc[0, "grade"] == 3
    assert row.loc[0, "branch"] == 20
    assert pd.isna(row.loc[0, "city"])  # missing is the most frequent category
    assert row.loc[0, "since"] == pd.Timestamp(since)
    assert row.loc[0, "amount"] == amount
    by_word, by_row = cafe.explain(table(), baselines=word), cafe.explain(table(), baselines=row)
    torch.testing.assert_close(by_word.combined, by_row.combined)
    names = by_word.names()
    assert by_word.combined[1, names.index("city")] == 0  # missing, as in the baseline
    assert bool((by_word.combined[[0, 2, 4], names.index("grade")] == 0).all())


def test_rows_of_schemas_frames_and_tensors():
    frame = pd.DataFrame({"city": ["Rome", "Oslo", "Rome"], "age": [20.0, 30.0, 70.0]})
    schema = Schema.from_frame(frame, one_hot=True)
    row = CAFE(nn.Linear(3, 1), schema=schema, background=frame).baseline_row("mean")
    assert row.to_dict("records") == [{"city": "Rome", "age": 40.0}]
    numbers = frame[["age"]].assign(debt=[1.0, 2.0, 9.0])
    row = CAFE(nn.Linear(2, 1), background=numbers).baseline_row("median")
    assert row.to_dict("records") == [{"age": 30.0, "debt": 2.0}]
    both = CAFE(nn.Linear(2, 1), background=(torch.tensor([[1.0], [3.0]]), torch.tensor([[5], [5]]))).baseline_row("mode")
    assert [part.tolist() for part in both] == [[[1.0]], [[5]]]
    with pytest.raises(ValueError, match="of which data"):
        CAFE(nn.Linear(2, 1)).baseline_row()
    with pytest.raises(ValueError, match="mean"):
        CAFE(nn.Linear(2, 1), background=torch.ones(2, 2)).baseline_row("zero")


CELLS = st.one_of(st.none(), st.sampled_from(["a", "b", "c"]))


@given(st.lists(CELLS, min_size=1, max_size=9), st.sampled_from(["mean", "median", "mode"]))
def test_of_categories_none_is_more_frequent(cells, word):
    found = typical_value(word, np.array(cells, dtype=object))
    assert cells.count(found) == max(cells.count(cell) for cell in cells)


@given(st.lists(st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)), min_size=1, max_size=9))
def test_the_median_of_dates_is_in_the_middle_and_texts_agree(dates):
    found = typical_value("median", np.array(dates, dtype=object))
    assert found == sorted(dates)[(len(dates) - 1) // 2]
    assert typical_value("median", np.array([day.isoformat() for day in dates], dtype=object)) == found.isoformat()
    mean = datetime.date.fromordinal(int(np.mean([day.toordinal() for day in dates]) // 1))
    assert abs((typical_value("mean", np.array(dates, dtype=object)) - mean).days) <= 1
