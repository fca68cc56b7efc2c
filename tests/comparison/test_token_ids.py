"""Token ids in methods and comparisons: gradients at the vectors of the embedding layer, against the model of vectors."""

import pytest
import torch
from torch import nn

from cafexai import CAFE, compare
from cafexai.methods import METHODS


class Reader(nn.Module):
    """Token ids to two classes."""

    def __init__(self, padding=None):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(12, 6), nn.Embedding(8, 6)
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 2)
        self.padding = padding

    def read(self, vectors):
        inside = torch.tanh(self.first(vectors + self.places(torch.arange(vectors.shape[1]))))
        return self.last(inside.cumsum(1)[:, -1])

    def forward(self, ids):
        vectors = self.words(ids)
        return self.read(vectors if self.padding is None else vectors * (ids != self.padding)[..., None])


class Vectors(nn.Module):
    """The same from vectors, written by hand."""

    def __init__(self, reader):
        super().__init__()
        self.reader = reader

    def forward(self, vectors):
        return self.reader.read(vectors)


@pytest.fixture
def reader():
    return Reader().double().eval()


IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3], [7, 7, 0, 2, 1]])


@pytest.mark.parametrize("name", ["cafe", "integrated_gradients", "gradient_x_input", "deeplift_revealcancel", "attn_lrp"])
def test_scores_are_those_of_vectors_by_token(name, reader):
    vectors = reader.words(IDS).detach()
    options = {"baselines": reader.words(torch.full_like(IDS, 2)).detach()}
    expected = METHODS[name](Vectors(reader), vectors, target=1, **options).sum(-1)
    torch.testing.assert_close(METHODS[name](reader, IDS, target=1, baselines=2), expected)
    zero = METHODS[name](Vectors(reader), vectors, target=1).sum(-1)
    torch.testing.assert_close(METHODS[name](reader, IDS, target=1), zero)


def test_every_token_has_the_score_of_its_group(reader):
    """Shapley values of two groups, from the definition."""
    mask = torch.tensor([0, 0, 1, 1, 1])
    vectors = reader.words(IDS).detach()
    kept = [0] * 5, [1, 1, 0, 0, 0], [0, 0, 1, 1, 1], [1] * 5
    with torch.no_grad():
        f = [reader.read(vectors * torch.tensor(keep)[:, None])[:, 0] for keep in kept]
    first = (f[1] - f[0] + f[3] - f[2]) / 2
    found = METHODS["kernel_shap"](reader, IDS, target=0, feature_groups=mask)
    torch.testing.assert_close(found, torch.stack([first, f[3] - f[0] - first], 1)[:, mask], rtol=1e-4, atol=1e-5)


def test_cafe_on_ids_agrees(reader):
    torch.testing.assert_close(METHODS["cafe"](reader, IDS, target=0), CAFE(reader).explain(IDS, target=0).combined)


def test_comparisons_remove_whole_tokens(reader):
    methods, metrics = ["cafe", "integrated_gradients", "kernel_shap"], ["infidelity", "deletion", "completeness_error"]
    result = compare(reader, IDS, 1, methods, metrics, baselines=2, show_progress=False)
    assert not result.reasons
    vectors, start = reader.words(IDS).detach(), reader.words(torch.full_like(IDS, 2)).detach()
    groups = torch.arange(5)[:, None].expand(5, 6)
    twin = compare(
        Vectors(reader), vectors, 1, methods, metrics[1:], baselines=start, feature_groups=groups, show_progress=False,
        perturb=lambda rows, generator: rows,
    )  # fmt: skip
    for name in methods:
        for metric in metrics[1:]:
            torch.testing.assert_close(result.values[name][metric], twin.values[name][metric])


def test_what_does_not_fit_is_told(reader):
    with pytest.raises(ValueError, match="reads token ids beside its layer 'words'"):
        METHODS["cafe"](Reader(padding=1).double(), IDS, target=0)
    with pytest.raises(ValueError, match="give token ids"):
        METHODS["cafe"](reader, IDS, target=0, baselines=0.5)
    with pytest.raises(ValueError, match=r"Token ids, .* are taken if model is a module"):
        METHODS["cafe"](lambda ids: reader(ids), IDS, target=0)
    with pytest.raises(ValueError, match=r"x\.float\(\)"):
        METHODS["cafe"](nn.Linear(5, 2), IDS, target=0)
