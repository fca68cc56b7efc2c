from __future__ import annotations

import pytest
import torch
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("default")


@pytest.fixture(autouse=True)
def _double_and_seeded():
    """Tests compare in float64 unless they say otherwise."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(before)
