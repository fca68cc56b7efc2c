"""Small models that the parts share, and those with a forward of their own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from cafexai.models import FTTransformer


class ResidualMLP(nn.Module):
    """Two blocks around which the input passes."""

    def __init__(self):
        """Six features and three classes."""
        super().__init__()
        self.one, self.two, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        """(rows, 6) to (rows, 3)."""
        x = x + torch.relu(self.one(x))
        return self.head(x + F.gelu(self.two(x)))


def perceptron(activation=nn.ReLU):
    """A small perceptron of six features and three classes."""
    return nn.Sequential(nn.Linear(6, 16), activation(), nn.Linear(16, 16), activation(), nn.Linear(16, 3)).eval()


def small_cnn():
    """Two convolutions, a max pool and a linear layer."""
    layers = nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    return nn.Sequential(*layers).eval()


def ft_transformer():
    """A small FT-Transformer of six columns."""
    return FTTransformer((1, 1, 1, 3), 3, width=16, heads=4).eval()


class Own(nn.Module):
    """Parts with a forward that is given as a function."""

    def __init__(self, f, **parts):
        """A function of the module and its inputs, and the parts by name."""
        super().__init__()
        self.f = f
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs, **options):
        """What the function makes of it."""
        return self.f(self, *inputs, **options)


def functional():
    """Functional calls only, with a gate, a selection and a product."""

    def f(m, x):
        h = F.gelu(F.linear(x, m.one.weight, m.one.bias))
        gate = torch.sigmoid(h @ m.two.weight.T)
        h = torch.cat([h * gate, torch.maximum(h, 0.3 - h)], 1)
        return F.linear(torch.where(h > 0.1, h, h**2), m.head.weight, m.head.bias)

    return Own(f, one=nn.Linear(6, 8), two=nn.Linear(8, 8), head=nn.Linear(16, 3))


def in_place():
    """Values are written into others and changed in place."""

    def f(m, x):
        h = m.one(x)
        h += 0.5
        h[:, :2] = h[:, 2:4] * 2
        F.relu(h, inplace=True)
        space = torch.zeros(len(x), 10, dtype=x.dtype)
        space[:, :8] = h
        space[:, 8:].copy_(x[:, :2])
        return m.head(space.clamp_(max=1.5))

    return Own(f, one=nn.Linear(6, 8), head=nn.Linear(10, 3))


def reused():
    """One layer and one activation, three times."""

    def f(m, x):
        for _ in range(3):
            x = m.act(m.layer(x))
        return m.head(x)

    return Own(f, layer=nn.Linear(6, 6), act=nn.Tanh(), head=nn.Linear(6, 3))


def lstm():
    """A recurrent net, with its last state."""
    return Own(lambda m, x: m.head(m.body(x)[1][0][-1]), body=nn.LSTM(4, 5, batch_first=True), head=nn.Linear(5, 3))


def attention():
    """Attention with weights that are used."""

    def f(m, x):
        mixed, weights = m.body(x, x, x)
        return m.head(mixed.mean(1)) + weights.sum((1, 2))[:, None]

    return Own(f, body=nn.MultiheadAttention(8, 2, batch_first=True), head=nn.Linear(8, 3))


def codes():
    """Numbers and embedded codes side by side."""

    def f(m, x, c):
        return m.net(torch.cat([x, m.table(c).flatten(1)], 1))

    return Own(f, table=nn.Embedding(9, 3), net=nn.Sequential(nn.Linear(10, 8), nn.SiLU(), nn.Linear(8, 3)))


def encoder():
    """A transformer encoder, batch first."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Own(lambda m, x: m.head(m.body(x)[:, 0]), body=body, head=nn.Linear(8, 3))


def probabilities():
    """A perceptron that ends in a softmax."""
    return nn.Sequential(*perceptron(), nn.Softmax(1))


def several_shapes():
    """Convolution, norm, pools and an output of two dimensions."""

    def f(m, x):
        h = F.max_pool2d(m.norm(F.relu(m.one(x))), 2)
        return m.head(h.flatten(2)).view(len(x), 4, 2)

    return Own(f, one=nn.Conv2d(1, 4, 3), norm=nn.GroupNorm(2, 4), head=nn.Linear(9, 2))


OWN = {  # a model, the shape of a row, and a target
    "functional": (functional, (6,), 1),
    "in place": (in_place, (6,), 1),
    "reused": (reused, (6,), 1),
    "LSTM": (lstm, (4, 4), 1),
    "attention": (attention, (4, 8), 1),
    "codes": (codes, None, 1),
    "encoder": (encoder, (3, 8), 1),
    "softmax": (probabilities, (6,), 1),
    "several shapes": (several_shapes, (1, 8, 8), (2, 1)),
}


def own_inputs(shape, rows):
    """Random rows; for codes, numbers and codes."""
    if shape is None:
        return torch.randn(rows, 4), torch.randint(0, 9, (rows, 2))
    return (torch.randn(rows, *shape),)
