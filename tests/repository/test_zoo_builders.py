"""Models of transformers are made small by proportion, with the arguments that they ask for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
MADE = {
    "deepseek_v3": {"input_ids"},  # heads of two parts
    "altclip": {"input_ids", "pixel_values"},  # it asks for both, one after the other
    "glm4v_vision": {"hidden_states"},  # patches of all pictures in one, with a grid
    "paligemma+pictures": {"input_ids", "pixel_values"},  # as many places among the codes as a picture has patches
    "autoformer": {"past_values"},  # with the past that its lags ask for
}


@pytest.mark.parametrize("kind", MADE)
def test_models_run_and_hear_their_input(kind, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "zoo"))
    before = set(sys.modules)
    torch.set_default_dtype(torch.float32)
    try:
        import liveliness
        from families import transformers as family

        specimen = family.build(f"transformers/{kind}")
        plain = liveliness.outputs(specimen)
    finally:
        ours = ("families", "liveliness", "specimen")
        for name in [name for name in set(sys.modules) - before if name.split(".")[0] in ours]:
            sys.modules.pop(name)
    assert set(specimen.inputs) == MADE[kind]
    assert len(plain) == 2
    assert torch.isfinite(plain).all()
    assert sum(parameter.numel() for parameter in specimen.model.parameters()) < 2e6
