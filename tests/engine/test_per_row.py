"""Rows in chunks: further arguments that belong to rows or do not, and models that count their rows."""

import pytest
import torch
from torch import nn

from cafexai import CAFE

torch.manual_seed(0)
X = torch.randn(3, 3, dtype=torch.float64) * 3


class Scaled(nn.Module):
    """``scale`` has one entry per feature, ``weight`` one per row."""

    def __init__(self, features=3):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(features, 4).double(), nn.Linear(4, 1).double()

    def forward(self, x, scale=None, weight=None):
        x = x if scale is None else x * scale
        out = self.last(torch.tanh(self.first(x)))
        return out if weight is None else out * weight[:, None]


SCALE = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
WEIGHT = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


@pytest.mark.parametrize("rows", [2, 3, 6])
@pytest.mark.parametrize("size", [1, 2])
def test_an_argument_that_is_as_long_by_chance_stays_whole(rows, size):
    x, scale = torch.randn(rows, rows, dtype=torch.float64), torch.rand(rows, dtype=torch.float64) * 5
    model = Scaled(rows)
    whole = CAFE(model).explain(x, additional_forward_args=scale)
    e = CAFE(model).explain(x, additional_forward_args=scale, batch_size=size)
    torch.testing.assert_close(e.output, model(x, scale)[:, 0])
    torch.testing.assert_close(e.combined, whole.combined)


def test_an_argument_with_one_entry_per_row_is_cut():
    model = Scaled()
    e = CAFE(model).explain(X, additional_forward_args={"weight": WEIGHT}, batch_size=1)
    torch.testing.assert_close(e.output, model(X, weight=WEIGHT)[:, 0])


def test_what_the_outputs_do_not_tell_is_asked_and_said():
    cafe, arguments = CAFE(Scaled()), {"scale": SCALE, "weight": WEIGHT}
    with pytest.raises(ValueError, match=r"'scale', 'weight' are as long as there are rows.*per_row=\['scale', 'weight'\]"):
        cafe.explain(X, additional_forward_args=arguments, batch_size=1)
    e = cafe.replace(per_row=["weight"]).explain(X, additional_forward_args=arguments, batch_size=1)
    torch.testing.assert_close(e.output, cafe.model(X, SCALE, WEIGHT)[:, 0])
    by_place = cafe.replace(per_row=[1]).explain(X, additional_forward_args=(SCALE, WEIGHT), batch_size=1)
    assert torch.equal(by_place.combined, e.combined)
    for wrong in (["mask"], [5]):
        with pytest.raises(ValueError, match="is not there, or no tensor"):
            cafe.replace(per_row=wrong).explain(X, additional_forward_args=arguments, batch_size=1)
    with pytest.raises(ValueError, match=r"has the shape \(2,\); there are 3 rows"):
        cafe.replace(per_row=["weight"]).explain(X, additional_forward_args={"weight": WEIGHT[:2]})
    with pytest.warns(DeprecationWarning, match=r"Write CAFE\(model, per_row=\.\.\.\)\.explain"):
        old = cafe.explain(X, additional_forward_args=arguments, batch_size=1, per_row=["weight"])
    assert torch.equal(old.combined, e.combined)


class Masked(nn.Module):
    """Attention over positions, with a mask that all rows have in common."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.qkv, self.end = nn.Linear(2, 6).double(), nn.Linear(2, 1).double()

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.end(((q @ k.mT + mask).softmax(-1) @ v).mean(1))


@pytest.mark.parametrize("size", [1, 2])
def test_an_attention_mask_where_there_are_as_many_rows_as_positions(size):
    x, mask = torch.randn(4, 4, 2, dtype=torch.float64), torch.full((4, 4), -1e9, dtype=torch.float64).triu(1)
    model = Masked()
    e = CAFE(model).explain(x, additional_forward_args=mask, batch_size=size)
    torch.testing.assert_close(e.output, model(x, mask)[:, 0])


class Counts(nn.Module):
    """More than ``most`` rows get something else."""

    def __init__(self, most):
        super().__init__()
        torch.manual_seed(1)
        self.body, self.most = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double(), most

    def forward(self, x):
        return self.body(x) + 1.08 * (len(x) > self.most)


def test_a_model_that_counts_more_rows_than_a_chunk_has():
    x, model = torch.randn(30, 3, dtype=torch.float64), Counts(10)
    e = CAFE(model).explain(x, batch_size=10)
    assert any("other outputs for the same rows in another batch" in note for note in e.notes)
    assert not CAFE(Counts(100)).explain(x, batch_size=10, conflict="net").notes


def test_a_model_that_counts_rows_is_explained_in_one_piece_where_chunks_were_not_asked_for(monkeypatch):
    from cafexai._engine import batches

    monkeypatch.setattr(batches, "TABLE", 64)
    monkeypatch.setattr(batches, "WORTH", 1)
    x, model = torch.randn(64, 3, dtype=torch.float64), Counts(20)
    e = CAFE(model).explain(x)
    torch.testing.assert_close(e.output, model(x)[:, 0])
    assert e.output_error < 1e-9


def test_the_check_is_made_once_per_call():
    calls = []
    model = Scaled()
    model.register_forward_pre_hook(lambda module, args: calls.append(len(args[0])))
    CAFE.published(model).explain(X.repeat(20, 1), batch_size=6, conflict="net")
    assert calls.count(12) == 1
    assert len(calls) == 1 + 2 * 10  # one over two chunks; plain and scored for each chunk
