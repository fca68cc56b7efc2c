"""Models that are exported to ONNX, and how far their scores are from those of the model before."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cafexai import CAFE
from cafexai.models import FTTransformer

EXPORTERS = {"TorchScript": False, "dynamo": True}
OPSETS = (13, 17, 18, 20)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        each = width // self.heads
        q, k, v = (part.view(rows, length, self.heads, each).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        pattern = (q @ k.transpose(-2, -1) / each**0.5).softmax(-1)
        return self.out((pattern @ v).transpose(1, 2).reshape(rows, length, width))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, 2), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Layer norm, attention and GELU; of operators that every opset has."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(4, 8), nn.Parameter(torch.randn(1, 5, 8))
        self.blocks, self.norm, self.head = nn.Sequential(Block(8), Block(8)), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x) + self.place)).mean(1))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class Sequence(nn.Module):
    """A recurrent layer whose last output is read."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


class Logits(nn.Module):
    """A model of Hugging Face whose output is a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))


def shallow() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 2, bias=False), nn.BatchNorm2d(6), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip


def cnn_with_biases() -> nn.Module:
    """Batch norms behind convolutions with biases: exporters make one bias of two."""
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 3))


def resnet() -> nn.Module:
    first = nn.Sequential(nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(first, Residual(4), Residual(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def hugging_face(kind: str) -> nn.Module:
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "num_labels": 3}
    if kind == "BERT":
        config = transformers.BertConfig(vocab_size=50, max_position_embeddings=20, **shape)
        config._attn_implementation = "eager"
        return Logits(transformers.BertForSequenceClassification(config))
    config = transformers.ViTConfig(image_size=8, patch_size=4, **shape)
    config._attn_implementation = "sdpa"
    return Logits(transformers.ViTForImageClassification(config))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "MLP": (mlp, lambda: torch.randn(4, 5)),
    "MLP, shallow, GELU": (shallow, lambda: torch.randn(4, 5)),
    "CNN": (cnn, lambda: torch.randn(4, 2, 8, 8)),
    "transformer": (Transformer, lambda: torch.randn(4, 5, 4)),
}
REAL: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "ResNet": (resnet, lambda: torch.randn(4, 2, 8, 8)),
    "BERT": (lambda: hugging_face("BERT"), lambda: torch.randint(1, 50, (3, 7))),
    "ViT": (lambda: hugging_face("ViT"), lambda: torch.rand(3, 3, 8, 8)),
    "LSTM": (lambda: Sequence(nn.LSTM(4, 5, batch_first=True), 5), lambda: torch.randn(3, 6, 4)),
    "LSTM, both ways": (
        lambda: Sequence(nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True), 10), lambda: torch.randn(3, 6, 4)),
    "GRU": (lambda: Sequence(nn.GRU(4, 5, batch_first=True), 5), lambda: torch.randn(3, 6, 4)),
    "FT-Transformer": (lambda: FTTransformer((1, 1, 3), 3, width=16, heads=4, blocks=2), lambda: torch.randn(4, 5)),
}  # fmt: skip


def built(name: str) -> tuple[nn.Module, Tensor]:
    """A model in float32 whose norms do something, and rows for it."""
    build, rows = (MODELS | REAL)[name]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    model, x = build(), rows()
    torch.set_default_dtype(before)
    return stirred(model), x


def stirred(model: nn.Module) -> nn.Module:
    """The model with norms whose weights, biases and statistics are random."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
                module.weight.normal_()
                module.bias.normal_()
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
    return model.eval()


def export(model: nn.Module, x: Any, path: Any, opset: int, dynamo: bool, fixed: bool = False, **options: Any) -> None:
    """Write an ONNX file, with any number of rows unless it is fixed."""
    inputs = x if isinstance(x, tuple) else (x,)
    names = options.pop("input_names", [f"x{place}" for place, _ in enumerate(inputs)])
    if not fixed and dynamo:
        options["dynamic_shapes"] = tuple({0: torch.export.Dim("rows")} for _ in inputs)
    elif not fixed:
        options["dynamic_axes"] = {name: {0: "rows"} for name in names}
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            torch.onnx.export(model, inputs, path, input_names=names, opset_version=opset, dynamo=dynamo, **options)
        finally:
            logging.disable(logging.NOTSET)


def distances(model: Any, other: Any, x: Any) -> dict[str, float]:
    """How far the scores of one model are from those of the other, by default and as published, relative to the largest."""
    found = {}
    for word, make in (("default", CAFE), ("published", CAFE.published)):
        ours, theirs = make(other).explain(x, target=0), make(model).explain(x, target=0)
        size = max(theirs.positive.max().item(), theirs.negative.max().item())
        for name in ("positive", "negative", "combined"):
            found[f"{word} {name}"] = (getattr(ours, name) - getattr(theirs, name)).abs().max().item() / size
        size = max(theirs.bias_positive.max().item(), theirs.bias_negative.max().item(), 1e-30)
        gaps = [(getattr(ours, name) - getattr(theirs, name)).abs().max().item() for name in ("bias_positive", "bias_negative")]
        found[f"{word} bias"] = max(gaps) / size
    return found
