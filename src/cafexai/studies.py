"""``cafexai.studies`` is ``cafexai.paper.studies``."""

import sys

from .paper import studies

sys.modules[__name__] = studies
