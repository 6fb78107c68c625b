"""Answers to requests that cannot be served: a status and one line."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

__all__ = ["RequestError", "error_response"]


class RequestError(Exception):
    """A request that the client can correct or repeat."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    line = " ".join(message.encode("utf-8", "replace").decode().split())  # names may hold lone surrogates
    return JSONResponse({"error": line}, status_code=status, headers=dict(headers or {}))
