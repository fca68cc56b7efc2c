"""Handwritten digits: where does a network see what it says, where the opposite, and where do both meet?

python examples/tutorials/digits.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from cafexai import CAFE


def load() -> list[Tensor]:
    """Images (rows, 1, 8, 8) from 0 to 1 for training and test, and their digits."""
    digits = load_digits()
    parts = train_test_split(digits.images / 16, digits.target, test_size=0.3, random_state=0, stratify=digits.target)
    images = [torch.tensor(part, dtype=torch.float32)[:, None] for part in parts[:2]]
    return [*images, *(torch.tensor(part) for part in parts[2:])]


def trained(x: Tensor, y: Tensor) -> nn.Module:
    """A small convolutional network."""
    torch.manual_seed(0)
    features = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*features, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(12):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    """Train, explain the row that was hardest, for its class and against the next one; write pictures and a report."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    x_train, x, y_train, y = load()
    model = trained(x_train, y_train)
    logits = model(x).detach()
    print(f"{(logits.argmax(1) == y).float().mean():.1%} of {len(y)} test images are right.")

    first, second = logits.topk(2).values.T
    row = int((first - second).argsort()[4])  # a close one
    likely, next_best = logits[row].topk(2).indices.tolist()
    print(f"Image {row} is a {y[row]}; the network says {likely}, but {next_best} is close.")
    names = [str(digit) for digit in range(10)]
    cafe = CAFE(model, variant="feature", class_names=names, probability="softmax")

    # The baseline is a black image. The paths of each pixel are summed first, so that conflicts are between pixels.
    rows = [row, *range(19)]
    explanation = cafe.explain(x[rows])
    explanation.plot(0).savefig(folder / "digit.png", dpi=130)
    contrast = cafe.explain(x[[row]], target=likely, against=next_best)
    contrast.plot(0).savefig(folder / "digit-against.png", dpi=130)
    difference, both = contrast.output.item(), contrast.conflict.item()
    print(f"{likely} is ahead of {next_best} by {difference:.2f}; pixels that disagree cancelled {both:.2f}.")
    report = explanation.report(
        folder / "digits.html",
        title="What the network sees",
        model=model,
        data="test images of scikit-learn's digits",
        row_names=[f"Image {number}" for number in rows],
    )
    print(f"Pictures: {folder / 'digit.png'}, {folder / 'digit-against.png'}; a report: {report}")


if __name__ == "__main__":
    main()
