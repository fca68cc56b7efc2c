"""``cafexai.models`` is ``cafexai.paper.models``."""

from .paper.moved import move

move(__name__)
