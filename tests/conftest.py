from __future__ import annotations

import pytest
import torch
from hypothesis import settings

import data_files
from cafexai import rules  # noqa: F401  (fills the table)
from cafexai.rules import registry

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


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Networks that tests train are found by other tests of the same run only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAFEXAI_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def shipped_rules():
    """Rules that a test adds are forgotten behind it."""
    before = dict(registry.TABLE)
    yield
    registry.TABLE.clear()
    registry.TABLE.update(before)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder with tiny files in the formats of the real ones."""
    folder = data_files.write_all(tmp_path_factory.mktemp("data"))
    data_files.openxai_weights(folder / "openxai_weights", "compas", 7)
    return folder
