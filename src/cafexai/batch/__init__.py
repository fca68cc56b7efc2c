"""Scores for files of any number of rows: ``score(cafe, source, sink)``; frames: ``score_ray``, ``score_spark``."""

from ._estimate import Estimate, estimate
from ._fingerprint import Fingerprints
from ._frames import score_ray, score_spark
from ._progress import Summary
from ._run import score
from ._verify import Verified, verify

__all__ = ["Estimate", "Fingerprints", "Summary", "Verified", "estimate", "score", "score_ray", "score_spark", "verify"]
