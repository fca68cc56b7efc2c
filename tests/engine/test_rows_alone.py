"""Rows that cannot be told apart in one batch: each is explained by itself, if the model gives the same for it alone."""

import pytest
import torch
from torch import nn

import cafexai
from cafexai import CAFE

FRAMES, PARTS, WIDTH = 3, 4, 6
X = torch.randn(2, FRAMES, PARTS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Frames(nn.Module):
    """Frames are folded into the batch, behind a token that is the same for all; ``strict`` takes that of its own frames."""

    def __init__(self, strict: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.strict = strict
        self.token, self.place = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 1 + PARTS, WIDTH))
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        rows = len(x)
        folded = x.flatten(0, 1)
        folded = torch.cat([self.token.expand(len(folded), -1, -1), folded], 1) + self.place
        tokens = folded[::FRAMES, :1] if self.strict else folded[:rows, :1]  # the first rows are frames of the first row
        parts = folded[:, 1:].unflatten(0, (rows, FRAMES)).flatten(1, 2)
        return self.head(torch.tanh(self.inner(torch.cat([tokens, parts], 1))).mean(1))


@pytest.mark.parametrize("cafe", [CAFE, CAFE.published, lambda model: CAFE(model, 1.0, "published", netting="feature")])
def test_a_constant_that_is_taken_from_the_frames_of_another_row(cafe):
    loose, strict = cafe(Frames(False)), cafe(Frames(True))
    torch.testing.assert_close(loose.model(X), strict.model(X))
    e, twin = loose.explain(X, target=1), strict.explain(X, target=1)
    for name in ("positive", "negative", "bias", "output"):
        torch.testing.assert_close(getattr(e, name), getattr(twin, name), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(loose.attribute(X, target=1), e.combined, rtol=1e-4, atol=1e-6)
    assert any("explained by itself" in note for note in e.notes)
    assert not any("explained by itself" in note for note in twin.notes)
    assert cafexai.supported(loose.model, X)


def test_every_row_has_its_own_target_and_reference():
    model, baselines = Frames(False), X.flip(1)
    e = CAFE(model).explain(X, baselines, target=torch.tensor([2, 0]))
    for row, target in enumerate([2, 0]):
        alone = CAFE(model).explain(X[row : row + 1], baselines[row : row + 1], target=target)
        torch.testing.assert_close(e.positive[row], alone.positive[0])


def test_rows_that_do_depend_on_each_other_are_refused_as_before():
    """Also by a little, and where a row alone gives an output of another shape or none."""
    model = Frames(True)
    for mixed in (
        lambda x: model(x) + 0.01 * model(x).mean(0),
        lambda x: model(x) @ model(x).T,
        lambda x: model(x).flip(0) if len(x) == 2 else 1 / 0,
    ):
        with pytest.raises(ValueError, match=r"rows depend on each other.*batch_size=1"):
            CAFE(mixed).explain(X, target=0)
        assert not cafexai.supported(lambda x, f=mixed: f(x) @ f(x).T, X)


def test_what_others_add_below_the_rounding_of_outputs_is_still_theirs():
    """In float32 an explained output may be 2.4e-4 away from that of the model: too far for a row to be the same alone."""
    model, x = Frames(False).float(), X.float()
    assert any("explained by itself" in note for note in CAFE(model).explain(x, target=0).notes)

    def mixed(v):
        return model(v) + 1e-3 * model(v).mean(0)

    with torch.no_grad():
        away = (mixed(x) - torch.cat([mixed(row[None]) for row in x])).abs().max() / mixed(x).abs().max()
    assert 2e-5 < away < 2e-4
    with pytest.raises(ValueError, match=r"rows depend on each other.*batch_size=1"):
        CAFE(mixed).explain(x, target=0)


def test_dropout_in_place_that_is_switched_off_changes_no_softmax():
    class Attention(nn.Module):
        def __init__(self, in_place: bool) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.queries, self.values = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
            self.drop = nn.Dropout(0.5, inplace=in_place)

        def forward(self, x):
            weights = self.drop((self.queries(x) @ x.transpose(1, 2)).softmax(-1))
            return (weights @ self.values(x)).mean(1)

    x = X[:, 0]
    e, twin = (CAFE(Attention(in_place).eval()).explain(x, target=1) for in_place in (True, False))
    torch.testing.assert_close(e.positive, twin.positive)
    torch.testing.assert_close(e.negative, twin.negative)

    def halved(v):
        weights = (v @ v.transpose(1, 2)).softmax(-1)
        weights *= 0.5
        return (weights @ v).mean(1)

    with pytest.raises(cafexai.UnsupportedOperation, match="changed in place"):
        CAFE.published(halved).explain(x, target=1)
    e, twin = (CAFE(f).explain(x, target=1) for f in (halved, lambda v: ((v @ v.mT).softmax(-1) * 0.5 @ v).mean(1)))
    torch.testing.assert_close(e.combined, twin.combined)  # open weights may be changed
