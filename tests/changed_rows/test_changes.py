"""What the model does if rows are changed, held against the definitions."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from cafexai import CAFE, Schema

FRAME = pd.DataFrame(
    {"age": [20.0, 30.0, 40.0, 55.0], "home": ["own", "rent", "own", "other"], "debt": [1.0, 5.0, 2.0, 9.0]},
    index=["ann", "bob", "cem", "dee"],
)


def network(inputs=4, outputs=1, *more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.GELU(), nn.Linear(8, outputs), *more).double()


def test_one_at_a_time_and_together_as_defined():
    model, x = network(), torch.randn(3, 4).double()
    cafe, base = CAFE(model), torch.randn(4).double()
    e = cafe.explain(x, base)
    check = cafe.check_by_changing(e, 1, most=3)
    order = e.combined[1].abs().argsort(descending=True)[:3].tolist()
    assert check.features == tuple(e.names()[place] for place in order)
    y, changed = model(x[1:2]).item(), x[1].clone()
    for step, place in enumerate(order):
        alone = x[1].clone()
        alone[place] = changed[place] = base[place]
        assert check.observed[step].item() == pytest.approx(y - model(alone[None]).item(), abs=1e-12)
        assert check.observed_together[step].item() == pytest.approx(y - model(changed[None]).item(), abs=1e-12)
    torch.testing.assert_close(check.predicted, e.combined[1, order])
    torch.testing.assert_close(check.predicted_together, e.combined[1, order].cumsum(0))
    assert check.correlation == pytest.approx(np.corrcoef(check.predicted, check.observed)[0, 1])
    assert check.evaluations == 6
    whole = cafe.check_by_changing(e, 1)
    assert whole.observed_together[-1].item() == pytest.approx((e.output - e.baseline_output)[1].item())


def test_several_baselines_are_averaged():
    model, x = network(), torch.randn(2, 4).double()
    cafe, base = CAFE(model), torch.randn(3, 1, 4).double()
    e = cafe.explain(x, base)
    check = cafe.check_by_changing(e, 0, most=1)
    place = e.combined[0].abs().argmax().item()
    changes = []
    for one in base:
        changed = x[:1].clone()
        changed[0, place] = one[0, place]
        changes.append((model(x[:1]) - model(changed)).item())
    assert check.observed[0].item() == pytest.approx(np.mean(changes))


def test_blocks_of_a_schema_are_changed_as_a_whole_and_logits_are_meant():
    schema = Schema.from_frame(FRAME, one_hot=True, classes=["no", "yes"])
    model = network(5, 2, nn.Softmax(1))
    cafe = CAFE(model, schema=schema, background=FRAME)
    e = cafe.explain(FRAME, "median", target="yes")
    check = cafe.check_by_changing(e, "dee")
    logits = model[:3]
    row, base = (torch.from_numpy(schema.encode(one)[0]) for one in (FRAME.loc[["dee"]], FRAME.loc[["ann"]]))
    changed = row.clone()
    changed[:, 1:4] = base[:, 1:4]  # home: own is the most frequent
    place = check.features.index("home")
    assert check.values[place] == "other"
    assert check.baselines[place] == "own"
    assert check.observed[place].item() == pytest.approx((logits(row) - logits(changed))[0, 1].item())
    assert "dee" in str(check)
    assert e.ledger("dee", check=check).endswith(check.sentence)
    assert check.sentence in e.ledger("dee", check=check)._repr_html_().replace("&#x27;", "'")
    assert check.to_frame()["feature"].tolist() == list(check.features)


def test_features_at_the_baseline_are_not_changed(tmp_path):
    cafe, x = CAFE(network()), torch.randn(1, 4).double()
    base = x[0].clone()
    base[2] += 1
    check = cafe.check_by_changing(cafe.explain(x, base), 0)
    assert check.features == ("x2",)
    assert check.correlation is None
    nothing = cafe.check_by_changing(cafe.explain(x, x[0]), 0)
    assert nothing.sentence == "checked by changing: no feature differs from the baseline"
    e = cafe.explain(x, base)
    page = e.report(tmp_path / "r.html", checks={0: check}).read_text()
    assert check.sentence in page


def test_what_cannot_be_checked_is_refused(tmp_path):
    cafe = CAFE(network())
    e = cafe.explain(torch.randn(2, 4).double())
    e.save(tmp_path / "e.safetensors")
    with pytest.raises(ValueError, match="read from a file"):
        cafe.check_by_changing(type(e).load(tmp_path / "e.safetensors"), 0)
    with pytest.raises(ValueError, match="of a layer"):
        cafe.check_by_changing(cafe.explain_layer(torch.randn(2, 4).double(), "1"), 0)
    with pytest.raises(ValueError, match="at least 1"):
        cafe.check_by_changing(e, 0, most=0)


def test_images_are_changed_by_cells():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GELU(), nn.Flatten(), nn.Linear(2 * 14 * 14, 2)).double()
    x = torch.rand(1, 1, 16, 16).double()
    cafe = CAFE(net)
    e = cafe.explain(x, target=1)
    check = cafe.check_by_changing(e, 0, most=2)
    nets = e.combined[0, 0].unfold(0, 2, 2).unfold(1, 2, 2).sum((2, 3))
    assert check.predicted[0].item() == pytest.approx(nets.flatten()[nets.abs().argmax()].item())
    top, left = divmod(nets.abs().argmax().item(), 8)
    assert check.features[0] == f"cell {top}, {left}"
    changed = x.clone()
    changed[..., 2 * top : 2 * top + 2, 2 * left : 2 * left + 2] = 0
    assert check.observed[0].item() == pytest.approx((net(x) - net(changed))[0, 1].item())


def test_what_if_curves_are_outputs_of_the_model():
    model, x = network(4, 3), torch.randn(5, 4).double()
    curves = CAFE(model, feature_names=list("abcd")).what_if(x, "c", [-1.0, 0.0, 2.0])
    targets = model(x).argmax(1)
    for place, value in enumerate((-1.0, 0.0, 2.0)):
        changed = x.clone()
        changed[:, 2] = value
        torch.testing.assert_close(curves.outputs[:, place], model(changed)[torch.arange(5), targets])
    torch.testing.assert_close(curves.own_outputs, model(x).max(1).values)
    assert curves.own_values == tuple(x[:, 2].tolist())
    assert len(curves.to_frame()) == 15


def test_what_if_takes_words_of_the_background():
    schema = Schema.from_frame(FRAME, one_hot=True)
    cafe = CAFE(network(5), schema=schema, background=FRAME)
    curves = cafe.what_if(FRAME.loc[["bob"]], "home")
    assert curves.values == ("other", "own", "rent")
    assert curves.row_names == ("bob",)
    assert curves.outputs[0, 2].item() == pytest.approx(curves.own_outputs[0].item())
    ages = cafe.what_if(FRAME.loc[["bob"]], "age")
    assert (ages.values[0], ages.values[-1]) == (20.0, 55.0)
    assert ages.is_number
    assert not curves.is_number
    for one in (curves, ages):
        assert one.plot().axes[0].get_xlabel() == one.feature
    with pytest.raises(ValueError, match=r"there is no feature 'sex'\. Features: age, home, debt"):
        cafe.what_if(FRAME, "sex")
    with pytest.raises(ValueError, match="which values"):
        CAFE(network(4)).what_if(torch.ones(1, 4).double(), 0)


def test_pictures_of_changes_and_dependence():
    cafe = CAFE(network(5), schema=Schema.from_frame(FRAME, one_hot=True), background=FRAME)
    e = cafe.explain(FRAME, "median")
    bars = cafe.check_by_changing(e, "dee").plot().axes[0]
    assert [bar.get_width() for bar in bars.containers[1]] == pytest.approx(cafe.check_by_changing(e, 3).observed.tolist())
    axes = e.plot.dependence("age", color="home").axes[0]
    dots = np.concatenate([one.get_offsets() for one in axes.collections])
    wanted = np.stack([FRAME["age"], e.combined[:, 0]], 1)
    np.testing.assert_allclose(dots[dots[:, 0].argsort()], wanted)
    assert "baseline 30" in {text.get_text() for text in axes.texts}
    assert e.plot.dependence("home", color="debt").axes[0].get_xticklabels()[0].get_text() == "other"
    with pytest.raises(ValueError, match="no such feature"):
        e.plot.dependence("sex")
