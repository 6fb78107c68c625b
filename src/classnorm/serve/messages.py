"""Requests and answers: bodies → rows of features, of which nothing is stored or unpickled; and errors in one line."""

from __future__ import annotations

import io
import json
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse

from classnorm.data.checks import check_array
from classnorm.errors import DataError
from classnorm.serve.settings import Limits

_NPY = ("application/x-npy", "application/octet-stream", "application/npy")
_LARGEST_FIELD = 1 << 16  # bytes of a text field of a form
_LARGEST_HEADER = 1000  # bytes of the header of an npy file


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


@dataclass(frozen=True)
class Picture:
    """An uploaded file, in memory."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Sent:
    """What a request sends: features or pictures, and settings from the query, the document or the form."""

    features: npt.NDArray[Any] | None
    pictures: tuple[Picture, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.fields.get(name, default)
        if not isinstance(value, str):
            raise RequestError(400, f"{name} is missing" if value is None else f"{name} must be text")
        return value


async def read_sent(request: Request, limits: Limits) -> Sent:
    """The features or pictures of a request, and its settings."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = dict(request.query_params)
    if kind == "multipart/form-data":
        pictures, form = await _form(request, limits)
        return Sent(None, pictures, query | form)
    if kind == "application/json":
        document = await read_document(request)
        features = document.pop("features", None)
        if features is None:
            raise RequestError(400, 'features are missing; send {"features": [[…], …]}')
        return Sent(_checked(_matrix(features), limits), (), query | document)
    if kind in _NPY:
        return Sent(_checked(_npy(await request.body()), limits), (), query)
    raise RequestError(415, "send multipart/form-data with files, application/json with features, or application/x-npy")


async def read_document(request: Request) -> dict[str, Any]:
    """A JSON object."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(415, "send application/json")
    try:
        document = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "the body is not JSON") from error
    if not isinstance(document, dict):
        raise RequestError(400, "the body must be a JSON object")
    return document


def whole_number(value: Any, name: str, most: int) -> int:
    """A number from 1 to `most`, also as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise RequestError(400, f"{name} must be a whole number from 1 to {most}")
    return value


def share(value: Any, name: str) -> float | None:
    """A number between 0 and 1, also as text, or None."""
    try:
        number = None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if value is not None and (number is None or not 0 < number < 1):
        raise RequestError(400, f"{name} must be a number between 0 and 1")
    return number


def _matrix(features: Any) -> npt.NDArray[Any]:
    """Lists of numbers → [n, d]."""
    try:
        if isinstance(features, list) and all(isinstance(row, list) for row in features):
            matrix = np.array(features)
            if matrix.dtype.kind in "fiu" and matrix.ndim == 2:
                return matrix
    except (ValueError, OverflowError):
        pass  # rows of different lengths, or numbers beyond 64 bits
    raise RequestError(400, "features must be a list of rows of numbers, all of the same length")


def _npy(body: bytes) -> npt.NDArray[Any]:
    """An array in NumPy's format; its header must fit its size before anything is allocated."""
    stream = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = read(stream, max_header_size=_LARGEST_HEADER)
    except Exception as error:  # numpy parses the header as a Python literal
        raise RequestError(400, "the body is not an npy file") from error
    start = stream.tell()
    fits = all(side >= 0 for side in shape) and prod(shape) * dtype.itemsize == len(body) - start
    if dtype.kind not in "fiu" or dtype.itemsize > 8 or len(shape) != 2 or not fits:
        raise RequestError(400, "the npy file must hold a whole matrix [rows, dimensions] of numbers")
    matrix = np.frombuffer(body, dtype, offset=start)
    return matrix.reshape(shape, order="F" if is_fortran else "C")


def _checked(matrix: npt.NDArray[Any], limits: Limits) -> npt.NDArray[Any]:
    if not 1 <= len(matrix) <= limits.rows:
        raise RequestError(413 if len(matrix) else 400, f"send 1 to {limits.rows} rows at a time, not {len(matrix)}")
    try:
        return check_array(matrix, "features")
    except DataError as error:
        raise RequestError(400, str(error)) from error


class _InMemory(MultiPartParser):
    """A parser that writes no temporary files; the body is in memory already."""

    spool_max_size = 1 << 40


async def _form(request: Request, limits: Limits) -> tuple[tuple[Picture, ...], dict[str, Any]]:
    body = await request.body()

    async def stream() -> AsyncIterator[bytes]:
        yield body

    parser = _InMemory(
        request.headers,
        stream(),  # type: ignore[arg-type]
        max_files=limits.files,
        max_fields=16,
        max_part_size=_LARGEST_FIELD,
    )
    try:
        form = await parser.parse()
    except Exception as error:  # the parser and codecs raise many types on a damaged form
        reason = getattr(error, "message", "")
        raise RequestError(413 if "Too many files" in reason else 400, f"the form cannot be read: {reason}") from error
    files = [value for key, value in form.multi_items() if key == "files" and isinstance(value, UploadFile)]
    fields = {key: value for key, value in form.multi_items() if isinstance(value, str)}
    pictures = tuple([Picture((file.filename or "")[:200], await file.read()) for file in files])
    await form.close()
    if not pictures:
        raise RequestError(400, "no files; send images as the form field files")
    return pictures, fields
