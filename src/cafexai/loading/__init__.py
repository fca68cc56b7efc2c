"""Models and data that come as files: ``load_model`` and ``read_data``."""

from .data import Data, read_data
from .file_errors import DataProblem, ModelProblem
from .model_inputs import columns_of_model, model_inputs
from .models import load_model
from .user_code import attribute

__all__ = ["Data", "DataProblem", "ModelProblem", "attribute", "columns_of_model", "load_model", "model_inputs", "read_data"]
