"""Baselines that are rows of the background: scores are averages over explanations, and who gets them unasked."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cafexai import CAFE, Background, Schema, from_sklearn

close = torch.testing.assert_close


def network(inputs: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.GELU(), nn.Linear(8, 2)).double()


def test_scores_are_averages_over_single_baselines():
    rows, x = torch.randn(60, 4).double(), torch.randn(3, 4).double()
    cafe = CAFE(network(), background=rows)
    drawn = Background(rows, k=7, seed=2)
    places = drawn.draw(60)
    assert len(set(places.tolist())) == 7
    assert repr(drawn) == "Background(60 rows, k=7, seed=2)"
    e = cafe.explain(x, drawn, target=0)
    each = [cafe.explain(x, rows[place], target=0) for place in places.tolist()]
    for name in ("positive", "negative", "combined", "baseline_output", "conflict", "conflict_left"):
        close(getattr(e, name), torch.stack([getattr(one, name) for one in each]).mean(0))
    close(e.baseline_output + e.combined.sum(1), e.output)
    close(cafe.attribute(x, drawn, target=0), e.combined)
    word = cafe.explain(x, "background", target=0)
    close(word.combined, cafe.explain(x, Background(rows), target=0).combined)
    assert word.sides.shape == (3, 50, 4)
    assert any("50 baselines" in note for note in word.notes)
    assert "On average over 50 typical rows" in word.ledger(0)
    assert "typical" not in cafe.explain(x, rows[:5, None], target=0).ledger(0)


def test_frames_of_one_row_are_averaged_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [20.0, 40.0, 60.0], "city": ["Rome", None, None]}, dtype=object).astype({"age": float})
    pytest.importorskip("sklearn")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    steps = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    fitted = make_pipeline(steps, LogisticRegression()).fit(frame, [0, 1, 1])
    whole = frame.fillna({"city": "Oslo"})
    schema = Schema.from_frame(whole, one_hot=True)
    for cafe, rows in ((CAFE(from_sklearn(fitted)), frame), (CAFE(network(3), schema=schema), whole)):
        turned = rows.iloc[[2]][["city", "age"]]
        e = cafe.explain(rows, [rows.iloc[[1]], turned], target=0)
        each = [cafe.explain(rows, rows.iloc[[place]], target=0).combined for place in (1, 2)]
        close(e.combined, torch.stack(each).mean(0))
        assert e.baseline_values(0)[0] == 50


def test_several_inputs_take_the_same_rows():
    model = network(5)
    left, right, x = torch.randn(20, 2).double(), torch.randn(20, 3).double(), torch.randn(2, 5).double()
    e = CAFE(lambda a, b: model(torch.cat([a, b], 1))).explain((x[:, :2], x[:, 2:]), Background((left, right), k=6), target=0)
    whole = CAFE(model).explain(x, Background(torch.cat([left, right], 1), k=6), target=0)
    close(torch.cat(e.combined, 1), whole.combined)


def test_tensors_keep_zero_and_frames_of_pipelines_take_the_background():
    pandas, sklearn = pytest.importorskip("pandas"), pytest.importorskip("sklearn")
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    assert sklearn
    torch.manual_seed(0)
    frame = pandas.DataFrame(torch.randn(80, 3).numpy(), columns=list("abc"))
    pipeline = make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=60, random_state=0))
    fitted = pipeline.fit(frame, frame["a"] > frame["b"])
    cafe = CAFE(from_sklearn(fitted), background=frame)
    e = cafe.explain(frame.iloc[:4])
    assert e.sides.shape[1] == 50
    assert any("50 baselines, rows of the background" in note for note in e.notes)
    zero = cafe.explain(frame.iloc[:4], "zero")
    assert zero.sides.shape[1] == 1
    close(CAFE(from_sklearn(fitted)).explain(frame.iloc[:4]).combined, zero.combined)
    model = network()
    x = torch.randn(2, 4).double()
    close(CAFE(model, background=x).explain(x).combined, CAFE(model).explain(x).combined)


def test_bad_backgrounds_are_refused():
    x = torch.randn(2, 4).double()
    with pytest.raises(ValueError, match="of which data"):
        CAFE(network()).explain(x, "background")
    with pytest.raises(ValueError, match="form of the inputs"):
        CAFE(network()).explain(x, Background(torch.randn(5, 3)))
    with pytest.raises(ValueError, match="at least 1"):
        Background(x, k=0)
    with pytest.raises(ValueError, match="Allowed values: 'mean', 'median', 'mode', 'background', 'zero'"):
        CAFE(network()).explain(x, "typical")
