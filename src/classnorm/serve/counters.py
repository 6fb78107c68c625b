"""Counters of requests, in a small file per worker, so that any worker can add them up."""

from __future__ import annotations

import mmap
import os
import tempfile
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

ENDPOINTS = (
    "/", "/page", "/health", "/metrics", "/openapi.json", "/docs", "/model", "/predict", "/classes", "/examples",
    "/explain", "/map", "/thumbnail", "/save", "/export.onnx", "/session", "other",
)  # fmt: skip
_STATUSES = (200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 429, 499, 500, 503, 0)
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
_GAUGES = ("in_flight",)
_TOTALS = ("rows", "batches", "batched_requests")
_HELP = {
    "in_flight": "Requests being received or answered.",
    "rows": "Rows of features that were classified.",
    "batches": "Forward passes.",
    "batched_requests": "Requests answered by forward passes.",
}

_N = len(ENDPOINTS)
_REQUESTS = 0
_SECONDS = _REQUESTS + _N * len(_STATUSES)  # per endpoint: the count of each bucket, and the sum
_REST = _SECONDS + _N * (len(_BUCKETS) + 2)
_SIZE = _REST + len(_GAUGES) + len(_TOTALS)


class Counters:
    """The counters of one worker, and the sum over all of them."""

    def __init__(self, folder: Path | None = None) -> None:
        """
        Args:
            folder: shared by the workers of a server; None counts in a folder of its own.
        """
        self._own = tempfile.TemporaryDirectory(prefix="classnorm-counters-") if folder is None else None
        self.folder = Path(self._own.name) if self._own else folder
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{os.getpid()}.counters"
        if not file.is_file() or file.stat().st_size != 8 * _SIZE:
            file.write_bytes(bytes(8 * _SIZE))
        with file.open("r+b") as opened:
            self._values = np.frombuffer(mmap.mmap(opened.fileno(), 0), dtype=np.float64)

    def request(self, path: str, status: int, seconds: float) -> None:
        endpoint = _endpoint(path)
        place = _STATUSES.index(status if status in _STATUSES else 0)
        self._values[_REQUESTS + endpoint * len(_STATUSES) + place] += 1
        start = _SECONDS + endpoint * (len(_BUCKETS) + 2)
        self._values[start + bisect_left(_BUCKETS, seconds)] += 1
        self._values[start + len(_BUCKETS) + 1] += seconds

    def set(self, gauge: str, value: float) -> None:
        self._values[_REST + _GAUGES.index(gauge)] = value

    def add(self, total: str, value: float) -> None:
        self._values[_REST + len(_GAUGES) + _TOTALS.index(total)] += value

    def text(self) -> str:
        """The sum over the workers, in Prometheus' text format."""
        values = self._sum()
        lines = ["# HELP classnorm_requests_total Answered requests.", "# TYPE classnorm_requests_total counter"]
        for e, endpoint in enumerate(ENDPOINTS):
            for s, status in enumerate(_STATUSES):
                if count := values[_REQUESTS + e * len(_STATUSES) + s]:
                    labels = f'path="{endpoint}",status="{status or "other"}"'
                    lines.append(f"classnorm_requests_total{{{labels}}} {count:g}")
        name = "classnorm_request_seconds"
        lines += [f"# HELP {name} Time from the first byte to the answer.", f"# TYPE {name} histogram"]
        for e, endpoint in enumerate(ENDPOINTS):
            start = _SECONDS + e * (len(_BUCKETS) + 2)
            counts = values[start : start + len(_BUCKETS) + 1].cumsum()
            if counts[-1]:
                for bound, count in zip([*map(str, _BUCKETS), "+Inf"], counts, strict=True):
                    lines.append(f'{name}_bucket{{path="{endpoint}",le="{bound}"}} {count:.0f}')
                lines.append(f'{name}_sum{{path="{endpoint}"}} {values[start + len(_BUCKETS) + 1]:.6f}')
                lines.append(f'{name}_count{{path="{endpoint}"}} {counts[-1]:.0f}')
        for i, key in enumerate((*_GAUGES, *_TOTALS)):
            full, kind = (f"classnorm_{key}", "gauge") if key in _GAUGES else (f"classnorm_{key}_total", "counter")
            lines += [f"# HELP {full} {_HELP[key]}", f"# TYPE {full} {kind}", f"{full} {values[_REST + i]:.0f}"]
        return "\n".join(lines) + "\n"

    def _sum(self) -> npt.NDArray[np.float64]:
        total = np.zeros(_SIZE)
        assert self.folder is not None
        for file in self.folder.glob("*.counters"):
            with suppress(OSError, ValueError):
                values = np.frombuffer(file.read_bytes(), dtype=np.float64).copy()
                if not _is_alive(int(file.stem)):
                    values[_REST : _REST + len(_GAUGES)] = 0.0
                total += values
        return total


def _endpoint(path: str) -> int:
    if path.startswith("/page/"):
        path = "/page"
    return ENDPOINTS.index(path if path in ENDPOINTS else "other")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
