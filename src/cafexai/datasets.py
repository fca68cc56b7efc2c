"""``cafexai.datasets`` is ``cafexai.paper.datasets``."""

import sys

from .paper import datasets

sys.modules[__name__] = datasets
