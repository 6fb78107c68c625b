"""The application: its routes, what they share, and their description: `openapi.json` and a page made from it."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from classnorm.errors import ClassNormError
from classnorm.serve.api import Api
from classnorm.serve.counters import Counters
from classnorm.serve.gate import Gate
from classnorm.serve.messages import RequestError, error_response
from classnorm.serve.models import load_models
from classnorm.serve.settings import ServeSettings

PAGE = Path(__file__).parent / "page"


def create_app(settings: ServeSettings) -> ASGIApp:
    """The ASGI application of one worker, with its models loaded."""
    counters = Counters(settings.run_folder)
    api = Api(load_models(settings.models), settings, counters)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "models": len(api.models)})

    async def metrics(request: Request) -> Response:
        return PlainTextResponse(counters.text(), media_type="text/plain; version=0.0.4")

    async def schema(request: Request) -> Response:
        return JSONResponse(document())

    async def docs(request: Request) -> Response:
        return HTMLResponse(page())

    async def index(request: Request) -> Response:
        file = PAGE / "index.html"
        return FileResponse(file) if file.is_file() else HTMLResponse(page())

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        api.close()

    routes = [
        Route("/", index),
        Mount("/page", StaticFiles(directory=PAGE, check_dir=False)),
        Route("/health", health),
        Route("/metrics", metrics),
        Route("/openapi.json", schema),
        Route("/docs", docs),
        Route("/model", api.model),
        Route("/predict", api.predict, methods=["POST"]),
        Route("/classes", api.list_classes, methods=["GET"]),
        Route("/classes", api.add_class, methods=["POST"]),
        Route("/classes", api.remove_class, methods=["DELETE"]),
        Route("/examples", api.add_examples, methods=["POST"]),
        Route("/examples", api.remove_examples, methods=["DELETE"]),
        Route("/explain", api.explain, methods=["POST"]),
        Route("/map", api.map, methods=["GET", "POST"]),
        Route("/thumbnail", api.thumbnail),
        Route("/session", api.forget, methods=["DELETE"]),
        Route("/save", api.save, methods=["POST"]),
        Route("/export.onnx", api.export),
    ]
    handlers = {HTTPException: _http_error, RequestError: _request_error, ClassNormError: _user_error}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    return Gate(app, settings, counters)


async def _http_error(request: Request, error: HTTPException) -> Response:
    reasons = {404: "no such page; GET /docs lists them", 405: f"{request.method} is not possible here; see /docs"}
    return error_response(error.status_code, reasons.get(error.status_code, error.detail), error.headers)


async def _request_error(request: Request, error: RequestError) -> Response:
    return error_response(error.status, error.message, error.headers)


async def _user_error(request: Request, error: ClassNormError) -> Response:
    return error_response(400, str(error))


@cache
def document() -> dict[str, Any]:
    text = (Path(__file__).parent / "openapi.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def page() -> str:
    """The endpoints as HTML, without scripts."""
    about = document()
    title = html.escape(about["info"]["title"])
    parts = [
        _section(method, path, operation)
        for path, operations in about["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/page/docs.css">'
        f'<h1>{title}</h1><p>{html.escape(about["info"]["description"])} <a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(parts)}</html>"
    )


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    text = f"{operation['summary']} {operation.get('description', '')}"
    parts = [f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{html.escape(text)}</p>"]
    rows = [
        f"<li><code>{html.escape(parameter['name'])}</code>: {html.escape(parameter['description'])}</li>"
        for parameter in operation.get("parameters", [])
    ]
    parts += [f"<ul>{''.join(rows)}</ul>"] if rows else []
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Request: <code>{html.escape(kind)}</code></p>{_example(content)}")
    for status, response in operation["responses"].items():
        if "$ref" not in response:  # errors are the same everywhere
            parts.append(f"<p>{status}: {html.escape(response['description'])}</p>")
            parts += [_example(content) for content in response.get("content", {}).values()]
    return "".join(parts)


def _example(content: dict[str, Any]) -> str:
    example = content.get("example")
    return "" if example is None else f"<pre>{html.escape(json.dumps(example, ensure_ascii=False))}</pre>"
