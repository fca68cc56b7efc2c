"""Access to the explorer: only pages of this machine that know the token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from ..serving.guard import Receive, Scope, Send, headers_of, hosts_of, is_json, refusal_of

BODY = 1_000_000  # bytes of a request


class TooLarge(Exception):
    """A body goes on beyond what is taken."""


class Guard:
    """Stands before everything else. The order matters: the name of the host first, then the rest."""

    def __init__(self, app: Any, token: str, port: int, host: str) -> None:
        self.app, self.token = app, token
        self.cookie = f"cafexai-{port}"  # cookies ignore ports
        self.hosts = hosts_of(host, port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse, or hand on with a fresh nonce and with a body that ends in time."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        nonce = secrets.token_urlsafe(16)
        guarded = _with_headers(send, nonce)
        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(guarded, *refusal)
            return
        if scope["method"] == "GET" and scope["path"] == "/" and self._brings_token(scope):
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            await _answer(guarded, 303, "", ((b"location", b"/"), (b"set-cookie", cookie.encode())))
            return
        if not self._is_allowed(scope):
            await _answer(guarded, 401, UNKNOWN)
            return
        scope["nonce"] = nonce
        await self.app(scope, _limit_body(receive), guarded)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        refusal = refusal_of(scope, self.hosts)
        if refusal is not None:
            return refusal
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "There is GET and POST."
        if scope["method"] == "POST":
            if not is_json(scope):
                return 415, "Requests are application/json."
            length = (headers_of(scope, b"content-length") or ["0"])[0]
            if not length.isdecimal() or int(length) > BODY:
                return 413, "The request is too large."
        return None

    def _brings_token(self, scope: Scope) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return len(given) == 1 and self._is_token(given[0])

    def _is_allowed(self, scope: Scope) -> bool:
        for header in headers_of(scope, b"cookie"):
            try:
                cookie = SimpleCookie(header).get(self.cookie)
            except CookieError:
                continue
            if cookie is not None and self._is_token(cookie.value):
                return True
        return False

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


UNKNOWN = (
    "This page is for the user who started it. Open the address with the token that the command printed; "
    "it is different after every start, unless the token is kept by --token-file."
)


def policy(nonce: str) -> str:
    """Nothing but what the page itself brings: no other scripts, no styles in attributes, no frames, no forms."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _with_headers(send: Send, nonce: str) -> Send:
    extra = [
        (b"content-security-policy", policy(nonce).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    ]

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *extra]
        await send(message)

    return guarded


def _limit_body(receive: Receive) -> Receive:
    total = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > BODY:
            raise TooLarge
        return message

    return counted


async def _answer(send: Send, status: int, text: str, more: tuple[tuple[bytes, bytes], ...] = ()) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text.encode())).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
