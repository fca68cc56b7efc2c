"""Train a small network on breast-cancer data, explain its test set, read one prediction, and write a report of all.

python examples/demo.py [REPORT.html]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from cafexai import CAFE, Explanation


def load() -> tuple[list[Tensor], list[str]]:
    """Measurements of training and test set, the labels of both (1 = malignant), and the names of the measurements."""
    data = load_breast_cancer()
    parts = train_test_split(data.data, 1 - data.target, test_size=0.3, random_state=0, stratify=data.target)
    return [torch.tensor(part, dtype=torch.float32) for part in parts], [str(name) for name in data.feature_names]


def train(x: Tensor, y: Tensor) -> nn.Module:
    """A network with two hidden layers and one output: above 0 it says malignant."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.003)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y).backward()
        optimizer.step()
    return model.eval()


def explain_test_set() -> tuple[Explanation, Tensor]:
    """The explanation of every test row in one call, and whether each prediction is correct."""
    (x_train, x_test, y_train, y_test), names = load()
    mean, spread = x_train.mean(0), x_train.std(0)
    model = train((x_train - mean) / spread, y_train)
    explanation = CAFE(model, feature_names=names).explain((x_test - mean) / spread, display=x_test)
    return explanation, (explanation.output > 0) == (y_test > 0)


def most_conflicted(explanation: Explanation, correct: Tensor) -> int:
    """Of the malignant tumours that the network recognised, the one with most conflict for its output."""
    recognised = correct & (explanation.output > 0)
    return int((explanation.conflict / explanation.output * recognised).argmax())


def main() -> None:
    """Print accuracy, one ledger and how to read it; write the report."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-report.html")
    explanation, correct = explain_test_set()
    row = most_conflicted(explanation, correct)
    one = explanation[row]
    print(f"Test accuracy: {correct.float().mean():.1%} of {len(correct)} tumours.\n")
    print(f"Tumour {row} of the test set. Output 0 is the logit for malignant: above 0 means malignant.\n")
    print(one.ledger())
    print()
    print(reading(one))
    print(f"\nA report of all {len(explanation)} tumours, for a browser: {write_report(explanation, place).resolve()}")


def write_report(explanation: Explanation, place: Path) -> Path:
    """One page with every tumour."""
    return explanation.report(
        place,
        title="Is this tumour malignant?",
        data="the test set of scikit-learn's breast cancer data; the score is above 0 where the network says malignant",
        row_names=[f"Tumour {row}" for row in range(len(explanation))],
    )


def reading(one: Explanation) -> str:
    """How to read the table, with its own numbers."""
    up, down = one.positive[0], one.negative[0]
    divided = int(torch.minimum(up, down).argmax())
    return (
        f"How to read it: compared with an average tumour, the measurements push the output up by {up.sum():.2f} and down by\n"
        f"{down.sum():.2f}. The smaller of both is the conflict. What remains, added to the baseline output, is the output:\n"
        f"the verdict is right, but close. {one.names()[divided].capitalize()} alone pushes {up[divided]:.2f} up "
        f"and {down[divided]:.2f} down, "
        "which its net hides."
    )


if __name__ == "__main__":
    main()
