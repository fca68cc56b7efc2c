"""Train a small network on breast-cancer data, explain its test set, and read one prediction."""

from __future__ import annotations

import dataclasses

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from cafexai import CAFE, Explanation


def load() -> tuple[list[Tensor], list[str]]:
    """Measurements of training and test set, then the labels of both (1 = malignant), and the names."""
    data = load_breast_cancer()
    parts = train_test_split(data.data, 1 - data.target, test_size=0.3, random_state=0, stratify=data.target)
    return [torch.tensor(part, dtype=torch.float32) for part in parts], list(data.feature_names)


def train(x: Tensor, y: Tensor) -> nn.Module:
    """A network with two hidden layers and one logit: above 0 it says malignant."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
        optimizer.step()
    return model.eval()


def explain_test_set() -> tuple[Explanation, Tensor]:
    """The explanation of every test row in one call, and whether the prediction is correct."""
    (x_train, x_test, y_train, y_test), names = load()
    mean, spread = x_train.mean(0), x_train.std(0)
    model = train((x_train - mean) / spread, y_train)
    explanation = CAFE(model).explain((x_test - mean) / spread, feature_names=names)
    correct = (explanation.output > 0) == (y_test > 0)
    return dataclasses.replace(explanation, display=x_test), correct  # shown in the units of the measurements


def interesting(explanation: Explanation, correct: Tensor) -> int:
    """The row with the largest conflict among the correct predictions."""
    return int((explanation.conflict * correct).argmax())


def main() -> None:
    explanation, correct = explain_test_set()
    row = interesting(explanation, correct)
    print(f"Test accuracy: {correct.float().mean():.1%} of {len(correct)} tumours\n")
    print(f"Tumour {row}; output 0 is the logit for malignant:")
    print(explanation.ledger(row))


if __name__ == "__main__":
    main()
