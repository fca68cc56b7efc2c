"""``cafexai.studies`` is ``cafexai.paper.studies``."""

from .paper.moved import move

move(__name__)
