"""Why this class rather than that one; classes by name; probabilities beside logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE, Explanation

torch.manual_seed(0)
X = torch.randn(6, 5, dtype=torch.float64)
NAMES = ["ant", "bee", "cat", "dog"]


def network(*end):
    torch.manual_seed(1)
    layers = nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 4), *end
    return nn.Sequential(*layers).double().eval()


class Difference(nn.Module):
    """The naive twin: a module that returns the difference."""

    def __init__(self, model, one, other):
        super().__init__()
        self.model, self.one, self.other = model, one, other

    def forward(self, x):
        logits = self.model(x)
        return (logits[:, self.one] - logits[:, self.other])[:, None]


def difference(model, one, other):
    return Difference(model, one, other).eval()


def one_more_layer(model, one, other):
    """The same by a linear layer, before which netting by feature nets."""
    last = nn.Linear(4, 1, bias=False).double()
    with torch.no_grad():
        last.weight.zero_()
        last.weight[0, one], last.weight[0, other] = 1, -1
    return nn.Sequential(model, last)


SETTINGS = [
    {"netting": netting, "biases": biases} for netting in ("path", "feature", "unit") for biases in ("scores", "reference")
]


@pytest.mark.parametrize("how", SETTINGS, ids=lambda how: "-".join(how.values()))
@given(pair=st.permutations(range(4)), baseline=st.sampled_from([None, 0.3]))
@settings(max_examples=8, deadline=None)
def test_a_difference_is_that_of_a_module_that_subtracts(how, pair, baseline):
    one, other = pair[:2]
    model = network()
    e = CAFE(model, variant="published", **how).explain(X, baseline, one, against=other)
    twins = [difference(model, one, other), *([one_more_layer(model, one, other)] if how["netting"] != "feature" else [])]
    for twin in (CAFE(twin, variant="published", **how).explain(X, baseline) for twin in twins):
        for name in ("positive", "negative", "combined", "output", "baseline_output", "bias", "bias_positive", "conflict"):
            torch.testing.assert_close(getattr(e, name), getattr(twin, name), rtol=1e-9, atol=1e-11, msg=name)
    logits = model(X)
    torch.testing.assert_close(e.output, logits[:, one] - logits[:, other])
    assert e.against.tolist() == [[other]] * 6


def test_netting_by_feature_keeps_the_edges_of_both_outputs():
    cafe = CAFE(network(), variant="published", netting="feature")
    e, every = cafe.explain(X, target=1, against=2, pairs=True), cafe.explain(X, target="all")
    torch.testing.assert_close(e.positive, every[1].positive + every[2].negative)
    torch.testing.assert_close(e.negative, every[1].negative + every[2].positive)
    twin = CAFE(difference(network(), 1, 2), variant="published", netting="feature").explain(X, pairs=True)
    torch.testing.assert_close(e.conflict_pairs, twin.conflict_pairs)


def test_combined_scores_are_those_of_one_class_minus_those_of_the_other():
    cafe = CAFE(network(), variant="published", netting="path")
    every, e = cafe.explain(X, target="all"), cafe.explain(X, target=2, against=0)
    torch.testing.assert_close(e.combined, every[2].combined - every[0].combined)
    torch.testing.assert_close(e.positive, every[2].positive + every[0].negative)


def test_each_row_has_its_own_pair():
    cafe = CAFE(network(), class_names=NAMES)
    ones, others = [0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 2, 3]
    e = cafe.explain(X, target=ones, against=others)
    for row, (one, other) in enumerate(zip(ones, others, strict=True)):
        alone = cafe.explain(X[row : row + 1], target=one, against=other)
        torch.testing.assert_close(e[row].positive, alone.positive)
    by_name = cafe.explain(X, target=[NAMES[i] for i in ones], against=np.array(NAMES)[others])
    assert torch.equal(by_name.combined, e.combined)
    assert e[3].target_name() == "logit of 'dog' rather than 'ant'"


def test_a_difference_in_portions_with_pairs_refined_and_from_a_file(tmp_path):
    cafe = CAFE(network(), variant="published", netting="feature", background=X)
    e = cafe.explain(X, target=1, against=3, batch_size=2, pairs=True, refine=20)
    twin = CAFE(difference(network(), 1, 3), variant="published", netting="feature", background=X).explain(
        X, pairs=True, refine=20
    )
    for name in ("conflict_pairs", "correction", "combined_error"):
        torch.testing.assert_close(getattr(e, name), getattr(twin, name), rtol=1e-7, atol=1e-9)
    e.save(tmp_path / "e.safetensors")
    again = Explanation.load(tmp_path / "e.safetensors")
    assert torch.equal(again.against, e.against)
    assert again[2:4].against.tolist() == [[3], [3]]
    several = cafe.explain(X, target=1, against=3, c=[0.0, 1.0])
    torch.testing.assert_close(
        several[0.0].combined.sum(1), several[1.0].combined.sum(1) + several[1.0].bias - several[0.0].bias
    )


def test_a_difference_of_outputs_behind_a_final_softmax_is_one_of_logits():
    e = CAFE(network(nn.Softmax(1)), class_names=NAMES).explain(X, target="cat", against="bee")
    logits = network()(X)
    torch.testing.assert_close(e.output, logits[:, 2] - logits[:, 1])
    torch.testing.assert_close(e.probability, logits.softmax(1)[:, 2])  # of the explained class
    assert "logit of 'cat' rather than 'bee', probability of 'cat' " in e.ledger(0)


def test_probabilities_stand_beside_logits():
    logits = network()(X)
    soft = CAFE(network(nn.Softmax(1))).explain(X)
    torch.testing.assert_close(soft.probability, logits.softmax(1).max(1).values)
    said = CAFE(network(), probability="softmax").explain(X, target=2)
    torch.testing.assert_close(said.probability, logits.softmax(1)[:, 2])
    torch.testing.assert_close(said.output, logits[:, 2])
    torch.testing.assert_close(CAFE(network(nn.Sigmoid())).explain(X, target=1).probability, logits[:, 1].sigmoid())
    one = CAFE(difference(network(), 0, 1), probability="sigmoid").explain(X)
    torch.testing.assert_close(one.probability, (logits[:, 0] - logits[:, 1]).sigmoid())
    every = CAFE(network(), probability="softmax").explain(X, target="all", batch_size=4)
    torch.testing.assert_close(sum(e.probability for e in every.values()), torch.ones(6, dtype=torch.float64))
    assert CAFE(network()).explain(X).probability is None
    assert CAFE(network(nn.Softmax(1)), probability="softmax").explain(X, target_layer="0", target=3).probability is None


def test_classes_have_names(tmp_path):
    cafe = CAFE(network(), class_names=NAMES)
    e = cafe.explain(X, target="dog")
    assert torch.equal(e.combined, cafe.explain(X, target=3).combined)
    assert torch.equal(cafe.attribute(X, target="dog"), cafe.attribute(X, target=3))
    assert e.class_names == tuple(NAMES)
    assert "logit of 'dog'" in e.ledger(0)
    e.save(tmp_path / "e.safetensors")
    assert Explanation.load(tmp_path / "e.safetensors").target_name() == "logit of 'dog'"
    every = cafe.explain(X, target="all")
    assert every["dog"] is every[3]
    with pytest.raises(KeyError, match="cow"):
        every["cow"]
    one = CAFE(difference(network(), 0, 1), class_names=["no", "yes"])
    assert one.explain(X, target="yes").class_names == ("yes",)
    assert one.explain(X).target_name() == "logit of 'yes'"
    assert CAFE(network(), class_names=NAMES).explain(X, target_layer="0", target=6).target_name() == "unit 6 of layer '0'"


@pytest.mark.parametrize(
    ("make", "call", "message"),
    [
        ({}, {"target": "cat"}, "target='cat'.*Name the classes"),
        ({"class_names": NAMES}, {"target": "cow"}, "no such class. The classes are 'ant', 'bee', 'cat', 'dog'"),
        ({"class_names": NAMES}, {"target": 0, "against": "cow"}, "against='cow'.*no such class"),
        ({"class_names": NAMES}, {"target": "ant", "against": "ant"}, "row 0 that is the explained output itself"),
        ({"class_names": NAMES[:3]}, {}, "3 class names, 'ant', 'bee', 'cat', for 4 output"),
        ({}, {"target": "all", "against": 1}, "a difference is of two outputs"),
        ({}, {"target": 0, "against": 4}, r"against=.*index 4 is out of range"),
        ({}, {"target": 0, "against": [1, 2]}, "against=.*2 targets for 6 rows"),
    ],
)
def test_what_is_no_class_is_said(make, call, message):
    with pytest.raises(ValueError, match=message):
        CAFE(network(), **make).explain(X, **call)


def test_wrong_words_are_refused():
    with pytest.raises(ValueError, match="more than one"):
        CAFE(network(), class_names=["a", "a"])
    with pytest.raises(ValueError, match="'softmax', 'sigmoid'"):
        CAFE(network(), probability="logit")
    with pytest.raises(ValueError, match='A single logit has a probability by "sigmoid"'):
        CAFE(difference(network(), 0, 1), probability="softmax").explain(X)
    with pytest.raises(ValueError, match="scores of 'no' are the same with positive and negative exchanged"):
        CAFE(difference(network(), 0, 1), class_names=["no", "yes"]).explain(X, target="no")


def test_one_output_with_two_class_names_has_a_probability():
    one = difference(network(), 0, 1)
    e = CAFE(one, class_names=["no", "yes"]).explain(X)
    torch.testing.assert_close(e.probability, e.output.sigmoid())
    assert CAFE(one).explain(X).probability is None


# ---- the mean of the others ---------------------------------------------------------------------------------------------


class MinusOthers(nn.Module):
    """The naive twin: a module that returns one output minus the mean of the others."""

    def __init__(self, model, one):
        super().__init__()
        self.model, self.one = model, one

    def forward(self, x):
        logits = self.model(x)
        rest = [place for place in range(logits.shape[1]) if place != self.one]
        return (logits[:, self.one] - logits[:, rest].mean(1))[:, None]


@pytest.mark.parametrize("how", SETTINGS, ids=lambda how: "-".join(how.values()))
@pytest.mark.parametrize("one", range(4))
def test_others_are_those_of_a_module_that_subtracts_their_mean(how, one):
    model = network()
    e = CAFE(model, variant="published", **how).explain(X, 0.3, one, against="others")
    twin = CAFE(MinusOthers(model, one).eval(), variant="published", **how).explain(X, 0.3)
    for name in ("positive", "negative", "combined", "output", "baseline_output", "conflict"):
        torch.testing.assert_close(getattr(e, name), getattr(twin, name))


def test_others_of_the_predicted_class_and_of_two_classes(tmp_path):
    model = network()
    e = CAFE(model, class_names=NAMES).explain(X, against="others")
    logits = model(X)
    chosen = logits.argmax(1)
    top = logits[torch.arange(6), chosen]
    torch.testing.assert_close(e.output, (top - (logits.sum(1) - top) / 3).detach())
    assert e.target_name(0) == f"logit of {NAMES[chosen[0]]!r} rather than the mean of the others"
    assert CAFE(model).explain(X, target=2, against="others").target_name() == "output 2 rather than the mean of the others"
    e.save(tmp_path / "e.safetensors")
    assert Explanation.load(tmp_path / "e.safetensors").target_name() == e.target_name()
    pair = nn.Sequential(*network(), nn.Linear(4, 2).double())
    one, other = (CAFE(pair).explain(X, target=0, against=against) for against in ("others", 1))
    torch.testing.assert_close(one.combined, other.combined)


def test_others_in_refined_scores_and_in_blocks():
    model = network()
    cafe = CAFE(model, background=torch.randn(40, 5, dtype=torch.float64))
    twin = CAFE(MinusOthers(model, 1).eval(), background=cafe.background)
    ours = cafe.refine(cafe.explain(X, 0.3, 1, against="others"), 10)
    theirs = twin.refine(twin.explain(X, 0.3), 10)
    torch.testing.assert_close(ours.refined, theirs.refined)
    torch.testing.assert_close(ours.sides, theirs.sides)
    ours, theirs = cafe.explain_blocks(X, 0.3, 1, against="others"), twin.explain_blocks(X, 0.3)
    torch.testing.assert_close(ours.if_missing, theirs.if_missing)


def test_a_class_called_others_comes_first_and_single_outputs_have_none():
    model = network()
    named = CAFE(model, class_names=["a", "b", "others", "c"]).explain(X, target=0, against="others")
    torch.testing.assert_close(named.combined, CAFE(model).explain(X, target=0, against=2).combined)
    with pytest.raises(ValueError, match="several classes"):
        CAFE(nn.Sequential(*network(), nn.Linear(4, 1).double())).explain(X, against="others")
