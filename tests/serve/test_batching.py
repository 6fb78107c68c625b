"""Requests that arrive while a forward pass runs share the next one."""

import asyncio

import numpy as np
import pytest

from classnorm.errors import ConfigError
from classnorm.scoring import Scorer
from classnorm.serve.batching import Batcher
from classnorm.serve.counters import Counters


@pytest.fixture
def counters(tmp_path):
    return Counters(tmp_path)


def total(counters, name):
    [line] = [line for line in counters.text().splitlines() if line.startswith(f"classnorm_{name}_total ")]
    return int(line.split()[1])


def test_concurrent_requests_share_passes_and_each_has_its_own_answer(letters, model_folder, counters):
    scorer = Scorer.load(model_folder)
    more = scorer.add_classes({"mine": letters.descriptors[0] + letters.descriptors[50]})
    parts = [(more if i % 3 == 0 else scorer, letters.features[i : i + 1 + i % 4], 1 + i % 5) for i in range(40)]

    async def ask():
        batcher = Batcher(counters)
        answers = await asyncio.gather(*(batcher.answers(*part) for part in parts))
        batcher.close()
        return answers

    for (asked, rows, k), (top, novelty, _) in zip(parts, asyncio.run(ask()), strict=True):
        expected = asked.top(rows, k)
        np.testing.assert_array_equal(top.indices, expected.indices)
        np.testing.assert_allclose(
            top.probabilities, expected.probabilities, atol=1e-4
        )  # products of other shapes round otherwise
        assert novelty is None
    assert total(counters, "batched_requests") == 40
    assert total(counters, "rows") == sum(len(rows) for _, rows, _ in parts)
    assert total(counters, "batches") <= 3  # the first request alone at most, then those of either scorer


def test_a_failing_pass_fails_its_requests_and_no_others(letters, model_folder, counters):
    scorer = Scorer.load(model_folder)

    async def ask():
        batcher = Batcher(counters)
        bad = asyncio.create_task(batcher.answers(scorer, letters.features[:1], 0))
        with pytest.raises(ConfigError):
            await bad
        return await batcher.answers(scorer, letters.features[:1], 1)

    assert asyncio.run(ask()).top.indices.shape == (1, 1)


def test_a_client_that_gives_up_does_not_disturb_the_others(letters, model_folder, counters):
    scorer = Scorer.load(model_folder)

    async def ask():
        batcher = Batcher(counters)
        tasks = [asyncio.create_task(batcher.answers(scorer, letters.features[i : i + 1], 1)) for i in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        return [isinstance(answer, tuple) for answer in answers]

    assert asyncio.run(ask()) == [True] * 3 + [False] + [True] * 6
