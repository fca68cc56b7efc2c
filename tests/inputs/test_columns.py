"""Pipelines of scikit-learn: one score per original column, with its own value."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
)

from cafexai import CAFE, Explanation, from_sklearn

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SMALL = {"hidden_layer_sizes": (6,), "max_iter": 15, "random_state": 0}
NUMBERS, WORDS = ["age", "income"], ["sex", "city"]


def table(rows=60):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 80, rows).astype(float),
            "sex": rng.choice(["female", "male"], rows),
            "income": rng.normal(4e4, 1e4, rows),
            "city": rng.choice(["Oslo", "Łódź", "Rome"], rows),
            "id": np.arange(rows),
        }
    )
    frame.loc[3, "age"] = np.nan
    frame.loc[4, "city"] = None
    return frame


Y = np.random.default_rng(3).choice(["bad", "good"], 60)


def fitted(steps, frame=None, y=Y):
    last = MLPClassifier(**SMALL) if y.dtype.kind == "U" else MLPRegressor(**SMALL)
    return make_pipeline(*steps, last).fit(table() if frame is None else frame, y)


def full():
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    return ColumnTransformer([("num", numbers, NUMBERS), ("cat", words, WORDS)])


def test_one_score_per_original_column_with_its_value():
    pipeline = fitted([full()])
    e = CAFE(from_sklearn(pipeline)).explain(table())
    assert e.names() == ("age", "income", "sex", "city")
    assert e.values(0) == [*table().loc[0, NUMBERS], *table().loc[0, WORDS]]
    assert e.values(3)[0] is None
    assert e.values(4)[3] is None
    assert "missing" in e.ledger(3)
    assert e.combined.shape == (60, 4)
    assert e.class_names == ("good",)
    torch.testing.assert_close(e.probability, torch.from_numpy(pipeline.predict_proba(table())[:, 1]))
    frame = e.to_frame()
    assert frame[(frame.row == 7) & (frame.feature == "city")].value.item() == table().city[7]
    assert e.top(7, 2).columns.tolist() == ["feature", "value", "baseline", "positive", "negative", "combined"]


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_scores_are_those_of_groups_of_encoded_columns(netting):
    pipeline = fitted([full()])
    e = CAFE(from_sklearn(pipeline), variant="published", netting=netting).explain(table())
    encoded = CAFE(from_sklearn(pipeline, encoded=True), variant="published", netting=netting)
    made = encoded.explain(table()).names()
    assert len(made) == 8
    groups = {name: [m for m in made if f"_{name}" in m] for name in ("age", "income", "sex", "city")}
    twin = encoded.explain(table(), feature_groups=groups)
    assert set(twin.names()) == set(e.names())
    order = [twin.names().index(name) for name in e.names()]
    for name in ("positive", "negative", "combined"):
        torch.testing.assert_close(getattr(e, name), getattr(twin, name)[:, order])


def double(x):
    return np.asarray(x) * 2


def swapped(x):
    return np.asarray(x)[:, ::-1]


# steps for the two numbers -> the original columns, or the encoded features that are kept
STEPS = {
    "scaler": (MinMaxScaler(), NUMBERS),
    "quantiles": (QuantileTransformer(n_quantiles=10), NUMBERS),
    "bins": (KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), NUMBERS),
    "ordinal bins": (KBinsDiscretizer(3, encode="ordinal", quantile_method="averaged_inverted_cdf"), NUMBERS),
    "squares": (PolynomialFeatures(2, include_bias=False), [*NUMBERS, "age income"]),
    "passthrough": ("passthrough", NUMBERS),
    "function": (FunctionTransformer(np.log1p), NUMBERS),
    "own function": (FunctionTransformer(double), NUMBERS),
    "mixing function": (FunctionTransformer(swapped, feature_names_out=lambda step, names: ["a", "b"]), ["a", "b"]),
    "row norm": (Normalizer(), NUMBERS),  # by name, but each is made of both: see below
    "pca": (PCA(2), ["pca0", "pca1"]),
    "neighbours": (KNNImputer(add_indicator=True), NUMBERS),
    "both": (FeatureUnion([("a", StandardScaler()), ("b", MinMaxScaler())]), NUMBERS),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name):
    step, expected = STEPS[name]
    frame = table().fillna({"age": 50.0, "city": "Rome"})
    pipeline = fitted([ColumnTransformer([("words", OneHotEncoder(drop="first"), WORDS), ("step", step, NUMBERS)])], frame)
    e = CAFE(from_sklearn(pipeline), variant="published", netting="path").explain(frame)
    assert sorted(e.names()) == sorted([*WORDS, *expected])
    mixed = name in ("squares", "mixing function", "row norm", "pca")
    assert any("several columns" in note for note in e.notes) == mixed
    values = dict(zip(e.names(), e.values(5), strict=True))
    assert values["sex"] == frame.sex[5]
    if not mixed:
        assert values["age"] == frame.age[5]
    encoded = CAFE(from_sklearn(pipeline, encoded=True), variant="published", netting="path").explain(frame)
    torch.testing.assert_close(e.combined.sum(1), encoded.combined.sum(1))


def test_ordinal_codes_are_shown_as_words_and_columns_may_stand_in_any_order():
    frame = table().dropna()
    steps = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="float")),
        (OrdinalEncoder(), slice("sex", "sex")),
        remainder="drop",
    )
    pipeline = fitted([steps], frame, Y[: len(frame)])
    cafe = CAFE(from_sklearn(pipeline))
    e = cafe.explain(frame)
    assert e.names() == ("age", "income", "sex")
    assert not e.grouped
    assert e.values(1) == [frame.age.iloc[1], frame.income.iloc[1], frame.sex.iloc[1]]
    turned = cafe.explain(frame[frame.columns[::-1]])
    assert turned.values(1) == e.values(1)
    assert torch.equal(turned.combined, e.combined)


def test_remainder_and_places_instead_of_names():
    frame = table().dropna()
    rows = frame[["age", "sex", "income"]].to_numpy(dtype=object)
    steps = ColumnTransformer([("cat", OneHotEncoder(), [1])], remainder="passthrough")
    pipeline = fitted([steps, StandardScaler(with_mean=False)], rows, Y[: len(frame)])
    e = CAFE(from_sklearn(pipeline)).explain(rows)
    assert e.names() == ("x1", "x0", "x2")
    assert e.values(2) == [rows[2, 1], rows[2, 0], rows[2, 2]]
    assert CAFE(from_sklearn(pipeline)).explain(rows, feature_names=["age", "sex", "income"]).names() == (
        "sex",
        "age",
        "income",
    )
    with pytest.raises(ValueError, match="2 names for 3 features"):
        CAFE(from_sklearn(pipeline)).explain(rows, feature_names=["a", "b"])


def test_infrequent_categories_and_dropped_ones():
    frame = table().dropna()
    for encoder in (
        OneHotEncoder(min_frequency=18),
        OneHotEncoder(drop="if_binary"),
        OneHotEncoder(max_categories=2, drop="first"),
    ):
        pipeline = fitted(
            [ColumnTransformer([("cat", encoder, WORDS), ("num", StandardScaler(), NUMBERS)])], frame, Y[: len(frame)]
        )
        assert CAFE(from_sklearn(pipeline)).explain(frame).names() == ("sex", "city", "age", "income")


def test_baselines_are_rows_of_original_values():
    pipeline = fitted([full()])
    frame = table()
    row = {"age": 40.0, "sex": "male", "income": 3e4, "city": "Oslo", "id": 0}
    ready = torch.from_numpy(np.asarray(pipeline[:-1].transform(pd.DataFrame([row]))))
    cafe = CAFE(from_sklearn(pipeline), background=frame)
    for form in (
        row,
        pd.DataFrame([row]),
        pd.Series(row),
        [row[c] for c in frame.columns],
        np.array([list(row.values())], object),
    ):
        if isinstance(form, np.ndarray):
            form = form[:, [list(row).index(c) for c in frame.columns]]
        e = cafe.explain(frame, baselines=form)
        torch.testing.assert_close(e.baselines, ready.expand(60, -1))
        assert (e.combined[:, 2][(frame.sex == "male").to_numpy()] == 0).all()
    for word, number in (("mean", frame.age.mean()), ("median", frame.age.median()), ("mode", frame.age.mode().tolist())):
        typical = {"sex": frame.sex.mode()[0], "city": frame.city.mode()[0]}
        found = cafe.model.typical(word, frame).iloc[0]
        assert found.age in (number if word == "mode" else [number])
        assert {name: found[name] for name in WORDS} == typical
        torch.testing.assert_close(
            cafe.explain(frame, baselines=word).baselines[:1],
            torch.from_numpy(np.asarray(pipeline[:-1].transform(found.to_frame().T.infer_objects()))),
        )


def test_groups_of_original_columns_refined_saved_and_for_all_classes(tmp_path):
    pipeline = fitted([full()], y=np.random.default_rng(0).choice(["a", "b", "c"], 60))
    cafe = CAFE(from_sklearn(pipeline), variant="published", netting="path", background=table())
    plain = cafe.explain(table(), target="b")
    e = cafe.explain(table(), target="b", feature_groups={"person": ["age", "sex"]})
    assert e.names() == ("person", "income", "city")
    torch.testing.assert_close(e.positive[:, 0], plain.positive[:, 0] + plain.positive[:, 2])
    assert e.values(0)[0] == ""
    assert e.values(0)[2] == table().city[0]
    refined = cafe.explain(table(), target="b", refine=20)
    assert refined.refinement.correction.shape == (60, 4)
    assert refined.refinement.correction.sum(1).abs().max() < 1e-9
    refined[5:9].save(tmp_path / "e.safetensors")
    again = Explanation.load(tmp_path / "e.safetensors")
    assert again.values(1) == plain.values(6)
    assert again.target_name() == "logit of 'b'"
    every = cafe.explain(table(), target="all", batch_size=7)
    torch.testing.assert_close(every[1].combined, plain.combined)
    pairs = CAFE(from_sklearn(pipeline), variant="published", netting="feature").explain(table(), pairs=True)
    assert pairs.conflict_pairs.shape == (60, 5, 5)
    assert {up for up, _, _ in pairs.pairs(0)} <= {*pairs.names(), "(bias)"}


@given(data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_table_adds_up_by_original_columns(data):
    """Columns of any kind and order: scores per original column are sums over the features that are made of it."""
    kinds = data.draw(
        st.lists(st.sampled_from(["number", "word", "left"]), min_size=1, max_size=5).filter(
            lambda k: set(k) > {"left"} or set(k) & {"number", "word"}
        )
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    frame = pd.DataFrame(
        {f"c{i}__{i}": rng.choice(list("abc"), 20) if kind == "word" else rng.normal(size=20) for i, kind in enumerate(kinds)}
    )
    parts = [
        (f"p{i}", {"number": StandardScaler(), "word": OneHotEncoder(), "left": "drop"}[kind], [f"c{i}__{i}"])
        for i, kind in enumerate(kinds)
    ]
    parts = data.draw(st.permutations(parts))
    pipeline = fitted([ColumnTransformer(parts)], frame, rng.normal(size=20))
    e = CAFE(from_sklearn(pipeline), variant="published", netting="path").explain(frame)
    encoded = CAFE(from_sklearn(pipeline, encoded=True), variant="published", netting="path").explain(frame)
    assert set(e.names()) == {f"c{i}__{i}" for i, kind in enumerate(kinds) if kind != "left"}
    for place, name in enumerate(e.names()):
        members = [i for i, made in enumerate(encoded.names()) if f"__{name}" in made]
        torch.testing.assert_close(e.negative[:, place], encoded.negative[:, members].sum(1))
        assert e.values(11)[place] == frame[name][11]


def test_texts_of_a_vectorizer_and_beside_other_columns():
    texts = ["good film", "bad film", "good good", "so bad"] * 5
    y = np.array(["up", "down"] * 10)
    pipeline = make_pipeline(TfidfVectorizer(), MLPClassifier(**SMALL)).fit(texts, y)
    e = CAFE(from_sklearn(pipeline)).explain(texts)
    assert e.names() == ("bad", "film", "good", "so")
    np.testing.assert_allclose(e.probability, pipeline.predict_proba(texts)[:, 1])
    frame = pd.DataFrame({"review": texts, "age": np.arange(20.0)})
    both = ColumnTransformer([("words", TfidfVectorizer(), "review"), ("num", StandardScaler(), ["age"])])
    e = CAFE(from_sklearn(make_pipeline(both, MLPClassifier(**SMALL)).fit(frame, y))).explain(frame)
    assert e.names() == ("review", "age")
    assert e.values(1) == ["bad film", 1.0]


def test_values_to_show_are_those_of_the_columns():
    with pytest.raises(ValueError, match="display"):
        CAFE(from_sklearn(fitted([full()]))).explain(table(), display=np.zeros((60, 8)))


def test_rows_that_the_pipeline_does_not_take_are_refused_in_our_words():
    cafe = CAFE(from_sklearn(fitted([full()])))
    with pytest.raises(ValueError, match=r"explain\(...\): the pipeline does not take these rows.*columns 'age', 'sex'"):
        cafe.explain(table()[["age"]])
    with pytest.raises(ValueError, match=r"explain\(..., baselines=...\): the pipeline does not take these rows"):
        cafe.explain(table(), baselines={"age": 3})
    with pytest.raises(ValueError, match="Allowed values"):
        cafe.explain(table(), baselines="best")
    with pytest.raises(ValueError, match="of which data"):
        cafe.explain(table(), baselines="mean")
    with pytest.raises(ValueError, match="no feature 'cat__sex_male'"):
        cafe.explain(table(), feature_groups={"a": ["cat__sex_male"]})


def test_unknown_categories_are_noted():
    frame = table()
    cafe = CAFE(from_sklearn(fitted([full()])))
    assert not any("Unknown" in note for note in cafe.explain(frame).notes)
    frame.loc[[1, 2], "city"] = "Paris"
    (note,) = [note for note in cafe.explain(frame).notes if "Unknown" in note]
    assert note.startswith("Unknown to the encoder of city: 'Paris' (2 rows)")
    lower = FunctionTransformer(lambda x: x.apply(lambda column: column.str.lower()), feature_names_out="one-to-one")
    words = ColumnTransformer([("words", make_pipeline(lower, OneHotEncoder()), ["sex"])])
    e = CAFE(from_sklearn(fitted([words], table()))).explain(table().assign(sex=table().sex.str.upper()))
    assert not any("Unknown" in note for note in e.notes)  # the encoder gets other words than the column has


def test_columns_that_are_too_many_or_too_few_are_named():
    numbers = table()[NUMBERS].fillna(50.0)
    scaled = CAFE(from_sklearn(fitted([StandardScaler()], numbers)))
    with pytest.raises(ValueError, match="besides 'weight'"):
        scaled.explain(numbers.assign(weight=1.0))
    with pytest.raises(ValueError, match="lack 'income'"):
        scaled.explain(numbers[["age"]])
    bare = CAFE(from_sklearn(MLPClassifier(**SMALL).fit(numbers, Y)))
    with pytest.raises(ValueError, match="besides 'weight'"):
        bare.explain(numbers.assign(weight=1.0))
    with pytest.raises(ValueError, match="another order"):
        bare.explain(numbers[NUMBERS[::-1]])


def test_integers_of_an_encoder_are_categories():
    frame = table().assign(grade=np.arange(60) % 4 + 1)
    steps = ColumnTransformer([("words", OneHotEncoder(), ["grade"]), ("numbers", "passthrough", ["id"])])
    e = CAFE(from_sklearn(fitted([steps], frame))).explain(frame)
    assert e.values(2) == ["3", 2.0]
    assert e.features.categories["grade"] == ("1", "2", "3", "4")
