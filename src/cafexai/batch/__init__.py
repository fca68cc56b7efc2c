"""Scores for files of any number of rows: ``score(cafe, source, sink)``; frames: ``score_ray``, ``score_spark``."""

from ._frames import score_ray, score_spark
from ._progress import Summary
from ._run import score

__all__ = ["Summary", "score", "score_ray", "score_spark"]
