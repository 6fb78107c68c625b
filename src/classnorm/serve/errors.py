"""Answers to requests that cannot be served: a status and one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse


class RequestError(Exception):
    """A request that the client can correct or repeat."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})


class Answer(JSONResponse):
    """A document. JSON has no NaN and infinity, and text is not always UTF-8."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except UnicodeEncodeError:
            raise RequestError(400, "a text holds lone surrogates, which are no characters") from None
        except ValueError:
            raise RequestError(400, "the answer is not finite: the numbers are too large to compute with") from None


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    line = " ".join(message.encode("utf-8", "replace").decode().split())  # names may hold lone surrogates
    return JSONResponse({"error": line}, status_code=status, headers=dict(headers or {}))
