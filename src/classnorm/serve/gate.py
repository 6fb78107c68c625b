"""The gate: who may ask, how much, and how long. What passes it reaches the application with its whole body."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from classnorm.serve.counters import Counters
from classnorm.serve.messages import RequestError, error_response
from classnorm.serve.settings import ServeSettings

OPEN_PATHS = ("/", "/health", "/docs", "/openapi.json")
"""Paths that need no token, besides /page/: they say nothing about the models."""
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}

_log = logging.getLogger("classnorm.serve")
_LONGEST_PATH = 200  # in the log
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Gate:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, counters: Counters) -> None:
        self.app, self.settings, self.counters = app, settings, counters
        self.in_flight = 0
        self.received = 0  # bytes of bodies in memory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        answer = _Answer(send)
        self.in_flight += 1
        self.counters.set("in_flight", self.in_flight)
        try:
            await self._answered(scope, receive, answer)
        finally:
            self.in_flight -= 1
            self.counters.set("in_flight", self.in_flight)
            seconds = time.perf_counter() - started
            self.counters.request(scope["path"], answer.status, seconds)
            _log.info(
                "request",
                extra={
                    "fields": {
                        "method": scope["method"],
                        "path": scope["path"][:_LONGEST_PATH],
                        "status": answer.status,
                        "ms": round(1000 * seconds, 2),
                        "bytes_in": scope.get("state", {}).get("bytes_in", 0),
                        "bytes_out": answer.size,
                        "client": (scope.get("client") or ("",))[0],
                    }
                },
            )

    async def _answered(self, scope: Scope, receive: Receive, send: _Answer) -> None:
        """Answer, with a line for whatever goes wrong."""
        response: JSONResponse
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            self._check_origin(scope, headers)
            self._check_token(scope["path"], headers)
            if self.in_flight > self.settings.limits.in_flight and scope["path"] != "/health":
                raise RequestError(429, "too many requests at a time; try again", {"retry-after": "1"})
            await self._with_body(scope, headers, receive, send)
            return
        except RequestError as error:
            response = error_response(error.status, error.message, error.headers)
        except TimeoutError:
            response = error_response(408, "the answer took too long; send less at a time")
        except _DisconnectedError:
            send.status = 499
            return
        except Exception:
            _log.exception("unexpected error", extra={"fields": {"path": scope["path"]}})
            response = error_response(500, "internal error; the server's log has the details")
        if not send.status:
            response.headers["connection"] = "close"  # part of the body may be unread
            await response(scope, receive, send)

    async def _with_body(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        body = b""
        try:
            body = await self._body(headers, receive)
            scope.setdefault("state", {})["bytes_in"] = len(body)
            async with asyncio.timeout(self.settings.limits.answer_seconds):
                await self.app(scope, _replay(body, receive), send)
        finally:
            self.received -= len(body)

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """The whole body, within the limits of size and time."""
        limits = self.settings.limits
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length[:20]) > limits.body_mb << 20:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _DisconnectedError
                    part = message.get("body", b"")
                    self.received += len(part)
                    body += part
                    if len(body) > limits.body_mb << 20:
                        raise self._too_large()
                    if self.received > limits.received_mb << 20:
                        raise RequestError(429, "too much to receive at a time; try again", {"retry-after": "1"})
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            self.received -= len(body)
            raise RequestError(408, f"the request did not arrive within {limits.body_seconds:g} s") from None
        except (RequestError, _DisconnectedError):
            self.received -= len(body)
            raise

    def _too_large(self) -> RequestError:
        return RequestError(413, f"the request is larger than {self.settings.limits.body_mb} MB; send less at a time")

    def _check_host(self, headers: Headers) -> None:
        """A page elsewhere can make its own name point here (DNS rebinding); that name is then in the request."""
        hosts = headers.getlist("host")
        known = self.settings.known_hosts
        name = hosts[0].rpartition(":")[0] if hosts and hosts[0].rpartition(":")[2].isdigit() else "".join(hosts[:1])
        if len(hosts) != 1 or (known is not None and name.lower() not in known):
            raise RequestError(421, "the request is for another host; use the address that the server printed")

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Pages of other sites may link to the page, but not ask."""
        foreign = RequestError(403, "requests from pages of other sites are not answered")
        origins = headers.getlist("origin")
        if len(origins) > 1:
            raise foreign
        if origins and _authority(origins[0]) != _authority(f"//{headers['host']}"):
            raise foreign
        is_link = scope["method"] in _SAFE_METHODS and scope["path"] in OPEN_PATHS
        if not is_link and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise foreign

    def _check_token(self, path: str, headers: Headers) -> None:
        token = self.settings.token
        if token is None or path in OPEN_PATHS or path.startswith("/page/"):
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
        if kind.lower() != "bearer" or not right:
            raise RequestError(
                401, "a token is needed: send the header Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"}
            )


class _DisconnectedError(Exception):
    """The client is gone."""


class _Answer:
    """`send` that adds the security headers and remembers status and size."""

    def __init__(self, send: Send) -> None:
        self.send, self.status, self.size = send, 0, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            present = {name for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *((k.encode(), v.encode()) for k, v in SECURITY_HEADERS.items() if k.encode() not in present),
                *([] if b"cache-control" in present else [(b"cache-control", b"no-store")]),
            ]
        self.size += len(message.get("body", b""))
        await self.send(message)


def _replay(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """`receive` of a body that is here already."""
    done = False

    async def again() -> Message:
        nonlocal done
        if done:
            return await receive()
        done = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _authority(origin: str) -> tuple[str, int | None] | None:
    """Host and port of an origin, without default ports; schemes differ behind a proxy that adds TLS."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    return None if parts.hostname is None else (parts.hostname, None if port in (80, 443) else port)


class JSONLines(logging.Formatter):
    """One JSON object per line."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
