"""Bad input ends in a message that says what to do."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import models
from cafexai import CAFE, CompletenessError, UnsupportedOperation, errors
from cafexai.rules import elementwise

X = torch.randn(3, 4, dtype=torch.float64)


def model():
    return models.mlp(4, 8, 2)


def bad(value, at=(1, 2)):
    x = X.clone()
    x[at] = value
    return x


INPUTS = {
    "nan": (bad(float("nan")), r"nan at index \(1, 2\)"),
    "infinite": (bad(float("inf")), "inf at index"),
    "integers": (torch.ones(2, 4, dtype=torch.long), r"codes.*x.float\(\) if these are quantities"),
    "integer array": (np.ones((2, 4), dtype=int), r"codes.*x.float\(\) if these are quantities"),
    "true and false": (torch.ones(2, 4, dtype=torch.bool), "floating point"),
    "empty": (X[:0], "there are no rows"),
    "no dimension": (torch.tensor(1.0), "there are no rows"),
    "list of rows": ([[1.0, 2.0]], "input 0 is a list"),
    "nothing": ((), "there is no input"),
    "text": ("abc", "input 0 is a str|which tokenizer"),
    "different rows": ((X, X[:2]), "different numbers of rows"),
    "words in a frame": (pd.DataFrame({"a": [1.0], "city": ["x"], "c": [1.0], "d": [1.0]}), "'city'"),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("method", ["explain", "attribute"])
def test_inputs(name, method):
    x, message = INPUTS[name]
    with pytest.raises(ValueError, match=message):
        getattr(CAFE(model()), method)(x)


CALLS = {
    "target out of range": ({"target": 2}, "out of range"),
    "negative target": ({"target": -3}, "out of range"),
    "too few targets": ({"target": [0, 1]}, "3 rows"),
    "float target": ({"target": torch.tensor([0.5, 1, 0])}, "targets are integers"),
    "word as target": ({"target": "cat"}, "give an integer"),
    "too many indices": ({"target": (0, 1)}, "dimension"),
    "baseline shape": ({"baselines": torch.zeros(2, 4)}, r"shape \(2, 4\) does not fit"),
    "baseline width": ({"baselines": torch.zeros(3, 5)}, "does not fit"),
    "baseline nan": ({"baselines": bad(float("nan"))}, "NaN"),
    "baseline word": ({"baselines": "zeros"}, "'mean', 'median'"),
    "baseline without background": ({"baselines": "mean"}, "background=x_train"),
    "baseline kind": ({"baselines": object()}, "is no baseline"),
    "too many baselines": ({"baselines": (X, X)}, "2 baselines for 1 input"),
    "check": ({"check": "all"}, "Allowed values: 'output', 'each'"),
    "layer": ({"layer": "encoder"}, "It has: '0', '1', '2'"),
    "target layer": ({"target_layer": "nothing"}, "no such module"),
    "batch size": ({"batch_size": 0}, "positive number"),
    "names": ({"feature_names": ["a"]}, "1 names for 4 features"),
    "group": ({"feature_groups": {"g": [7]}}, "no feature 7"),
    "group twice": ({"feature_groups": {"g": [1], "h": [1]}}, "is in 'g' and in 'h'"),
    "group mask": ({"feature_groups": torch.zeros(5, dtype=torch.long)}, "does not fit one row"),
    "group mask kind": ({"feature_groups": torch.zeros(4)}, "integers"),
    "output": ({"output": "logits"}, "output='logits'"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    options, message = CALLS[name]
    with pytest.raises(ValueError, match=message):
        CAFE(model()).explain(X, **options)


@pytest.mark.parametrize("c", [-0.1, 1.1, "high", True, None, {"*": 2}])
def test_c_is_between_0_and_1(c):
    with pytest.raises(ValueError, match="between 0 and 1"):
        CAFE(model(), c)


def test_a_pattern_that_matches_nothing():
    with pytest.raises(ValueError, match=r"'head'.*It has: '0'"):
        CAFE(model(), {"head": 0.1})


def test_other_nettings_and_models():
    with pytest.raises(ValueError, match="Allowed values: 'path'"):
        CAFE(model(), variant="published", netting="edge")
    with pytest.raises(ValueError, match="PyTorch module"):
        CAFE("model.pt")


def test_one_logit_has_only_index_0():
    with pytest.raises(ValueError, match="only index 0"):
        CAFE(nn.Linear(4, 1)).explain(X, target=1)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(4), nn.AlphaDropout(0.1)])
def test_training_mode(layer):
    net = nn.Sequential(nn.Linear(4, 4), layer)
    with pytest.raises(ValueError, match=r"'1'.*model.eval\(\)"):
        CAFE(net).explain(X)
    CAFE(net.double().eval()).explain(X)


def test_training_mode_without_such_layers_is_fine():
    CAFE(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.0), nn.Linear(4, 1)).train()).explain(X)


@pytest.mark.parametrize(
    "f",
    [
        lambda v: F.dropout(v).sum(1),
        lambda v: F.rrelu(v, training=True).sum(1),
        lambda v: F.batch_norm(v, None, None, training=True).sum(1),
    ],
)
def test_functional_training_mode(f):
    with pytest.raises(ValueError, match="eval"):
        CAFE(f).explain(X)


def test_functional_batch_norm_in_training_does_not_touch_its_buffers():
    mean, var = torch.zeros(4), torch.ones(4)
    with pytest.raises(ValueError, match="eval"):
        CAFE(lambda v: F.batch_norm(v, mean, var, training=True).sum(1)).explain(X)
    assert (mean == 0).all()
    assert (var == 1).all()


def test_quantised_models():
    quantised = torch.ao.quantization.quantize_dynamic(model().float(), {nn.Linear})
    with pytest.raises(ValueError, match="quantised"):
        CAFE(quantised).explain(X.float())


@pytest.mark.parametrize(
    "f",
    [
        lambda v: torch.ones(3, 2),
        lambda v: v.detach().sum(1),
        lambda v: torch.zeros_like(v).sum(1),
        lambda v: (v > 0).to(v.dtype).sum(1),
        lambda v: (v.detach() + torch.zeros(())).relu().sum(1),
    ],
)
def test_an_output_that_does_not_depend_on_the_input(f):
    with pytest.raises(ValueError, match="does not depend on the input"):
        CAFE(f).explain(X)


def test_outputs_without_rows():
    with pytest.raises(ValueError, match="one entry per row"):
        CAFE(lambda v: v.sum(0)).explain(X)
    with pytest.raises(ValueError, match="one entry per row"):
        CAFE(lambda v: v.sum()).explain(X)
    with pytest.raises(ValueError, match="no single predicted class"):
        CAFE(lambda v: v[:, :, None].expand(3, 4, 2)).explain(X)


def test_ambiguous_outputs():
    with pytest.raises(ValueError, match="which output"):
        CAFE(lambda v: (v, v)).explain(X)
    with pytest.raises(ValueError, match=r"keys \['a', 'b'\]"):
        CAFE(lambda v: {"a": v, "b": v}).explain(X)
    with pytest.raises(ValueError, match="output=5"):
        CAFE(lambda v: (v, v)).explain(X, output=5)


def test_all_unknown_operations_are_named_at_once():
    class Odd(nn.Module):
        def forward(self, v):
            return torch.cummax(v, 1)[0] + torch.logcumsumexp(v, 1)

    with pytest.raises(UnsupportedOperation) as caught:
        CAFE(nn.Sequential(nn.Linear(4, 4), Odd())).explain(X)
    text = str(caught.value)
    for part in ("2 operation(s)", "cummax", "logcumsumexp", "(3, 4)", "'1'", "test_errors.py", "@cafexai.rule"):
        assert part in text
    assert len(caught.value.problems) == 2
    assert isinstance(caught.value, NotImplementedError)


UNKNOWN = {
    "bicubic": (lambda v: F.grid_sample(v.view(3, 1, 2, 2), torch.rand(3, 2, 2, 2), "bicubic").flatten(1), "negative weights"),
    "numpy": (lambda v: torch.from_numpy(v.numpy()), "leaves torch"),
    "out": (lambda v: torch.add(v, 1, out=torch.empty(3, 4)), "out="),
    "ellipsis": (lambda v: torch.einsum("...i,...i,...i->...", v, v, v), "name all dimensions"),
    "order 0": (lambda v: v.norm(0, 1), "compare"),
    "nuclear norm": (lambda v: torch.linalg.norm(v.view(3, 2, 2), "nuc", (1, 2)), "Frobenius"),
    "where on itself": (lambda v: torch.where(v, v, v), "condition depends"),
    "two views of a plain tensor": (
        lambda v: (lambda a, b: a.add_(v[:, :2]).sum(1) + b.sum(1))(*torch.zeros(3, 4).chunk(2, 1)),
        "itself",
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_options_that_cannot_be_followed(name):
    f, message = UNKNOWN[name]
    with pytest.raises(UnsupportedOperation, match=message):
        CAFE(f).explain(X)


@pytest.mark.parametrize(
    ("f", "name"),
    [(torch.log, "log"), (torch.reciprocal, "reciprocal"), (lambda v: 1 / v, "reciprocal")],
)
def test_functions_without_a_value_at_the_reference(f, name):
    x = X.abs() + 1
    with pytest.raises(ValueError, match=rf"{name} is not finite at 0.*baselines"):
        CAFE(lambda v: f(v).sum(1)).explain(x)
    assert CAFE(lambda v: f(v).sum(1)).explain(x, baselines=1.5).completeness_error.abs().max() < 1e-12


def test_minus_infinity_in_a_mask_only_before_a_softmax():
    mask = torch.tensor([[True, False, False, False]])
    e = CAFE(lambda v: (torch.softmax(v.masked_fill(mask, -torch.inf), 1) * v).sum(1)).explain(X)
    assert e.completeness_error.abs().max() < 1e-12
    with pytest.raises(ValueError, match="not finite"):
        CAFE(lambda v: v.masked_fill(mask, -torch.inf).sum(1)).explain(X)


def test_an_error_of_the_model_stays_its_own():
    def own(v):
        raise RuntimeError("no licence")

    with pytest.raises(RuntimeError, match="no licence"):
        CAFE(own).explain(X)


def test_a_wrong_rule_is_caught_and_named():
    from cafexai.rules import registry

    right = registry.find(F.softsign)
    registry.add(F.softsign, registry.Rule("softsign", lambda v: v.elementwise(torch.tanh, True)))
    try:
        with pytest.raises(CompletenessError, match="differs from model"):
            CAFE(lambda v: F.softsign(v).sum(1)).explain(X)
        with pytest.raises(CompletenessError, match=r"softsign in module '1'"):
            CAFE(nn.Sequential(nn.Linear(4, 4), nn.Softsign())).explain(X, check="each")
    finally:
        registry.add(F.softsign, right)


@pytest.mark.parametrize("netting", ["path", "unit"])
def test_a_lost_path_is_caught(netting):
    """What features do not explain is not quietly given to the bias, nor to rounding."""
    from cafexai.rules import registry

    def loses(v):
        kept = v.elementwise(torch.tanh, True)
        return type(kept)(
            v.run, kept.reference, kept.delta.detach().requires_grad_(), kept.total.detach().requires_grad_(), v.rows
        )

    right = registry.find(torch.tanh)
    registry.add(torch.tanh, registry.Rule("tanh", loses))
    try:
        with pytest.raises(CompletenessError, match="a path from the input was lost"):
            CAFE(lambda v: (torch.tanh(v) + v).sum(1), variant="published", netting=netting).explain(X)
        with pytest.raises(CompletenessError, match="a path from the input was lost"):
            CAFE(lambda v: (torch.tanh(v) + v).sum(1), variant="published", netting=netting).attribute(X)
    finally:
        registry.add(torch.tanh, right)


def test_a_random_model_is_repeated_with_the_same_numbers():
    e = CAFE(lambda v: (v * torch.rand(4)).sum(1)).explain(X)
    assert e.completeness_error.abs().max() < 1e-12


def test_a_model_that_changes_between_calls_is_caught():
    state = iter(range(1, 100))
    for x in (X, X.float()):
        with pytest.raises(CompletenessError, match="not deterministic"):
            CAFE(lambda v: v.sum(1) * next(state)).explain(x)


class SquaredRelu(nn.Module):
    def forward(self, x):
        return torch.relu(x).square()


def squares(layers):
    torch.manual_seed(0)
    single = {"dtype": torch.float32}
    parts = [part for _ in range(layers) for part in (nn.LayerNorm(20, **single), nn.Linear(20, 20, **single), SquaredRelu())]
    return nn.Sequential(*parts, nn.Linear(20, 1, **single)), torch.randn(1, 20, **single)


def test_influence_that_nearly_all_cancels_is_told_and_warned_of_where_it_spoils_the_combined_scores():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not CAFE(models.mlp(20, 32, 2).float(), 1.0).explain(torch.randn(4, 20).float(), conflict="net").notes
        between_features = CAFE(lambda x: 1e6 * (x[:, :1] - x[:, 1:])).explain(torch.tensor([[1.0, 1 + 1e-6]]), conflict="net")
        assert not between_features.notes
        net, x = squares(4)
        e = CAFE.published(net, 0.5).explain(x, conflict="net")
        assert "times the change of the output" in e.notes[-1]
        assert e.notes[-1] in e.ledger()
    net, x = squares(4)
    with pytest.warns(UserWarning, match=r"positive and negative are \d\.\de\+\d+ times .* combined \d\.\de\+\d+ times"):
        e = CAFE.published(net, 1.0).explain(x, conflict="net")
    assert e.combined.abs().sum(1) > 100 * e.output.abs()
    assert "even the sign of combined" in e.notes[-1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once per model; the note stays
        again = CAFE.published(net, 1.0).explain(x, conflict="net")
    assert again.notes == e.notes
    assert not CAFE(net, 1.0).explain(x, conflict="net").notes  # the way that is chosen for deep models has no such growth


def test_influence_that_no_precision_resolves_is_refused_with_what_to_use_instead():
    net, x = squares(9)
    for explain in (CAFE.published(net, 1.0).explain, CAFE.published(net, 1.0).attribute):
        with pytest.raises(UnsupportedOperation, match=r'(?s)Instead: CAFE\(model, variant="feature"\).*smaller c') as caught:
            explain(x)
        assert caught.value.__context__ is None
    assert CAFE(net, 1.0, "published", netting="feature").explain(x).completeness_error.abs() <= 1e-4


def test_lists_of_functions_exist():
    assert len(set(elementwise._EVERYWHERE) & set(elementwise._PARTIAL)) == 0


@pytest.mark.parametrize("f", [lambda v: v - v.mean(0), lambda v: v.flip(0), lambda v: v @ v.T, lambda v: v.sort(0).values])
def test_rows_that_depend_on_each_other(f):
    with pytest.raises(ValueError, match=r"rows depend on each other.*batch_size=1"):
        CAFE(f).explain(X, target=0)
    CAFE(f).explain(X, target=0, batch_size=1, show_progress=False)


def test_all_warnings_have_a_category_of_ours():
    """Whatever is not given through ``errors.warn`` could not be filtered."""
    root = Path(errors.__file__).parent
    found = [path.name for path in root.rglob("*.py") if re.search(r"warnings\.warn\(|logging\.warn\(", path.read_text())]
    assert found == ["errors.py"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=errors.OldFormWarning)
        CAFE(model()).explain_classes(X)
        CAFE(model()).explain(X, target="all")  # an old form
        warnings.filterwarnings("error", category=errors.CafexaiWarning)
        with pytest.raises(errors.OldFormWarning, match="deprecated"):
            CAFE(model()).explain(X, target="all")


@pytest.mark.parametrize(
    ("given", "category", "kinds"),
    [
        (errors.ScoreWarning, errors.ScoreWarning, (errors.CafexaiWarning, UserWarning)),
        (DeprecationWarning, errors.OldFormWarning, (errors.CafexaiWarning, DeprecationWarning)),
        (FutureWarning, errors.ChangedDefaultWarning, (errors.CafexaiWarning, FutureWarning)),
    ],
)
def test_warnings_can_be_filtered_by_category(given, category, kinds):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        errors.warn("something", given)
    assert [one.category for one in told] == [category]
    assert all(issubclass(category, kind) for kind in kinds)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=errors.CafexaiWarning)
        errors.warn("something", given)
    assert told == []
