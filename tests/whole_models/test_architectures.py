"""Whole models, unmodified: the law at every operation, and completeness.

``python tests/whole_models/test_architectures.py`` writes docs/architectures.md, which the tests hold up to date.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from architectures import ARCHITECTURES, Named, adds_up
from cafexai import CAFE, elementwise_module, supported
from cafexai.models import FTTransformer

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"


def prepared(name, dtype):
    torch.manual_seed(0)
    architecture = ARCHITECTURES[name]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    model = architecture.build()
    model = model if name.startswith("exported") else model.eval().to(dtype)
    inputs = architecture.inputs()
    references = tuple(torch.randn_like(x) if x.is_floating_point() else torch.randint_like(x, 1, 50) for x in inputs)
    torch.set_default_dtype(before)
    return model, inputs, references, architecture.options


def relative_error(e):
    return (e.completeness_error.abs() / e.output.abs()).max().item()


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("zero", [True, False], ids=["zero", "random"])
def test_complete_and_lawful(name, zero):
    for dtype, limit in ((torch.float64, 1e-5), (torch.float32, 1e-3)):
        model, inputs, references, options = prepared(name, dtype)
        for c in (0.0, 0.5, 1.0):
            check = "each" if c == 0.5 and dtype == torch.float64 else "output"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                e = CAFE(model, c).explain(inputs, None if zero else references, check=check, target=1, **options)
            assert relative_error(e) <= limit
            adds_up(e)
            for part, x in zip(e.positive, inputs, strict=True):
                assert part.shape == x.shape
                assert (part >= 0).all()
            same = torch.cat([(x == r).flatten() for x, r in zip(inputs, references, strict=True)])
            if not zero and same.any():
                assert (torch.cat([part.flatten() for part in e.positive])[same] == 0).all()


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if not name.startswith("exported")])
def test_a_batch_is_its_rows(name):
    model, inputs, references, options = prepared(name, torch.float64)
    whole = CAFE(model).explain(inputs, references, target=1, **options)
    for i in range(len(whole)):
        row, start = (tuple(x[i : i + 1] for x in part) for part in (inputs, references))
        one = CAFE(model).explain(row, start, target=1, **options)
        for part in ("bias_positive", "bias_negative", "bias", "output", "baseline_output", "conflict"):
            torch.testing.assert_close(getattr(one, part), getattr(whole[i], part), rtol=1e-7, atol=1e-9)
        for mine, yours in zip(one.positive, whole[i].positive, strict=True):
            torch.testing.assert_close(mine, yours, rtol=1e-7, atol=1e-9)


def table():
    lines = []
    for name in ARCHITECTURES:
        model, inputs, references, options = prepared(name, torch.float64)
        operations = supported(model, inputs).operations
        worst, frozen = 0.0, set()
        for c in (0.0, 0.5, 1.0):
            for baselines in (None, references):
                e = CAFE(model, c).explain(inputs, baselines, target=1, **options)
                worst = max(worst, relative_error(e))
                frozen |= {line.split(" in ")[0] for line in e.frozen}
        bound = next(f"< 1e-{k}" for k in (12, 10, 8, 5) if worst < 10.0**-k)
        lines.append(f"| {name} | {', '.join(sorted(operations))} | {bound} | {', '.join(sorted(frozen)) or 'nothing'} |")
    return "\n".join(lines)


def page():
    return f"""# Architectures

Small random models of each kind, explained unmodified. The completeness error is the largest of c = 0, 0.5, 1 with zero
and random references, in float64, relative to the output. Frozen is what is taken as a constant of the current input: its
effect on the output goes to what it weighs, or, where it is added, to the bias. This page is written by
`tests/whole_models/test_architectures.py`, which fails when it is out of date.

| architecture | operations met | completeness error | frozen |
| --- | --- | --- | --- |
{table()}
"""


def test_the_page_of_architectures_is_up_to_date():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert PAGE.read_text() == page()


def test_two_unknown_operations_are_both_named():
    def f(m, x):
        return m.head(torch.logcumsumexp(x, 1)) + torch.linalg.det(x[:, None] * x[:, :, None])[:, None]

    report = supported(Named(f, head=nn.Linear(4, 2)), torch.randn(3, 4))
    assert {problem.function.split(".")[-1] for problem in report.problems} == {"logcumsumexp", "det"}


class EinsumAttention(nn.Module):
    """The attention of the FT-Transformer, written with einsum."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        block, width = self.block, x.shape[-1]
        q, k, v = (x @ w.T + b for w, b in zip(block.qkv.weight.split(width), block.qkv.bias.split(width), strict=True))
        q, k, v = (part.reshape(*x.shape[:2], block.heads, -1) for part in (q, k, v))
        pattern = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / (width // block.heads) ** 0.5, -1)
        return block.out(torch.einsum("bhqk,bkhd->bqhd", pattern, v).flatten(2))


class PackedAttention(nn.Module):
    """The same as nn.MultiheadAttention."""

    def __init__(self, block):
        super().__init__()
        width = block.out.weight.shape[0]
        self.layer = nn.MultiheadAttention(width, block.heads, batch_first=True)
        self.layer.in_proj_weight, self.layer.in_proj_bias = block.qkv.weight, block.qkv.bias
        self.layer.out_proj.weight, self.layer.out_proj.bias = block.out.weight, block.out.bias

    def forward(self, x):
        return self.layer(x, x, x, need_weights=False)[0]


@pytest.mark.parametrize("c", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("zero", [True, False])
def test_one_ft_transformer_in_three_ways(c, zero):
    x = torch.randn(4, 5)
    baselines = None if zero else torch.randn(4, 5)
    results = []
    for way in (None, EinsumAttention, PackedAttention):
        torch.manual_seed(1)
        model = FTTransformer((1, 1, 3), 2, width=16, heads=4).eval()
        if way is not None:
            for block in model.blocks:
                block.attention = way(block).eval()
        results.append(CAFE(model, c).explain(x, baselines, target=1))
    for other in results[1:]:
        for name in ("positive", "negative", "combined", "bias", "bias_positive"):
            torch.testing.assert_close(getattr(results[0], name), getattr(other, name), rtol=1e-9, atol=1e-9)


def test_ft_transformer_takes_blocks_or_codes():
    model = FTTransformer((1, 3, 1, 4), 2, width=8, heads=2).eval()
    numbers, codes = torch.randn(3, 2), torch.tensor([[0, 3], [2, 1], [1, 0]])
    blocks = [nn.functional.one_hot(codes[:, i], size).double() for i, size in enumerate((3, 4))]
    rows = torch.cat([numbers[:, :1], blocks[0], numbers[:, 1:], blocks[1]], 1)
    torch.testing.assert_close(model(rows), model(numbers, codes))
    by_blocks, by_codes = (CAFE.published(model).explain(given, target=0) for given in (rows, (numbers, codes)))
    grouped = torch.stack([by_blocks.positive[:, 1:4].sum(1), by_blocks.positive[:, 5:].sum(1)], 1)
    torch.testing.assert_close(grouped, by_codes.positive[1])
    model.lookup = "argmax"
    frozen = CAFE(model).explain(rows, target=0)
    assert (frozen.positive[:, 1:4] == 0).all()
    assert "argmax" in " ".join(frozen.frozen)
    last = FTTransformer((1, 3), 2, width=8, heads=2, head="last").eval()
    assert CAFE(last).explain(torch.randn(2, 4)).completeness_error.abs().max() < 1e-12
    without = FTTransformer((1, 3, 1), 2, width=8, heads=2, category_bias=False).eval()
    with_zero = FTTransformer((1, 3, 1), 2, width=8, heads=2).eval()
    state = dict(without.state_dict())
    state["bias"] = torch.stack([state["bias"][0], torch.zeros(8), state["bias"][1]])
    with_zero.load_state_dict(state)
    x = torch.randn(3, 5)
    torch.testing.assert_close(without(x), with_zero(x), rtol=0, atol=0)
    torch.testing.assert_close(CAFE(without).explain(x, target=0).net, CAFE(with_zero).explain(x, target=0).net)
    with pytest.raises(ValueError, match="heads"):
        FTTransformer((1,), 2, width=8, heads=3)
    with pytest.raises(ValueError, match="argmax"):
        FTTransformer((1,), 2, head="first")


def test_padding_is_respected():
    """Tokens behind the mask reach a model that reads its first token in no way."""
    model, (ids,), _, options = prepared("Bert (sdpa)", torch.float64)
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    e = CAFE(model).explain(ids, target=1, additional_forward_args={"attention_mask": mask}, **options)
    assert (e.positive[0, 5:] == 0).all()
    assert (e.positive[1] > 0).all()


def test_words_of_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from cafexai import Explanation

    vocabulary = {f"word{i}": i for i in range(50)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="word0"))

    class Wrapped:
        def convert_ids_to_tokens(self, ids):
            return [tokenizer.id_to_token(i) for i in ids]

    model, (ids,), _, options = prepared("GPT2 (sdpa)", torch.float64)
    e = CAFE(model).explain(ids, target=1, tokenizer=Wrapped(), **options)
    frame = e.to_frame()
    assert list(frame[frame.row == 2].feature[:-1]) == [f"word{i}" for i in ids[2].tolist()]
    assert f"word{ids[1, 0]}" in e.ledger(1)
    assert e[1:].tokens == e.features.tokens[1:]
    e.save(tmp_path / "e.safetensors")
    assert Explanation.load(tmp_path / "e.safetensors").tokens == e.features.tokens


class SpelledOut(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


def test_a_module_declared_elementwise_follows_the_one_rule():
    from cafexai.rules import registry

    x, first, last = torch.randn(4, 3), nn.Linear(3, 6), nn.Linear(6, 1)
    as_one = CAFE(nn.Sequential(first, nn.GELU("tanh"), last)).explain(x)
    in_pieces = CAFE(nn.Sequential(first, SpelledOut(), last)).explain(x)
    assert not torch.allclose(as_one.positive, in_pieces.positive)
    try:
        elementwise_module(SpelledOut)
        declared = CAFE(nn.Sequential(first, SpelledOut(), last)).explain(x)
    finally:
        registry._elementwise_modules.discard(f"{SpelledOut.__module__}.{SpelledOut.__qualname__}")
        registry.is_elementwise.cache_clear()
    for name in ("positive", "negative", "bias_positive"):
        torch.testing.assert_close(getattr(as_one, name), getattr(declared, name))


def test_the_activations_of_transformers_are_declared():
    activations = pytest.importorskip("transformers.activations")
    from cafexai.rules import registry

    declared = [name.split(".")[-1] for name in registry._elementwise_modules if name.startswith("transformers")]
    known = [name for name in declared if hasattr(activations, name)]
    assert "NewGELUActivation" in known
    for name in known:
        if name == "ClippedGELUActivation":
            continue
        module = getattr(activations, name)()
        x = torch.randn(2, 5)
        torch.testing.assert_close(module(x)[:, 2:], module(x[:, 2:]), rtol=1e-12, atol=1e-12)


def test_activations_of_transformers_are_looked_at_where_there_is_float64():
    activations = pytest.importorskip("transformers.activations")
    from cafexai.rules import activation_modules

    activation_modules._is_same.cache_clear()
    with torch.device("meta"):  # another default device
        assert activation_modules.function_of(activations.ACT2FN["gelu"]) is nn.functional.gelu


def test_norm_mean_moves_the_effect_of_the_mean_from_the_bias_to_the_features():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm(4, elementwise_affine=False), nn.Linear(4, 1, bias=False))
    x = torch.randn(3, 4)
    paper, linear = CAFE.published(model).explain(x), CAFE(model, variant="published", norm_mean="linear").explain(x)
    assert (paper.bias.abs() > 0).all()
    assert linear.bias_by_layer == {}
    torch.testing.assert_close(paper.combined.sum(1) + paper.bias, linear.combined.sum(1))
    assert linear.settings["norm_mean"] == "linear"
    with pytest.raises(ValueError, match="norm_mean"):
        CAFE(model, variant="published", norm_mean="mean")


def test_codes_that_reach_no_embedding():
    with pytest.raises(ValueError, match="never reached an embedding"):
        CAFE(lambda c, v: v.sum(1) * (c > 0).sum(1)).explain((torch.ones(2, 3, dtype=torch.long), torch.randn(2, 3)))


def test_codes_taken_as_numbers():
    x = torch.tensor([[1, 2], [3, 4]])
    e = CAFE(lambda c: (c.float() * torch.tensor([2.0, -1.0])).sum(1)).explain(x)
    torch.testing.assert_close(e.combined.double(), torch.tensor([[2.0, -2], [6, -4]]))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    PAGE.write_text(page())
