"""Methods and metrics of the user in compare and audit, and tables for papers."""

import functools

import pytest
import torch
from torch import nn

from cafexai import CAFE, compare
from cafexai.conflicts import audit
from cafexai.methods import METHODS
from cafexai.reporting.latex import escape


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).double().eval()


def constant(model, x, *, target=None, baselines=None, feature_groups=None):
    return torch.ones_like(x)


def size(model, x, attributions, **more):
    assert {"target", "baselines", "feature_groups", "seed", "truth"} <= set(more)
    return attributions.abs().sum(1)


def drop(model, x, attributions, target):
    return model(x)[range(len(x)), target].detach() - attributions.sum(1)


X = torch.rand(5, 4, dtype=torch.float64)


def test_names_and_functions_can_be_mixed():
    methods = ["cafe", constant, functools.partial(METHODS["cafe"], c=1.0), constant]
    result = compare(net(), X, methods=methods, metrics=["complexity", size, drop], show_progress=False)
    assert list(result.seconds) == ["cafe", "constant", "cafe c=1.0", "constant (2)"]
    assert not result.reasons
    assert result.metrics == ("complexity", "size", "drop")
    scores = METHODS["cafe"](net(), X)
    torch.testing.assert_close(result.values["cafe"]["size"], scores.abs().sum(1))
    torch.testing.assert_close(result.values["constant"]["size"], torch.full((5,), 4.0, dtype=torch.float64))
    best = net()(X).amax(1).detach()
    torch.testing.assert_close(result.values["cafe"]["drop"], best - scores.sum(1))
    assert result.best("size") == ((), ())
    assert "size" in result.to_markdown()


def test_functions_that_do_not_fit_are_told():
    def wrong(model, x, attributions):
        return attributions

    result = compare(net(), X, methods=["cafe"], metrics=[wrong, "complexity"], show_progress=False)
    assert any("not one number for each of 5 rows" in note for note in result.notes)
    with pytest.raises(ValueError, match=r"unknown method 3. Give a function, or one of: cafe"):
        compare(net(), X, methods=["cafe", 3])
    with pytest.raises(ValueError, match=r"unknown metric 'x'. Give a function, or one of"):
        compare(net(), X, metrics=["x"])


def test_an_audit_takes_names():
    by_name, by_function = (audit(method, net(), X) for method in ("integrated_gradients", METHODS["integrated_gradients"]))
    assert by_name == by_function
    assert by_name.conflicts > 0
    with pytest.raises(ValueError, match=r"unknown method. Give a function, or one of: cafe"):
        audit("gradients", net(), X)


def test_latex_of_a_comparison():
    def own_metric(model, x, attributions):
        return attributions.abs().sum(1)

    result = compare(net(), X, methods=["cafe", "lrp", constant], metrics=["complexity", own_metric], show_progress=False)
    text = result.to_latex()
    lines = text.splitlines()
    table = lines[lines.index(r"\begin{tabular}{lrrr}") :]
    assert table[1:4] == [r"\toprule", r"method & complexity & own\_metric & seconds \\", r"\midrule"]
    assert table[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert all(line.count(" & ") == 3 and line.endswith(r"\\") for line in table[4:-2])
    assert sum(r"\textbf{" in line for line in table) == len(result.best("complexity")[0])
    assert all(line.startswith("%") for line in lines[: lines.index(r"\begin{tabular}{lrrr}")])
    assert r"$\pm$" in text


def test_latex_of_a_row_has_the_numbers_of_the_ledger():
    e = CAFE(net(), feature_names=["age", "in_come", "dose", "50 %"], class_names=["no", "yes"]).explain(X)
    text = e.ledger(0).to_latex()
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert body[0] == r"feature & value & baseline & positive & negative & net \\"
    assert body[1].startswith("baseline output &")
    assert body[-1].startswith("output &")
    assert any(line.startswith(r"in\_come &") for line in body)
    assert any(line.startswith(r"50 \% &") for line in body)
    nets = [float(line.removesuffix(r" \\").split(" & ")[-1].replace("$-$", "-")) for line in body[1:]]
    assert sum(nets[:-1]) == pytest.approx(nets[-1], abs=1e-9)


def test_nothing_is_a_command():
    assert escape(r"a\b{c}_d&e%f#g$h~i^j") == (r"a\textbackslash{}b\{c\}\_d\&e\%f\#g\$h\textasciitilde{}i\textasciicircum{}j")
