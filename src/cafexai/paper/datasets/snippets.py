"""Sentences of film reviews with ratings by people: a task for models of text."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .files import Folder, find

ARCHIVE = "movie-snippets/vaderSentiment-3.3.2.tar.gz"
TABLE = "movieReviewSnippets_GroundTruth.txt"


@dataclass(frozen=True)
class Snippets:
    """Sentences, in an order drawn once, with the mean rating of twenty people.

    Args:
        name: The name of the data set.
        texts: The sentences.
        ratings: From -4, very negative, to 4.
        citation: What to cite.
        terms: The terms of use.
    """

    name: str
    texts: tuple[str, ...]
    ratings: tuple[float, ...]
    citation: str
    terms: str

    @property
    def labels(self) -> tuple[int, ...]:
        """1 for a positive rating, 0 for a negative one."""
        return tuple(int(rating > 0) for rating in self.ratings)

    def __repr__(self) -> str:
        return f"Snippets({self.name}: {len(self.texts)} sentences)"


def movie_snippets(*, folder: Folder = None, least: float = 1.0, words: tuple[int, int] = (6, 25), seed: int = 0) -> Snippets:
    """Snippets of film reviews with a clear rating.

    They come with the source archive of the Python package vaderSentiment; a folder may hold its table alone.

    Args:
        folder: Where the files are; None takes ``CAFEXAI_DATA``, or downloads them.
        least: How far the rating is at least away from 0.
        words: The smallest and the largest number of words.
        seed: Decides the order.

    Returns:
        The snippets.

    Raises:
        DataNotFound: The files are missing.
    """
    path = find("movie_snippets()", f"movie-snippets/{TABLE}", ARCHIVE, folder=folder)
    kept = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        parts = line.split("\t", 2)
        try:
            rating, text = float(parts[1]), parts[2].strip()
        except (IndexError, ValueError):
            raise ValueError(
                f"movie_snippets(): line {number} of {path} is not a number, a rating and a text, separated by tabs."
            ) from None
        if abs(rating) >= least and words[0] <= len(text.split()) <= words[1]:
            kept.append((text, rating))
    if not kept:
        raise ValueError(f"movie_snippets(least={least}, words={words}): {path} holds no such snippet.")
    order = np.random.default_rng(seed).permutation(len(kept)).tolist()
    return Snippets(
        name="movie_snippets",
        texts=tuple(kept[i][0] for i in order),
        ratings=tuple(kept[i][1] for i in order),
        citation="Hutto and Gilbert, VADER: a parsimonious rule-based model for sentiment analysis of social media text, 2014; "
        "snippets from Pang and Lee, Seeing stars, 2005",
        terms="MIT licence of vaderSentiment; none stated for the snippets",
    )


def _text(path: Path) -> str:
    """The table: a file of its own, or in an archive inside the archive of the package."""
    if path.suffix == ".txt":
        return path.read_text(encoding="utf-8")
    with tarfile.open(path) as outer:
        inner = _member(outer, "hutto_ICWSM_2014.tar.gz", path)
    with tarfile.open(fileobj=io.BytesIO(inner)) as archive:
        return _member(archive, TABLE, path).decode("utf-8")


def _member(archive: tarfile.TarFile, end: str, path: Path) -> bytes:
    for member in archive:
        if member.name.endswith(end) and (file := archive.extractfile(member)) is not None:
            return file.read()
    raise ValueError(f"movie_snippets(): {path} holds no {end}; is it the source archive of vaderSentiment 3.3.2?")
