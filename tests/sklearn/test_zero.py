"""The baseline zero of pipelines in the units of their columns, and columns that they do not use."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("sklearn")
from sklearn.compose import make_column_transformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from cafexai import CAFE, from_sklearn
from cafexai._inputs.table_values import NOT_KNOWN
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
        assert invert_zero(step.fit(rows), 3, 3).tolist() == [NOT_KNOWN] * 3
    twice = make_column_transformer((StandardScaler(), [0, 1]), (RobustScaler(), [0, 2])).fit(rows)
    found = invert_zero(twice, 3, 4)
    assert found[0] is NOT_KNOWN
    assert np.allclose(found[1:].astype(float), [rows[:, 1].mean(), np.median(rows[:, 2])])


@pytest.mark.parametrize(
    ("encoder", "sex"),
    [
        (OneHotEncoder(), "(none)"),
        (OneHotEncoder(drop="first"), "female"),
        (OrdinalEncoder(), "female"),
        (make_pipeline(OneHotEncoder(sparse_output=False), StandardScaler()), ""),
        (TargetEncoder(), ""),
    ],
)
def test_zero_of_an_encoder_is_the_category_that_it_makes_0(encoder, sex):
    steps = make_column_transformer((StandardScaler(), ["income", "age"]), (encoder, ["sex"]))
    e = explained(steps, "age", "income", "sex")
    own = dict(zip(e.names(), e.baseline_values(), strict=True))
    assert own["sex"] == sex
    assert own["age"] == pytest.approx(frame().age.mean())
    assert any("not known for 'sex'" in note for note in e.notes) == (sex == "")
    assert pd.isna(e.to_frame().set_index("feature").baseline["sex"].iloc[0]) == (sex != "female")


def test_zero_of_a_mark_for_missing_values_that_is_scaled_is_not_known():
    rows = frame()[["age", "income"]]
    rows.loc[:9, "age"] = None
    for steps, age in (
        (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ""),
        (make_union(make_pipeline(SimpleImputer(), StandardScaler()), MissingIndicator()), None),
        (
            make_column_transformer((make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True)), [0, 1])),
            rows.age.mean(),
        ),
    ):
        model = make_pipeline(steps, LogisticRegression()).fit(rows, frame().income > 3000)
        found = CAFE(from_sklearn(model)).explain(rows[20:22]).baseline_values()
        if age is None:  # a union is not taken apart
            assert found is None
        else:
            assert found == [age if age == "" else pytest.approx(age), pytest.approx(rows.income.mean())]
