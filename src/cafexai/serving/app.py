"""The server: POST rows, get scores. Own route, KServe's version 1, and the Open Inference Protocol (version 2)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from .. import __version__
from .batching import Full, Together
from .bodies import JSONResponse, Limits, Refusal, read_json, rows_of
from .observe import answerer_of, note
from .openapi import document
from .rows import Asked, Result, Row
from .service import Service
from .tensors import metadata_of, outputs_of, rows_of_tensors

MADE = "fingerprint"  # key of an answer: what made it


def application(service: Service, limits: Limits) -> Starlette:
    """All routes."""
    together = Together(service.counts, limits.waiting)

    async def explain_rows(request: Request, rows: Sequence[Row], asked: Asked) -> list[Result]:
        note(request, rows=len(rows))
        try:
            results = await together.explain(rows, asked, answerer_of(request))
        except Full:
            raise Refusal(503, "too many rows wait; try again in a second", {"Retry-After": "1"}) from None
        except RuntimeError as error:
            raise Refusal(500, str(error)) from None
        note(request, failed=sum("error" in result for result in results))
        return results

    async def answer_rows(request: Request, key: str, answer: str) -> Response:
        rows, asked = rows_of(await read_json(request, limits), key, limits)
        results = await explain_rows(request, rows, asked)
        failed = [place for place, result in enumerate(results) if "error" in result]
        body = {answer: results, MADE: answerer_of(request).fingerprint}
        if len(failed) == len(results):
            told = f"none of {len(results)} rows could be explained; the first: {results[0]['error']}"
            return JSONResponse({"error": told, **body, "failed": failed}, 422)
        return JSONResponse({**body, "failed": failed}, 207) if failed else JSONResponse(body)

    async def explain(request: Request) -> Response:
        return await answer_rows(request, "rows", "results")

    async def kserve_explain(request: Request) -> Response:
        _known(request, service)
        return await answer_rows(request, "instances", "explanations")

    async def kserve_models(_: Request) -> Response:
        return JSONResponse({"models": [service.name]})

    async def kserve_model(request: Request) -> Response:
        _known(request, service)
        return JSONResponse({"name": service.name, "ready": service.ready}, 200 if service.ready else 503)

    async def infer(request: Request) -> Response:
        _known(request, service)
        answerer, body = answerer_of(request), await read_json(request, limits)
        rows, asked, wanted = rows_of_tensors(body, answerer, limits)
        results, made = await explain_rows(request, rows, asked), answerer.fingerprint
        for place, result in enumerate(results):
            if "error" in result:
                raise Refusal(422, f"row {place}: {result['error']}; a tensor has no room for reasons, so no scores are sent")
        answer: dict[str, Any] = {"model_name": service.name, "model_version": answerer.version}
        answer["outputs"] = outputs_of(results, wanted)
        answer["parameters"] = {f"{MADE}_{name}": value for name, value in made.items()}
        return JSONResponse({**answer, **({"id": body["id"]} if isinstance(body.get("id"), str) else {})})

    async def model(request: Request) -> Response:
        _known(request, service)
        answerer = answerer_of(request)
        return JSONResponse(metadata_of(service.name, answerer.version, answerer))

    async def server(_: Request) -> Response:
        return JSONResponse({"name": "cafexai", "version": __version__, "extensions": []})

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "alive"})  # as KServe says it

    async def ready(request: Request) -> Response:
        if "name" in request.path_params:
            _known(request, service)
        return JSONResponse({"ready": service.ready}, 200 if service.ready else 503)

    async def health(request: Request) -> Response:
        state = {"status": "ok" if service.ready else "draining", "version": __version__, "model": service.name}
        return JSONResponse({**state, MADE: answerer_of(request).fingerprint, "rows_waiting": together.waiting})

    async def metrics(request: Request) -> Response:
        service.counts.gauge("cafexai_rows_waiting", together.waiting)
        answerer = answerer_of(request)
        info = {"name": service.name, "version": __version__, **answerer.fingerprint}
        return PlainTextResponse(service.counts.text(info) + ("" if answerer.watch is None else answerer.watch.text()))

    async def openapi(request: Request) -> Response:
        return JSONResponse(document(__version__, service.name, answerer_of(request), limits.rows))

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        told = {"error": error.detail, "request_id": note(request)["request_id"]}
        return JSONResponse(told, error.status_code, headers=dict(error.headers or {}))

    async def failed(request: Request, _: Exception) -> Response:
        told = "a fault of the server; its log says which"
        return JSONResponse({"error": told, "request_id": note(request)["request_id"]}, 500)

    @contextlib.asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        await together.start()
        try:
            yield
        finally:
            await together.stop()
            service.counts.keep()

    routes = [
        Route("/v1/explain", explain, methods=["POST"]),
        Route("/", alive),
        Route("/v1/models", kserve_models),
        Route("/v1/models/{name}:explain", kserve_explain, methods=["POST"]),
        Route("/v1/models/{name}", kserve_model),
        Route("/v2", server),
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/openapi.json", openapi),
    ]
    for start in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route(f"{start}/infer", infer, methods=["POST"]),
            Route(f"{start}/ready", ready),
            Route(start, model),
        ]
    return Starlette(routes=routes, lifespan=running, exception_handlers={HTTPException: refused, Exception: failed})


def _known(request: Request, service: Service) -> None:
    """Refuse another model, or another version of it."""
    now = answerer_of(request).version
    name, version = request.path_params["name"], request.path_params.get("version", now)
    if (name, version) != (service.name, now):
        there = f"there is {service.name!r} of version {now!r}"
        raise Refusal(404, f"there is no model {name[:60]!r} of version {version[:60]!r}; {there}")
