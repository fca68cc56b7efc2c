"""Take the pictures of docs/explorer.md: python examples/explorer_pictures.py FOLDER

They need playwright and Chromium (``make browser`` installs both). The people are made up; the network is trained on them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from cafexai import CAFE, Schema, explore
from pictures import SHOWN, Reviews, digits, train_reviews

ROWS, LATER, WIDTH, WIDE = 3000, 1000, 1086, 760  # WIDE: pixels of a picture
CODE = '''\
from torch import nn


def make():
    """Numbers of different sizes are standardised first."""
    hidden = [nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU()]
    return nn.Sequential(nn.BatchNorm1d(13, affine=False), *hidden, nn.Linear(16, 2))
'''
TABLE = ("network:make", "people.csv", "--weights", "network.safetensors", "--schema", "schema.toml", "--label", "repaid")
CHANGED = ("income", "1.5")  # of the row that is shown


def people(count: int, seed: int, richer: float = 1.0) -> pd.DataFrame:
    """Loans of people that do not exist: income and years in a job help, debts hurt, and more to those who earn little."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 80, count),
            "income": (richer * random.lognormal(1, 0.5, count)).round(2),
            "debts": random.gamma(1.5, 1.2, count).round(2),
            "children": random.integers(0, 5, count),
            "years_employed": random.integers(0, 40, count),
            "job": random.choice(["clerk", "cook", "nurse", "teacher"], count),
            "city": random.choice(["Lima", "Oslo", "Rome", "Seoul"], count),
        }
    )
    need = 0.4 * frame["children"] + 1.6 * frame["debts"] / np.sqrt(frame["income"])
    score = frame["income"] + 0.05 * frame["years_employed"] - need + random.normal(0, 0.7, count)
    return frame.assign(repaid=np.where(score > np.median(score), "yes", "no"))


def write_table(folder: Path) -> None:
    """Code, weights, schema and two tables."""
    frame = people(ROWS, 0)
    frame.to_csv(folder / "people.csv", index=False)
    people(LATER, 1, richer=0.8).to_csv(folder / "later.csv", index=False)
    (folder / "network.py").write_text(CODE, encoding="utf-8")
    inputs = frame.drop(columns="repaid")
    schema = Schema.from_frame(inputs, one_hot=True, classes=["no", "yes"], probability="softmax")
    schema.write(folder / "schema.toml")
    made: dict[str, Any] = {}
    exec(CODE, made)
    torch.manual_seed(0)
    model, x = made["make"](), torch.as_tensor(np.asarray(schema.encode(inputs)[0]), dtype=torch.float32)
    y = torch.tensor((frame["repaid"] == "yes").to_numpy()).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.001)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    save_file(model.state_dict(), folder / "network.safetensors")


@contextmanager
def table_explorer(folder: Path) -> Iterator[str]:
    """The address of ``cafexai explore`` on the table."""
    command = [sys.executable, "-m", "cafexai", "explore", *TABLE, "--second", "later.csv", "--no-open"]
    running = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    try:
        assert running.stdout is not None
        yield next(line for line in running.stdout if "?token=" in line).split()[-1]
    finally:
        running.terminate()
        running.wait(20)


def tokenizer(words: list[str]) -> Any:
    """Splits at spaces; the codes are those of the words in alphabetical order."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(sorted(words))}, unk_token=words[0]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=["input_ids"])


class Reader(nn.Module):
    """Calls the network with what a tokenizer returns."""

    def __init__(self, net: Reviews) -> None:
        super().__init__()
        self.net = net

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Above 0: a good review."""
        return self.net(input_ids)


def reduce_colours(picture: Image.Image) -> Image.Image:
    """The picture in 256 colours, a third of the size: surfaces keep theirs, the edges of letters get the nearest."""
    pixels = np.asarray(picture).reshape(-1, 3)
    every, place, count = np.unique(pixels, axis=0, return_inverse=True, return_counts=True)
    rare = picture.quantize(96, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).getpalette() or []
    palette = np.concatenate([every[np.argsort(-count)[:160]], np.reshape(rare[:288], (-1, 3))]).astype(int)
    nearest = np.square(every.astype(int)[:, None] - palette).sum(2).argmin(1).astype(np.uint8)
    found = Image.fromarray(nearest[place].reshape(picture.height, picture.width))
    found.putpalette(palette.astype(np.uint8).tobytes())
    return found


class Camera:
    """One browser page, and the folder that its pictures are put in."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page, self.folder = page, folder

    def open(self, address: str, view: str) -> None:
        """The explorer, with one of its views."""
        self.page.goto(address)
        self.go(view)

    def go(self, view: str) -> None:
        """Another view."""
        self.page.locator(f"#view-{view}").click()
        self.page.locator(f"#view-{view}[aria-current=page]").wait_for()

    def open_row(self, place: int) -> None:
        """One row."""
        self.go("row")
        self.page.locator("#go-row").fill(str(place))
        self.page.keyboard.press("Enter")
        self.page.locator("#row-name", has_text=f"Row {place}").wait_for()

    def take(self, name: str, height: int | None = None) -> None:
        """A picture of the page, from its top to this height or whole."""
        self.page.mouse.move(0, 0)
        self.page.wait_for_timeout(1500)  # what is asked for last, such as hidden conflicts, is there
        whole = self.page.evaluate("() => document.documentElement.scrollHeight")
        shown = whole if height is None else min(height, whole)
        self.page.set_viewport_size({"width": WIDTH, "height": shown})
        file = self.folder / f"{name}.png"
        self.page.screenshot(path=file)
        reduce_colours(Image.open(file).convert("RGB")).save(file, optimize=True)
        self.page.set_viewport_size({"width": WIDTH, "height": 750})
        print(file)


def take_table(camera: Camera, address: str) -> None:
    """The six views of the table."""
    page = camera.page
    camera.open(address, "rows")
    page.locator("#progress", has_text="All rows are scored").wait_for(timeout=300_000)
    page.locator('[data-by="share"]').click()
    page.wait_for_timeout(1000)
    place = int(page.locator("#rows tbody th").first.inner_text().split()[-1])  # the row with the largest share of conflict
    camera.take("rows", 750)
    camera.open_row(place)
    page.locator(f'[id="cell-{CHANGED[0]}"]').fill(CHANGED[1])
    page.keyboard.press("Enter")
    page.locator("#output-before").wait_for()
    camera.take("row")
    camera.go("take")
    page.locator("#python").wait_for()
    camera.take("take", 750)
    camera.go("fights")
    for part in ("#pair-sentences", "#inside-sentences", ".layers"):
        page.locator(part).first.wait_for()
    camera.take("fights", 2010)
    camera.go("row")
    page.locator("#reset").click()
    page.locator("#baseline").select_option("median")  # other methods take one baseline
    camera.go("sides")
    page.locator('#side-method-1 option[value="kernel_shap"]').wait_for(state="attached", timeout=120_000)
    page.locator("#side-method-1").select_option("kernel_shap")
    page.locator("#side-told-1", has_text="Kernel SHAP").wait_for()
    camera.take("sides", 750)
    camera.go("overview")
    page.locator("#covered").wait_for()
    camera.take("overview")


def take_others(camera: Camera) -> None:
    """A picture with a region painted over, and a text with a word struck."""
    model, images = digits()
    named = CAFE(model, class_names=[f"digit {i}" for i in range(10)])
    shown = explore(named, images[:40].numpy(), title="digits", open_browser=False, block=False)
    camera.open(shown.url, "row")
    camera.page.locator(".maps img").first.wait_for()
    for side, value in (("top", 6), ("left", 0), ("bottom", 8), ("right", 8)):
        camera.page.locator(f"#region-{side}").fill(str(value))
    camera.page.locator("#paint").click()
    camera.page.locator("#output-before").wait_for()
    camera.take("picture")
    shown.close()
    net, words = train_reviews()
    texts = [SHOWN, SHOWN.replace("superb", "dull"), SHOWN.replace("moving", "slow")]
    cafe = CAFE(Reader(net).eval(), tokenizer=tokenizer(words), class_names=["bad review", "good review"])
    shown = explore(cafe, texts, title="reviews", open_browser=False, block=False)
    camera.open(shown.url, "row")
    camera.page.locator(f"#word-{SHOWN.split().index('superb')}").click()
    camera.page.locator("#output-before").wait_for()
    camera.take("text")
    shown.close()


def main() -> None:
    """Take all pictures, into the folder given as the only argument."""
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/explorer_pictures.py FOLDER")
    chromium = os.environ.get("CAFEXAI_CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        chromium = None
    if chromium is None:
        print("The pictures of the explorer stay as they are: playwright or Chromium is missing (make browser installs both).")
        return
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as files:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 750}, device_scale_factor=WIDE / WIDTH)
        page.set_default_timeout(60_000)
        camera = Camera(page, folder)
        write_table(Path(files))
        with table_explorer(Path(files)) as address:
            take_table(camera, address)
        take_others(camera)
        browser.close()


if __name__ == "__main__":
    main()
