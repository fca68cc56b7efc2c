"""Explanations in other tools: SHAP's pictures, shapash, explainerdashboard, Quantus."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from cafexai import CAFE, Schema
from cafexai.adapters import quantus_explain, quantus_table

FRAME = pd.DataFrame({"age": [45.0, 31.0, 60.0, 22.0], "city": ["Rome", "Oslo", "Lodz", "Oslo"]})


def explained():
    torch.manual_seed(0)
    schema = Schema.from_frame(FRAME, one_hot=True)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    return CAFE(model, schema=schema).explain(FRAME)


def test_values_of_blocks_go_to_shap():
    e = explained()
    made = e.to_shap()
    assert made.values.shape == (4, 2)
    assert made.display_data.tolist() == [[45.0, "Rome"], [31.0, "Oslo"], [60.0, "Lodz"], [22.0, "Oslo"]]
    assert made.data[:, 1].tolist() == [2, 1, 0, 1]
    np.testing.assert_allclose(made.values.sum(1) + made.base_values, e.output)
    groups = CAFE(nn.Linear(3, 1)).explain(torch.ones(2, 3), feature_groups={"two": [0, 1]}).to_shap()
    assert groups.display_data[0].tolist() == ["", 1.0]


@pytest.mark.parametrize("channels", ["first", "last"])
def test_pictures_go_to_shap_with_their_channels_last(channels):
    torch.manual_seed(0)
    first, x = channels == "first", torch.rand(2, 3, 6, 5)

    def model(v):
        v = v if first else v.permute(0, 3, 1, 2)
        return (v * torch.arange(90).view(3, 6, 5)).sum((1, 2, 3))

    e = CAFE(model).explain(x if first else x.permute(0, 2, 3, 1))
    made = e.to_shap()
    assert made.values.shape == (2, 6, 5, 3)
    expected = (x * torch.arange(90).view(3, 6, 5)).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(made.values, expected, rtol=1e-5)
    np.testing.assert_allclose(made.data, x.permute(0, 2, 3, 1).numpy())


def test_shap_draws_pictures_where_they_are():
    """One pixel matters: it is the one that shap colours."""
    shap = pytest.importorskip("shap")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    x = torch.rand(1, 3, 8, 8)
    shap.plots.image(CAFE(lambda v: v[:, :, 2, 5].sum(1)).explain(x).to_shap(), show=False)
    seen, colours = pyplot.gcf().axes[:2]
    np.testing.assert_allclose(seen.get_images()[0].get_array(), x[0].permute(1, 2, 0).numpy(), atol=1e-6)
    drawn = np.asarray(colours.get_images()[-1].get_array())
    assert np.argwhere(drawn != 0).tolist() == [[2, 5]]
    pyplot.close("all")


def test_shapash_shows_our_scores():
    pytest.importorskip("shapash")
    e = explained()
    explainer = e.to_shapash()
    best = explainer.to_pandas(max_contrib=2)
    for row in range(4):
        order = e.combined[row].abs().argsort(descending=True).tolist()
        for rank, place in enumerate(order, start=1):
            assert best[f"feature_{rank}"].iloc[row] == e.names()[place]
            assert best[f"value_{rank}"].iloc[row] == e.values(row)[place]
            assert best[f"contribution_{rank}"].iloc[row] == pytest.approx(e.combined[row, place].item())
    assert explainer.plot.local_plot(index=1) is not None


def test_explainerdashboard_shows_our_scores():
    dashboard = pytest.importorskip("explainerdashboard")
    e = explained()
    explainer = e.to_explainerdashboard(y=[1.0, 2.0, 3.0, 4.0])
    scores = explainer.get_shap_values_df()
    np.testing.assert_allclose(scores[["age", "city"]], e.combined, rtol=1e-6)
    np.testing.assert_allclose(
        explainer.shap_base_value() + scores.sum(axis=1), e.output, rtol=1e-6
    )  # what it shows at the end
    contributions = explainer.get_contrib_df(2).set_index("col").contribution
    assert contributions["city"] == pytest.approx(e.combined[2, 1].item(), abs=1e-6)
    assert dashboard.ExplainerDashboard(explainer, whatif=False, shap_interaction=False, decision_trees=False) is not None


def test_what_is_no_table_is_refused():
    picture = CAFE(nn.Sequential(nn.Flatten(), nn.Linear(27, 1))).explain(torch.rand(2, 3, 3, 3))
    for call in (picture.to_shapash, picture.to_explainerdashboard):
        with pytest.raises((ValueError, ModuleNotFoundError), match=r"it shows tables|pip install"):
            call()


def test_quantus_measures_tables():
    """As the README has it: a channel between rows and features."""
    quantus = pytest.importorskip("quantus")
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), torch.randn(5, 6)
    wrapped, rows = quantus_table(model, x)
    metric = quantus.FaithfulnessCorrelation(subset_size=2, nr_runs=10, abs=False, normalise=False, disable_warnings=True)
    found = metric(wrapped, rows, model(x).argmax(1).numpy(), explain_func=quantus_explain("cafe"))
    assert np.isfinite(found).all()


def test_force_plots_of_shap_take_missing_categories():
    shap = pytest.importorskip("shap")
    pytest.importorskip("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    from cafexai import from_sklearn

    frame = pd.DataFrame({"city": ["Rome", None, "Oslo", "Rome"], "age": [20.0, 30.0, 40.0, 50.0]})
    steps = make_column_transformer((OneHotEncoder(), ["city"]), ("passthrough", ["age"]))
    model = from_sklearn(make_pipeline(steps, LinearRegression()).fit(frame, frame.age))
    found = CAFE(model).explain(frame).to_shap()
    assert found.display_data[:, 0].tolist() == ["Rome", "missing", "Oslo", "Rome"]
    shap.plots.force(found[1], matplotlib=True, show=False)
