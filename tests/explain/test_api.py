"""What a user can hand in and gets back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cafexai
import models
from cafexai import CAFE, Explanation


def close(one, two, **options):
    torch.testing.assert_close(one, two, **options)


def same(one, two):
    for name in ("positive", "negative", "combined", "bias", "output", "baseline_output"):
        close(getattr(one, name), getattr(two, name))


@pytest.fixture
def model():
    return models.mlp(4, 8, 8, 3, activation=nn.GELU)


@pytest.fixture
def x():
    return torch.randn(6, 4)


def test_shapes_and_the_ledger(model, x):
    e = CAFE.published(model).explain(x)
    assert e.positive.shape == e.negative.shape == e.combined.shape == x.shape
    for name in ("bias_positive", "bias_negative", "bias", "conflict", "output", "baseline_output", "completeness_error"):
        assert getattr(e, name).shape == (6,)
    assert list(e.bias_by_layer) == ["0", "2", "4"]
    close(e.s_conf, torch.minimum(e.positive.sum(1), e.negative.sum(1)))
    close(e.baseline_output + e.bias + e.combined.sum(1), e.output)
    assert torch.equal(e.target[:, 0], model(x).argmax(1))
    assert not e.positive.requires_grad
    with pytest.raises(AttributeError):
        e.output = 0
    assert "rows=6" in repr(e)


def test_bias_by_layer_is_the_share_of_each_layer():
    """A linear chain: the bias of the first layer reaches the output through the second weight."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    e = CAFE.published(model).explain(torch.randn(3, 2))
    share = (model[1].weight @ model[0].bias).detach()
    close(e.bias_by_layer["0"][:, 2], share.expand(3))
    close(e.bias_by_layer["1"][:, 2], model[1].bias.detach().expand(3))


def test_targets(model, x):
    cafe = CAFE(model)
    per_row = [0, 1, 2, 0, 1, 2]
    expected = torch.stack([cafe.explain(x[i : i + 1], target=t).combined[0] for i, t in enumerate(per_row)])
    for target in (per_row, torch.tensor(per_row), np.array(per_row), [(t,) for t in per_row]):
        close(cafe.explain(x, target=target).combined, expected)
        close(cafe.explain(x, target=target, batch_size=4).combined, expected)
        close(cafe.attribute(x, target=target), expected)
    for target in (1, torch.tensor(1), (1,), np.int64(1)):
        close(cafe.explain(x, target=target).combined, cafe.explain(x, target=[1] * 6).combined)


def test_outputs_of_more_dimensions_and_of_one(model, x):
    folded = CAFE(lambda v: model(v).view(-1, 3, 1).expand(-1, 3, 2))
    close(folded.explain(x, target=(2, 1)).combined, CAFE(model).explain(x, target=2).combined)
    close(
        folded.explain(x, target=[(i % 3, 0) for i in range(6)]).combined, CAFE(model).explain(x, target=[0, 1, 2] * 2).combined
    )
    for single in (lambda v: model(v)[:, 1], lambda v: model(v)[:, 1:2]):
        for target in (None, 0):
            close(CAFE(single).explain(x, target=target).combined, CAFE(model).explain(x, target=1).combined)


def test_outputs_of_several_tensors(model, x):
    expected = CAFE(model).explain(x, target=0)

    class Output(dict):
        __getattr__ = dict.__getitem__

    def pair(v):
        return model(v), v.sum(1)

    same(CAFE(pair).explain(x, target=0, output=0), expected)
    same(CAFE(pair).explain(x, target=0, output=lambda out: out[0]), expected)
    same(CAFE(lambda v: {"logits": model(v), "loss": None}).explain(x, target=0), expected)
    same(CAFE(lambda v: {"logits": model(v), "other": v}).explain(x, target=0, output="logits"), expected)
    same(CAFE(lambda v: Output(logits=model(v), other=v)).explain(x, target=0, output="logits"), expected)


def test_several_inputs_and_further_arguments(model):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.image = nn.Linear(3, 4), nn.Conv2d(1, 4, 3)

        def forward(self, table, image, scale, mask=None):
            joined = F.relu(self.table(table)) + F.gelu(self.image(image)).mean((2, 3))
            return model(joined) * scale * (1 if mask is None else mask[:, None])

    two, table, image = Two(), torch.randn(5, 3), torch.randn(5, 1, 4, 4)
    mask = torch.rand(5)
    e = CAFE(two).explain((table, image), target=1, additional_forward_args=(2.0, mask))
    assert isinstance(e.positive, tuple)
    assert [p.shape for p in e.positive] == [table.shape, image.shape]
    close(
        e.baseline_output + e.bias + e.combined[0].sum(1) + e.combined[1].sum((1, 2, 3)),
        two(table, image, 2.0, mask)[:, 1].detach(),
    )
    close(e.s_conf, torch.minimum(*(t[0].sum(1) + t[1].sum((1, 2, 3)) for t in (e.positive, e.negative))))
    chunks = CAFE(two).explain((table, image), target=1, additional_forward_args=(2.0, mask), batch_size=2, show_progress=False)
    close(chunks.positive[1], e.positive[1])
    attributions = CAFE(two).attribute((table, image), target=1, additional_forward_args=(2.0, mask))
    assert isinstance(attributions, tuple)
    close(attributions[0], e.combined[0])
    baselines = (torch.randn(1, 3), 0.5)
    e = CAFE(two).explain((table, image), baselines, 1, (2.0,))
    assert e.completeness_error.abs().max() < 1e-12
    close(e.baselines[1], torch.full_like(image, 0.5))
    frame = e.to_frame()
    assert len(frame) == 5 * (3 + 16 + 1)
    assert e[2].positive[1].shape == (1, 1, 4, 4)


def test_baselines_of_every_kind(model, x):
    cafe = CAFE(model, background=x)
    row = torch.randn(1, 4)
    given = cafe.explain(x, baselines=row.expand(6, 4), target=0)
    for baseline in (row, row[0], row.numpy(), (row,), lambda v: row, pd.DataFrame(row.numpy())):
        same(cafe.explain(x, baselines=baseline, target=0), given)
    same(cafe.explain(x, baselines=0, target=0), cafe.explain(x, target=0))
    same(cafe.explain(x, baselines=0.0, target=0), cafe.explain(x, baselines=torch.zeros(6, 4), target=0))
    same(cafe.explain(x, baselines=2, target=0), cafe.explain(x, baselines=torch.full((1, 4), 2.0), target=0))
    for name, statistic in (("mean", x.mean(0)), ("median", x.median(0).values), ("mode", x.mode(0).values)):
        same(cafe.explain(x, baselines=name, target=0), cafe.explain(x, baselines=statistic, target=0))


def test_a_stack_of_baselines_is_averaged_over(model, x):
    stack = torch.randn(3, 1, 4)
    e = CAFE(model).explain(x, baselines=stack, target=0)
    parts = [CAFE(model).explain(x, baselines=b, target=0) for b in stack]
    for name in ("positive", "negative", "combined", "bias_positive", "bias", "baseline_output"):
        close(getattr(e, name), sum(getattr(p, name) for p in parts) / 3)
    close(e.baseline_output + e.bias + e.combined.sum(1), e.output)
    close(CAFE(model).attribute(x, stack, 0), e.combined)
    full = CAFE(model).explain(x, baselines=stack.expand(3, 6, 4), target=0, batch_size=4, show_progress=False)
    same(full, e)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_keep_their_column_names(model, x, frame):
    names = ["age", "height", "weight", "income"]
    data = frame(dict(zip(names, x.numpy().T, strict=True)))
    e = CAFE(model).explain(data)
    assert e.features.names == tuple(names)
    same(e, CAFE(model).explain(x))
    same(e, CAFE(model).explain(x.numpy()))
    table = e.to_frame()
    assert list(table.columns) == ["row", "target", "feature", "value", "baseline", "positive", "negative", "combined"]
    assert list(table.feature[:5]) == [*names, "(bias)"]
    sums = table.groupby("row").combined.sum().to_numpy() + e.baseline_output.numpy()
    np.testing.assert_allclose(sums, e.output.numpy())
    np.testing.assert_allclose(table[table.feature == "age"].value, x[:, 0].numpy())
    float32 = CAFE(models.mlp(4, 2).float()).explain(data)
    assert float32.positive.dtype == torch.float32


def test_integer_columns_of_a_frame_are_quantities(model):
    e = CAFE(model).explain(pd.DataFrame({"a": [1, 2], "b": [True, False], "c": [0.5, 1.5], "d": [3, 4]}))
    close(e.inputs, torch.tensor([[1, 1, 0.5, 3], [2, 0, 1.5, 4.0]]))


def test_feature_groups(model, x):
    e = CAFE(model).explain(x, feature_names=list("abcd"))
    grouped = CAFE(model).explain(x, feature_names=list("abcd"), feature_groups={"ends": ["a", "d"]})
    assert grouped.features.names == ("ends", "b", "c")
    close(grouped.positive, torch.stack([e.positive[:, 0] + e.positive[:, 3], e.positive[:, 1], e.positive[:, 2]], 1))
    close(grouped.negative[:, 0], e.negative[:, 0] + e.negative[:, 3])
    close(grouped.s_conf, e.s_conf)
    by_mask = CAFE(model).explain(x, feature_groups=torch.tensor([0, 1, 2, 0]))
    close(by_mask.combined, grouped.combined)
    assert by_mask.feature_names == ("group 0", "group 1", "group 2")
    assert len(grouped.to_frame()) == 6 * 4
    image = CAFE(nn.Sequential(nn.Flatten(), nn.Linear(16, 1))).explain(
        torch.randn(2, 1, 4, 4), feature_groups=torch.arange(4).view(1, 4, 1)
    )
    assert image.positive.shape == (2, 4)


def test_start_at_a_hidden_layer(model, x):
    e = CAFE(model, 1.0).explain(x, target=2, layer="1")
    hidden = model[:2](x).detach()
    expected = CAFE(model[2:], 1.0).explain(hidden, target=2)
    same(e, expected)
    close(e.inputs, hidden)
    baseline = torch.randn(1, 8)
    same(CAFE(model).explain(x, baseline, 2, layer="1"), CAFE(model[2:]).explain(hidden, baseline, 2))


def test_report_at_a_hidden_layer(model, x):
    e = CAFE.published(model).explain_layer(x, "1", target=2, from_inputs=True)
    whole = CAFE.published(model).explain(x, target=2)
    assert e.positive.shape == (6, 8)
    later = sum(whole.bias_by_layer[name][:, 2] for name in ("2", "4"))
    close(e.combined.sum(1) + later, whole.output - whole.baseline_output)
    assert (e.bias_by_layer["0"] == 0).all() or "0" not in e.bias_by_layer


def test_a_neuron_of_a_hidden_layer_as_target(model, x):
    e = CAFE(model).explain(x, target=5, target_layer="2")
    same(e, CAFE(model[:3]).explain(x, target=5))
    both = CAFE(model).explain(x, target=3, layer="0", target_layer="2")
    same(both, CAFE(model[1:3]).explain(model[0](x).detach(), target=3))
    same(e, CAFE(model).explain_neuron(x, "2", target=5))
    with pytest.raises(ValueError, match=r"explain_neuron\(..., layer='2', target=None\): the layer has \d+ units"):
        CAFE(model).explain_neuron(x, "2")
    with pytest.raises(ValueError, match=r"explain_neuron\(..., layer='99'\): the model has no such module"):
        CAFE(model).explain_neuron(x, "99", target=0)


def test_habits_from_captum_and_shap_are_told_the_name_here(model, x):
    with pytest.raises(ValueError, match=r"explain_layer\(..., layer=...\): give the name of the layer, .*: layer='2'\."):
        CAFE(model).explain_layer(x, model[2])
    with pytest.raises(TypeError, match=r"feature_mask=...\): unknown parameter. It is feature_groups= here."):
        CAFE(model).explain(x, feature_mask=torch.arange(4))
    with pytest.raises(TypeError, match=r"sweep\(..., n_steps=...\): unknown parameter. There are no steps"):
        CAFE(model).sweep(x, c=[0.5], n_steps=50)


def test_c_by_module_name(x):
    model = models.mlp(4, 8, 8, 8, 3)
    same(CAFE(model, {"*": 0.2}).explain(x, target=0), CAFE(model, 0.2).explain(x, target=0))
    same(CAFE(model, {"1": 0.5}).explain(x, target=0), CAFE(model, 0.5).explain(x, target=0))
    specific = CAFE(model, {"*": 1.0, "1": 0.0, "[35]": 0.0}).explain(x, target=0)
    same(specific, CAFE(model, 0.0).explain(x, target=0))
    nested = nn.ModuleDict({"encoder": models.mlp(4, 8, 8), "head": nn.Linear(8, 1)})
    run = CAFE(_Chain(nested), {"nets.encoder.*": 0.0})
    same(run.explain(x), CAFE(_Chain(nested), 0.0).explain(x))


class _Chain(nn.Module):
    def __init__(self, nets):
        super().__init__()
        self.nets = nets

    def forward(self, x):
        return self.nets["head"](self.nets["encoder"](x))


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()])
def test_a_final_softmax_or_sigmoid_is_left_out_and_said(model, x, last):
    e = CAFE(nn.Sequential(*model, last)).explain(x, target=1)
    same(e, CAFE(model).explain(x, target=1))
    assert "logit" in e.notes[0]
    for shaped in (
        lambda v: last(model(v))[:, 1],
        lambda v: last(model(v))[:, 1:2].squeeze(-1),
        lambda v: last(model(v)).unsqueeze(2)[:, 1, 0],
    ):
        same(CAFE(shaped).explain(x), CAFE(model).explain(x, target=1))
    assert CAFE(model).explain(x, conflict="net").notes == ()


def test_a_sigmoid_inside_is_an_activation(x):
    model = models.mlp(4, 8, 2, activation=nn.Sigmoid)
    e = CAFE.published(model).explain(x, target=0)
    assert not any("left out" in note for note in e.notes)
    close(e.baseline_output, (model[2].weight[0] / 2).sum().expand(6).detach())


def test_what_is_frozen_is_listed(x):
    def gated(v):
        share = torch.softmax(v, 1)
        keep = v > 0
        return (v * share * keep).sum(1) + v.detach()[:, 0] + v.sum().item()

    e = CAFE.published(gated).explain(x[:1])
    text = " ".join(e.frozen)
    for name in ("softmax", "gt", "detach", "item"):
        assert name in text


def test_batches_progress_and_slices(model, x, capsys):
    whole = CAFE(model).explain(x)
    batched = CAFE(model).explain(x, batch_size=4, show_progress=True)
    assert "explaining" in capsys.readouterr().err
    same(whole, batched)
    assert torch.equal(whole.target, batched.target)
    assert len(whole[2]) == 1
    assert len(whole[1:4]) == 3
    close(whole[-1].combined, whole.combined[-1:])
    close(whole[[0, 2]].positive, whole.positive[[0, 2]])
    close(whole[1:4].bias, whole.bias[1:4])
    with pytest.raises(IndexError, match="6 rows"):
        whole[6]


def test_save_and_load(model, x, tmp_path):
    for e in (
        CAFE(model, {"1": 0.25}).explain(pd.DataFrame(x.numpy(), columns=list("abcd")), baselines=torch.randn(1, 4)),
        CAFE(lambda a, b: model(a * b)).explain((x, x + 1), target=1),
    ):
        e.save(tmp_path / "e.safetensors")
        loaded = Explanation.load(tmp_path / "e.safetensors")
        assert loaded.features.names == e.features.names
        assert loaded.meta.settings == e.meta.settings
        assert loaded.frozen == e.frozen
        assert loaded.notes == e.notes
        assert loaded.checks.output_error == e.checks.output_error
        assert list(loaded.bias_by_layer) == list(e.bias_by_layer)
        for name in ("positive", "negative", "combined", "inputs", "baselines"):
            for one, two in zip(e.parts(getattr(e, name)), loaded.parts(getattr(loaded, name)), strict=True):
                assert torch.equal(one, two)
        assert torch.equal(loaded.bias, e.bias)
        assert torch.equal(loaded.target, e.target)
    (tmp_path / "junk").write_bytes(b"\x80\x04pickle")
    with pytest.raises(ValueError, match="not a safetensors file"):
        Explanation.load(tmp_path / "junk")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(ValueError, match="not written by"):
        Explanation.load(tmp_path / "other")


def test_convergence_delta(model, x):
    scores, delta = CAFE(model).attribute(x, target=0, return_convergence_delta=True)
    e = CAFE(model).explain(x, target=0)
    close(scores, e.combined)
    close(delta, (scores.sum(1) + e.bias) - (e.output - e.baseline_output), atol=1e-12, rtol=0)


def test_supported_reports_without_explaining(x):
    class Two(nn.Module):
        def forward(self, v):
            a = torch.linalg.inv(v.unsqueeze(2) * v.unsqueeze(1) + torch.eye(4)).sum((1, 2))
            return torch.logcumsumexp(v, 1)[:, -1] + a

    report = cafexai.supported(nn.Sequential(nn.Linear(4, 4), Two()), x)
    assert not report
    assert {p.function.split(".")[-1] for p in report.problems} == {"inv", "logcumsumexp"}
    assert all(p.module == "1" for p in report.problems)
    assert "test_api.py" in report.problems[0].where
    assert report.operations["linear"] == 1
    assert "logcumsumexp" in str(report)
    fine = cafexai.supported(models.mlp(4, 8, 2), x)
    assert fine
    assert fine.operations == {"linear": 2, "relu": 1}


def test_supported_looks_at_the_outputs_too(x):
    layer = nn.Linear(4, 4)
    for model, why in (
        (lambda v: (layer(v).T @ v) @ v.sum(0), "rows depend on each other"),
        (lambda v: layer(v.detach()), "no output depends on the input"),
    ):
        report = cafexai.supported(model, x)
        assert not report
        assert why in str(report)


def test_what_runs_by_itself_but_not_under_explanation_is_refused_in_our_words(x):
    def picky(v):
        if type(v) is not torch.Tensor:
            raise TypeError("only plain tensors here")
        return v.sum(1)

    with pytest.raises(cafexai.UnsupportedOperation, match=r"(?s)runs on plain tensors.*only plain tensors.*explain_layer"):
        CAFE(picky).explain(x)
    assert "only plain tensors" in str(cafexai.supported(picky, x))
    with pytest.raises(ZeroDivisionError):
        CAFE(lambda v: v.sum(1) / (1 // 0)).explain(x)


def test_random_numbers_that_follow_the_memory_are_told(x):
    def noisy(v):
        apart = v if type(v) is torch.Tensor else v.t().contiguous().t()  # lies otherwise under explanation
        return (v * torch.randn_like(apart.detach())).sum(1)

    with pytest.raises(cafexai.UnsupportedOperation, match=r"(?s)draws random numbers.*additional_forward_args"):
        CAFE(noisy).explain(x)


def test_a_rule_of_ones_own(x):
    from cafexai.rules import registry

    with pytest.raises(cafexai.UnsupportedOperation):
        CAFE(lambda v: torch.special.bessel_j0(v).sum(1)).explain(x)
    try:

        @cafexai.rule(torch.special.bessel_j0)
        def bessel(v):
            return v.elementwise(torch.special.bessel_j0)

        e = CAFE(lambda v: torch.special.bessel_j0(v).sum(1)).explain(x, check="each")
        assert e.completeness_error.abs().max() < 1e-12
    finally:
        del registry.TABLE[torch.special.bessel_j0]


def test_equal_inputs_give_bit_equal_results(model, x):
    one, two = CAFE(model).explain(x), CAFE(model).explain(x.clone())
    for name in ("positive", "negative", "combined", "bias"):
        assert torch.equal(getattr(one, name), getattr(two, name))


def test_report_at_a_layer_with_a_bias_of_its_own(model, x):
    e = CAFE.published(model).explain_layer(x, "2", target=1, from_inputs=True)
    later = CAFE.published(model).explain(x, target=1).bias_by_layer["4"][:, 2]
    close(e.combined.sum(1) + later, e.output - e.baseline_output)


def test_names_of_the_input_do_not_name_a_hidden_layer(model, x):
    frame = pd.DataFrame(x.numpy(), columns=list("abcd"))
    e = CAFE(model).explain(frame, layer="1")
    assert e.features.names is None
    assert len(e.to_frame()) == 6 * 9
    assert "x0" in e.ledger(0)


def test_groups_have_no_single_value(model, x):
    e = CAFE(model).explain(x, feature_groups=torch.tensor([1, 1, 0, 0]))
    assert "value" not in e.to_frame().columns
    assert e.values() is None
    alone = CAFE(model).explain(x, feature_groups=torch.tensor([3, 2, 1, 0]))
    assert alone.feature_names == ("group 0", "group 1", "group 2", "group 3")
    assert alone.values(1) == x[1].flip(0).tolist()


def test_display_units(model, x):
    e = CAFE(model).explain(x, display=x * 10 + 100)
    np.testing.assert_allclose(e.to_frame().value[:4], (x[0] * 10 + 100).numpy())
    with pytest.raises(ValueError, match="display"):
        CAFE(model).explain(x, display=x[:2])


def test_an_output_selector_may_compute(model, x):
    e = CAFE(lambda v: (model(v), v)).explain(x, output=lambda out: out[0][:, 0] - out[0][:, 1])
    difference = CAFE(model).explain(x, target=0).combined - CAFE(model).explain(x, target=1).combined
    close(e.combined, difference)


def test_targets_from_the_end_and_by_columns(x):
    model = models.mlp(4, 6, 3)
    last = CAFE(model).explain(x, target=2)
    assert torch.equal(CAFE(model).explain(x, target=-1).positive, last.positive)
    assert CAFE(model).explain(x, target=[-1] * len(x)).target.unique().item() == 2

    def wide(v):
        return model(v)[:, :, None] * torch.tensor([1.0, 2.0])

    by_tuple = CAFE(wide).explain(x, target=(2, 1))
    columns = ([2] * len(x), torch.ones(len(x), dtype=torch.long))
    assert torch.equal(CAFE(wide).explain(x, target=columns).positive, by_tuple.positive)


def test_a_replaced_explainer_and_copies(x):
    import copy

    model = models.mlp(4, 6, 3)
    cafe = CAFE(model, 0.5).replace(c=1.0)
    e = cafe.explain(x, target=0)
    assert torch.equal(e.positive, CAFE(model, 1.0).explain(x, target=0).positive)
    assert torch.equal(cafe.attribute(x, target=0), e.combined)
    by_name = CAFE(model, {"1": 0.0})
    again = copy.deepcopy(by_name)  # its modules are others
    published = again.replace(variant="published")
    assert torch.equal(by_name.explain(x, target=0).positive, again.explain(x, target=0).positive)
    assert list(published.explain(x, target=0).bias_by_layer) == ["0", "2"]
    model[1] = torch.nn.Tanh()
    assert torch.equal(by_name.explain(x, target=0).positive, CAFE(model, {"1": 0.0}).explain(x, target=0).positive)


def test_masks_of_groups_may_have_a_row_in_front():
    """(1, features) is the mask of a row; one number is one group of all; masks of several rows are refused."""
    model, x = models.mlp(4, 8, 2), torch.randn(3, 4)
    mask = torch.tensor([0, 1, 1, 0])
    expected = CAFE(model).explain(x, target=0, feature_groups=mask).combined
    for same in (mask[None], mask.tolist(), mask.numpy()):
        assert torch.equal(CAFE(model).explain(x, target=0, feature_groups=same).combined, expected)
    whole = CAFE(model).explain(x, target=0, feature_groups=torch.tensor([7]))
    assert whole.features.names == ("group 7",)
    torch.testing.assert_close(whole.combined[:, 0], expected.sum(1))
    image = torch.randn(2, 1, 4)
    rows = CAFE(nn.Flatten()).explain(image, target=0, feature_groups=torch.tensor([[0, 0, 1, 1]]))
    assert rows.combined.shape == (2, 2)
    for wrong in (mask.expand(2, 4), mask[:3], mask[None, None]):
        with pytest.raises(ValueError, match="does not fit one row"):
            CAFE(model).explain(x, target=0, feature_groups=wrong)


def test_errors_are_combined_over_baselines():
    """The mean of what is missing, which is a sum of scores, and the worst output."""
    model, x, stack = models.mlp(6, 64, 64, 2).float(), torch.randn(5, 6).float(), torch.randn(4, 6).float()
    each = [CAFE.published(model).explain(x, one, target=0) for one in stack]
    e = CAFE.published(model).explain(x, stack[:, None].expand(4, 5, 6), target=0)
    lacks = torch.stack([one.completeness_error for one in each])
    assert not torch.equal(lacks[0], lacks.mean(0))
    torch.testing.assert_close(e.completeness_error, lacks.mean(0), rtol=1e-6, atol=1e-12)
    worst = [one.checks.output_error for one in each]
    assert len(set(worst)) > 1
    assert worst[0] < max(worst)
    assert e.checks.output_error == max(worst)


def test_outputs_by_path():
    layer = nn.Linear(4, 6).double()

    class Out:
        def __init__(self, logits):
            self.logits = logits

    model = lambda v: {"a": Out(layer(v).view(-1, 2, 3)), "b c": [v, layer(v)], "logits[0]": layer(v)}  # noqa: E731
    x = torch.randn(3, 4)
    paths = {
        "a.logits[:, -1]": lambda out: out["a"].logits[:, -1],
        "a.logits[:, 0, ::2]": lambda out: out["a"].logits[:, 0, ::2],
        "['b c'][-1]": lambda out: out["b c"][1],
        "logits[0]": lambda out: out["logits[0]"],  # a key as it is
        " a.logits[..., 1] ": lambda out: out["a"].logits[..., 1],
    }
    for path, function in paths.items():
        one, other = (CAFE(model).explain(x, target=-1, output=output) for output in (path, function))
        assert torch.equal(one.positive, other.positive)
    for bad in ("a.logit", "c", "a.logits[:, 7]", "a.logits[f()]", "a.__class__", "a.logits.sum()", "a.logits[", "a + b", ""):
        with pytest.raises(ValueError, match="output="):
            CAFE(model).explain(x, target=-1, output=bad)
