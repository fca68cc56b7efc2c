"""``cafexai.models`` is ``cafexai.paper.models``."""

import sys

from .paper import models

sys.modules[__name__] = models
