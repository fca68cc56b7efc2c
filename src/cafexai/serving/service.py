"""What the server is at the moment: the model that answers, its name, and whether it takes more requests."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from ..errors import ModelChanged
from .metrics import Counts
from .rows import Answerer

logger = logging.getLogger("cafexai.serve")


class Service:
    """A model under a name. It can be loaded again while it answers: a request is answered by the model it came to.

    Args:
        answerer: Explains rows.
        name: The model's name in the protocols.
        counts: What was done so far.
        load: Loads the model again.
    """

    def __init__(
        self, answerer: Answerer, name: str = "model", counts: Counts | None = None, load: Callable[[], Answerer] | None = None
    ) -> None:
        self.answerer, self.name, self.counts, self._load = answerer, name, counts or Counts(), load
        self.draining = False
        self._wanted, self._one = threading.Event(), threading.Lock()
        self._session = self._open(answerer)

    def _open(self, answerer: Answerer) -> contextlib.ExitStack:
        """The model belongs to the server: it does not change, so that results of its weights alone are kept."""
        stack = contextlib.ExitStack()
        stack.enter_context(answerer.cafe.session())
        return stack

    def close(self) -> None:
        """End the session of the model; requests that are under way are answered without."""
        try:
            self._session.close()
        except ModelChanged as error:
            logger.error("%s", error)

    @property
    def ready(self) -> bool:
        """Whether more requests are welcome."""
        return not self.draining

    def reload(self) -> None:
        """Load the model again, in another thread; if that fails, the present one goes on."""
        self._wanted.set()
        threading.Thread(target=self._reloaded, name="cafexai-reload", daemon=True).start()

    def _reloaded(self) -> None:
        with self._one:
            if not self._wanted.is_set() or self._load is None:  # another thread has done it
                return
            self._wanted.clear()
            try:
                answerer = self._load()
            except Exception as error:  # of the user's files; the old model goes on
                self.counts.count("cafexai_reloads_total", result="failed")
                logger.error("the model cannot be loaded again, the present one stays: %s", error)
                return
            self.close()
            self.answerer, self._session = answerer, self._open(answerer)
            self.counts.count("cafexai_reloads_total", result="done")
            logger.info("the model was loaded again: fingerprint %s", self.answerer.fingerprint["id"])
