"""Runs the application with uvicorn: one process, or several workers on one port."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.supervisors import Multiprocess

from classnorm.errors import ConfigError
from classnorm.serve.app import create_app
from classnorm.serve.gate import JSONLines
from classnorm.serve.settings import Limits, ServeSettings


class TimeLimitedProtocol(HttpToolsProtocol):
    """HTTP with limits: of the time and size of headers, and of the number of connections."""

    _deadline: asyncio.TimerHandle | None = None
    _header_bytes = 0

    @property
    def limits(self) -> Limits:
        gate: Any = self.app
        limits: Limits = gate.settings.limits
        return limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(429, "too many connections; try again")
            return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()  # the first bytes of another request
        if self._deadline is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._deadline is not None and self._header_bytes > self.limits.header_kb << 10:
            self._refuse(431, f"the headers are larger than {self.limits.header_kb} KB")

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._header_bytes = 0
        self._deadline = self.loop.call_later(self.limits.header_seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        self._refuse(408, f"no request within {self.limits.header_seconds:g} s")

    def _refuse(self, status: int, message: str) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        body = f'{{"error":"{message}"}}'.encode()
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nretry-after: 1\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not HTTP")


def config_of(settings: ServeSettings) -> uvicorn.Config:
    """The configuration of uvicorn. Models are loaded here, and again by each of several workers."""
    app = create_app(settings)
    return uvicorn.Config(
        app if settings.workers == 1 else partial(create_app, settings),
        factory=settings.workers > 1,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        http=TimeLimitedProtocol,
        ws="none",
        lifespan="on",
        log_config=_logging(),
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=settings.limits.stop_seconds,
        timeout_worker_healthcheck=60,
    )


def run(settings: ServeSettings, started: Callable[[str], None] = lambda address: None) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        started: called with the address as soon as connections are accepted.
    """
    folder = Path(tempfile.mkdtemp(prefix="classnorm-serve-"))
    try:
        settings = replace(settings, run_folder=folder / "counters")
        config = config_of(settings)
        try:
            socket = config.bind_socket()
        except SystemExit:
            raise ConfigError(f"cannot listen on {settings.host} port {settings.port}; choose another `port`") from None
        socket.listen(config.backlog)  # what connects now is answered as soon as the server runs
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        started(f"http://{host}:{socket.getsockname()[1]}")
        if settings.workers == 1:
            uvicorn.Server(config).run([socket])
        else:
            Multiprocess(config, [socket]).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def default_model(folder: Path) -> Path:
    """Train kernel prototypes on glyphs-light, in seconds, and save them."""
    from classnorm.data import load
    from classnorm.scoring import fit

    return fit(load("glyphs-light"), method="kernel").save(folder / "glyphs-light")


def _logging() -> dict[str, Any]:
    handler = {"class": "logging.StreamHandler", "formatter": "lines", "stream": "ext://sys.stderr"}
    logger = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": f"{JSONLines.__module__}.{JSONLines.__name__}"}},
        "handlers": {"stderr": handler},
        "loggers": {"uvicorn": logger, "classnorm.serve": logger},
    }
