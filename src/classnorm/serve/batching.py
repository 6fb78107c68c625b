"""Requests that arrive while a forward pass runs share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from classnorm.scoring.answers import Answers
from classnorm.serve.counters import Counters

if TYPE_CHECKING:
    from classnorm.scoring import Scorer

_MOST_ROWS = 8192  # of a forward pass


@dataclass(eq=False)
class _Waiting:
    scorer: Scorer
    rows: npt.NDArray[Any]
    k: int
    novelty: bool
    answer: asyncio.Future[Answers] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Classifies rows in one thread, all rows for the same scorer together."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._thread = ThreadPoolExecutor(1, "forward")
        self._waiting: list[_Waiting] = []
        self._running: asyncio.Task[None] | None = None

    async def answers(self, scorer: Scorer, rows: npt.NDArray[Any], k: int, novelty: bool = False) -> Answers:
        """`Scorer.answers` for checked rows."""
        waiting = _Waiting(scorer, rows, k, novelty)
        self._waiting.append(waiting)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await waiting.answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._next()
            answers: Sequence[Answers | Exception]
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


def _forward(batch: Sequence[_Waiting]) -> list[Answers]:
    if not batch:
        return []
    rows = batch[0].rows if len(batch) == 1 else np.concatenate([waiting.rows for waiting in batch])
    most, novelty = max(waiting.k for waiting in batch), any(waiting.novelty for waiting in batch)
    with np.errstate(all="ignore"):  # features may be too large; their answer is then not finite
        answers = batch[0].scorer.answers(rows, most, novelty)
    ends = np.cumsum([len(waiting.rows) for waiting in batch]).tolist()
    return [
        answers.part(slice(end - len(waiting.rows), end), waiting.k) for waiting, end in zip(batch, ends, strict=True)
    ]
