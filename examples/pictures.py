"""Draw the pictures of docs/pictures.md: python examples/pictures.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from demo import explain_test_set, load, most_conflicted, train
from sklearn.datasets import load_digits
from torch import Tensor, nn

from cafexai import CAFE, Explanation, metrics

REVIEWS = """
+ a superb and moving story
+ the music is lovely and the ending is superb
+ slow at first but moving and well played
+ not loud and not long , a lovely film
+ two hours that feel short
+ the actors are superb , the story is moving
- a long and loud film
- the story is slow and the ending is rushed
- not moving at all
- the actors are lovely but the story is dull
- dull , loud and far too long
- two hours that feel long and dull
"""
SHOWN = "the ending is rushed and the music is loud , but the story is moving and the actors are superb"


def tumours() -> tuple[Explanation, int]:
    """Explanations of the demo's test set, and the row it prints; with the names of both answers and the probability."""
    explanation, correct = explain_test_set()
    known = explanation.replace(class_names=("malignant",), probability=explanation.output.sigmoid())
    return known, most_conflicted(explanation, correct)


def digits() -> tuple[nn.Module, Tensor]:
    """A small network that reads digits, and some of them."""
    torch.manual_seed(0)
    data = load_digits()
    x, y = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16, torch.tensor(data.target)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[:1400]), y[:1400]).backward()
        optimizer.step()
    return model.eval(), x[1400:]


class Reviews(nn.Module):
    """Adds up what each pair of neighbouring words says."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 8)
        self.net = nn.Sequential(nn.Conv1d(8, 16, 2), nn.GELU(), nn.Conv1d(16, 1, 1))

    def forward(self, ids: Tensor) -> Tensor:
        """Above 0: a good review."""
        return self.net(self.embed(ids).transpose(1, 2)).sum(2)


def train_reviews() -> tuple[Reviews, list[str]]:
    """A network that has read a dozen reviews, and the words that it knows, by code."""
    lines = [line.split() for line in REVIEWS.strip().splitlines()]
    known = {word: place for place, word in enumerate(sorted({word for _, *words in lines for word in words}))}
    torch.manual_seed(0)
    model = Reviews(len(known))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        for sign, *words in lines:
            optimizer.zero_grad()
            score = model(torch.tensor([[known[word] for word in words]]))
            nn.functional.softplus(-score if sign == "+" else score).sum().backward()
            optimizer.step()
    return model.eval(), list(known)


def review() -> Explanation:
    """One sentence, read by this network."""
    model, words = train_reviews()
    explanation = CAFE(model).explain(torch.tensor([[words.index(word) for word in SHOWN.split()]]))
    names = {"tokens": (tuple(SHOWN.split()),), "class_names": ("good review",)}
    return explanation.replace(**names, probability=explanation.output.sigmoid())


def main() -> None:
    """Write all pictures to the folder given as the only argument."""
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/pictures.py FOLDER")
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    explanation, row = tumours()
    model, images = digits()
    (x_train, x_test, y_train, _), names = load()
    scaled = [(part - x_train.mean(0)) / x_train.std(0) for part in (x_train, x_test)]
    tumour = train(scaled[0], y_train)
    cafe, rows = CAFE(tumour, feature_names=names), scaled[1][row : row + 1]
    reader = CAFE(model, class_names=[f"digit {i}" for i in range(10)])
    drawn = {
        "table": explanation.plot(row, most=10),
        "image": CAFE(model).explain(images[:6]).plot(2, beside=CAFE(model, c=0.0).explain(images[:6]), view="detail"),
        "check": reader.explain(images[:6]).plot(2, cells=4, check=reader),
        "random": metrics.randomised(reader, images[:100]).plot(),
        "text": review().plot(0),
        "summary": explanation.plot.summary(10),
        "pairs": cafe.replace(variant="feature").explain(rows, pairs=True).plot.pairs(0, 7),
        "classes": CAFE(model).explain_classes(images[2:3]).plot(0),
        "sweep": cafe.sweep(rows, c=[0, 0.25, 0.5, 0.75, 1]).plot(0, 6),
        "biases": cafe.replace(variant="published").explain(rows).plot.biases(0),
    }
    for name, figure in drawn.items():
        figure.savefig(folder / f"{name}.png", dpi=90)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
