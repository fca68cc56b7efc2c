"""The server on a port: connections that are slow, or too many, are closed."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .app import Limits, application
from .guard import Guard
from .rows import Answerer


def protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP with an eye on connections that ask nothing: they are closed after a while, or when there are too many."""

    class Watched(H11Protocol):
        begun = 0.0  # when it began to ask nothing

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.begun = time.monotonic()
            self.watch = asyncio.get_running_loop().call_later(limits.seconds, self._look)
            if len(self.connections) > limits.connections:
                waiting = [one for one in self.connections if isinstance(one, Watched) and one.waits]
                (min(waiting, key=lambda one: one.begun) if waiting else self).transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self.watch.cancel()
            super().connection_lost(exc)

        @property
        def rests(self) -> bool:
            """No request is under way."""
            return self.cycle is None or self.cycle.response_complete

        @property
        def waits(self) -> bool:
            """For the other side: it rests, or a request has not come as a whole."""
            return self.rests or self.cycle.more_body

        def on_response_complete(self) -> None:
            self.begun = time.monotonic()
            super().on_response_complete()

        def _look(self) -> None:
            late = time.monotonic() - self.begun >= limits.seconds
            if self.rests and late:
                self.transport.abort()
            else:
                self.watch = asyncio.get_running_loop().call_later(limits.seconds / 2, self._look)

    return Watched


def serve(answerer: Answerer, host: str, port: int, limits: Limits | None = None) -> None:
    """Answer until SIGTERM or Ctrl-C; what is under way then is finished."""
    limits = limits or Limits()
    limits = dataclasses.replace(limits, connections=min(limits.connections, _files() // 2))
    config = uvicorn.Config(
        Guard(application(answerer, limits), host, port),
        host=host,
        port=port,
        http=protocol(limits),
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=64 * 1024,
        server_header=False,
    )
    uvicorn.Server(config).run()


def _files() -> int:
    """How many files and connections this process may have open."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 512
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(32, soft)
