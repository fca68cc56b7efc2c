"""Names of data sets in settings: "titanic", and after an @ what is different about its networks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .record import Settings

OPENXAI = ("compas", "heloc", "adult", "german")
TABLES = (*OPENXAI, "titanic", "mimic", "covertype")  # all of the paper
# FT-Transformers as the authors' code has them: they read the last token, look one-hot blocks up by argmax and give these no
# bias; OpenXAI's data are shuffled.
AUTHORS = "authors"


@dataclass(frozen=True)
class Variant:
    """A data set and its networks, of a family "mlp" or "ft"; ``rate`` is another learning rate than the usual one."""

    data: str
    family: str
    as_authors: bool = False
    rate: float | None = None

    @classmethod
    def of(cls, name: str, family: str) -> Variant:
        """Read "titanic", "titanic@authors" or "titanic@5e-4"."""
        if not isinstance(name, str):
            raise ValueError(f"data {name}: give names, such as --set 'data=[\"titanic\"]'.")
        data, at, what = name.partition("@")
        if not at:
            return cls(data, family)
        variant = cls(data, family, as_authors=True) if what == AUTHORS else cls(data, family, rate=_rate(what))
        if not variant.as_authors and variant.rate is None:
            raise ValueError(f"data {name}: after the @ may stand a learning rate between 0 and 1, or '{AUTHORS}'.")
        if variant.given or (variant.as_authors and family != "ft"):
            usual = "OpenXAI's network is not trained by us" if variant.given else "only FT-Transformers are built in two ways"
            raise ValueError(f"data {name}: {usual}. Leave out what stands after the {data}.")
        return variant

    @property
    def title(self) -> str:
        """What is said behind a claim about these networks."""
        if self.as_authors:
            return ", networks built as the authors do"
        return f", networks trained at a rate of {self.rate:g}" if self.rate else ""

    @property
    def given(self) -> bool:
        """Whether the network is OpenXAI's, with its weights."""
        return self.family == "mlp" and self.data in OPENXAI

    @property
    def shuffled(self) -> bool:
        """Whether rows are shuffled before every epoch."""
        return self.as_authors and self.data in OPENXAI

    def demo(self, settings: Settings) -> bool:
        """Whether it is the open demo of MIMIC-IV."""
        return self.data == "mimic" and bool(settings["mimic_demo"])

    def epochs(self, settings: Settings) -> int:
        """How long its networks are trained."""
        return int(settings.get("demo_epochs" if self.demo(settings) else "epochs", settings["epochs"]))


def _rate(word: str) -> float | None:
    try:
        rate = float(word)
    except ValueError:
        return None
    return rate if 0 < rate < 1 and word == word.strip() else None


def kinds(names: Iterable[str], family: str) -> dict[str, list[str]]:
    """Names by what is different about their networks: claims are about one kind at a time."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(Variant.of(name, family).title, []).append(name)
    return found


def own_settings(name: str, settings: Settings) -> Settings:
    """The settings for one data set."""
    return {**settings, **settings["per_data"].get(name, {})}
