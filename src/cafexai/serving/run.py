"""The server on a port: slow or too many connections are closed; it drains before it ends, and may be several processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .._logging import configure_logging
from .._processes import end_with, record_hangups
from .app import application
from .bodies import Limits
from .guard import Guard
from .metrics import Counts
from .observe import Observed
from .rows import Answerer
from .service import Service
from .workers import Workers, say_ready

ASKED = 2.0  # seconds that a new connection has for its request when it stops to listen
KEPT = 1.0  # seconds between two writes of the counts for other processes
logger = logging.getLogger("cafexai.serve")
Load = Callable[[], Answerer]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a server runs.

    Args:
        host: Where it listens.
        port: The port.
        name: The model's name in the protocols.
        workers: Processes, each with the model.
        drain: Seconds from SIGTERM until it stops listening; it says that it is not ready in between.
        log_level: What is logged.
        log_format: "text" or "json".
    """

    host: str = "127.0.0.1"
    port: int = 8000
    name: str = "model"
    workers: int = 1
    drain: float = 5.0
    log_level: str = "warning"
    log_format: str = "text"


def protocol(limits: Limits) -> type[H11Protocol]:
    """HTTP with an eye on connections that ask nothing: they are closed after a while, or when there are too many."""

    class Watched(H11Protocol):
        begun = 0.0  # when it began to ask nothing
        leaving: Watched | None = None  # the last that was closed for another: it is there until the loop comes around

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.begun = time.monotonic()
            self.watch = asyncio.get_running_loop().call_later(limits.seconds, self._look)
            if len(self.connections) > limits.connections and Watched.leaving not in self.connections:
                waiting = [one for one in self.connections if isinstance(one, Watched) and one.waits]
                Watched.leaving = min(waiting, key=lambda one: one.begun) if waiting else self
                Watched.leaving.transport.abort()

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


class _Server(uvicorn.Server):
    """On SIGTERM it first says that it is not ready, for a while; a second signal ends it at once."""

    def __init__(self, config: uvicorn.Config, service: Service, drain: float) -> None:
        super().__init__(config)
        self._service, self._drain = service, drain

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Drain, or end."""
        if sig == signal.SIGTERM and self._drain > 0 and not self._service.draining:
            self._service.draining = True
            logger.info("SIGTERM: not ready any more; it stops to listen in %g s", self._drain)
            end = threading.Timer(self._drain, super().handle_exit, (sig, frame))
            end.daemon = True
            end.start()
            return
        self._service.draining = True
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop to listen: who is connected by then is still answered."""
        waiting = [one for server in self.servers for listening in server.sockets for one in _accept_waiting(listening)]
        for server in self.servers:  # at once, so that no connection comes in between
            server.close()
        loop, config = asyncio.get_running_loop(), self.config

        def make() -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            return made(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        for one in waiting:
            await loop.connect_accepted_socket(make, one)
        until = time.monotonic() + ASKED
        while not self.force_exit and time.monotonic() < until and self._are_expected():
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)

    def _are_expected(self) -> bool:
        """Whether a connection is new and has not asked anything yet."""
        asking = [one for one in self.server_state.connections if isinstance(one, H11Protocol) and one.cycle is None]
        return any(time.monotonic() - getattr(one, "begun", 0.0) < ASKED for one in asking)


def _accept_waiting(listening: Any) -> Iterator[socket.socket]:
    """Connections that wait to be accepted."""
    with listening.dup() as same, contextlib.suppress(OSError):  # there are no more
        same.setblocking(False)
        while True:
            one, _ = same.accept()
            one.setblocking(False)
            yield one


def serve(load: Load, settings: Settings | None = None, limits: Limits | None = None) -> None:
    """Answer until SIGTERM or Ctrl-C; what is under way then is finished. SIGHUP loads the model again.

    Args:
        load: Makes the answerer. For several processes it is sent to each of them.
        settings: Where it listens, and in how many processes.
        limits: What is held against too much.
    """
    settings, limits = settings or Settings(), limits or Limits()
    if settings.workers > 1:
        _supervise(load, settings, limits)
    else:
        _listen(load, settings, limits, None, None, 0)


def _listen(load: Load, settings: Settings, limits: Limits, sock: socket.socket | None, folder: str | None, place: int) -> None:
    hangups, counts = record_hangups(), Counts(folder, place)
    service = Service(load(), settings.name, counts, load)
    limits = dataclasses.replace(limits, connections=min(limits.connections, _files() // 2))
    config = uvicorn.Config(
        Observed(Guard(application(service, limits), settings.host, settings.port), service),
        host=settings.host,
        port=settings.port,
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
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: service.reload())
    if hangups.met:
        service.reload()
    if folder is not None:
        threading.Thread(target=_keep, args=(counts,), daemon=True).start()
        say_ready(folder, place)
    logger.info("model %s, fingerprint %s", settings.name, service.answerer.fingerprint["id"])
    _Server(config, service, settings.drain).run(None if sock is None else [sock])
    service.close()


def _keep(counts: Counts) -> None:
    while True:
        time.sleep(KEPT)
        with contextlib.suppress(OSError):  # the folder goes first at the end
            counts.keep()


def _supervise(load: Load, settings: Settings, limits: Limits) -> None:
    """Several processes that listen to one socket."""
    context = get_context("spawn")  # a fork would copy the locks of torch's threads
    life, held = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="cafexai-") as folder, _bound(settings) as sock:
        Workers(
            settings.workers,
            lambda place: context.Process(target=_child, args=(load, settings, limits, sock, folder, place, life)),
            folder,
            sock.close,  # the processes have it, too, and the last that closes it resets who waits
        ).run()
        held.close()


def _child(
    load: Load, settings: Settings, limits: Limits, sock: socket.socket, folder: str, place: int, life: Connection
) -> None:
    record_hangups()
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C is for the process that started this one, which hands it on
    end_with(life)
    configure_logging(settings.log_level, settings.log_format)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // settings.workers))
    _listen(load, settings, limits, sock, folder, place)


def _bound(settings: Settings) -> socket.socket:
    family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((settings.host, settings.port))
    sock.set_inheritable(True)
    return sock


def _files() -> int:
    """How many files and connections this process may have open."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 512
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(32, soft)
