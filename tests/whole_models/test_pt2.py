"""Programs of torch.export have the scores of the model that they were exported from."""

from __future__ import annotations

import pytest
import torch

from cafexai.loading import ModelProblem, load_model
from exported import MODELS, REAL, built, distances

NAMES = [*MODELS, *(name for name in REAL if name != "BERT")]


def written(name, path, dynamic):
    model, x = built(name)
    shapes = ({0: torch.export.Dim("rows")},) if dynamic else None
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=shapes), path)
    return model, x


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_model_before(name, dynamic, tmp_path):
    model, x = written(name, tmp_path / "model.pt2", dynamic)
    read = load_model(tmp_path / "model.pt2", trust=True)
    found = distances(model, read, x)
    assert max(found.values()) < 1e-5, found
    if dynamic:
        torch.testing.assert_close(read(x[:1]), model(x[:1]))


def test_they_need_trust(tmp_path):
    written("MLP", tmp_path / "model.pt2", True)
    with pytest.raises(ModelProblem, match="add --trust"):
        load_model(tmp_path / "model.pt2")
