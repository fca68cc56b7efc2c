"""Missing values in models that handle them: missing in the baseline, too, so that they have no score."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from batch_files import read, refused, table
from cafexai import CAFE, Column, Schema
from cafexai.batch import score
from cafexai.serving.rows import Answerer


class Handles(nn.Module):
    """A network behind one of the ways to handle missing values."""

    def __init__(self, kind, dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(dtype)
        self.kind = kind

    def forward(self, x):
        if self.kind == "nan_to_num":
            x = torch.nan_to_num(x, 0.7)
        elif self.kind == "where":
            x = torch.where(x.isnan(), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=x.dtype), x)
        elif self.kind == "masked_fill":
            x = x.masked_fill(x.isnan(), 0.7)
        elif self.kind == "flag":
            x = torch.where(x.isnan(), 0.0, x) + 0.3 * x.isnan().to(x.dtype)
        elif self.kind == "ignore":
            x = torch.cat([x[:, :1], x[:, :1], x[:, 2:]], 1)
        return self.net(x)


class WithGaps(nn.Module):
    """The twin: the model as a function of what is there; what is missing is a constant."""

    def __init__(self, model, missing):
        super().__init__()
        self.model, self.missing = model, missing

    def forward(self, z):
        return self.model(torch.where(self.missing, torch.nan, z))


@pytest.mark.parametrize("kind", ["nan_to_num", "where", "masked_fill", "flag", "ignore"])
@pytest.mark.parametrize("variant", ["default", "feature"])
def test_scores_are_those_of_the_model_of_what_is_there(kind, variant):
    torch.manual_seed(1)
    x, baseline = torch.randn(5, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    missing = torch.zeros(5, 4, dtype=torch.bool)
    missing[:, 1] = True
    if kind != "ignore":
        missing[0], missing[2] = True, False
    gaps, model = x.masked_fill(missing, torch.nan), Handles(kind).eval()
    with pytest.raises(ValueError, match=r"holds nan .* allow_nan=True"):
        CAFE(model, variant=variant).explain(gaps)
    e = CAFE(model, variant=variant, allow_nan=True).explain(gaps, baselines=baseline, target=1)
    twin = CAFE(WithGaps(model, missing), variant=variant).explain(x, baselines=baseline, target=1, batch_size=5)
    for name in ("positive", "negative", "combined", "output", "baseline_output", "conflict"):
        torch.testing.assert_close(getattr(e, name), getattr(twin, name), rtol=1e-10, atol=1e-12)
    assert (e.positive[missing] == 0).all()
    assert (e.negative[missing] == 0).all()
    torch.testing.assert_close(e.output, model(gaps)[:, 1])
    torch.testing.assert_close(e.baseline_output + e.combined.sum(1) + e.bias, e.output)
    one = CAFE(model, variant=variant, allow_nan=True).explain(gaps, baselines=baseline, target=1, batch_size=1)
    torch.testing.assert_close(one.combined, e.combined)


@given(st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 100))
def test_any_pattern_adds_up(pattern, seed):
    torch.manual_seed(seed)
    x = torch.randn(1, 4, dtype=torch.float64).masked_fill(torch.tensor([pattern]), torch.nan)
    model = Handles("where").eval()
    e = CAFE(model, allow_nan=True).explain(x)
    assert torch.isfinite(e.combined).all()
    torch.testing.assert_close(e.baseline_output + e.combined.sum(1) + e.bias, e.output)
    assert (e.combined[torch.tensor([pattern])] == 0).all()


def test_it_changes_nothing_where_nothing_is_missing():
    x, model = torch.randn(3, 4, dtype=torch.float64), Handles("where").eval()
    assert CAFE(model, allow_nan=True).explain(x).combined.equal(CAFE(model).explain(x).combined)


def _refuses(x):
    if bool(x.isnan().any()):
        raise RuntimeError("no gaps")
    return x


def test_a_model_that_does_not_handle_them_is_refused():
    x = torch.tensor([[1.0, torch.nan, 0.0, 1.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"'x1' is missing, and the model does not handle that \(its output is not finite\)"):
        CAFE(Handles("none").eval(), allow_nan=True, feature_names=["x0", "x1", "x2", "x3"]).explain(x)
    with pytest.raises(ValueError, match=r"are missing, and the model does not handle that \(RuntimeError: no gaps\)"):
        CAFE(_refuses, allow_nan=True).explain(torch.stack([x[0], x[0].flip(0)]))
    told = Answerer(CAFE(Handles("none", torch.float32).eval(), allow_nan=True), list("abcd"))([[1.0, None, 0.5, 2.0]])
    assert "'b' is missing, and the model does not handle that" in told[0]["error"]
    with pytest.raises(ValueError, match="holds inf"):
        CAFE(Handles("where").eval(), allow_nan=True).explain(x.masked_fill(x.isnan(), torch.inf))


def test_batch_and_serve_take_missing_numbers_if_told_to(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    x[3, 1], x[5, 2] = np.nan, np.inf
    cafe = CAFE(Handles("where", torch.float32).eval())
    table(x).to_pandas().to_parquet(tmp_path / "in.parquet")
    lenient = cafe.replace(allow_nan=True)
    for name, own, expected in (("plain", cafe, 2), ("told", lenient, 1)):
        summary = score(own, tmp_path / "in.parquet", tmp_path / name, keep="id", workers=0)
        assert summary.refused == expected
    assert [row["id"] for row in refused(tmp_path / "told")] == [5]
    row = read(tmp_path / "told").to_pylist()[3]
    assert (row["id"], row["net_x1"]) == (3, 0.0)
    told = Answerer(lenient)([[1.0, None, 0.5, 2.0], [1.0, "inf", 0.5, 2.0]])
    assert told[0]["features"][1]["net"] == 0.0
    assert "not finite" in told[1]["error"]
    schema = Schema((Column("a"), Column("b"), Column("c"), Column("d")))
    frame = pd.DataFrame([[1.0, None, 0.5, 2.0]], columns=list("abcd"))
    with_schema = CAFE(cafe.model, schema=schema)
    assert with_schema.replace(allow_nan=True).explain(frame).combined[0, 1] == 0
    with pytest.raises(ValueError, match="is missing"):
        with_schema.explain(frame)
