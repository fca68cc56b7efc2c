from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

import data_files
from cafexai import rules  # noqa: F401  (fills the table)
from cafexai.rules import registry

settings.register_profile("default", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("default")

# What make matrix runs.
MATRIX = "core carriers rules engine/test_sequential.py engine/test_state_guard.py engine/test_composed.py"
MATRIX += " explain/test_types.py explain/test_contrast.py explain/test_worked_examples.py conflicts/test_conflicts.py"


def in_matrix(path):
    """The file needs torch, numpy and pytest alone, and touches what a release of torch may change."""
    return path.relative_to(Path(__file__).parent).as_posix().startswith(tuple(MATRIX.split()))


def pytest_collection_modifyitems(items):
    """Mark the tests of make matrix."""
    for item in items:
        if in_matrix(item.path):
            item.add_marker("matrix")


def pytest_ignore_collect(collection_path):
    """With make matrix, other files are not even imported: they need more packages."""
    leave_out = os.environ.get("CAFEXAI_MATRIX") and collection_path.suffix == ".py" and not in_matrix(collection_path)
    return True if leave_out else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """With make matrix, a test that lacks an optional package is skipped."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if os.environ.get("CAFEXAI_MATRIX"):
            pytest.skip(f"needs {error.name}")
        raise


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
