"""Groups of features by name, with several inputs."""

import pytest
import torch
from torch import nn

from cafexai import CAFE


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 4), nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x, y):
        return self.c((self.a(x) + self.b(y)).relu())


@pytest.mark.parametrize("netting", ["unit", "path", "feature"])
def test_names_of_several_inputs(netting):
    torch.manual_seed(0)
    cafe = CAFE(Two().double(), variant="published", netting=netting)
    x = torch.randn(4, 2, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)
    by_name = cafe.explain(x, feature_groups={"both": ["x0_1", "x1_0"], "last": ["x1_2"]})
    by_mask = cafe.explain(x, feature_groups=(torch.tensor([0, 1]), torch.tensor([1, 2, 3])))
    assert by_name.names() == ("x0_0", "both", "x1_1", "last")
    for name in ("positive", "negative", "combined"):
        assert torch.equal(getattr(by_name, name), getattr(by_mask, name))
    by_place = cafe.explain(x, feature_groups={"both": [1, 2], "last": [4]})
    assert torch.equal(by_place.combined, by_name.combined)


def test_a_wrong_name_is_told_with_those_of_all_inputs():
    x = torch.randn(1, 2), torch.randn(1, 3)
    with pytest.raises(ValueError, match=r"no feature 'x2'\. There are 5: x0_0, x0_1, x1_0"):
        CAFE(Two()).explain(x, feature_groups={"a": ["x2"]})
