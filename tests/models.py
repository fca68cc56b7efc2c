"""Small models that the tests share."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS = [nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.Mish]


def mlp(*widths, activation=nn.ReLU, bias=True):
    layers = []
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        layers += [nn.Linear(a, b, bias=bias)] + ([activation()] if i < len(widths) - 2 else [])
    return nn.Sequential(*layers).eval()


class Block(nn.Module):
    """A residual block as in stock image models: batch-norm, one ReLU used twice in place, += identity."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResidualCNN(nn.Module):
    def __init__(self, width=8, blocks=(1, 1, 1), classes=5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        stages, inputs = [], width
        for k, count in enumerate(blocks):
            outputs = width * 2**k
            stages += [Block(inputs if i == 0 else outputs, outputs, 2 if k and i == 0 else 1) for i in range(count)]
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.stages(x))
        return self.fc(torch.flatten(x, 1))


def with_statistics(model, *shape, batches=10):
    """Fill the running statistics of batch-norm with something that is not trivial."""
    model.train()
    with torch.no_grad():
        for _ in range(batches):
            model(torch.randn(*shape))
    return model.eval()


class Mixed(nn.Module):
    """Many kinds of operations in one forward."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.up = nn.Upsample(scale_factor=2)
        self.deconv = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.gate = nn.Linear(4, 4)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        y = F.max_pool2d(F.gelu(self.bn(self.conv(F.pad(x, (1, 1, 1, 1), mode="reflect")))), 2)
        pooled = y.mean((2, 3))
        gated = pooled * torch.sigmoid(self.gate(pooled))
        z = torch.cat([y.amax((2, 3)), torch.maximum(gated, 0.5 - pooled)], 1)
        w = self.deconv(self.up(y)).abs().mean((1, 3))[:, :4]
        return self.head(torch.cat([z, torch.where(w > 0.1, w, w**2)], 1))
