"""Scores for files of any number of rows: ``score(cafe, source, sink)``; for Spark frames ``score_spark(frame, cafe)``."""

from ._progress import Summary
from ._run import score
from ._spark import score_spark

__all__ = ["Summary", "score", "score_spark"]
