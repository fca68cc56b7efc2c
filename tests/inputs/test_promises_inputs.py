"""What is handed in is what is explained: nothing is lost, reordered or taken for something else in silence."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pandas as pd
import polars
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import models
from architectures import ARCHITECTURES
from cafexai import CAFE, Explanation, Explanations, compare, conflicts, metrics, supported
from cafexai.methods import METHODS

X = torch.randn(3, 4, dtype=torch.float64)
NAMES = ("age", "sex", "dose", "weight")


def model():
    return models.mlp(4, 8, 8, 2)


def frame(columns=NAMES, x=X):
    return pd.DataFrame(x.numpy(), columns=list(columns))


def same(one, two):
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in ("positive", "negative", "combined", "bias"))


# ---- c by name -----------------------------------------------------------------------------------------------------------

BY_NAME = {"0": 0.0, "1": 0.1, "3": 1.0}


def unpickled(thing):
    return pickle.loads(pickle.dumps(thing))


def of_a_copied_model(cafe):
    return CAFE(copy.deepcopy(cafe.model), cafe.c, cafe.variant)


@pytest.mark.parametrize("copied", [unpickled, copy.deepcopy, copy.copy, of_a_copied_model])
def test_copies_know_the_names_of_their_modules(copied):
    net = model()
    paper = CAFE.published
    other = copied(paper(net, BY_NAME))
    again, fresh = other.explain(X), paper(net, BY_NAME).explain(X)
    assert same(again, fresh)
    assert not same(again, paper(net).explain(X))
    assert list(again.bias_by_layer) == list(fresh.bias_by_layer) == ["0", "2", "4"]
    assert torch.equal(other.attribute(X), fresh.combined)
    assert same(other.explain_layer(X, "1"), paper(net, BY_NAME).explain_layer(X, "1"))
    assert same(other.explain_neuron(X, "2", target=1), paper(net, BY_NAME).explain_neuron(X, "2", target=1))
    with pytest.raises(ValueError, match=r"layer='nothing'\): the model has no such module. It has: '0', '1'"):
        other.explain_layer(X, "nothing")


def test_replaced_and_swapped_modules_are_known_by_their_places():
    net = model()
    cafe = CAFE.published(net, BY_NAME)
    cafe.explain(X)
    net[0] = nn.Linear(4, 8)
    assert same(cafe.explain(X), CAFE.published(net, BY_NAME).explain(X))
    net[1], net[3] = nn.GELU(), net[1]
    assert same(cafe.explain(X), CAFE.published(net, BY_NAME).explain(X))
    net[1], net[3] = net[3], net[1]  # the same modules in other places
    assert same(cafe.explain(X), CAFE.published(net, BY_NAME).explain(X))
    net.append(nn.Tanh())
    assert same(cafe.explain(X, layer="5", start=False), CAFE.published(net, BY_NAME).explain(X, layer="5", start=False))
    with pytest.raises(ValueError, match="no such module"):
        cafe.explain(X, target_layer="6")


# ---- rows and models that conflicts and metrics refuse --------------------------------------------------------------------


def noise(x, generator):
    return x + torch.randn(x.shape, generator=generator, dtype=x.dtype)


def attribute(net, x, **options):
    return torch.ones_like(x)


def largest(scores):
    return scores.abs().max()


ASKED = {  # of a model and rows
    "counteracts": lambda f, x: conflicts.counteracts(f, [0], [1], x),
    "conflicting": lambda f, x: conflicts.conflicting(f, [0], [1], x),
    "counteraction_magnitude": lambda f, x: conflicts.counteraction_magnitude(f, [0], [1], x),
    "conflict_magnitude": lambda f, x: conflicts.conflict_magnitude(f, [0], [1], x),
    "minimal_conflicts": lambda f, x: conflicts.minimal_conflicts(f, x[:1]),
    "conflict_map": lambda f, x: conflicts.conflict_map(f, x[:1]),
    "audit": lambda f, x: conflicts.audit(CAFE, f, x),
    "audit_outputs": lambda f, x: conflicts.audit_outputs(attribute, f, x),
    "prevalence": lambda f, x: conflicts.prevalence(f, x),
    "tune_c": lambda f, x: conflicts.tune_c(f, x, metric=largest),
    "infidelity": lambda f, x: metrics.infidelity(f, x, torch.ones_like(x), noise),
    "completeness_error": lambda f, x: metrics.completeness_error(f, x, torch.ones_like(x)),
    "occlusion_correlation": lambda f, x: metrics.occlusion_correlation(f, x, torch.ones_like(x)),
    "sign_agreement": lambda f, x: metrics.sign_agreement(f, x, torch.ones_like(x)),
    "comprehensiveness": lambda f, x: metrics.comprehensiveness(f, x, torch.ones_like(x)),
    "sufficiency": lambda f, x: metrics.sufficiency(f, x, torch.ones_like(x)),
    "deletion": lambda f, x: metrics.deletion(f, x, torch.ones_like(x)),
    "insertion": lambda f, x: metrics.insertion(f, x, torch.ones_like(x)),
    "normalized_aopc": lambda f, x: metrics.normalized_aopc(f, x, torch.ones_like(x)),
    "random_units": lambda f, x: metrics.random_units(f, x, 2),
    "structural_infidelity": lambda f, x: metrics.structural_infidelity(attribute, f, x, noise, n_units=2),
    "compare": lambda f, x: compare(f, x, methods=["gradient_x_input"], metrics=["complexity"]),
}
ROWS_ONLY = {
    "max_sensitivity": lambda f, x: metrics.max_sensitivity(CAFE(f).attribute, x),
}


def test_all_that_is_public_is_asked():
    known = {
        *ASKED,
        *ROWS_ONLY,
        "cells",
        "linear_conflicts",
        "relu_conflicts",
        "inactive_conflicts",
        "complexity",
        "rmse",
        "runtime",
        "randomised",  # takes a CAFE: explain refuses
    }
    functions = {
        name
        for module in (conflicts, metrics)
        for name in module.__all__
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    }
    assert functions - {"metric", "Perturb"} <= known


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [*ASKED, *ROWS_ONLY])
def test_rows_that_are_not_finite(name, value):
    x = X.clone()
    x[0, 2] = value
    with pytest.raises(ValueError, match=rf"^{name}\(...\): .*holds {value} at index \(0, 2\)"):
        {**ASKED, **ROWS_ONLY}[name](model(), x)


@pytest.mark.parametrize("layer", [nn.Dropout, lambda: nn.BatchNorm1d(8)], ids=["dropout", "batch norm"])
@pytest.mark.parametrize("name", ASKED)
def test_models_in_training_mode(name, layer):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), layer(), nn.Linear(8, 2))
    with pytest.raises(ValueError, match=rf"^{name}\(...\): module '2' .*model.eval\(\)"):
        ASKED[name](net, X)
    ASKED[name](net.eval(), X)


IN_TRAINING = {
    "dropout": lambda v: F.dropout(v, 0.1),
    "module": nn.Sequential(nn.Dropout(0.1)),
    "batch norm": lambda v: F.batch_norm(v, None, None, training=True),
    "attention": lambda v: F.scaled_dot_product_attention(v[:, None], v[:, None], v[:, None], dropout_p=0.1)[:, 0],
    "multi-head attention": nn.MultiheadAttention(4, 2, dropout=0.1, dtype=torch.float64),
}


@pytest.mark.parametrize("kind", IN_TRAINING)
@pytest.mark.parametrize("name", sorted(set(ASKED) - {"random_units", "structural_infidelity"}))
def test_functions_in_training_mode(name, kind):
    net, middle = model(), IN_TRAINING[kind]

    def f(v):
        return net(middle(v, v, v)[0] if kind == "multi-head attention" else middle(v))

    with pytest.raises(ValueError, match=r"model.eval\(\)"):
        ASKED[name](f, X)


def test_dropout_inside_recurrent_layers():
    net = nn.LSTM(4, 3, 2, dropout=0.5)
    with pytest.raises(ValueError, match=r"minimal_conflicts.*\(LSTM\) is in training mode"):
        conflicts.minimal_conflicts(net, X[:1], output=0)
    assert len(conflicts.minimal_conflicts(net.eval(), X[:1], output=0))


def test_what_is_no_training_mode():
    """An exponent p is no probability, and a function that is told not to drop drops nothing."""
    assert isinstance(conflicts.counteracts(lambda v: torch.norm(v, p=2, dim=1), [0], [1], X[0]), bool)
    assert isinstance(conflicts.counteracts(lambda v: F.dropout(v, 0.5, False).sum(1), [0], [1], X[0]), bool)
    assert isinstance(conflicts.counteracts(torch.compile(model(), backend="eager"), [0], [1], X[0]), bool)
    assert isinstance(conflicts.counteracts(torch.jit.trace(model(), X), [0], [1], X[0]), bool)


def test_functions_whose_values_are_not_finite():
    with pytest.raises(ValueError, match=r"minimal_conflicts\(f, ...\): f gives NaN"):
        conflicts.minimal_conflicts(lambda v: v.sum(1).log(), -X[:1].abs())
    with pytest.raises(ValueError, match=r"infidelity.*the model gives NaN"):
        metrics.infidelity(lambda v: v.sum(1).log(), -X.abs(), X, noise)
    with pytest.raises(ValueError, match=r"audit.*scores that are NaN"):
        conflicts.audit(lambda net, x, *, target: x * float("nan"), model(), X)


def test_classes_that_are_not_asked_for_need_not_be_finite():
    def masked(v):
        return torch.stack([v.sum(1), torch.full_like(v[:, 0], -torch.inf)], 1)

    assert isinstance(conflicts.counteracts(masked, [0], [1], X[0]), bool)
    assert metrics.infidelity(masked, X, X, noise, target=0).isfinite().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_scores_and_contributions_that_are_not_finite(value):
    scores = torch.tensor([[1.0, value]])
    for call in (
        lambda: conflicts.linear_conflicts(scores),
        lambda: conflicts.relu_conflicts(scores, torch.ones(1)),
        lambda: conflicts.relu_conflicts(torch.ones(1, 2), torch.tensor([value])),
        lambda: conflicts.inactive_conflicts(scores[0], -1.0),
        lambda: conflicts.inactive_conflicts(torch.ones(2), -value),
        lambda: metrics.complexity(scores),
        lambda: metrics.rmse(scores, torch.ones(1, 2)),
        lambda: metrics.rmse(torch.ones(1, 2), scores),
        lambda: metrics.infidelity(nn.Linear(2, 1), torch.ones(1, 2), scores, noise),
        lambda: metrics.completeness_error(nn.Linear(2, 1), torch.ones(1, 2), scores),
        lambda: metrics.TabularPerturbation(scores),
        lambda: conflicts.counteracts(model(), [0], [1], X[0], baselines=value),
        lambda: metrics.completeness_error(nn.Linear(2, 1), torch.ones(1, 2), torch.ones(1, 2), baselines=value),
    ):
        with pytest.raises(ValueError, match="finite"):
            call()


def test_the_best_c_is_never_a_nan():
    def undefined(scores):
        return float("nan")

    for larger in (False, True):
        with pytest.raises(ValueError, match=r"tune_c\(..., metric=...\): it gives NaN at c=0.0"):
            conflicts.tune_c(model(), X, metric=undefined, larger_is_better=larger)
    numbers = iter([3.0, float("nan"), 1.0])
    with pytest.raises(ValueError, match=r"NaN at c=0\.5"):
        conflicts.tune_c(model(), X, metric=lambda scores: next(numbers), values=(0, 0.5, 1))


# ---- values and indices that are none ---------------------------------------------------------------------------------------


def test_masked_arrays():
    masked = np.ma.masked_array(X.numpy(), X.numpy() > 0.5)
    for call in (
        lambda: CAFE(model()).explain(masked),
        lambda: CAFE(model()).explain(X, masked),
        lambda: CAFE(model()).explain(X, display=masked),
        lambda: CAFE(model(), background=masked).explain(X, "mean"),
        lambda: CAFE(model()).explain(X, target=np.ma.masked_array([0, 1, 0], [0, 1, 0])),
        lambda: METHODS["cafe"](model(), masked),
        lambda: conflicts.counteracts(model(), [0], [1], X, baselines=masked),
    ):
        with pytest.raises(ValueError, match="masked"):
            call()
    net = model()
    assert same(CAFE(net).explain(np.ma.masked_array(X.numpy())), CAFE(net).explain(X))


def test_complex_baselines():
    for baseline in (X + 1j, X.numpy() + 1j, torch.tensor([0, 0, 0, 1j])):
        with pytest.raises(ValueError, match=r"baselines=...\).*complex"):
            CAFE(model()).explain(X, baseline)
        with pytest.raises(ValueError, match=r"baselines=...\).*complex"):
            conflicts.counteracts(model(), [0], [1], X, baselines=baseline)
        with pytest.raises(ValueError, match=r"baselines=...\).*complex"):
            metrics.infidelity(model(), X, X, noise, baselines=torch.as_tensor(baseline))


def test_names_that_stand_for_several_features():
    twice = ("age", "age", "dose", "weight")
    with pytest.raises(ValueError, match=r"explain\(frame\): more than one feature is called 'age'"):
        CAFE(model()).explain(frame(twice))
    with pytest.raises(ValueError, match=r"CAFE\(..., feature_names=...\): more than one feature is called 'age'"):
        CAFE(model(), feature_names=twice)
    with pytest.raises(ValueError, match=r"baselines=frame\): more than one feature"):
        CAFE(model()).explain(frame(), frame(twice))
    with pytest.raises(ValueError, match=r"more than one feature is called 'age'"):
        CAFE(model()).explain(X, feature_names=twice, feature_groups={"g": ["age"]})
    with pytest.raises(ValueError, match=r"counteracts\(..., feature_names=...\): more than one"):
        conflicts.counteracts(model(), ["age"], ["dose"], X, feature_names=twice)
    assert CAFE(model()).explain(X, feature_names=twice).names() == twice  # they are only shown


@pytest.mark.parametrize("target", [True, [True, False, True], [True, 1, 0], np.True_, (True,), torch.tensor([True] * 3)])
def test_true_and_false_are_no_targets(target):
    with pytest.raises(ValueError, match=r"targets are integers|give an integer"):
        CAFE(model()).explain(X, target=target)


def test_true_and_false_as_sets_of_features():
    net = model()
    mask = [True, False, False, True]
    expected = CAFE(net).explain(X, feature_groups={"g": [0, 3]})
    for members in (mask, np.array(mask), torch.tensor(mask), torch.tensor([0, 3])):
        assert same(CAFE(net).explain(X, feature_groups={"g": members}), expected)
        assert torch.equal(
            conflicts.counteraction_magnitude(net, members, [1], X), conflicts.counteraction_magnitude(net, [0, 3], [1], X)
        )
    assert conflicts.conflict_map(net, X[0], features=mask).features == ((0,), (3,))
    for wrong in ([True, False], [True, 1], np.array([True, False])):
        with pytest.raises(ValueError, match="there is no feature True"):
            CAFE(net).explain(X, feature_groups={"g": wrong})
        with pytest.raises(ValueError, match="there is no feature True"):
            conflicts.counteracts(net, wrong, [2], X)
        with pytest.raises(ValueError, match="counted from 0"):
            conflicts.conflict_map(net, X[0], features=wrong)
    with pytest.raises(ValueError, match="there is no feature True"):
        conflicts.counteracts(net, True, [2], X)
    with pytest.raises(ValueError, match="a mask holds integers"):
        CAFE(net).explain(X, feature_groups=[True, False, 1, 0])
    with pytest.raises(ValueError, match="by its index"):
        metrics.TabularPerturbation(X, [[True, False]])


def test_true_and_false_as_rows():
    e = CAFE(model()).explain(X)
    assert len(e[[True, False, True]]) == 2
    assert same(e[np.array([True, False, True])], e[[0, 2]])
    assert same(e[torch.tensor([False, False, True])], e[2])
    for wrong in (True, np.True_, [True, False], [True, 1, 2]):
        with pytest.raises(TypeError, match=r"explanation\[.*a mask with true or false for each"):
            e[wrong]
    with pytest.raises(KeyError, match="there is one for each target of 0, 1"):
        CAFE(model()).explain(X, target="all")[True]


def test_true_is_no_baseline():
    for baseline in (True, [True, 0.5, 0.5, 0.5]):
        with pytest.raises(ValueError, match=r"explain\(..., baselines=...\)"):
            CAFE(model()).explain(X, baseline)


# ---- the columns of the model -----------------------------------------------------------------------------------------------


def test_names_are_told_once():
    net = model()
    cafe, plain = CAFE(net, feature_names=NAMES, background=frame(NAMES[::-1], X.flip(1))), CAFE(net, background=X)
    e = plain.explain(X)
    mixed = frame()[["dose", "age", "weight", "sex"]]
    for x in (X, X.numpy(), frame(), mixed, polars.DataFrame(mixed.to_dict("list"))):
        found = cafe.explain(x)
        assert same(found, e)
        assert found.names() == NAMES
        assert torch.equal(found.inputs, X)
        assert torch.equal(cafe.attribute(x), e.combined)
        for baseline in (mixed[:1], mixed, mixed.iloc[0]):
            rows = torch.tensor(np.array(baseline[list(NAMES)], dtype=float, order="C"))
            assert same(cafe.explain(x, baseline), plain.explain(X, rows))
        assert same(cafe.explain(x, "mean"), plain.explain(X, "mean"))
    assert cafe.explain(mixed, feature_names=list("abcd")).names() == tuple("abcd")
    assert torch.equal(cafe.explain(mixed, display=mixed * 2).shown, X * 2)
    assert cafe.explain(mixed, feature_groups={"body": ["age", "weight"]}).names() == ("body", "sex", "dose")
    assert same(unpickled(cafe).explain(mixed), e)


@pytest.mark.parametrize("method", ["explain", "attribute"])
def test_columns_that_are_not_those_of_the_model(method):
    run = getattr(CAFE(model(), feature_names=NAMES), method)
    with pytest.raises(ValueError, match=rf"{method}\(frame\): .*it lacks 'sex' and has besides 'gender'"):
        run(frame(("age", "gender", "dose", "weight")))
    with pytest.raises(ValueError, match="it lacks 'sex'"):
        run(frame().drop(columns="sex"))
    with pytest.raises(ValueError, match="it has besides 'year'"):
        run(frame().assign(year=1.0))
    with pytest.raises(ValueError, match=rf"{method}\(..., baselines=frame\): .*it lacks 'sex'"):
        run(X, frame().drop(columns="sex"))
    with pytest.raises(ValueError, match=rf"{method}\(...\): 5 features .*names 4.*'age', 'sex', 'dose', 'weight'"):
        run(torch.randn(3, 5))
    with pytest.raises(ValueError, match="6 features in 2 input"):
        run((X, X[:, :2]))


def test_backgrounds_that_are_not_those_of_the_model():
    with pytest.raises(ValueError, match=r"CAFE\(..., background=frame\): .*it lacks 'sex'"):
        CAFE(model(), feature_names=NAMES, background=frame().drop(columns="sex")).explain(X, "mean")
    with pytest.raises(ValueError, match=r"CAFE\(...\): the background holds nan"):
        CAFE(model(), background=X * float("nan")).explain(X, "mean")


def test_names_of_pipelines():
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import cafexai

    data = frame(x=torch.randn(60, 4))
    fitted = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=20)).fit(data, data.age)
    cafe = CAFE(cafexai.from_sklearn(fitted), feature_names=NAMES)
    with pytest.raises(ValueError, match="masked"):
        cafe.explain(np.ma.masked_array(data.to_numpy(), data.to_numpy() > 0))
    with pytest.raises(ValueError, match="to_dense"):
        cafe.explain(torch.tensor(data.to_numpy()).to_sparse())
    assert same(cafe.explain(data[["dose", "age", "weight", "sex"]]), cafe.explain(data))
    with pytest.raises(ValueError, match="it lacks 'sex'"):
        cafe.explain(data.drop(columns="sex"))
    unnamed = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(4,), max_iter=20)).fit(data.to_numpy(), data.age)
    assert CAFE(cafexai.from_sklearn(unnamed), feature_names=NAMES).explain(data.to_numpy()).names() == NAMES


# ---- rows that the model does not take ------------------------------------------------------------------------------------


def explains(net):
    return [CAFE(net).explain, CAFE(net).attribute, lambda x: METHODS["gradient_x_input"](net, x)]


def test_a_wrong_number_of_columns():
    for net in (model(), nn.Sequential(nn.Sequential(nn.Identity(), model()))):
        for run in explains(net):
            with pytest.raises(ValueError, match=r"^\w+\(...\): .*shape \(3, 5\).*linear layer, .*takes 4 columns, not 5"):
                run(torch.randn(3, 5))
    with pytest.raises(ValueError, match=r"^counteracts\(...\): .*takes 4 columns, not 5"):
        conflicts.counteracts(model(), [0], [1], torch.randn(5))
    with pytest.raises(ValueError, match=r"^infidelity\(...\): .*takes 4 columns, not 5"):
        metrics.infidelity(model(), torch.randn(3, 5), torch.randn(3, 5), noise)
    weight = torch.randn(4, 2)
    with pytest.raises(ValueError, match=r"^explain\(...\): the model does not take inputs of shape \(3, 5\)"):
        CAFE(lambda v: v @ weight).explain(torch.randn(3, 5))


def test_rows_of_another_dtype():
    for run in explains(model().float())[:2]:
        with pytest.raises(ValueError, match=r"in torch.float64. The model is in torch.float32: pass x.to\(torch.float32\)"):
            run(X)
    casts = nn.Sequential(nn.Identity(), model().float())
    casts.forward = lambda v: casts[1](v.float())
    assert len(CAFE(casts).explain(X)) == 3


@pytest.mark.parametrize("width", [2, 4])
def test_a_row_without_its_dimension(width):
    for run in explains(models.mlp(4, 8, width)):
        with pytest.raises(ValueError, match=r"\(4,\) would be 4 rows of one number.*a single row is x\[None\]"):
            run(X[0])
    assert CAFE(lambda v: v.relu()).explain(X[0]).positive.shape == (4,)  # rows of one number
    with pytest.raises(ValueError, match="out of range"):
        CAFE(lambda v: v.relu()).explain(X[0], target=1)


FORMS = {
    "sparse": (lambda x: x.to_sparse(), r"torch.sparse_coo.*x.to_dense\(\)"),
    "compressed": (lambda x: x.to_sparse_csr(), r"torch.sparse_csr.*x.to_dense\(\)"),
    "nested": (lambda x: torch.nested.nested_tensor(list(x)), "nested tensor.*to_padded_tensor"),
    "jagged": (lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged), "nested tensor.*to_padded_tensor"),
    "meta": (lambda x: x.to("meta"), "on the device meta and holds no numbers"),
    "mkldnn": (lambda x: x.float().to_mkldnn(), r"torch._mkldnn.*x.to_dense\(\)"),
    "quantised": (lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8), r"quantised.*x.dequantize\(\)"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("form", FORMS)
def test_tensors_that_are_not_plain(form):
    made, message = FORMS[form]
    x = made(X)
    runs = {
        "explain": CAFE(model()).explain,
        "attribute": CAFE(model()).attribute,
        "supported": lambda x: supported(model(), x),
        "gradient_x_input": lambda x: METHODS["gradient_x_input"](model(), x),
        "prevalence": lambda x: conflicts.prevalence(model(), x),
    }
    for name, run in runs.items():
        with pytest.raises(ValueError, match=rf"^{name}\(...\): .*{message}"):
            run(x)
    with pytest.raises(ValueError, match=r"^explain\(..., baselines=...\)"):
        CAFE(model()).explain(X, x)
    if x.is_floating_point():
        with pytest.raises(ValueError, match=rf"^counteracts\(...\): .*{message}"):
            conflicts.counteracts(model(), [0], [1], x)


def test_nullable_frames():
    net = model()
    table = pd.DataFrame({"a": [1, 2], "b": [0.5, 2], "c": [True, False], "d": [3, 4]}).convert_dtypes()
    assert {str(kind) for kind in table.dtypes} == {"Int64", "Float64", "boolean"}
    assert same(CAFE(net).explain(table), CAFE(net).explain(table.astype(float)))
    table.loc[1, "b"] = table.loc[0, "d"] = pd.NA
    with pytest.raises(ValueError, match=r"nan at index \(0, 3\) \(2 such values in all, in the columns 'b', 'd'\)"):
        CAFE(net).explain(table)
    with pytest.raises(ValueError, match=r"in the columns 'b'\)"):
        CAFE(net).explain(pd.DataFrame({"a": [1.0], "b": [None], "c": [1.0], "d": [1.0]}, dtype=float))
    with pytest.raises(ValueError, match="NaN"):
        CAFE(net).explain(table.fillna(0), table)


# ---- what explanations give --------------------------------------------------------------------------------------------------


def test_an_empty_slice():
    e = CAFE(model(), variant="published", netting="feature").explain(X, pairs=True)[:0]
    assert len(e) == 0
    assert e.conflict.shape == e.bias.shape == e.bias_positive.shape == e.bias_negative.shape == (0,)
    assert e.shown.shape == (0, 4)
    assert e.names() == ("x0", "x1", "x2", "x3")
    assert len(e.to_frame()) == 0
    assert "rows=0" in repr(e)
    assert len(e[[]]) == len(e[torch.tensor([], dtype=torch.bool)]) == 0
    with pytest.raises(IndexError, match="there are 0 rows"):
        e.ledger(0)


def test_what_indices_rows_have():
    e = CAFE(model()).explain(X)
    with pytest.raises(KeyError, match="the rows have no names"):
        e["a"]
    for wrong in (1.5, None, (0, 1), ["a"], [0.5], torch.zeros(3), torch.zeros(1, 1, dtype=torch.long)):
        with pytest.raises(TypeError, match=r"it has 3 rows, which are taken by an integer, a slice, a list"):
            e[wrong]
    for wrong in (3, -4, [3], np.array([0, -4]), torch.tensor([5])):
        with pytest.raises(IndexError, match="there are 3 rows"):
            e[wrong]
    assert same(e[np.int64(1)], e[1])
    assert same(e[torch.tensor([0, 1], dtype=torch.uint8)], e[:2])
    assert same(e[[-1, 0]], e[torch.tensor([2, 0])])


@pytest.mark.parametrize("count", [0, -1, True, 1.5])
def test_numbers_of_samples(count):
    for name, word in (
        ("integrated_gradients", "n_steps"),
        ("gradient_shap", "n_samples"),
        ("smoothgrad", "n_samples"),
        ("shapley_value_sampling", "n_samples"),
        ("lime", "n_samples"),
        ("kernel_shap", "n_samples"),
    ):
        with pytest.raises(ValueError, match=rf"^{name}\(..., {word}={count}\): give an integer of at least [13]\."):
            METHODS[name](model(), X, **{word: count})
    for name, call in {
        "infidelity": lambda **n: metrics.infidelity(model(), X, X, noise, **n),
        "max_sensitivity": lambda **n: metrics.max_sensitivity(CAFE(model()).attribute, X, **n),
        "structural_infidelity": lambda **n: metrics.structural_infidelity(attribute, model(), X, noise, **n),
        "compare": lambda **n: compare(model(), X, methods=["cafe"], **n),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name}\(..., n_samples={count}\): give an integer of at least 1"):
            call(n_samples=count)
    with pytest.raises(ValueError, match="at least 1"):
        metrics.random_units(model(), X, count)
    with pytest.raises(ValueError, match="at least 1"):
        metrics.structural_infidelity(attribute, model(), X, noise, n_units=count)
    with pytest.raises(ValueError, match="at least 1"):
        metrics.runtime(list, count)


# ---- files -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    e = CAFE.published(model(), BY_NAME, feature_names=NAMES).explain(X)
    e.save(tmp_path / "e.safetensors")
    return tmp_path / "e.safetensors"


def contents(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


def of_version_0_1(path, **changes):
    """The file as version 0.1 wrote it: without a checksum."""
    tensors, header = contents(path)
    described = json.loads(header["cafexai"])
    described["format"] = {2: 1, "several 2": "several 1"}[described["format"]]
    for name, change in changes.items():
        tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, path, {"cafexai": json.dumps(described)})


def test_files_of_version_0_1_load(saved):
    e = Explanation.load(saved)
    of_version_0_1(saved)
    assert same(Explanation.load(saved), e)


DAMAGE = {
    "not a number": ({"combined": lambda t: t.index_fill(1, torch.tensor([2]), float("nan"))}, "not finite"),
    "infinite": ({"output": lambda t: t / 0}, "not finite"),
    "negative": ({"positive": lambda t: -t, "combined": lambda t: t}, "below 0"),
    "both negative": ({"positive": lambda t: t - 100, "negative": lambda t: t - 100}, "below 0"),
    "doubled": ({"positive": lambda t: 2 * t, "negative": lambda t: 2 * t, "combined": lambda t: 2 * t}, "do not add up"),
    "one doubled": ({"positive": lambda t: 2 * t}, "combined is not positive - negative"),
    "another output": ({"output": lambda t: t + 0.01}, "do not add up"),
    "another bias": ({"bias_by_layer.1": lambda t: t * 1.01}, "do not add up"),
    "a row less": ({"positive": lambda t: t[:2]}, "shapes"),
    "a column less": ({"inputs": lambda t: t[:, :3]}, "shapes"),
    "turned": ({"combined": lambda t: t.T}, "shapes"),
    "no column of biases": ({"bias_by_layer.0": lambda t: t[:, :2]}, "shapes"),
    "integers": ({"output": lambda t: t.long()}, "no explanation|do not add up"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files_of_version_0_1(saved, kind):
    changes, message = DAMAGE[kind]
    of_version_0_1(saved, **changes)
    with pytest.raises(ValueError, match=rf"^Explanation.load\('.*e.safetensors'\): .*({message})"):
        Explanation.load(saved)


def test_parts_that_are_missing(saved):
    tensors, header = contents(saved)
    described = json.loads(header["cafexai"]) | {"format": 1}
    for name in ("output", "positive", "bias_by_layer.0"):
        save_file({key: t for key, t in tensors.items() if key != name}, saved, {"cafexai": json.dumps(described)})
        with pytest.raises(ValueError, match="what the file holds is no explanation"):
            Explanation.load(saved)
    save_file(tensors, saved, {"cafexai": "[1]"})
    with pytest.raises(ValueError, match=r"not written by Explanation\.save"):
        Explanation.load(saved)


def test_every_flipped_byte_is_noticed(saved):
    """Or changes nothing, as white space in the header does."""
    right, e = saved.read_bytes(), Explanation.load(saved)
    noticed = 0
    for place in range(0, len(right), 7):
        saved.write_bytes(right[:place] + bytes([right[place] ^ 0x11]) + right[place + 1 :])
        try:
            again = Explanation.load(saved)
        except ValueError:
            noticed += 1
        else:
            assert same(again, e)
            assert again.meta.settings == e.meta.settings
    assert noticed > 0.9 * len(range(0, len(right), 7))


def test_the_checksum_is_needed_where_it_was_written(saved):
    tensors, header = contents(saved)
    assert set(header) == {"cafexai", "checksum"}
    del header["checksum"]
    save_file(tensors, saved, header)
    with pytest.raises(ValueError, match="checksum is wrong"):
        Explanation.load(saved)


def test_several_are_checked_one_by_one(tmp_path):
    several = CAFE(model()).explain(X, target="all")
    place = tmp_path / "several.safetensors"
    several.save(place)
    assert same(Explanations.load(place)[1], several[1])
    data = place.read_bytes()
    place.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    with pytest.raises(ValueError, match=r"Explanations.load\(.*checksum is wrong"):
        Explanations.load(place)
    place.write_bytes(data)
    of_version_0_1(place)
    assert same(Explanations.load(place)[1], several[1])
    of_version_0_1_again = contents(place)
    tensors = of_version_0_1_again[0] | {"1/output": of_version_0_1_again[0]["1/output"] + 1}
    save_file(tensors, place, of_version_0_1_again[1])
    with pytest.raises(ValueError, match=r"Explanations.load\(.*\), target 1: its scores do not add up"):
        Explanations.load(place)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("netting", ["path", "feature"])
def test_what_is_right_loads(name, netting, tmp_path):
    torch.set_default_dtype(torch.float32)
    architecture = ARCHITECTURES[name]
    net = architecture.build()
    net = net if "exported" in name else net.eval()
    e = CAFE(net, variant="published", netting=netting).explain(architecture.inputs(), **architecture.options)
    e.save(tmp_path / "e.safetensors")
    Explanation.load(tmp_path / "e.safetensors")


KINDS = {
    "groups": lambda net: CAFE(net).explain(X, feature_groups={"g": [0, 2]}),
    "several baselines": lambda net: CAFE(net).explain(X, torch.randn(4, 3, 4)),
    "from a layer": lambda net: CAFE(net).explain(X, layer="1"),
    "at a layer": lambda net: CAFE(net).explain(X, layer="1", start=False),
    "of a neuron": lambda net: CAFE(net).explain(X, target=2, target_layer="1"),
    "pairs": lambda net: CAFE(net, variant="published", netting="feature").explain(X, pairs=True),
    "reference": lambda net: CAFE(net, variant="published", biases="reference").explain(X, torch.randn(3, 4)),
    "no rows": lambda net: CAFE(net).explain(X)[:0],
    "bfloat16": lambda net: CAFE(net.bfloat16()).explain(X.bfloat16()),
    "one number": lambda net: CAFE(lambda v: v.relu()).explain(X[:, 0]),
    "huge totals": lambda net: CAFE(models.mlp(4, *[30] * 40, 2).float()).explain(X.float()),
    "softmax": lambda net: CAFE(nn.Sequential(net, nn.Softmax(1))).explain(X),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_kind_of_explanation_loads(kind, tmp_path):
    e = KINDS[kind](model())
    e.save(tmp_path / "e.safetensors")
    again = Explanation.load(tmp_path / "e.safetensors")
    assert same(again, e)
    again[:1].save(tmp_path / "e.safetensors")
    assert len(Explanation.load(tmp_path / "e.safetensors")) == min(1, len(e))


def test_names_of_files(saved):
    e = Explanation.load(saved)
    for name in ("a.csv", "a", "a.safetensors.gz"):
        with pytest.raises(ValueError, match=r"^Explanation.save\('.*'\): .*end in .safetensors.*e.to_frame\(\).to_csv"):
            e.save(saved.parent / name)
    assert os.listdir(saved.parent) == ["e.safetensors"]
    with pytest.raises(FileNotFoundError):
        e.save(saved.parent / "nowhere" / "e.safetensors")


def test_only_files_are_replaced(saved):
    e = Explanation.load(saved)
    folder, pipe = saved.parent / "folder.safetensors", saved.parent / "pipe.safetensors"
    folder.mkdir()
    os.mkfifo(pipe)
    (saved.parent / "to_pipe.safetensors").symlink_to(pipe)
    for place in (folder, pipe, saved.parent / "to_pipe.safetensors"):
        with pytest.raises(ValueError, match="no regular file is there"):
            e.save(place)
    assert folder.is_dir()
    assert pipe.is_fifo()
    assert len(os.listdir(saved.parent)) == 4


def test_links_are_followed(saved):
    e = Explanation.load(saved)
    link, new = saved.parent / "link.safetensors", saved.parent / "new.safetensors"
    link.symlink_to(saved)
    e[:1].save(link)
    assert link.is_symlink()
    assert len(Explanation.load(saved)) == 1
    new.symlink_to(saved.parent / "made.safetensors")
    e.save(new)
    assert new.is_symlink()
    assert len(Explanation.load(saved.parent / "made.safetensors")) == 3


def test_files_keep_their_rights(saved):
    e = Explanation.load(saved)
    saved.chmod(0o640)
    e.save(saved)
    assert saved.stat().st_mode & 0o777 == 0o640


def test_nothing_half_written_remains(saved):
    """The disk is full; the file that was there stays as it was."""
    before = saved.read_bytes()
    code = textwrap.dedent(f"""
        import resource, sys
        from cafexai import Explanation
        e = Explanation.load({str(saved)!r})
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        for place in ({str(saved)!r}, {str(saved.parent / "new.safetensors")!r}):
            try:
                e.save(place)
            except Exception as error:
                print("failed:", error)
    """)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.count("failed:") == 2, found
    assert os.listdir(saved.parent) == ["e.safetensors"]
    assert saved.read_bytes() == before


def test_files_written_at_the_same_time(saved):
    e = Explanation.load(saved)
    failed = []

    def write():
        try:
            for _ in range(10):
                e.save(saved)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert same(Explanation.load(saved), e)


def test_pickles_of_explanations_stay():
    e = CAFE(model()).explain(X)
    assert same(pickle.load(io.BytesIO(pickle.dumps(e))), e)
