"""Scores of different outputs are never put together."""

import pytest
import torch
from torch import nn

from cafexai import CAFE


def mixed(rows=12, outputs=3, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, outputs))
    with torch.no_grad():
        model[2].weight.mul_(10)
    return CAFE(model, **options).explain(torch.randn(rows, 4))


def test_rows_by_output():
    e = mixed(class_names=["a", "b", "c"])
    groups = e.by_output()
    assert len(groups) > 1
    assert sum(map(len, groups.values())) == len(e)
    for name, rows in groups.items():
        assert {rows.target_name(row) for row in range(len(rows))} == {name}
        assert len(e.for_output(rows.target[0].item())) == len(rows)
        assert len(e.for_output(e.class_names[rows.target[0].item()])) == len(rows)
    assert [len(rows) for rows in groups.values()] == sorted(map(len, groups.values()), reverse=True)


@pytest.mark.parametrize("view", ["to_shap", "to_shapash", "to_explainerdashboard", "dependence"])
def test_views_ask_for_an_output(view):
    e = mixed()
    with pytest.raises(ValueError, match=r"explained for \d outputs, which are never mixed: output \d \(\d+ rows\)"):
        e.plot.dependence("x0") if view == "dependence" else getattr(e, view)()


def test_shap_knows_the_output():
    pytest.importorskip("shap")
    e = mixed(class_names=["a", "b", "c"])
    name = e.class_names[e.target[0].item()]
    made = e.to_shap(target=name)
    assert made.output_names == f"logit of {name!r}"
    assert made.values.shape == (int((e.target == e.target[0]).sum()), 4)
    with pytest.raises(ValueError, match="no row is explained for this output"):
        e.to_shap(target="d")


def test_the_summary_shows_each_output_on_its_own():
    e = mixed()
    drawn = e.plot.summary()
    titles = [part.get_suptitle() for part in drawn.subfigs]
    assert titles[:-1] == [f"{name}: {len(rows)} row{'s' * (len(rows) > 1)}" for name, rows in e.by_output().items()]
    one = e.plot.summary(target=e.target[0].item())
    assert [part.get_suptitle() for part in one.subfigs] == ["", ""]
    many = mixed(200, 9)
    assert len(many.by_output()) > 4
    with pytest.raises(ValueError, match=r"summary\(...\): the rows are explained for"):
        many.summary()


def test_the_summary_of_one_output_names_it():
    e = mixed(class_names=["a", "b", "c"])
    one = e.for_output(e.target[0].item())
    assert one.summary().get_suptitle().startswith(f"Logit of {one.class_names[one.target[0].item()]!r}: {len(one)} row")
    assert e.summary().get_suptitle().startswith(f"{len(e)} rows")
