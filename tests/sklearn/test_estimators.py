"""Linear models, and what is calibrated, voted or stacked: scores are coefficients times changes, outputs the estimator's."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeClassifier

from cafexai import CAFE, from_sklearn
from sklearn import linear_model as lm

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:sklearn"),
]
random = np.random.default_rng(0)
X = random.normal(size=(90, 4))
SIGNAL = X @ [1.0, -2.0, 0.5, 0.0] + 0.3 * random.normal(size=90)
TWO = np.where(SIGNAL > 0, "yes", "no")
THREE = np.array(["low", "mid", "top"])[np.digitize(SIGNAL, (-1, 1))]
MLP = {"hidden_layer_sizes": (5,), "max_iter": 30, "random_state": 0}
REGRESSORS = {
    "LinearRegression": lm.LinearRegression(),
    "Ridge": lm.Ridge(),
    "RidgeCV": lm.RidgeCV(),
    "Lasso": lm.Lasso(0.1),
    "ElasticNet": lm.ElasticNet(0.1),
    "without intercept": lm.LinearRegression(fit_intercept=False),
    "SGDRegressor": lm.SGDRegressor(random_state=0),
    "HuberRegressor": lm.HuberRegressor(),
    "LinearSVR": LinearSVR(random_state=0),
}
CLASSIFIERS = {
    "LogisticRegression": (lm.LogisticRegression(), True),
    "SGD, log": (lm.SGDClassifier(loss="log_loss", random_state=0), True),
    "SGD, hinge": (lm.SGDClassifier(random_state=0), False),
    "Perceptron": (lm.Perceptron(random_state=0), False),
    "RidgeClassifier": (lm.RidgeClassifier(), False),
    "LinearSVC": (LinearSVC(random_state=0), False),
    "LDA": (LinearDiscriminantAnalysis(), True),
}


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("baseline", [None, "mean"])
def test_scores_of_regressors_are_coefficients_times_changes(name, baseline):
    fitted = REGRESSORS[name].fit(X, SIGNAL)
    e = CAFE(from_sklearn(fitted), background=X).explain(X[:20], baselines=baseline)
    start = 0 if baseline is None else X.mean(0)
    np.testing.assert_allclose(e.combined.numpy(), fitted.coef_ * (X[:20] - start), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(e.output.numpy(), fitted.predict(X[:20]), rtol=1e-12)
    assert bool(((e.positive == 0) | (e.negative == 0)).all())  # a single path of one sign


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_scores_of_classifiers_are_coefficients_times_changes(name, y):
    estimator, likely = CLASSIFIERS[name]
    fitted = estimator.fit(X, y)
    cafe = CAFE(from_sklearn(fitted))
    decision = fitted.decision_function(X[:20]).reshape(20, -1)
    for target in range(decision.shape[1]):
        e = cafe.explain(X[:20], target=target)
        np.testing.assert_allclose(e.combined.numpy(), np.atleast_2d(fitted.coef_)[target] * X[:20], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(e.output.numpy(), decision[:, target], rtol=1e-10)
        if not likely:
            assert e.probability is None
        elif decision.shape[1] == 1 or name != "SGD, log":  # that one normalises one sigmoid per class
            own = fitted.predict_proba(X[:20])[:, target if decision.shape[1] > 1 else 1]
            np.testing.assert_allclose(e.probability.numpy(), own, rtol=1e-9)
    assert e.target_name().startswith("logit of" if likely and e.probability is not None else "decision function of")
    if decision.shape[1] == 1:
        word = "logit" if likely else "decision function"
        assert f"{word}" in e.notes[0]
        assert "class yes" in e.notes[0]


def test_a_logarithmic_link_ends_in_the_exponential():
    y = np.exp(SIGNAL / 3)
    fitted = lm.PoissonRegressor().fit(X, y)
    e = CAFE(from_sklearn(fitted)).explain(X)
    np.testing.assert_allclose(e.output.numpy(), fitted.predict(X), rtol=1e-10)
    assert e.completeness_error.abs().max() < 1e-9


def test_a_support_vector_machine_is_taken_if_it_is_linear():
    fitted = SVC(kernel="linear").fit(X, TWO)
    e = CAFE(from_sklearn(fitted)).explain(X[:5])
    np.testing.assert_allclose(e.combined.numpy(), fitted.coef_ * X[:5], rtol=1e-9)
    for other in (SVC().fit(X, TWO), SVC(kernel="linear").fit(X, THREE)):
        with pytest.raises(ValueError, match="a SVC is not supported"):
            from_sklearn(other)


def frame():
    rng = np.random.default_rng(1)
    return pd.DataFrame({"age": SIGNAL * 10 + 40, "city": rng.choice(["Rome", "Oslo"], 90), "debt": X[:, 3]})


def pipeline(last):
    columns = ColumnTransformer([("city", OneHotEncoder(), ["city"]), ("rest", StandardScaler(), ["age", "debt"])])
    return make_pipeline(columns, last)


def test_a_linear_pipeline_is_explained_by_original_column():
    fitted = pipeline(lm.LogisticRegression()).fit(frame(), TWO)
    e = CAFE(from_sklearn(fitted), background=frame()).explain(frame()[:10], "median")
    assert e.names() == ("city", "age", "debt")
    effect = fitted[-1].coef_[0, 2] * (frame().age[:10] - frame().age.median()) / frame().age.std(ddof=0)
    np.testing.assert_allclose(e.combined[:, 1].numpy(), effect, rtol=1e-9)
    np.testing.assert_allclose(e.probability.numpy(), fitted.predict_proba(frame()[:10])[:, 1], rtol=1e-9)


ENSEMBLES = {
    "calibrated SVC": (CalibratedClassifierCV(LinearSVC(random_state=0), cv=3), X),
    "calibrated once": (CalibratedClassifierCV(LinearSVC(random_state=0), cv=3, ensemble=False), X),
    "calibrated perceptron": (CalibratedClassifierCV(MLPClassifier(**MLP), cv=2), X),
    "calibrated pipeline": (CalibratedClassifierCV(pipeline(lm.LogisticRegression()), cv=2), None),
    "pipeline of a calibrated one": (pipeline(CalibratedClassifierCV(MLPClassifier(**MLP), cv=2)), None),
    "voting": (
        VotingClassifier([("a", lm.LogisticRegression()), ("b", MLPClassifier(**MLP))], voting="soft", weights=[1, 3]),
        X,
    ),
    "stacking": (StackingClassifier([("a", LinearSVC(random_state=0)), ("b", MLPClassifier(**MLP))], cv=2), X),
    "stacked pipelines": (
        StackingClassifier([("a", pipeline(lm.LogisticRegression())), ("b", pipeline(MLPClassifier(**MLP)))], cv=2),
        None,
    ),
    "stacking and the columns": (
        StackingClassifier([("a", lm.LogisticRegression()), ("b", lm.Perceptron())], cv=2, passthrough=True),
        X,
    ),
}


@pytest.mark.parametrize("name", ENSEMBLES)
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_ensembles_give_the_probabilities_of_the_estimator(name, y):
    estimator, rows = ENSEMBLES[name]
    rows = frame() if rows is None else rows
    fitted = estimator.fit(rows, y)
    likely = fitted.predict_proba(rows[:12])
    cafe = CAFE(from_sklearn(fitted))
    for target in range(likely.shape[1] if len(set(y)) > 2 else 1):
        e = cafe.explain(rows[:12], target=target)
        own = likely[:, target if len(set(y)) > 2 else 1]
        np.testing.assert_allclose(e.probability.numpy(), own, rtol=1e-7)
        assert e.completeness_error.abs().max() < 1e-8
    if isinstance(rows, pd.DataFrame):
        assert sorted(e.names()) == ["age", "city", "debt"]
        assert e.values(3)[e.names().index("city")] == frame().city[3]


@pytest.mark.parametrize(
    "estimator",
    [
        VotingRegressor([("a", lm.Ridge()), ("b", MLPRegressor(**MLP))], weights=[2, 1]),
        StackingRegressor([("a", lm.Ridge()), ("b", lm.Lasso(0.1))], lm.LinearRegression(), cv=2),
    ],
    ids=["voting", "stacking"],
)
def test_ensembles_of_regressors(estimator):
    fitted = estimator.fit(X, SIGNAL)
    e = CAFE(from_sklearn(fitted)).explain(X[:10])
    np.testing.assert_allclose(e.output.numpy(), fitted.predict(X[:10]), rtol=1e-10)
    assert e.completeness_error.abs().max() < 1e-9


def test_a_frozen_estimator_is_the_one_inside():
    inner = MLPClassifier(**MLP).fit(X, TWO)
    fitted = CalibratedClassifierCV(FrozenEstimator(inner)).fit(X, TWO)
    e = CAFE(from_sklearn(fitted)).explain(X[:5])
    np.testing.assert_allclose(e.probability.numpy(), fitted.predict_proba(X[:5])[:, 1], rtol=1e-9)


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (DecisionTreeClassifier(), ["DecisionTreeClassifier is made of decision trees", "TreeSHAP", "InterpretML"]),
        (GradientBoostingRegressor(n_estimators=2), ["GradientBoostingRegressor", "TreeSHAP"]),
        (BaggingClassifier(n_estimators=2), ["BaggingClassifier", "TreeSHAP"]),
        (
            CalibratedClassifierCV(RandomForestClassifier(3), cv=2),
            ["CalibratedClassifierCV", "RandomForestClassifier", "TreeSHAP"],
        ),
        (CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=2), ["isotonic", "method='sigmoid'"]),
        (VotingClassifier([("a", lm.LogisticRegression())]), ["hard", "voting='soft'"]),
        (BaggingClassifier(lm.LogisticRegression(), 2), ["BaggingClassifier is not supported"]),
    ],
)
def test_what_has_no_layers_is_refused_with_what_to_do(estimator, words):
    fitted = estimator.fit(X, SIGNAL if isinstance(estimator, GradientBoostingRegressor) else TWO)
    with pytest.raises(ValueError, match=r"from_sklearn\(") as error:
        from_sklearn(fitted)
    assert all(word in str(error.value) for word in words), error.value


def test_trees_are_refused_by_the_explainer_too():
    with pytest.raises(ValueError, match=r"CAFE\(RandomForestClassifier\).*TreeSHAP.*InterpretML"):
        CAFE(RandomForestClassifier())


def test_layers_survive_copies(tmp_path):
    import copy
    import pickle

    model = from_sklearn(ENSEMBLES["voting"][0].fit(X, TWO))
    x = torch.from_numpy(X)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
        other.members[0].output.bias.data += 1
        assert not torch.equal(other(x), model(x))  # the registered layers are those that run
