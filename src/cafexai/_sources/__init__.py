"""Models and data that come as files: ``load_model`` and ``read_data``."""

from .data import Data, read_data
from .imported import attribute
from .inputs import columns_of_model, model_inputs
from .models import load_model
from .problems import DataProblem, ModelProblem

__all__ = ["Data", "DataProblem", "ModelProblem", "attribute", "columns_of_model", "load_model", "model_inputs", "read_data"]
