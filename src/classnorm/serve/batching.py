"""Requests that arrive while a forward pass runs share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.scoring import Top
from classnorm.serve.counters import Counters

if TYPE_CHECKING:
    from classnorm.scoring import Scorer

_MOST_ROWS = 8192  # of a forward pass


Known = npt.NDArray[np.bool_] | None
"""Whether each row is of one of the classes; None if that was not asked, or the model cannot tell."""


@dataclass(eq=False)
class _Waiting:
    scorer: Scorer
    rows: npt.NDArray[Any]
    k: int
    reject: float | None
    answer: asyncio.Future[tuple[Top, Known]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Batcher:
    """Classifies rows in one thread, all rows for the same scorer together."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._thread = ThreadPoolExecutor(1, "forward")
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None

    async def top(
        self, scorer: Scorer, rows: npt.NDArray[Any], k: int, reject: float | None = None
    ) -> tuple[Top, Known]:
        """`Scorer.top` and `Scorer.known` of checked rows."""
        waiting = _Waiting(scorer, rows, k, reject if scorer.rejection is not None else None)
        self._waiting.append(waiting)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await waiting.answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._next()
            try:
                answers = await loop.run_in_executor(self._thread, _forward, batch)
            except Exception as error:
                answers = [error] * len(batch)
            for waiting, answer in zip(batch, answers, strict=True):
                if waiting.answer.done():  # the client is gone
                    continue
                if isinstance(answer, Exception):
                    waiting.answer.set_exception(answer)
                else:
                    waiting.answer.set_result(answer)
            self._counters.add("batches", 1)
            self._counters.add("batched_requests", len(batch))
            self._counters.add("rows", sum(len(waiting.rows) for waiting in batch))

    def _next(self) -> list[_Waiting]:
        """The oldest request and those for the same scorer, up to a number of rows."""
        first = self._waiting[0]
        batch: list[_Waiting] = []
        rest: list[_Waiting] = []
        rows = 0
        for waiting in self._waiting:
            fits = waiting is first or rows + len(waiting.rows) <= _MOST_ROWS
            if waiting.scorer is first.scorer and fits and not waiting.answer.done():
                batch.append(waiting)
                rows += len(waiting.rows)
            elif not waiting.answer.done():
                rest.append(waiting)
        self._waiting = rest
        return batch

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _forward(batch: Sequence[_Waiting]) -> list[tuple[Top, Known] | Exception]:
    if not batch:
        return []
    scorer = batch[0].scorer
    rows = batch[0].rows if len(batch) == 1 else np.concatenate([waiting.rows for waiting in batch])
    is_asked = any(waiting.reject is not None for waiting in batch)
    with np.errstate(all="ignore"):  # features may be too large; their answer is then not finite
        top = scorer.top(rows, max(waiting.k for waiting in batch))
        novelty = scorer.novelty(rows) if is_asked else np.empty(0)
    answers: list[tuple[Top, Known] | Exception] = []
    ends = np.cumsum([len(waiting.rows) for waiting in batch])
    for waiting, end in zip(batch, ends, strict=True):
        part, k = slice(end - len(waiting.rows), end), waiting.k
        known = None if waiting.reject is None else novelty[part] <= scorer.novelty_threshold(waiting.reject)
        answers.append((Top(top.indices[part, :k], top.scores[part, :k], top.probabilities[part, :k]), known))
    return answers
