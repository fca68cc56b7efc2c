"""Reasons in sentences."""

import pandas as pd
import pytest
import torch
from torch import nn

from cafexai import CAFE, Schema

FRAME = pd.DataFrame(
    {"income": [20.0, 90.0, 40.0], "debt": [9.0, 1.0, 4.0], "home": ["rent", "own", "rent"]}, index=["ann", "bob", "cem"]
)


def explained():
    model = nn.Linear(4, 1).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.1, -1.0, 2.0, -2.0]]))  # income, debt, own, rent
        model.bias.zero_()
    cafe = CAFE(model, schema=Schema.from_frame(FRAME, one_hot=True, classes=["credit"]), background=FRAME)
    return cafe.explain(FRAME, FRAME.loc[["bob"]])


def test_each_reason_is_a_sentence_with_value_and_baseline():
    assert explained().reasons("ann") == [
        "debt is 9 (baseline: 1): this lowered the logit of 'credit' by 8.",
        "income is 20 (baseline: 90): this lowered the logit of 'credit' by 7.",
        "home is rent (baseline: own): this lowered the logit of 'credit' by 4.",
    ]
    assert explained().reasons("ann", n=1) == explained().reasons(0)[:1]
    assert explained().reasons("ann", direction="up") == []
    assert explained().reasons("bob") == []  # it is the baseline


def test_reasons_are_the_largest_nets_in_one_direction():
    torch.manual_seed(0)
    e = CAFE(nn.Sequential(nn.Linear(9, 8), nn.GELU(), nn.Linear(8, 1))).explain(torch.randn(5, 9))
    for direction, sign in (("down", -1), ("up", 1)):
        frame = e.reasons_frame(n=3, direction=direction)
        for row in range(5):
            least = 0.01 * float(e.combined[row].abs().max())  # smaller ones are no reasons
            nets = {name: net for name, net in zip(e.names(), e.combined[row].tolist(), strict=True) if sign * net >= least}
            wanted = sorted(nets, key=lambda name: -sign * nets[name])[:3]
            own = frame[frame.row == row]
            assert own["feature"].tolist() == wanted
            assert own["net"].tolist() == pytest.approx([nets[name] for name in wanted])
            assert own["rank"].tolist() == [1, 2, 3][: len(wanted)]
            assert own["reason"].tolist() == e.reasons(row, 3, direction)


def test_templates_for_all_and_for_single_features():
    e = explained()
    told = e.reasons("ann", 2, template={"income": "Your income of {value} is low.", "": "{row}: {feature}, {amount} {moved}"})
    assert told == ["ann: debt, 8 lowered", "Your income of 20 is low."]
    assert e.reasons("cem", 1, template="{feature} {value} {baseline} {output} {target}") == [
        "income 40 90 -2 logit of 'credit'"
    ]
    with pytest.raises(ValueError, match=r"unknown field \{income\}. Allowed fields: \{feature\}, \{value\}"):
        e.reasons(0, template="{income} is low")


def test_the_frame_has_names_and_can_be_written(tmp_path):
    frame = explained().reasons_frame(n=2)
    assert frame.columns.tolist() == ["row", "name", "target", "rank", "feature", "value", "baseline", "net", "reason"]
    assert frame["name"].tolist() == ["ann", "ann", "cem", "cem"]
    frame.to_csv(tmp_path / "reasons.csv", index=False)
    assert "this lowered" in (tmp_path / "reasons.csv").read_text()
    assert len(explained()[:0].reasons_frame()) == 0


@pytest.mark.parametrize("options", [{"direction": "left"}, {"n": 0}])
def test_errors_say_what_is_allowed(options):
    with pytest.raises(ValueError, match=r"Allowed values|at least 1"):
        explained().reasons(0, **options)
