"""Feature groups that differ from row to row: against one explanation per row, and against loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE

SIDES = ("positive", "negative", "combined")


def cnn(channels=3):
    torch.manual_seed(0)
    parts = nn.Conv2d(channels, 4, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    return nn.Sequential(*parts).double().eval()


def data(rows=4, channels=3):
    torch.manual_seed(1)
    return torch.rand(rows, channels, 6, 6, dtype=torch.float64), torch.randint(0, 5, (rows, 6, 6))


def sums(scores, mask, label):
    """Straight from the definition."""
    return sum(
        scores[channel, y, x].item()
        for channel in range(scores.shape[0])
        for y in range(scores.shape[1])
        for x in range(scores.shape[2])
        if mask[y, x] == label
    )


def test_scores_are_sums_over_the_own_mask_of_each_row():
    x, masks = data()
    masks[2] = 7  # a row of one group, which no other row has
    single, grouped = (CAFE(cnn()).explain(x, target=1, **more) for more in ({}, {"feature_groups": masks}))
    assert grouped.names() == ("group 0", "group 1", "group 2", "group 3", "group 4", "group 7")
    for side in SIDES:
        for row in range(4):
            for place, label in enumerate([0, 1, 2, 3, 4, 7]):
                expected = sums(getattr(single, side)[row], masks[row], label)
                np.testing.assert_allclose(getattr(grouped, side)[row, place].item(), expected, atol=1e-12)
    assert bool((grouped.combined[2, :5] == 0).all())


@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_every_row_is_as_if_explained_alone(batch_size):
    x, masks = data()
    cafe = CAFE(cnn())
    e = cafe.explain(x, target=1, feature_groups=masks, batch_size=batch_size)
    for row in range(4):
        alone = cafe.explain(x[row : row + 1], target=1, feature_groups=masks[row : row + 1])
        places = [e.names().index(name) for name in alone.names()]
        for side in SIDES:
            torch.testing.assert_close(getattr(e, side)[row, places], getattr(alone, side)[0])
        torch.testing.assert_close(e.conflict[row], alone.conflict[0])
        torch.testing.assert_close(e.sides[row], alone.sides[0])
        seen = cafe.check_by_changing(e, row)
        torch.testing.assert_close(seen.observed, cafe.check_by_changing(alone, 0).observed)
        hidden, own = cafe.hidden_conflicts(e[row]), cafe.hidden_conflicts(alone)
        places = [hidden.names[0].index(name) for name in own.names[0]]
        torch.testing.assert_close(hidden.conflict[0][places][:, places], own.conflict[0])


def test_hidden_conflicts_of_all_rows_are_those_of_each():
    x, masks = data()
    cafe = CAFE(cnn())
    e = cafe.explain(x, target=1, feature_groups=masks)
    together = cafe.hidden_conflicts(e)
    for row in range(4):
        torch.testing.assert_close(together.conflict[row], cafe.hidden_conflicts(e[row]).conflict[0])


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 4), st.integers(1, 4), st.booleans())
def test_equal_masks_are_one_mask(rows, channels, extra):
    x, masks = data(rows, channels)
    one = masks[0]
    repeated = one.expand(rows, 6, 6)[:, None] if extra else one.expand(rows, 6, 6)
    cafe = CAFE(cnn(channels))
    for side in SIDES:
        expected = getattr(cafe.explain(x, target=1, feature_groups=one), side)
        torch.testing.assert_close(getattr(cafe.explain(x, target=1, feature_groups=repeated), side), expected)


def test_channels_last_and_tables():
    x, masks = data()
    first = cnn()

    class Last(nn.Module):
        def forward(self, images):
            return first(images.permute(0, 3, 1, 2))

    expected = CAFE(first).explain(x, target=1, feature_groups=masks).combined
    found = CAFE(Last()).explain(x.permute(0, 2, 3, 1).contiguous(), target=1, feature_groups=masks).combined
    torch.testing.assert_close(found, expected)
    line = nn.Linear(3, 1, bias=False).double()
    rows = torch.randn(2, 3, dtype=torch.float64)
    e = CAFE(line).explain(rows, feature_groups=np.array([[0, 0, 1], [1, 0, 1]]))
    parts = rows * line.weight.detach()[0]
    expected = [[parts[0, 0] + parts[0, 1], parts[0, 2]], [parts[1, 1], parts[1, 0] + parts[1, 2]]]
    torch.testing.assert_close(e.combined, torch.tensor(expected, dtype=torch.float64))
    assert e.values(0) is None


def test_as_many_rows_as_channels():
    """(3, 6, 6) for three pictures of three channels: one mask by channel, or a mask per row? Only a dimension more says."""
    x, masks = data(rows=3)
    masks[:, 0, :5] = torch.arange(5)  # no row lacks a group
    cafe = CAFE(cnn())
    with pytest.raises(ValueError, match=r"mask\[None\] for one mask, mask\[:, None\] for one per row"):
        cafe.explain(x, target=1, feature_groups=masks)
    single = cafe.explain(x, target=1)
    shared, own = (cafe.explain(x, target=1, feature_groups=mask) for mask in (masks[None], masks[:, None]))
    for row in range(3):
        for label in range(5):
            expected = sums(single.combined[row], masks[row], label)
            np.testing.assert_allclose(own.combined[row, label].item(), expected, atol=1e-12)
            expected = sum(sums(single.combined[row, c : c + 1], masks[c], label) for c in range(3))
            np.testing.assert_allclose(shared.combined[row, label].item(), expected, atol=1e-12)
    same = masks[:1].expand(3, 6, 6)  # all channels, or all rows, alike: both readings agree
    expected = cafe.explain(x, target=1, feature_groups=masks[0]).combined
    torch.testing.assert_close(cafe.explain(x, target=1, feature_groups=same).combined, expected)
    with pytest.raises(ValueError, match="may be one mask for all rows, or one per row"):
        cafe.explain(x, target=1, feature_groups=torch.arange(3)[:, None, None])  # a group per channel, or per row
    by_channel = cafe.explain(x[:2], target=1, feature_groups=torch.arange(3)[:, None, None])  # other readings do not fit
    torch.testing.assert_close(by_channel.combined, single.combined[:2].sum((2, 3)))


def test_as_many_rows_as_the_picture_is_high():
    first = cnn()
    cafe = CAFE(lambda images: first(images.permute(0, 3, 1, 2)))
    x, _ = data(rows=6)
    x, lines = x.permute(0, 2, 3, 1).contiguous(), torch.arange(6)[:, None, None].expand(6, 6, 1)
    with pytest.raises(ValueError, match=r"mask\[None\] for one mask, mask\[\.\.\., None\] for one per row"):
        cafe.explain(x, target=1, feature_groups=lines)
    single = cafe.explain(x, target=1).combined
    shared, own = (cafe.explain(x, target=1, feature_groups=mask).combined for mask in (lines[None], lines[..., None]))
    torch.testing.assert_close(shared, single.sum((2, 3)))
    torch.testing.assert_close(own, single.sum((1, 2, 3)).diag())


def test_blocks_with_a_mask_per_row():
    x, masks = data()
    masks[:, 0, :5] = torch.arange(5)
    cafe = CAFE(cnn())
    together = cafe.explain_blocks(x, target=1, feature_groups=masks)
    for row in range(len(x)):
        alone = cafe.explain_blocks(x[row : row + 1], target=1, feature_groups=masks[row][None])
        torch.testing.assert_close(together.combined[row : row + 1], alone.combined)


def test_errors_say_what_to_do():
    x, masks = data()
    with pytest.raises(ValueError, match="a mask holds integers"):
        CAFE(cnn()).explain(x, target=1, feature_groups=masks.double())
    with pytest.raises(ValueError, match=r"does not fit one row.*mask per row"):
        CAFE(cnn()).explain(x, target=1, feature_groups=masks[:3, :, :5])
    with pytest.raises(ValueError, match="same groups in all rows"):
        CAFE(cnn(), variant="feature").explain(x, target=1, feature_groups=masks)
    cafe = CAFE(cnn())
    with pytest.raises(ValueError, match="differ from row to row"):
        cafe.refine(cafe.explain(x, target=1, feature_groups=masks), 4)
