"""Requests as they are seen from outside: an id for each, a log line, counts, and the fingerprint in every answer."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import MutableMapping
from typing import Any

from .guard import Receive, Scope, Send, headers_of
from .rows import Answerer
from .service import Service

logger = logging.getLogger("cafexai.serve")
ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")  # ids of others that are safe in a log
KEY, ANSWERER = "cafexai", "cafexai.answerer"


def note(request: Any, **more: Any) -> dict[str, Any]:
    """What is known of a request, for its log line."""
    known: dict[str, Any] = request.scope.setdefault(KEY, {"request_id": ""})
    known |= more
    return known


def answerer_of(request: Any) -> Answerer:
    """What answers this request, however often the model is loaded again meanwhile."""
    answerer: Answerer = request.scope[ANSWERER]
    return answerer


class Observed:
    """Stands before everything else."""

    def __init__(self, app: Any, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on, and note what came of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin = time.monotonic()
        given = headers_of(scope, b"x-request-id")
        known = scope[KEY] = {"request_id": given[0] if len(given) == 1 and ID.fullmatch(given[0]) else uuid.uuid4().hex}
        answerer = scope[ANSWERER] = self.service.answerer
        status = [500]

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                own = [
                    (b"x-request-id", known["request_id"].encode()),
                    (b"x-cafexai-fingerprint", answerer.fingerprint["id"].encode()),
                ]
                close = [(b"connection", b"close")] if self.service.draining else []
                others = [
                    (name, value) for name, value in message.get("headers", ()) if not close or name.lower() != b"connection"
                ]
                message = {**message, "headers": [*others, *own, *close]}
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            spent = time.monotonic() - begin
            if scope["method"] == "POST":
                self.service.counts.request(status[0], spent)
            about = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status[0],
                "ms": round(spent * 1e3, 2),
                **known,
            }
            level = logging.INFO if status[0] < 500 else logging.ERROR
            if logger.isEnabledFor(level):
                logger.log(level, "request %s", " ".join(f"{name}={value}" for name, value in about.items()), extra=about)
