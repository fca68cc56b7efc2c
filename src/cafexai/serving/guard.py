"""Which requests are accepted: those to this address, and none that a foreign page makes a browser send."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::", "")


def hosts_of(host: str, port: int) -> set[str]:
    """What the Host header may be for a server that listens there."""
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    names = {*LOOPBACK, *({name.lower()} if host not in EVERYWHERE else ())}
    return {f"{name}:{port}" for name in names} | (names if port == 80 else set())


def headers_of(scope: Scope, name: bytes) -> list[str]:
    """All headers of this name."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def refusal_of(scope: Scope, hosts: set[str] | None) -> tuple[int, str] | None:
    """Why a request is not let in: DNS rebinding, or a page of another site. ``hosts=None`` takes any Host."""
    given = [host.lower() for host in headers_of(scope, b"host")]
    if len(given) != 1 or (hosts is not None and given[0] not in hosts):
        return 421, "This address is not served here."
    allowed = {f"{scheme}://{host}" for scheme in ("http", "https") for host in (hosts or given)}
    origins = headers_of(scope, b"origin")
    if origins and (len(origins) > 1 or origins[0].lower() not in allowed):
        return 403, "Other pages have no access."
    if any(site not in ("same-origin", "none") for site in headers_of(scope, b"sec-fetch-site")):
        # a link from elsewhere may open a page
        if not (scope["method"] == "GET" and headers_of(scope, b"sec-fetch-mode") == ["navigate"]):
            return 403, "Other pages have no access."
    return None


def is_json(scope: Scope) -> bool:
    """The body is said to be JSON; a page of another site cannot say so without being asked for permission."""
    kinds = headers_of(scope, b"content-type")
    return len(kinds) == 1 and kinds[0].partition(";")[0].strip().lower() == "application/json"


class Guard:
    """Stands before the application; with ``--host 0.0.0.0`` any Host is taken, as a load balancer may send any."""

    def __init__(self, app: Any, host: str, port: int) -> None:
        self.app = app
        self.hosts = None if host in EVERYWHERE else hosts_of(host, port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or hand on."""
        refusal = refusal_of(scope, self.hosts) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        status, told = refusal
        body = json.dumps({"error": told}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
