"""The carriers: how influence is propagated through a model (``netting=``)."""

from .._core.value import Scores
from .feature import FeatureScores
from .paired import PairedScores
from .path import PathScores
from .unit import UnitScores

CARRIERS: dict[str, type[Scores]] = {"path": PathScores, "feature": FeatureScores, "unit": UnitScores}
PAIRED: dict[type[Scores], type[Scores]] = {FeatureScores: PairedScores}  # carriers that know which feature cancels which
