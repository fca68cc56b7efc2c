"""The server: POST rows, get scores."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .. import __version__
from .batching import Full, Together
from .guard import is_json
from .metrics import Counts
from .openapi import document
from .rows import Answerer


@dataclass(frozen=True)
class Limits:
    """What is held against too much."""

    body: int = 1 << 20  # bytes of a request
    rows: int = 1000  # of a request
    waiting: int = 4000  # rows in all
    seconds: float = 10.0  # until a request must have come in
    connections: int = 512


class Refusal(HTTPException):
    """An answer that says what is wrong."""


def application(answerer: Answerer, limits: Limits) -> Starlette:
    """All routes."""
    counts = Counts()
    together = Together(answerer, counts, limits.waiting)
    described = document(__version__, answerer.columns, limits.rows)

    async def explain(request: Request) -> Response:
        begin = time.monotonic()
        try:
            rows = _rows(await _body(request, limits), limits)
            results = await together.explain(rows)
        except HTTPException as error:
            counts.request(error.status_code, time.monotonic() - begin)
            raise
        except Full:
            counts.request(503, time.monotonic() - begin)
            return _error(503, "too many rows wait; try again in a second", {"Retry-After": "1"})
        except RuntimeError as error:
            counts.request(500, time.monotonic() - begin)
            return _error(500, str(error))
        counts.request(200, time.monotonic() - begin)
        return JSONResponse({"results": results})

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__, "rows_waiting": together.waiting})

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(counts.text(together.waiting))

    async def openapi(_: Request) -> Response:
        return JSONResponse(described)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error(error.status_code, error.detail, error.headers)

    @contextlib.asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        await together.start()
        try:
            yield
        finally:
            await together.stop()

    routes = [
        Route("/v1/explain", explain, methods=["POST"]),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/openapi.json", openapi),
    ]
    return Starlette(routes=routes, lifespan=running, exception_handlers={HTTPException: refused})


def _error(status: int, message: str, headers: Any = None) -> Response:
    return JSONResponse({"error": message}, status, headers=dict(headers or {}))


async def _body(request: Request, limits: Limits) -> bytes:
    """The body, if it is small enough and comes in time."""
    if not is_json(request.scope):
        kind = request.headers.get("content-type", "of no kind that is told")
        raise Refusal(415, f"the body is {kind[:100]}; send Content-Type: application/json")
    told = request.headers.get("content-length", "0")
    try:
        if told.isdecimal() and int(told) > limits.body:
            raise _TooLarge
        return await asyncio.wait_for(_read(request, limits.body), limits.seconds)
    except _TooLarge:
        raise Refusal(413, f"the body is larger than {limits.body} bytes; send fewer rows", {"Connection": "close"}) from None
    except asyncio.TimeoutError:
        raise Refusal(408, f"the body has not come within {limits.seconds:g} s", {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal(400, "the body is not complete") from None


async def _read(request: Request, most: int) -> bytes:
    found = bytearray()
    async for part in request.stream():
        found += part
        if len(found) > most:
            raise _TooLarge
    return bytes(found)


class _TooLarge(Exception):
    pass


def _rows(body: bytes, limits: Limits) -> list[Any]:
    try:
        asked = json.loads(body, parse_constant=_no_constant, object_pairs_hook=_by_key)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"the body is no JSON: {error}"[:300]) from None
    if not isinstance(asked, dict) or set(asked) != {"rows"} or not isinstance(asked["rows"], list) or not asked["rows"]:
        raise Refusal(422, 'send {"rows": [...]} with at least one row and nothing else')
    rows = asked["rows"]
    if len(rows) > limits.rows:
        raise Refusal(422, f"{len(rows)} rows; send {limits.rows} at most")
    if not all(isinstance(row, (dict, list)) for row in rows):
        raise Refusal(422, 'a row is {"column": value, ...} or a list of values')
    return rows


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _by_key(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; one of two values of the same key would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)[:100]!r} is there twice")
    return found
