"""Small, random models of the architectures that people have, each with inputs and references."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import models
from cafexai.models import FTTransformer


@dataclass(frozen=True)
class Architecture:
    build: Callable[[], Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    options: dict[str, Any] = field(default_factory=dict)


ARCHITECTURES: dict[str, Architecture] = {}


def numbers(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(shape),)


def codes(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randint(1, 50, shape),)


def add(name: str, build: Callable[[], Any], inputs: Callable[[], tuple[torch.Tensor, ...]], **options: Any) -> None:
    ARCHITECTURES[name] = Architecture(build, inputs, options)


class Named(nn.Module):
    """A function of named parts."""

    def __init__(self, f: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.f = f
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.f(self, *inputs)


def squeeze_excite() -> nn.Module:
    def f(m, x):
        h = F.silu(m.conv(x))
        gate = torch.sigmoid(m.up(F.relu(m.down(h.mean((2, 3))))))
        return m.head((h * gate[:, :, None, None]).amax((2, 3)))

    return Named(f, conv=nn.Conv2d(2, 6, 3), down=nn.Linear(6, 3), up=nn.Linear(3, 6), head=nn.Linear(6, 3))


def convnext_block() -> nn.Module:
    def f(m, x):
        h = m.norm(m.depthwise(x).permute(0, 2, 3, 1))
        h = m.two(F.gelu(m.one(h))) * m.scale.weight[0]
        x = x + h.permute(0, 3, 1, 2)
        return m.head(x.mean((2, 3)))

    parts = {"depthwise": nn.Conv2d(4, 4, 3, padding=1, groups=4), "norm": nn.LayerNorm(4), "one": nn.Linear(4, 8)}
    return Named(f, **parts, two=nn.Linear(8, 4), scale=nn.Embedding(1, 4), head=nn.Linear(4, 3))


def swiglu() -> nn.Module:
    return Named(
        lambda m, x: m.down(F.silu(m.gate(m.norm(x))) * m.up(x)),
        norm=nn.RMSNorm(5), gate=nn.Linear(5, 8), up=nn.Linear(5, 8), down=nn.Linear(8, 3),
    )  # fmt: skip


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
    return Named(lambda m, x: m.head(m.body(x)[:, 0]), body=nn.TransformerEncoder(layer, 2), head=nn.Linear(8, 3))


def recurrent(kind: Any, **options: Any) -> nn.Module:
    net = kind(4, 5, batch_first=True, **options)
    width = 10 if options.get("bidirectional") else 5
    return Named(lambda m, x: m.head(m.body(x)[0][:, -1]), body=net, head=nn.Linear(width, 3))


def tabular() -> nn.Module:
    def f(m, x, c):
        columns = [m.one(c[:, 0]), m.two(c[:, 1])]
        return m.net(torch.cat([x, *columns], 1))

    return Named(f, one=nn.Embedding(50, 3), two=nn.Embedding(50, 2), net=models.mlp(8, 16, 3))


def rtdl() -> nn.Module:
    from rtdl_revisiting_models import FTTransformer as Official

    options = {**Official.get_default_kwargs(2), "d_block": 16, "attention_n_heads": 4}
    return Official(n_cont_features=3, cat_cardinalities=[50, 50], d_out=3, **options)


def hugging_face(kind: str, attention: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        logging.getLogger("transformers").setLevel(logging.ERROR)
        sizes = {"vocab_size": 50, "num_labels": 3, "pad_token_id": 0, "max_position_embeddings": 20}
        shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
        config = {
            "Bert": lambda: transformers.BertConfig(**sizes, **shape),
            "GPT2": lambda: transformers.GPT2Config(**sizes, n_embd=16, n_layer=2, n_head=4, n_positions=20),
            "Llama": lambda: transformers.LlamaConfig(**sizes, **shape, num_key_value_heads=2),
            "ViT": lambda: transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **shape),
        }[kind]()
        config._attn_implementation = attention
        task = "ForImageClassification" if kind == "ViT" else "ForSequenceClassification"
        return getattr(transformers, kind + task)(config)

    return build


def exported() -> nn.Module:
    net = FTTransformer((1, 1, 3), 3, width=8, heads=2).eval().to(torch.get_default_dtype())
    return torch.export.export(net, (torch.randn(3, 5),)).module()


add("multi-layer perceptron", lambda: models.mlp(5, 16, 16, 3, activation=nn.GELU), numbers(3, 5))
add("residual CNN", lambda: models.with_statistics(models.ResidualCNN(4), 4, 3, 16, 16), numbers(3, 3, 16, 16))
add("CNN with many kinds of layers", lambda: models.with_statistics(models.Mixed(), 4, 1, 8, 8), numbers(3, 1, 8, 8))
add("squeeze-excite CNN", squeeze_excite, numbers(3, 2, 6, 6))
add("ConvNeXt block", convnext_block, numbers(3, 4, 5, 5))
add("SwiGLU with RMS norm", swiglu, numbers(3, 5))
add("table with embedded categories", tabular, lambda: (torch.randn(3, 3), torch.randint(0, 50, (3, 2))))
add("FT-Transformer", lambda: FTTransformer((1, 1, 3), 3, width=16, heads=4), numbers(3, 5))
add("FT-Transformer (rtdl)", rtdl, lambda: (torch.randn(3, 3), torch.randint(0, 50, (3, 2))))
add("nn.TransformerEncoder", encoder, numbers(3, 4, 8))
add("nn.TransformerEncoder, norm first, GELU", lambda: encoder(norm_first=True, activation="gelu"), numbers(3, 4, 8))
add("LSTM", lambda: recurrent(nn.LSTM), numbers(3, 4, 4))
add("LSTM, two layers, both directions", lambda: recurrent(nn.LSTM, num_layers=2, bidirectional=True), numbers(3, 4, 4))
add("GRU", lambda: recurrent(nn.GRU), numbers(3, 4, 4))
add("RNN", lambda: recurrent(nn.RNN), numbers(3, 4, 4))
add("bag of words", lambda: nn.Sequential(nn.EmbeddingBag(50, 6), models.mlp(6, 8, 3)), codes(3, 7))
for _kind in ("Bert", "GPT2", "Llama"):
    for _attention in ("eager", "sdpa"):
        add(f"{_kind} ({_attention})", hugging_face(_kind, _attention), codes(3, 7), output="logits")
for _attention in ("eager", "sdpa"):
    add(f"ViT ({_attention})", hugging_face("ViT", _attention), numbers(2, 3, 8, 8), output="logits")
add("exported FT-Transformer", exported, numbers(3, 5))


def adds_up(e):
    """Within 1e-4 of the change of the output and 1e-5 of the scores, but never of scores that are far from the output."""
    change = (e.output - e.baseline_output).abs().double()
    scores = e.flat(e.combined).abs().double().sum(1) + e.bias.abs().double()
    assert (e.completeness_error.abs() <= 1e-4 * change + 1e-5 * scores).all()
    total = e.baseline_output.double() + e.bias.double() + e.flat(e.combined).double().sum(1)
    size = torch.maximum(e.output.abs().double().mean(), torch.maximum(change, e.output.abs().double()))
    assert ((total - e.output.double()).abs() <= 1e-3 * size).all()
