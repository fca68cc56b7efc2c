"""Images by region: sums against loops, masks, superpixels, layers, scales, and sizes of figures."""

import matplotlib as mpl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE
from cafexai.plotting import regions as module
from cafexai.plotting.pixels import find_places, maps, visible_image
from cafexai.plotting.regions import Cut, RegionScores, region_scores
from plotting.test_pictures import image, table
from plotting.test_presentation import texts


def sums(e, row, index, side):
    """Straight from the definition: every score is counted to the region of its pixel."""
    scores = getattr(e, side)[row].double()
    found = np.zeros(index.max() + 1)
    for channel in range(scores.shape[0]):
        for y in range(scores.shape[1]):
            for x in range(scores.shape[2]):
                found[index[y, x]] += scores[channel, y, x].item()
    return found


@pytest.mark.parametrize("cut", [Cut(), Cut(cells=3), Cut(cells=100), Cut(regions=torch.arange(64).reshape(8, 8) % 5)])
def test_scores_of_regions_are_sums_over_their_pixels(cut):
    e = image(3)
    found = region_scores(e, 2, cut)
    for side, values in (("positive", found.positive), ("negative", found.negative), ("combined", found.net)):
        np.testing.assert_allclose(values, sums(e, 2, found.index, side), atol=1e-12)
    np.testing.assert_allclose(found.net.sum(), (e.output - e.baseline_output)[2].item(), atol=1e-6)


def test_a_mask_per_row_is_that_of_the_row():
    e = image()
    masks = torch.stack([torch.full((8, 8), row) + torch.eye(8).long() for row in range(3)])
    found = region_scores(e, 1, Cut(regions=masks))
    np.testing.assert_allclose(found.net, sums(e, 1, np.eye(8, dtype=int), "combined"), atol=1e-12)
    assert found.names == ("region 1", "region 2")


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 15))
def test_cells_cover_every_pixel_once_and_differ_by_one_pixel_at_most(height, width, cells):
    from cafexai._inputs.images import grid_cells

    index = grid_cells(height, width, cells).numpy()
    counts = np.bincount(index.ravel())
    assert len(counts) == min(cells, height) * min(cells, width)
    assert counts.min() >= 1
    for cell in range(len(counts)):
        ys, xs = np.nonzero(index == cell)
        assert counts[cell] == (np.ptp(ys) + 1) * (np.ptp(xs) + 1)  # a rectangle


def test_outlines_are_the_edges_between_inside_and_outside():
    zero = np.zeros(2)
    found = RegionScores(np.array([[0, 1, 1], [0, 0, 1]]), ("a", "b"), zero, zero, zero, "region")
    assert len(found.edges(0)) == 8
    assert sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in found.edges(1)) == 8
    assert ((-0.5, -0.5), (-0.5, 0.5)) in found.edges(0)
    assert found.strongest(2) == []


def test_superpixels_follow_colours():
    pytest.importorskip("skimage")
    picture = torch.zeros(1, 3, 16, 16)
    picture[:, 0, :, 8:] = 1
    e = CAFE(nn.Sequential(nn.Flatten(), nn.Linear(768, 1))).explain(picture)
    found = region_scores(e, 0, Cut(superpixels=4))
    for region in range(len(found.names)):
        assert len(np.unique(visible_image(e)[found.index == region], axis=0)) == 1
    assert "net by superpixel" in texts(e.plot(0, superpixels="slic"))


def test_without_scikit_image_a_grid_is_shown_and_said(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    words = texts(image(3).plot(0, superpixels="slic"))
    assert "scikit-image is not installed" in words


def test_layers_are_drawn_on_the_input():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 2))
    e = CAFE(net).explain_layer(torch.rand(2, 3, 8, 8), "1")
    places = find_places(e)
    assert (places.height, places.width) == (4, 4)
    np.testing.assert_allclose(maps(e[1])["net"], e.combined[1].double().sum(0).numpy())
    assert visible_image(e[1]).shape == (8, 8, 3)
    assert len(e.plot(1).axes[1].images) == 2  # the picture, and the map on it
    with pytest.raises(ValueError, match="a layer has 4 x 4 places"):
        e.plot(0, superpixels="slic")


def test_tokens_are_drawn_on_the_patch_grid():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.token, self.mix = nn.Conv2d(3, 5, 4, 4), nn.Parameter(torch.ones(1, 1, 5)), nn.Linear(5, 5)

        def forward(self, x):
            patches = self.cut(x).flatten(2).transpose(1, 2)
            return self.mix(torch.cat([self.token.expand(len(x), 1, 5), patches], 1)).mean(1)

    torch.manual_seed(0)
    e = CAFE(Patches()).explain_layer(torch.rand(1, 3, 16, 16), "mix")
    assert e.combined.shape == (1, 17, 5)
    assert find_places(e).prefix == 1
    np.testing.assert_allclose(maps(e)["net"], e.combined[0, 1:].double().sum(1).reshape(4, 4).numpy())
    assert "16 other" not in texts(e.plot(0, most=3))
    apart = f"{e.combined[0, 0].double().sum().item():.4f}"[:5]
    for view in ("regions", "detail"):
        told = texts(e.plot(0, view=view))
        assert "class token" in told
        assert apart in told
    assert "Almost all" not in texts(e.plot(0))


def test_a_map_without_scores_names_the_class_token():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, image_size=16, patch_size=4
    )
    e = CAFE(transformers.ViTForImageClassification(config).eval()).explain_layer(torch.randn(1, 3, 16, 16), "vit.layers.1")
    assert e.combined[0, 1:].abs().max() == 0
    told = texts(e.plot(0))
    assert "Almost all of the net is at the class token, outside of the image" in told
    assert "16 places +0" in told


def test_one_scale_is_the_largest_region_of_all_rows():
    e = image(3)
    end = max(np.abs(region_scores(e, row, Cut(cells=4)).net).max() for row in range(3))
    drawn = e.plot(0, cells=4, same_scale=True)
    ends = [axis.get_xlim() for axis in drawn.axes if axis.get_label() == "<colorbar>"]
    assert ends[-1] == pytest.approx((-end, end))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cells": 0}, "at least 1"),
        ({"cells": 4, "superpixels": 3}, "give one of"),
        ({"superpixels": "felzenszwalb"}, "'slic'"),
        ({"regions": torch.zeros(3, 3).long()}, r"does not fit; images have shape \(8, 8\)"),
        ({"regions": torch.zeros(8, 8)}, "holds integers"),
        ({"view": "dots"}, "'regions', 'pixels', 'detail'"),
        ({"view": "pixels", "cells": 2}, "one of both"),
        ({"style": "poster"}, "'paper'"),
        ({"figsize": (0, 1)}, "inches"),
    ],
)
def test_options_that_do_not_fit(options, said):
    with pytest.raises(ValueError, match=said):
        image(3).plot(0, **options)


def test_tables_take_no_options_of_images():
    with pytest.raises(ValueError, match="only images"):
        table().plot(0, cells=4)
    with pytest.raises(ValueError, match="several rows"):
        table().plot([0, 1])


def test_sizes_of_figures_and_letters():
    e = image(3)
    assert tuple(e.plot(0, figsize=(5, 3)).get_size_inches()) == (5, 3)
    assert e.plot(0, style="paper").get_size_inches()[0] == pytest.approx(3.3)
    assert table().plot(0, style="paper").get_size_inches()[0] == pytest.approx(3.3)
    assert e.plot(0, style="paper").axes[0].title.get_fontsize() == pytest.approx(7)
    with mpl.rc_context({"font.size": 20}):
        assert e.plot(0).axes[0].title.get_fontsize() == pytest.approx(20)
    assert mpl.rcParams["font.size"] == mpl.rcParamsDefault["font.size"]


def test_existing_axes_are_drawn_on():
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots(1, 2)
    assert image(3).plot(0, ax=axes[1]) is figure
    assert not axes[0].images
    assert len(axes[1].images) == 2
