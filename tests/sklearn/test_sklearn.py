"""scikit-learn perceptrons, pipelines and skorch nets."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch import nn

from cafexai import CAFE
from cafexai.sklearn import from_sklearn

# The fits below stop early on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ACTIVATIONS = ("identity", "logistic", "tanh", "relu")
SMALL = {"hidden_layer_sizes": (6, 4), "max_iter": 15, "random_state": 0}
X = np.random.default_rng(0).normal(size=(80, 4))
SIGNAL = X[:, 0] - X[:, 1] * X[:, 2]
TWO = (SIGNAL > 0).astype(int)
THREE = np.digitize(SIGNAL, (-0.5, 0.5))


def frame(rows: int = 80) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 80, rows),
            "income": rng.normal(4e4, 1e4, rows),
            "sex": rng.choice(["female", "male"], rows),
        }
    )


def adds_up(explanation):
    whole = explanation.baseline_output + explanation.bias + explanation.combined.sum(1)
    torch.testing.assert_close(whole, explanation.output, rtol=1e-9, atol=1e-9)
    assert explanation.completeness_error.abs().max() < 1e-9


def explained_logits(estimator, inputs):
    model = from_sklearn(estimator)
    return model(torch.as_tensor(model.from_raw(inputs).ready))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("y", [TWO, THREE, np.array(["no", "yes"])[TWO]], ids=["two", "three", "strings"])
def test_classifier_gives_the_same_probabilities(activation, y):
    estimator = MLPClassifier(activation=activation, **SMALL).fit(X, y)
    logits = explained_logits(estimator, X)
    expected = torch.from_numpy(estimator.predict_proba(X))
    if len(estimator.classes_) == 2:
        assert logits.shape == (80, 1)
        torch.testing.assert_close(torch.sigmoid(logits[:, 0]), expected[:, 1])
    else:
        torch.testing.assert_close(torch.softmax(logits, 1), expected)
    explanation = CAFE(from_sklearn(estimator)).explain(X)
    adds_up(explanation)
    torch.testing.assert_close(explanation.output, logits.max(1).values)
    assert not any("left out" in note for note in explanation.notes)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("y", [SIGNAL, np.stack([SIGNAL, X[:, 0]], 1)], ids=["one", "several"])
def test_regressor_gives_the_same_predictions(activation, y):
    estimator = MLPRegressor(activation=activation, **SMALL).fit(X, y)
    expected = torch.from_numpy(estimator.predict(X)).reshape(80, -1)
    torch.testing.assert_close(explained_logits(estimator, X), expected)
    explanation = CAFE(from_sklearn(estimator)).explain(X, target=0)
    adds_up(explanation)
    torch.testing.assert_close(explanation.output, expected[:, 0])


def test_poisson_regressor_ends_in_the_exponential():
    if "loss" not in MLPRegressor().get_params():
        pytest.skip("this scikit-learn has no Poisson loss")
    estimator = MLPRegressor(loss="poisson", **SMALL).fit(X, np.exp(SIGNAL / 2))
    explanation = CAFE(from_sklearn(estimator)).explain(X)
    torch.testing.assert_close(explanation.output, torch.from_numpy(estimator.predict(X)))
    adds_up(explanation)


def test_multilabel_classifier_has_one_logit_per_label():
    estimator = MLPClassifier(**SMALL).fit(X, np.stack([TWO, 1 - TWO, X[:, 3] > 0], 1))
    torch.testing.assert_close(torch.sigmoid(explained_logits(estimator, X)), torch.from_numpy(estimator.predict_proba(X)))


def test_the_model_is_a_float64_module_in_eval_mode():
    before = torch.get_rng_state()
    model = from_sklearn(MLPRegressor(**SMALL).fit(X.astype(np.float32), SIGNAL))
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(model, nn.Module)
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert [name for name, _ in model.named_children()] == ["hidden1", "activation1", "hidden2", "activation2", "output"]


@pytest.mark.parametrize(
    "convert", [np.float32, np.float64, torch.tensor, pd.DataFrame], ids=["float32", "float64", "tensor", "frame"]
)
def test_rows_of_any_kind(convert):
    estimator = MLPRegressor(**SMALL).fit(X, SIGNAL)
    rows = convert(X)
    explanation = CAFE(from_sklearn(estimator)).explain(rows[:3])
    np.testing.assert_allclose(explanation.output, estimator.predict(X[:3]), rtol=1e-5)
    assert explanation.combined.dtype == torch.float64


def test_integer_columns_are_numbers():
    rows = np.random.default_rng(0).integers(0, 9, (80, 4))
    estimator = MLPRegressor(**SMALL).fit(rows, SIGNAL)
    np.testing.assert_allclose(CAFE(from_sklearn(estimator)).explain(rows).output, estimator.predict(rows))


def test_scaled_pipeline_takes_raw_rows_and_shows_their_units():
    raw = 100 + 10 * X
    pipeline = make_pipeline(StandardScaler(), MLPClassifier(**SMALL)).fit(raw, TWO)
    explanation = CAFE(from_sklearn(pipeline)).explain(raw)
    torch.testing.assert_close(torch.sigmoid(explanation.output), torch.from_numpy(pipeline.predict_proba(raw)[:, 1]))
    torch.testing.assert_close(explanation.features.display, torch.from_numpy(raw))
    torch.testing.assert_close(explanation.inputs, torch.from_numpy(pipeline[:-1].transform(raw)))
    adds_up(explanation)
    assert f"{raw[0, 0]:.4g}" in explanation.ledger(0)


def test_names_come_from_the_frame_or_are_given():
    numbers = frame()[["age", "income"]]
    pipeline = make_pipeline(StandardScaler(), MLPRegressor(**SMALL)).fit(numbers, SIGNAL)
    cafe = CAFE(from_sklearn(pipeline))
    assert cafe.explain(numbers).feature_names == ("age", "income")
    assert cafe.explain(numbers, feature_names=["a", "b"]).feature_names == ("a", "b")
    with pytest.warns(UserWarning, match="feature names"):  # scikit-learn's own
        assert cafe.explain(numbers.to_numpy()).feature_names == ("age", "income")
    with pytest.raises(ValueError, match="3 names for 2 features"):
        cafe.explain(numbers, feature_names=["a", "b", "c"])


def test_bare_estimator_names():
    numbers = frame()[["age", "income"]]
    cafe = CAFE(from_sklearn(MLPRegressor(**SMALL).fit(numbers, SIGNAL)))
    assert cafe.explain(numbers).feature_names == ("age", "income")
    assert cafe.explain(numbers.to_numpy()).feature_names == ("age", "income")
    assert cafe.explain(numbers, feature_names=["a", "b"]).feature_names == ("a", "b")


def test_one_hot_pipeline():
    table = frame()
    parts = [("num", StandardScaler(), ["age", "income"]), ("cat", OneHotEncoder(), ["sex"])]
    pipeline = make_pipeline(ColumnTransformer(parts), MLPClassifier(**SMALL)).fit(table, TWO)
    cafe = CAFE(from_sklearn(pipeline, encoded=True))
    explanation = cafe.explain(table)
    assert explanation.features.names == ("num__age", "num__income", "cat__sex_female", "cat__sex_male")
    assert explanation.features.display is None
    torch.testing.assert_close(torch.sigmoid(explanation.output), torch.from_numpy(pipeline.predict_proba(table)[:, 1]))
    adds_up(explanation)
    grouped = cafe.explain(table, feature_groups={"sex": ["cat__sex_female", "cat__sex_male"]})
    assert grouped.features.names == ("num__age", "num__income", "sex")


def test_sparse_output_of_a_step_is_made_dense():
    table = frame()
    encoder = ColumnTransformer([("cat", OneHotEncoder(), ["sex", "age"])], sparse_threshold=1.0)
    pipeline = make_pipeline(encoder, MLPRegressor(**SMALL)).fit(table, SIGNAL)
    np.testing.assert_allclose(CAFE(from_sklearn(pipeline)).explain(table).output, pipeline.predict(table))


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_reordered_columns_keep_their_names_and_units(output):
    numbers = frame()[["age", "income"]]
    parts = ColumnTransformer([("a", StandardScaler(), ["income"]), ("b", StandardScaler(), ["age"])])
    pipeline = make_pipeline(parts.set_output(transform=output), MLPRegressor(**SMALL)).fit(numbers, SIGNAL)
    cafe = CAFE(from_sklearn(pipeline))
    explanation = cafe.explain(numbers)
    assert explanation.features.names == ("income", "age")
    np.testing.assert_allclose(explanation.features.display, numbers[["income", "age"]])
    assert cafe.explain(numbers, feature_names=["A", "I"]).feature_names == ("I", "A")  # names of the raw columns


def test_mixed_features_have_no_units():
    pipeline = make_pipeline(StandardScaler(), PCA(4), MLPRegressor(**SMALL)).fit(X, SIGNAL)
    explanation = CAFE(from_sklearn(pipeline)).explain(X)
    assert explanation.features.display is None
    assert explanation.features.names == ("pca0", "pca1", "pca2", "pca3")


def test_steps_without_names():
    pipeline = make_pipeline(FunctionTransformer(np.tanh), MLPRegressor(**SMALL)).fit(X, SIGNAL)
    explanation = CAFE(from_sklearn(pipeline)).explain(X)
    np.testing.assert_allclose(explanation.output, pipeline.predict(X))
    np.testing.assert_allclose(explanation.features.display, X)


def test_pipeline_of_one_step():
    pipeline = make_pipeline(MLPRegressor(**SMALL)).fit(X, SIGNAL)
    np.testing.assert_allclose(CAFE(from_sklearn(pipeline)).explain(X).output, pipeline.predict(X))


def test_baselines_are_in_original_units_or_in_transformed_ones():
    raw = 100 + 10 * X
    pipeline = make_pipeline(StandardScaler(), MLPRegressor(**SMALL)).fit(raw, SIGNAL)
    mean = raw.mean(0, keepdims=True)
    cafe, encoded = CAFE(from_sklearn(pipeline)), CAFE(from_sklearn(pipeline, encoded=True))
    expected = cafe.explain(raw).combined
    for form in (mean, mean[0], torch.tensor(mean), list(mean[0]), mean[None].repeat(3, 0)):
        torch.testing.assert_close(cafe.explain(raw, baselines=form).combined, expected)
    torch.testing.assert_close(encoded.explain(raw, baselines=pipeline[:-1].transform(mean)).combined, expected)
    torch.testing.assert_close(encoded.explain(raw, baselines=0.0).combined, expected)
    with pytest.raises(ValueError, match=r"values of the 4 original columns, 'x0'.*encoded=True"):
        cafe.explain(raw, baselines=0.5)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (MLPClassifier(), ["MLPClassifier", "not fitted", "fit"]),
        (make_pipeline(StandardScaler(), MLPRegressor()), ["Pipeline", "not fitted"]),
        (RandomForestClassifier(), ["RandomForestClassifier", "TreeSHAP", "InterpretML"]),
        (make_pipeline(StandardScaler(), LogisticRegression()), ["Pipeline", "of a LogisticRegression is not fitted"]),
        (make_pipeline(StandardScaler(), GaussianNB().fit(X, TWO)), ["Pipeline", "ends in a GaussianNB", "MLPClassifier"]),
        (None, ["NoneType", "Supported"]),
    ],
)
def test_what_cannot_be_taken_is_named(estimator, words):
    with pytest.raises(ValueError, match=r"from_sklearn\(") as error:
        from_sklearn(estimator)
    assert all(word in str(error.value) for word in words), error.value


def test_a_search_is_pointed_to_its_best_estimator():
    search = GridSearchCV(MLPRegressor(**SMALL), {"alpha": [0.1]}, cv=2).fit(X, SIGNAL)
    with pytest.raises(ValueError, match="best_estimator_"):
        from_sklearn(search)


def test_wrong_rows_are_refused():
    table = frame()
    cafe = CAFE(from_sklearn(MLPRegressor(**SMALL).fit(table[["age", "income"]], SIGNAL)))
    with pytest.raises(ValueError, match="same order"):
        cafe.explain(table[["income", "age"]])
    with pytest.raises(ValueError, match=r"takes \(rows, 2\)"):
        cafe.explain(X)
    with pytest.raises(ValueError, match="not all numbers"):
        cafe.explain(table.to_numpy()[:, 1:])


def test_import_does_not_need_sklearn():
    code = "import sys, cafexai, cafexai.sklearn; assert 'sklearn' not in sys.modules and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_skorch_net_is_explained():
    skorch = pytest.importorskip("skorch")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)).float()
    net = skorch.NeuralNetClassifier(module, criterion=nn.CrossEntropyLoss, max_epochs=2, verbose=0)
    x = X.astype(np.float32)
    net.fit(x, THREE.astype(np.int64))
    net.module_.eval()
    explanation = CAFE(net).explain(x)
    assert torch.equal(explanation.target[:, 0], torch.from_numpy(net.predict(x)))
    torch.testing.assert_close(explanation.output, net.forward(x).max(1).values)
    assert explanation.completeness_error.abs().max() < 1e-5


def test_the_background_of_a_pipeline_is_raw():
    x = np.random.default_rng(0).normal(100, 5, (40, 3))
    pipeline = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=20, random_state=0))
    pipeline.fit(x, x.sum(1))
    e = CAFE(from_sklearn(pipeline), background=x).explain(x[:2], baselines="mean")
    torch.testing.assert_close(e.baselines, torch.zeros(2, 3), atol=1e-9, rtol=0)


def test_an_estimator_is_pointed_to_from_sklearn():
    with pytest.raises(ValueError, match="from_sklearn"):
        CAFE(MLPRegressor())


def test_a_binary_classifier_says_whose_logit_it_is():
    x = np.random.default_rng(0).normal(size=(30, 2))
    model = MLPClassifier(hidden_layer_sizes=(3,), max_iter=10, random_state=0).fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    e = CAFE(from_sklearn(model)).explain(x)
    assert "class yes" in e.notes[0]
    assert "class yes" in e.ledger(0)


def test_a_predict_function_is_refused_with_the_remedy():
    """As it is given to SHAP; methods of modules and other functions are models."""
    rows = np.random.default_rng(0).normal(size=(30, 3))
    pipeline = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(rows, rows[:, 0] > 0)
    for function in (pipeline.predict_proba, pipeline.predict, pipeline[-1].predict_proba):
        with pytest.raises(ValueError, match=r"CAFE\(\w+\.predict.*Give the model: CAFE\(cafexai\.from_sklearn"):
            CAFE(function)
    with pytest.raises(ValueError, match="TreeSHAP"):
        CAFE(RandomForestClassifier(2).fit(rows, rows[:, 0] > 0).predict_proba)

    class Scorer(torch.nn.Module):
        def predict(self, x):
            return x.sum(1)

        def get_params(self):
            return {}

    x = torch.ones(2, 3)
    torch.testing.assert_close(CAFE(Scorer().predict).explain(x).net, x)
