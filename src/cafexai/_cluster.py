"""A Ray cluster to work on: one that exists, or one of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

from ._extras import needs


def check_address(call: str, address: str) -> None:
    """Fail fast if the cluster's address does not accept connections: Ray and Spark themselves wait for minutes."""
    host, _, port = address.rpartition("://")[2].partition(",")[0].rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), 10).close()
        except (OSError, OverflowError) as error:
            raise ValueError(
                f"{call}(..., address={address!r}): the address does not accept connections ({_first_line(error)})."
            ) from error


@contextlib.contextmanager
def ray_cluster(call: str, address: str | None) -> Iterator[Any]:
    """The module ``ray``, connected; a connection that was made here is closed at the end. ``call`` is named in errors."""
    if address is not None:
        check_address(call, address)
    ray = needs("ray", "ray")
    own = not ray.is_initialized()
    if own:
        # A cluster of our own listens to this machine alone.
        here = {} if address or os.environ.get("RAY_ADDRESS") else {"_node_ip_address": "127.0.0.1"}
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=False, configure_logging=False, **here)
        except Exception as error:  # Ray raises it plain where a busy machine starts it too slowly
            raise ValueError(f"{call}(..., address={address!r}): Ray does not start ({_first_line(error)}).") from error
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
