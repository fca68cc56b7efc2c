"""The study of conflict scores: the exact conflict against its definition, and a small run."""

from __future__ import annotations

import itertools

import pytest
import torch

from cafexai.conflicts import conflict_magnitude
from cafexai.paper.studies import STUDIES, run
from cafexai.paper.studies.exact_conflict import spearman, true_conflict
from cafexai.paper.studies.truth_shapley import subsets


def test_the_exact_conflict_is_the_largest_over_all_pairs_of_sets():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1)).double()
    for _ in range(4):
        x = torch.randn(4).double()
        found = true_conflict(net(x * subsets(4))[:, 0].detach())
        sets = [set(part) for size in range(1, 5) for part in itertools.combinations(range(4), size)]
        pairs = [(one, two) for one in sets for two in sets if not one & two]
        expected = max(conflict_magnitude(lambda v: net(v)[:, 0], sorted(a), sorted(b), x) for a, b in pairs)
        assert found.item() == pytest.approx(expected)


def test_ranks_share_ties():
    one, two = torch.tensor([0.0, 0.0, 1.0, 2.0]), torch.tensor([3.0, 1.0, 5.0, 4.0])
    ranks = torch.tensor([[1.5, 1.5, 3.0, 4.0], [2.0, 1.0, 4.0, 3.0]])
    assert spearman(one, two) == pytest.approx(torch.corrcoef(ranks)[0, 1].item(), abs=1e-6)


@pytest.fixture
def single():
    """Networks are built in float32, as in use."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("single")
def test_a_small_run(data, tmp_path):
    found = run(STUDIES["conflict-truth"], "toy", tmp_path, data=str(data), show_progress=False)
    tables = {table.name: table for table in found.tables}
    assert set(tables) == {"spearman", "sizes", "hidden", "baselines"}
    assert all(0 <= row[1] <= 1 + 1e-9 for row in tables["sizes"].rows)
    assert found.findings[1].holds
