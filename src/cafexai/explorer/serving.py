"""The server: its address, its token, and how it begins and ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import stat
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .._extras import needs
from .session import Session

HOST, PORT, TRIES = "127.0.0.1", 8808, 50
SHORTEST = 32  # letters of a token


class Explorer:
    """A running explorer: ``url`` opens it, ``close`` ends it. ``explore`` makes it.

    Args:
        session: What is explored.
        host: The address to listen at.
        port: The port; None takes a free one.
        token_file: Keep the token in this file.
    """

    def __init__(
        self, session: Session, host: str = HOST, port: int | None = None, token_file: str | os.PathLike[str] | None = None
    ) -> None:
        uvicorn = needs("uvicorn", "explorer")
        needs("starlette", "explorer")
        from .app import application

        token = secrets.token_urlsafe(32) if token_file is None else kept_token(Path(token_file))
        self._session = session
        self._socket = _bound(host, port)
        self.port = self._socket.getsockname()[1]
        name = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
        self.url = f"http://{name}:{self.port}/?token={token}"
        options: dict[str, Any] = {"log_level": "critical", "access_log": False, "server_header": False, "lifespan": "off"}
        guarded = application(session, token, self.port, name)
        self._server = uvicorn.Server(uvicorn.Config(guarded, proxy_headers=False, timeout_graceful_shutdown=2, **options))
        self._server.capture_signals = contextlib.nullcontext  # signals end the session, too: see run
        self._thread: threading.Thread | None = None

    def run(self, say: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGINT or SIGTERM; ``say`` is called when these end it in an orderly way.

        Args:
            say: Called when the page is served.
        """
        with _ending(self._server):
            say()
            self._server.run(sockets=[self._socket])
        self._session.end()

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[self._socket]), daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)

    def open(self) -> None:
        """Show it in the browser of this machine."""
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(self.url)

    def close(self) -> None:
        """End it."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(5)
        self._session.end()


@contextlib.contextmanager
def _ending(server: Any) -> Iterator[None]:
    """SIGINT and SIGTERM end the server in an orderly way; what they did before is put back."""

    def stop(*_: Any) -> None:
        server.should_exit = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bound(host: str, port: int | None) -> socket.socket:
    """A socket at this port; without one, at the first of some that is free."""
    problem: OSError | None = None
    for wanted in [port] if port is not None else range(PORT, PORT + TRIES):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        own = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio lets answers wait for 40 ms
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind((host, wanted))
            own.listen(128)  # who comes before the server answers waits
            return own
        except OSError as error:
            own.close()
            problem = error
    raise ValueError(
        f"explore(..., host={host!r}, port={port}): the address cannot be used ({problem}). Give another port, or end what "
        "uses this one."
    ) from problem


def kept_token(path: Path) -> str:
    """The token of a file that only its owner can read; the file is made if it is not there."""
    call = f"explore(..., token_file={os.fspath(path)!r})"
    try:
        with contextlib.suppress(FileExistsError):
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
            with os.fdopen(made, "w") as file:
                file.write(secrets.token_urlsafe(32) + "\n")
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(opened) as file:
            about = os.fstat(file.fileno())
            text = file.read(1000).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{call}: it cannot be used ({error}).") from error
    if os.name == "posix" and (not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077 or about.st_uid != os.getuid()):
        raise ValueError(f"{call}: others can read or write it. Only its owner may: chmod 600 {path}.")
    if len(text) < SHORTEST or not text.replace("-", "").replace("_", "").isalnum() or not text.isascii():
        raise ValueError(f"{call}: it holds no token. Give the name of a file that is not there, and it is made.")
    return text
