"""The baseline zero of pipelines in the units of their columns, and columns that they do not use."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

from cafexai import CAFE, from_sklearn
from cafexai.sklearn.zero import invert_zero


def frame():
    random = np.random.default_rng(0)
    found = pd.DataFrame({"age": random.normal(40, 9, 60), "income": random.normal(3000, 800, 60), "id": np.arange(60)})
    found["sex"] = random.choice(["male", "female"], 60)
    return found


def explained(steps, *names):
    rows = frame()[list(names)] if names else frame()
    model = make_pipeline(steps, LogisticRegression()).fit(rows, frame().age > 40)
    return CAFE(from_sklearn(model)).explain(rows[:3])


@pytest.mark.parametrize(
    ("scaler", "zero"),
    [
        (StandardScaler(), lambda column: column.mean()),
        (RobustScaler(), lambda column: column.median()),
        (MinMaxScaler(), lambda column: column.min()),
        (make_pipeline(SimpleImputer(), StandardScaler()), lambda column: column.mean()),
    ],
)
def test_zero_behind_a_scaler_is_told_in_original_units(scaler, zero):
    e = explained(scaler, "age", "income")
    assert dict(zip(e.names(), e.baseline_values(), strict=True)) == pytest.approx(
        {name: zero(frame()[name]) for name in ("age", "income")}
    )
    assert "The baseline is 0 behind the preprocessing; its values are what the preprocessing turns into 0." in e.notes


def test_categories_have_no_zero_and_unused_columns_are_named():
    steps = make_column_transformer((StandardScaler(), ["income", "age"]), (OneHotEncoder(), ["sex"]))
    e = explained(steps)
    assert dict(zip(e.names(), e.baseline_values(), strict=True))["sex"] == "(none)"
    assert "Not used by the pipeline: 'id'." in e.notes
    assert "mean" not in e.ledger(0)


def test_zero_that_cannot_be_inverted_is_said_to_be_unknown():
    e = explained(KBinsDiscretizer(3), "age", "income")
    assert e.baseline_values() is None
    assert any("not known in the units of the columns" in note for note in e.notes)


def test_zero_is_unknown_where_no_row_gives_it():
    rows = np.random.default_rng(0).normal(5, 2, (60, 3))
    replaced = SimpleImputer(missing_values=0, strategy="constant", fill_value=5)
    for step in (make_pipeline(replaced, StandardScaler(with_mean=False)), MinMaxScaler((1, 2), clip=True)):
        assert np.isnan(invert_zero(step.fit(rows), 3, 3)).all()
    twice = make_column_transformer((StandardScaler(), [0, 1]), (RobustScaler(), [0, 2])).fit(rows)
    found = invert_zero(twice, 3, 4)
    assert np.isnan(found).tolist() == [True, False, False]
    assert np.allclose(found[1:], [rows[:, 1].mean(), np.median(rows[:, 2])])
