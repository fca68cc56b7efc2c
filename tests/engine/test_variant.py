"""Variants: one default at every depth, options that change only what they name, nothing that flips in silence."""

import copy
import itertools
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn

from cafexai import CAFE, UnsupportedOperation, Variant, compare
from cafexai._core.variant import ALLOWED, IMPLIED
from cafexai.errors import OldFormWarning
from cafexai.methods import METHODS
from cafexai.models import mlp

FIELDS = ("positive", "negative", "combined", "bias", "output", "baseline_output", "completeness_error")
DEFAULT = {"netting": "unit", "flows": "mean", "biases": "reference", "norms": "open", "norm_mean": "bias"}
PUBLISHED = {"netting": "path", "flows": "peak", "biases": "scores", "norms": "frozen", "norm_mean": "bias"}


def deep(width=4, **options):
    torch.manual_seed(0)
    return mlp(width, 8, 8, 8, 8, 8, 8, 2, **options)


def equal(one, two):
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in FIELDS)


# ---- one default -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 8), (8,) * 6])
@pytest.mark.parametrize("baselines", [None, 0.3])
def test_the_default_is_the_same_at_every_depth(activation, hidden, baselines):
    torch.manual_seed(0)
    model, x = mlp(4, *hidden, 3, activation=activation), torch.randn(5, 4)
    found = CAFE(model).explain(x, baselines, target=1)
    named = CAFE(model, variant="published", **DEFAULT).explain(x, baselines, target=1)
    assert equal(found, named)
    assert found.meta.variant == "default"
    assert {name: found.meta.settings[name] for name in DEFAULT} == DEFAULT


def test_published_names_every_option():
    assert vars(Variant.preset("published")) == {**PUBLISHED, "attention": "frozen"}
    assert set(vars(Variant())) == set(ALLOWED)
    model, x = deep(), torch.randn(3, 4)
    assert equal(CAFE.published(model).explain(x), CAFE(model, **PUBLISHED).explain(x))
    assert CAFE.published(model).variant == CAFE(model, variant="published").variant
    assert torch.equal(METHODS["cafe_published"](model, x, target=0), CAFE.published(model).attribute(x, target=0))
    assert torch.equal(METHODS["cafe"](model, x, target=0), CAFE(model).attribute(x, target=0))


def test_an_exported_program_with_a_static_batch_keeps_the_variant():
    model, x = deep(), torch.randn(8, 4)
    exported = torch.export.export(model, (x[:4],)).module()
    cafe = CAFE(exported)
    whole, first = cafe.explain(x, batch_size=4, target=0), CAFE(exported).explain(x[:4], target=0)
    assert whole.meta.variant == first.meta.variant == "default"
    assert torch.equal(whole.positive[:4], first.positive)
    torch.testing.assert_close(whole.positive, CAFE(model).explain(x, target=0).positive)


def test_chunks_rows_layers_threads_and_copies_do_not_change_it():
    model, x = deep(), torch.randn(6, 4)
    cafe = CAFE(model)
    expected = cafe.explain(x, target=0)
    for size in (1, 2, 5):
        chunked = cafe.explain(x, target=0, batch_size=size)
        assert chunked.meta.variant == "default"
        torch.testing.assert_close(chunked.positive, expected.positive)
    assert cafe.explain_layer(x, "4").meta.variant == cafe.explain_neuron(x, "0", target=1).meta.variant == "default"
    for other in (copy.deepcopy(cafe), pickle.loads(pickle.dumps(cafe)), copy.copy(cafe)):
        assert other.variant == cafe.variant
        assert equal(other.explain(x, target=0), expected)
    found = []
    threads = [threading.Thread(target=lambda: found.append(cafe.attribute(x, target=0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(one, found[0]) for one in found)


def test_a_model_runs_equally_often_at_every_call():
    calls = []

    def model(v):
        calls.append(len(v))
        return v.relu().sum(1)

    cafe = CAFE(model)
    counts = []
    for _ in range(3):
        cafe.explain(torch.randn(3, 4))
        counts.append(len(calls))
        calls.clear()
    assert len(set(counts)) == 1


# ---- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", list(Variant.PRESETS))
def test_an_option_that_already_holds_changes_nothing(preset):
    model, x = deep(), torch.randn(3, 4)
    base = CAFE(model, variant=preset)
    expected = base.explain(x, target=0)
    for name in ALLOWED:
        same = CAFE(model, variant=preset, **{name: getattr(base.variant, name)})
        assert same.variant == base.variant
        assert equal(same.explain(x, target=0), expected)


def test_the_default_with_an_option_that_already_holds_changes_nothing_and_says_what_changed_since_0_1():
    model, x = deep(), torch.randn(3, 4)
    for option in ({"biases": "reference"}, {"norm_mean": "bias"}, {"norms": "open"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            assert equal(CAFE(model, **option).explain(x, target=0), CAFE(model).explain(x, target=0))
    with pytest.warns(FutureWarning, match=r'variant="default", biases.*variant="published", biases'):
        CAFE(model, biases="reference")


def test_options_that_gave_the_same_before_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CAFE(deep(), **DEFAULT)
        CAFE(deep(), **PUBLISHED)
        CAFE(deep(), variant="default", netting="path")
        CAFE(deep(), norms="open")  # refused before: no old meaning
        CAFE(deep(), attention="frozen")  # unknown before


@pytest.mark.parametrize("preset", list(Variant.PRESETS))
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ALLOWED.items() for value in values])
def test_an_option_changes_only_what_it_names_and_what_that_implies(preset, name, value):
    base = Variant.preset(preset)
    if preset == "published" and value == "open":  # its biases have scores; nothing else is ever changed for it
        with pytest.raises(ValueError, match="Drop"):
            base.replace(**{name: value})
        return
    if preset != "published" and value == "extrema":
        with pytest.raises(ValueError, match='Set netting="path" too'):
            base.replace(**{name: value})
        return
    found = base.replace(**{name: value})
    allowed = {name, *IMPLIED.get((name, value), ())}
    assert set(found.changes_from(base)) <= allowed
    assert getattr(found, name) == value
    if preset == "published":
        assert set(found.changes_from(base)) <= {name}


def test_what_is_implied():
    scores = Variant().replace(biases="scores")
    assert (scores.norms, scores.attention) == ("frozen", "frozen")
    assert Variant(biases="scores") == scores
    assert Variant().replace(netting="path").attention == "frozen"
    with pytest.raises(ValueError, match=r"biases='scores' needs norms=\"frozen\"\. Drop norms="):
        Variant().replace(biases="scores", norms="open")
    with pytest.raises(ValueError, match="Drop norms="):
        CAFE(deep(), variant="published", norms="open")
    assert CAFE(deep(), variant="published", norms="open", biases="reference").variant.netting == "path"


def test_every_variant_that_can_be_built_is_explained():
    x = torch.randn(2, 3, 4)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Flatten(), nn.Linear(12, 2))
    seen = set()
    for values in itertools.product(*(list(words) for words in ALLOWED.values())):
        try:
            variant = Variant(**dict(zip(ALLOWED, values, strict=True)))
        except ValueError:
            continue
        e = CAFE(model, variant=variant).explain(x, target=0)
        assert e.completeness_error.abs().max() < 1e-4
        seen.add(variant)
    assert Variant() in seen
    assert Variant.preset("published") in seen


def test_errors_say_what_is_allowed():
    for options, words in (
        ({"netting": "edge"}, "Allowed values: 'path'"),
        ({"flows": "larger"}, "Allowed values: 'peak'"),
        ({"variant": "deep"}, "Allowed values: 'default', 'published', 'feature'"),
    ):
        with pytest.raises(ValueError, match=words):
            CAFE(deep(), **options)
    with pytest.raises(TypeError, match=r"Parameters: model, c, variant, .*netting"):
        CAFE(deep(), nettings="path")
    with pytest.raises(ValueError, match="unknown option"):
        Variant().replace(nettings="path")


def test_the_third_argument_may_be_a_netting_for_now():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert CAFE(deep(), 0.5, "path").variant.netting == "path"
    assert [one.category for one in said] == [OldFormWarning]
    assert CAFE(deep(), 0.5, "feature").variant == Variant.preset("feature")


# ---- explainers --------------------------------------------------------------------------------------------------------


def test_explainers_are_immutable_and_show_themselves():
    model = deep()
    cafe = CAFE(model, feature_names=list("abcd"))
    with pytest.raises(AttributeError, match=r"cafe\.replace\(c=\.\.\.\)"):
        cafe.c = 1.0
    other = cafe.replace(c=1.0, flows="peak")
    assert (cafe.c, cafe.variant.flows, other.c, other.variant.flows) == (0.5, "mean", 1.0, "peak")
    assert other.feature_names == tuple("abcd")
    assert repr(cafe) == "CAFE(Sequential, c=0.5, variant=default)"
    assert repr(other) == "CAFE(Sequential, c=1.0, variant=default with flows='peak')"
    assert "variant=published" in repr(CAFE.published(model))
    with pytest.raises(ValueError, match="between 0 and 1"):
        cafe.replace(c=2)
    with pytest.raises(ValueError, match="unknown parameter"):
        cafe.replace(colour="red")


def test_compare_lists_both():
    torch.manual_seed(0)
    found = compare(mlp(4, 8, 2), torch.randn(6, 4), metrics=["complexity"], show_progress=False).values
    assert {"cafe c=0.5", "cafe_published"} <= set(found)


def test_what_cannot_be_explained_says_so():
    with pytest.raises(UnsupportedOperation, match="bessel_j0"):
        CAFE(torch.special.bessel_j0).explain(torch.rand(2, 4))


def test_wrong_calls_say_what_to_write():
    with pytest.raises(TypeError, match=r"published\(..., variant='default'\): its variant is"):
        CAFE.published(deep(), variant="default")
    with pytest.raises(ValueError, match=r"CAFE\(c='path'\).*variant=\.\.\."):
        CAFE(deep(), "path")
