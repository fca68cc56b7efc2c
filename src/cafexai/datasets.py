"""``cafexai.datasets`` is ``cafexai.paper.datasets``."""

from .paper.moved import move

move(__name__)
