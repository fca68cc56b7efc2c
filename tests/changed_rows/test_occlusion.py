"""Regions of images set to the baseline: against a loop, on masks and stacks of baselines, and as a picture."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from cafexai import CAFE
from plotting.test_presentation import texts


def cnn(channels=2):
    torch.manual_seed(0)
    parts = nn.Conv2d(channels, 4, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    return nn.Sequential(*parts).double().eval()


def loop(model, x, start, index, target):
    """Straight from the definition."""
    found = []
    for region in range(index.max() + 1):
        changed = x.clone()
        for y, right in np.argwhere(index == region):
            changed[:, y, right] = start[:, y, right]
        found.append((model(x[None]) - model(changed[None]))[0, target].item())
    return found


@pytest.mark.parametrize("options", [{"cells": 3}, {}, {"regions": torch.arange(64).reshape(8, 8) % 5}])
def test_every_region_is_removed_as_in_a_loop(options):
    model, x = cnn(), torch.rand(3, 2, 8, 8, dtype=torch.float64)
    start = torch.rand(2, 8, 8, dtype=torch.float64)
    cafe = CAFE(model)
    e = cafe.explain(x, baselines=start, target=1)
    seen = cafe.occlude_regions(e, 2, **options)
    with torch.no_grad():
        np.testing.assert_allclose(seen.observed, loop(model, x[2], start, seen.index, 1), atol=1e-12)
    assert seen.evaluations == len(seen.names) == seen.index.max() + 1
    assert seen.correlation == pytest.approx(np.corrcoef(seen.predicted, seen.observed)[0, 1])
    assert list(seen.to_frame()["region"]) == list(seen.names)


def test_several_baselines_channels_last_and_differences():
    model, x = cnn(), torch.rand(1, 2, 8, 8, dtype=torch.float64)
    starts = torch.rand(2, 1, 2, 8, 8, dtype=torch.float64)
    cafe = CAFE(model)
    seen = cafe.occlude_regions(cafe.explain(x, baselines=starts, target=1, against=0), cells=2)
    with torch.no_grad():
        each = [[loop(model, x[0], start[0], seen.index, target) for target in (1, 0)] for start in starts]
    np.testing.assert_allclose(seen.observed, np.mean([np.subtract(one, zero) for one, zero in each], 0), atol=1e-12)
    assert seen.evaluations == 8

    def last(images):
        return model(images.permute(0, 3, 1, 2))

    turned = CAFE(last)
    other = turned.occlude_regions(turned.explain(x.permute(0, 2, 3, 1), target=1), cells=2)
    with torch.no_grad():
        np.testing.assert_allclose(other.observed, loop(model, x[0], torch.zeros_like(x[0]), other.index, 1), atol=1e-12)


def test_a_linear_model_loses_what_the_scores_say():
    line = nn.Sequential(nn.Flatten(), nn.Linear(128, 1)).double()
    cafe = CAFE(line)
    seen = cafe.occlude_regions(cafe.explain(torch.rand(1, 2, 8, 8, dtype=torch.float64)), cells=4)
    np.testing.assert_allclose(seen.predicted, seen.observed, atol=1e-12)
    assert seen.correlation == pytest.approx(1)


def test_the_picture_shows_both_on_one_scale():
    cafe = CAFE(cnn())
    e = cafe.explain(torch.rand(2, 2, 8, 8, dtype=torch.float64), target=1)
    drawn = e.plot(1, cells=4, check=cafe)
    seen = cafe.occlude_regions(e, 1, cells=4)
    assert f"correlation with the scores {seen.correlation:.2f}" in texts(drawn)
    ends = [axis.get_xlim() for axis in drawn.axes if axis.get_label() == "<colorbar>"]
    end = max(np.abs(seen.predicted).max(), np.abs(seen.observed).max())
    assert ends[1] == ends[2] == pytest.approx((-end, end))


def test_what_cannot_be_checked_says_what_to_do():
    cafe = CAFE(cnn())
    x = torch.rand(2, 2, 8, 8, dtype=torch.float64)
    e = cafe.explain(x)
    with pytest.raises(ValueError, match="check=cafe"):
        e.plot(0, check=True)
    for options in ({"view": "detail"}, {"ax": Figure().subplots()}):
        with pytest.raises(ValueError, match="check="):
            e.plot(0, check=cafe, **options)
    with pytest.raises(ValueError, match="for one row"):
        e.plot([0, 1], check=cafe)
    with pytest.raises(ValueError, match="of a layer"):
        cafe.occlude_regions(cafe.explain_layer(x, "0"))
    rows = CAFE(nn.Linear(3, 1))
    table = rows.explain(torch.rand(2, 3))
    with pytest.raises(ValueError, match="check_by_changing"):
        table.plot(0, check=rows)
    with pytest.raises(ValueError, match="for images"):
        rows.occlude_regions(table)


def test_tables_are_drawn_on_given_axes():
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    names = ["age", "dose", "weight"]
    e = CAFE(nn.Linear(3, 1), feature_names=names).explain(torch.rand(2, 3))
    assert e.plot(1, ax=right) is figure
    assert {"age", "dose", "weight"} <= {label.get_text().split(" =")[0] for label in right.get_yticklabels()}
    assert not left.patches
    assert right.get_title()
