"""The application: one page, its assets, and requests by name."""

from __future__ import annotations

import asyncio
import json
import math
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .api import OTHERS, WITH_MODEL, Api
from .requests import Refused
from .security import Guard, TooLarge
from .session import Session
from .worker import Busy, Superseded

TYPES = {"js": "text/javascript", "css": "text/css"}


def application(session: Session, token: str, port: int, host: str) -> Guard:
    """The application behind its guard."""
    api = Api(session)
    assets = {
        entry.name: entry.read_bytes() for entry in (resources.files(__package__) / "static").iterdir() if entry.is_file()
    }
    page = assets.pop("page.html").decode()

    async def index(request: Request) -> Response:
        return Response(page.replace("NONCE", request.scope["nonce"]), media_type="text/html; charset=utf-8")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:  # a fixed set: no path leads anywhere else
            return Response("There is nothing here.", 404, media_type="text/plain")
        return Response(assets[name], media_type=f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8")

    async def call(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in WITH_MODEL and name not in OTHERS:
            return _json_response(404, {"error": "There is no such request."})
        try:
            body = json.loads(await request.body())
            if not isinstance(body, dict):
                raise ValueError
        except TooLarge:
            return _json_response(413, {"error": "The request is too large."})
        except ValueError:
            return _json_response(400, {"error": "A request is an object of JSON."})
        return await _answer(api, name, body)

    routes = [
        Route("/", index, methods=["GET"]),
        Route("/static/{name}", asset, methods=["GET"]),
        Route("/api/{name}", call, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, port, host)


async def _answer(api: Api, name: str, body: dict[str, Any]) -> Response:
    handler = getattr(api, name)
    try:
        if name in WITH_MODEL:
            slot = str(body.get("slot", ""))[:60]
            result = await asyncio.wrap_future(api.session.worker.ask(f"{slot} {name}", lambda: handler(body)))
        else:
            result = await run_in_threadpool(handler, body)
    except Refused as error:
        return _json_response(422, {"error": str(error), "field": error.field})
    except Superseded:
        return _json_response(409, {"superseded": True})
    except Busy:
        return _json_response(503, {"error": "Too much is asked at once; try again."})
    except Exception as error:  # of the model, or ours: the page says so and goes on
        return _json_response(500, {"error": f"{type(error).__name__}: {error}"[:2000]})
    if isinstance(result, bytes):
        return Response(result, media_type="application/octet-stream", headers={"content-disposition": "attachment"})
    return _json_response(200, result)


def _json_response(status: int, value: Any) -> Response:
    return Response(json.dumps(_finite(value), ensure_ascii=True, allow_nan=False), status, media_type="application/json")


def _finite(value: Any) -> Any:
    """JSON knows no infinite numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    return [_finite(entry) for entry in value] if isinstance(value, (list, tuple)) else value
