"""Pictures of all kinds of data, of many rows and of several explanations."""

import base64
import dataclasses
import io
import os
import pickle
from functools import partial
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from torch import nn

from cafexai import CAFE, compare
from cafexai.conflicts import audit
from cafexai.plotting.labels import labels, percent, shorten
from cafexai.plotting.picture import Picture
from cafexai.plotting.pixels import colour_values, data_uri, maps, visible_image
from cafexai.plotting.row_lines import number
from cafexai.plotting.summary import aside, features, in_order
from plotting.test_presentation import texts, wide

STORED = Path(__file__).parents[1] / "pictures"
WORDS = ["(special: [CLS])", *"a film that starts slowly , but what follows is superb , moving and $ 5 well spent".split()]


def table(rows=40, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 3))
    names = ["age", "income", "the very first of two long names", "the very first of ten long names", "dose"]
    return CAFE(model, **{key: options.pop(key) for key in ("variant",) if key in options}).explain(
        torch.randn(rows, 5), feature_names=names, **options
    )


def image(channels=1, last=False, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    x = torch.rand(3, channels, 8, 8)
    if last:
        return CAFE(lambda v: net(v.permute(0, 3, 1, 2))).explain(x.permute(0, 2, 3, 1), **options)
    return CAFE(net).explain(x, **options)


def text(rows=2):
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(30, 6), nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2))

        def forward(self, ids):
            return self.head(self.embed(ids)).sum(1)

    torch.manual_seed(0)
    e = CAFE(Bag()).explain(torch.arange(len(WORDS)).repeat(rows, 1), target=1)
    known = {"class_names": ("bad", "good"), "probability": torch.full((rows,), 0.99999)}
    return e.replace(tokens=(tuple(WORDS),) * rows, **known)


def pairs():
    return table(4, variant="feature", pairs=True)


def audited():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    return audit(partial(CAFE.published, c=0.3), model, torch.randn(10, 4))


def compared():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    options = {"methods": ["cafe", "gradient_x_input"], "metrics": ["infidelity"], "show_progress": False}
    found = compare(model, torch.randn(12, 4), **options)
    return dataclasses.replace(found, seconds={"cafe": 0.001, "gradient_x_input": 0.1})


def generated():
    """A generated text, with scores that are written down."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    g = CAFE(model).generation([1, 2, 3, 4], continuation=[5, 6, 7])
    scores = torch.tensor([[0.2, -0.4, 1.5, 0.1, 0, 0], [0.7, 0.1, -0.2, 0.3, 2.0, 0], [-1.1, 0.1, 0.4, 0.9, -0.3, 0.6]])
    e = g.explanation.replace(combined=scores, positive=scores.clamp(min=0), negative=(-scores).clamp(min=0))
    words = {"generated": (" and", " you", " may"), "sources": ("You", " can't", " copy", " it", " and", " you")}
    return dataclasses.replace(g, explanation=e, **words)


def layer():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 2))
    return CAFE(net).explain_layer(torch.rand(2, 3, 8, 8), "1")


def checked(**options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    cafe = CAFE(net)
    return cafe.explain(torch.rand(3, 3, 8, 8)).plot(1, cells=4, check=cafe, **options)


DRAWN = {
    "table": lambda: table().plot(0),
    "image": lambda: image().plot(0),
    "image-beside": lambda: image(3).plot(1, beside=image(3).combined, view="detail"),
    "regions": lambda: image(3).plot(1, cells=4, beside=image(3, target=2)),
    "generation": lambda: generated().plot(),
    "generation-paper": lambda: generated().plot(style="paper"),
    "layer": lambda: layer().plot(0),
    "check": checked,
    "check-paper": lambda: checked(style="paper"),
    "detail": lambda: image(3).plot(1, view="detail"),
    "pixels": lambda: image(3).plot(1, view="pixels"),
    "rows": lambda: image(3).plot([0, 1, 2], cells=4, same_scale=True),
    "paper": lambda: image(3).plot(1, cells=4, style="paper"),
    "table-paper": lambda: table().plot(0, style="paper"),
    "text": lambda: text().plot(0),
    "summary": lambda: table().summary(),
    "summary-images": lambda: image().summary(),
    "summary-texts": lambda: text().summary(),
    "pairs": lambda: pairs().plot.pairs(0),
    "sweep": lambda: table(c=[0, 0.5, 1]).plot(1),
    "classes": lambda: table(target="all").plot(1),
    "classes-images": lambda: image(target="all").plot(1),
    "both": lambda: table(target="all", c=[0, 1]).plot(1),
    "biases": lambda: table(variant="published").plot.biases(1),
    "comparison": lambda: compared().plot(),
    "audit": lambda: audited().plot(),
}


def pixels(figure, dpi=32):
    """What the figure looks like, with fonts that come with matplotlib."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    file.seek(0)
    return mpl.image.imread(file)[..., :3]


def drawn(name):
    with mpl.rc_context(mpl.rcParamsDefault):
        return pixels(DRAWN[name]())


KEPT = (
    "table image-beside regions layer check detail pixels rows paper generation text summary summary-images pairs sweep "
    "classes comparison audit"
).split()


@pytest.mark.parametrize("name", KEPT)
def test_pictures_look_as_stored(name):
    """CAFEXAI_STORE_PICTURES=1 in the environment stores them anew: look at them."""
    file = STORED / f"{name}.png"
    found = drawn(name)
    if os.environ.get("CAFEXAI_STORE_PICTURES"):
        STORED.mkdir(exist_ok=True)
        mpl.image.imsave(file, found)
    stored = mpl.image.imread(file)[..., :3]
    assert stored.shape == found.shape
    assert np.sqrt(((stored - found) ** 2).mean()) < 0.05
    assert file.stat().st_size < 30_000


def test_the_comparison_of_pictures_looks():
    """Another row is another picture."""
    with mpl.rc_context(mpl.rcParamsDefault):
        other = pixels(image(3).plot(2, beside=image(3).combined, view="detail"))
    stored = mpl.image.imread(STORED / "image-beside.png")[..., :3]
    assert other.shape == stored.shape
    assert np.sqrt(((stored - other) ** 2).mean()) > 0.05


@pytest.mark.parametrize("name", DRAWN)
def test_no_text_leaves_the_picture(name):
    figure = DRAWN[name]()
    texts(figure)  # draws it
    box = figure.get_tightbbox()
    wide, high = figure.get_size_inches()
    assert box.x0 > -0.05
    assert box.y0 > -0.05
    assert box.x1 < wide + 0.05
    assert box.y1 < high + 0.05
    if figure._suptitle is not None:  # the heading is above the titles of all axes
        heading = figure._suptitle.get_window_extent().y0
        assert all(axes.title.get_window_extent().y1 < heading for axes in figure.axes if axes.get_title())


# ---- names -------------------------------------------------------------------------------------------------------------


def test_names_are_shortened_in_the_middle_and_stay_different():
    assert shorten("income", 20) == "income"
    assert shorten("income of the household in 2024", 20) == "income of…ld in 2024"
    assert shorten("two\nlines", 20) == "two lines"
    long = [f"the same start {word} the same end" for word in ("one", "two", "three")]
    for room in (8, 12, 20):
        short = labels([*long, *long, "other"], room)
        assert len(set(short)) == 4
        assert short[:3] == short[3:6]
        assert max(map(len, short)) <= room + 4
    assert labels(["abc" * 20, "abc" * 20], 10) == [shorten("abc" * 20, 10)] * 2


def test_percent_never_rounds_to_certainty():
    assert [percent(p) for p in (0.0, 0.5, 1.0, 0.99999, 1e-6, 0.1234)] == [
        "0%", "50.0%", "100%", "above 99.9%", "below 0.1%", "12.3%",
    ]  # fmt: skip


def test_title_has_class_and_probability():
    words = texts(text().plot(0))
    assert "Logit of 'good': " in words
    assert "(probability above 99.9%)" in words
    assert "What moved logit of 'good', probability above 99.9% (c" in text().ledger(0)


# ---- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_maps_sum_over_channels(last):
    e = image(3, last)
    found = maps(e[1])
    axis = -1 if last else 0
    np.testing.assert_allclose(found["positive"], e.positive[1].sum(axis).numpy())
    np.testing.assert_allclose(found["net"], found["positive"] - found["negative"], atol=1e-12)
    np.testing.assert_allclose(found["conflict"], np.minimum(found["positive"], found["negative"]))
    assert visible_image(e[1]).shape == (8, 8, 3)
    drawn = e.plot(1, view="detail").axes
    np.testing.assert_allclose(drawn[1].images[0].get_array(), found["positive"])


def test_channels_first_and_last_are_the_same_picture():
    with mpl.rc_context(mpl.rcParamsDefault):
        first, last = pixels(image(3).plot(0)), pixels(image(3, True).plot(0))
    np.testing.assert_allclose(first, last, atol=0.02)


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (255, 0), (4, -2), (1000, 0), (0, 0)])
def test_images_of_any_range_are_seen(scale, shift):
    e = image(3)[0]
    picture = visible_image(e.replace(inputs=e.inputs * scale + shift))
    assert picture.min() >= 0
    assert picture.max() <= 1
    if scale == 255:
        np.testing.assert_allclose(picture, visible_image(e))


def test_beside_takes_scores_of_the_row_or_of_all_rows_or_an_explanation():
    e, other = image(), image(target=2)
    rows = [other.combined, other.combined[1], other.combined[1:2], other, other[1], other.combined.numpy()]
    shown = [e.plot(1, beside=beside, view="detail").axes[5].images[0].get_array() for beside in rows]
    for found in shown:
        np.testing.assert_allclose(found, maps(other[1])["net"])
    with pytest.raises(ValueError, match=r"have shape \(2, 2\), and one row of this explanation has \(1, 8, 8\)"):
        e.plot(0, beside=torch.zeros(2, 2))
    with pytest.raises(ValueError, match="only images"):
        table().plot(0, beside=torch.zeros(5))


def test_images_inside_of_pages():
    from PIL import Image

    values = np.array([[1.0, -0.5], [0.0, 2.0]])
    colours = colour_values(values, 1.0, "#0072B2", "#D55E00")
    assert colours[0, 0].tolist() == colours[1, 1].tolist() == [0, 0x72, 0xB2]
    assert colours[1, 0].tolist() == [255, 255, 255]
    read = Image.open(io.BytesIO(base64.b64decode(data_uri(colours).split(",")[1])))
    np.testing.assert_array_equal(np.asarray(read), colours)


# ---- many rows ---------------------------------------------------------------------------------------------------------


def test_summary_holds_means_and_every_row():
    e = table(30)
    first = features(e)[0]
    place = e.names().index(first.name)
    sizes = e.combined.abs().mean(0)
    assert sizes[place] == sizes.max()
    strong = features(e, "influence")[0]
    influence = (e.positive + e.negative).mean(0)
    assert influence[e.names().index(strong.name)] == influence.max()
    assert first.positive == pytest.approx(e.positive[:, place].mean().item())
    np.testing.assert_allclose(first.nets, e.combined[:, place])
    assert np.argsort(first.values).tolist() == e.inputs[:, place].argsort().tolist()
    words = texts(e.plot.summary())
    assert f"row {e.conflict.argmax().item()}: " in words
    assert "30 rows" in words
    assert "How far each feature moves a row: mean |net|" in words
    assert number(first.size) in words


def test_words_are_coloured_by_the_alphabet_and_codes_by_their_numbers():
    codes = np.array([0.0, 1.0, 2.0, np.nan, -1.0])
    np.testing.assert_array_equal(in_order(codes, ("rent", "own", "free")), [2, 1, 0, np.nan, np.nan])
    np.testing.assert_array_equal(in_order(codes, ("10", "9", "-1")), [2, 1, 0, np.nan, np.nan])
    assert in_order(codes, None) is codes


def test_words_of_several_rows_are_counted_together():
    found = {one.name: one for one in features(text(3))}
    assert len(found[","].nets) == 6  # twice in each of three rows
    assert len(found["film"].nets) == 3


def test_rows_of_fewer_words_show_nothing_for_the_rest():
    e = text(1)
    scores = {name: getattr(e, name).clone() for name in ("positive", "negative", "combined")}
    for part in scores.values():
        part[0, -2:] = 0
    short = e.replace(**scores, tokens=((*WORDS[:-2], "", ""),))
    assert len(features(short)) == len(features(e)) - 2
    assert "well" not in texts(short.plot(0))
    assert "\n\n" not in short.ledger(0, 50)


def test_dots_of_a_swarm_do_not_lie_on_each_other():
    offsets = aside(np.zeros(25))
    assert len(set(offsets.round(6))) == 25
    assert np.abs(offsets).max() <= 0.4
    assert aside(np.linspace(0, 1, 5)).tolist() == [0] * 5


def test_summary_of_one_row_and_of_none():
    assert "1 row." in texts(table(1).summary())
    with pytest.raises(ValueError, match="no rows"):
        table()[:0].summary()
    with pytest.raises(ValueError, match="at least 1"):
        table().summary(0)


def test_pairs_name_the_strongest():
    e = pairs()
    up, down, amount = e.pairs(0, 1)[0]
    cells = e.plot_pairs(0).axes[0]
    amounts, names = cells.images[0].get_array(), [label.get_text() for label in cells.get_yticklabels()]
    y, x = np.unravel_index(amounts.argmax(), amounts.shape)
    assert amounts.max() == pytest.approx(amount)
    every = [*e.names(), "(bias)"]
    short = dict(zip(labels(every, 20), every, strict=True))
    assert (short[names[y]], short[names[x]]) == (up, down)
    with pytest.raises(ValueError, match="pairs=True"):
        table().plot_pairs(0)


def test_biases_end_at_the_bias():
    e = table(variant="published")
    right = e.plot.biases(0).axes[1]
    assert max(bar[0].get_x() + bar[0].get_width() for bar in right.containers) >= e.bias[0].item() - 1e-9
    with pytest.raises(ValueError, match="the model has none"):
        CAFE.published(nn.Linear(2, 1, bias=False)).explain(torch.ones(1, 2)).plot.biases(0)
    with pytest.raises(ValueError, match=r'part of the reference.*biases="scores"'):
        CAFE(nn.Linear(2, 1)).explain(torch.ones(1, 2)).plot.biases(0)


def test_far_apart_methods_have_a_logarithmic_axis():
    infidelity, seconds = compared().plot().axes
    assert seconds.get_xscale() == "log"
    assert infidelity.get_xscale() == "linear"


def test_wide_inputs_are_drawn_quickly_enough_to_be_used():
    assert len(features(wide())) == 300
    assert isinstance(wide().summary(), Picture)


# ---- the figure --------------------------------------------------------------------------------------------------------


def test_a_picture_can_be_kept_and_shows_itself():
    figure = table().plot(0)
    assert figure._repr_png_().startswith(b"\x89PNG")
    again = pickle.loads(pickle.dumps(figure))
    assert again._repr_png_() == figure._repr_png_()


def test_show_without_a_display_says_what_to_do(monkeypatch):
    monkeypatch.setattr("sys.modules", {k: v for k, v in __import__("sys").modules.items() if k != "IPython"})
    mpl.use("agg")
    with pytest.raises(RuntimeError, match="savefig"):
        table().plot(0).show()
