"""Products in 16 bits, and the probe that decides."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from classnorm.cli import main
from classnorm.errors import ConfigError
from classnorm.metrics import gzsl_scores
from classnorm.scoring import Scorer, fit
from classnorm.training import TrainingConfig, pick_dtype, precision_notice, train
from classnorm.training import device as module

CPU = torch.device("cpu")
SLOW = module.Verdict(True, 0.5, "products run at 0.5 times the speed of float32")
FAST = module.Verdict(True, 3.0, "products run at 3 times the speed of float32")


@pytest.fixture
def fresh():
    """No answer of the probe is known, before or after."""
    module._verdict.cache_clear()
    yield
    module._verdict.cache_clear()


@pytest.fixture
def verdict(monkeypatch, fresh):
    """Sets what the probe says."""

    def say(**verdicts):
        monkeypatch.setattr(module, "_probe", lambda name: verdicts.get(name, SLOW))
        module._verdict.cache_clear()

    return say


def probed(monkeypatch, program):
    monkeypatch.setattr(module, "_PROBE", program)
    return module._probe("bfloat16")


def test_a_child_that_dies_of_an_unknown_instruction_is_reported_and_nothing_else_happens(monkeypatch, fresh):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    verdict = probed(monkeypatch, program)
    assert not verdict.works and verdict.text == "the probe died of SIGILL"
    with pytest.raises(ConfigError, match=r"bfloat16 is of no use on this cpu: the probe died of SIGILL; use `pre"):
        pick_dtype("bfloat16", CPU)
    assert pick_dtype("auto", CPU) is None
    assert "bfloat16: the probe died of SIGILL" in precision_notice("auto", CPU)


def test_a_child_that_fails_or_never_ends_is_reported(monkeypatch):
    verdict = probed(monkeypatch, "raise RuntimeError('no kernel for this type')")
    assert not verdict.works and verdict.text == "RuntimeError: no kernel for this type"
    monkeypatch.setattr(module, "_TIMEOUT", 0.2)
    assert not probed(monkeypatch, "import time; time.sleep(60)").works


def test_the_speed_that_the_child_measures_decides(monkeypatch, fresh):
    monkeypatch.setattr(module, "_PROBE", "print(1.05)")
    assert pick_dtype("auto", CPU) is None
    module._verdict.cache_clear()
    monkeypatch.setattr(module, "_PROBE", "import sys; print(2.0 if sys.argv[1] == 'float16' else 0.5)")
    assert pick_dtype("auto", CPU) == torch.float16
    assert precision_notice("auto", CPU) is None


def test_a_process_probes_once(monkeypatch, fresh):
    calls = []
    monkeypatch.setattr(module, "_probe", lambda name: calls.append(name) or FAST)
    assert [pick_dtype("bfloat16", CPU) for _ in range(3)] == [torch.bfloat16] * 3
    assert calls == ["bfloat16"]


@pytest.mark.slow
def test_the_real_probe_answers_for_this_machine(fresh):
    """Whatever the answer is; here the child may really die."""
    for name in ("float16", "bfloat16"):
        verdict = module._probe(name)
        assert verdict.text and (verdict.speed > 0 if verdict.works else verdict.speed == 0)


@cache
def usable(name):
    """Whether products of this type work here, found out by the real probe."""
    return module._probe(name).works


def test_float32_asks_no_probe_and_changes_no_bit(small_dataset, monkeypatch):
    monkeypatch.setattr(module, "_verdict", None)  # calling it would fail
    plain = fit(small_dataset, hidden=16, epochs=1, calibration="none")
    named = fit(small_dataset, hidden=16, epochs=1, calibration="none", precision="float32")
    assert np.array_equal(plain.logits(small_dataset.features), named.logits(small_dataset.features))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("change", [{}, {"normalization": "class-variance"}, {"normalization": "dynamic"},
                                    {"recipe": "best"}, {"sampled_classes": 10}])  # fmt: skip
def test_training_and_scoring_in_16_bits_come_close_to_float32(small_dataset, verdict, name, change):
    if not usable(name):
        pytest.skip(f"{name} does not work here")
    verdict(**{name: FAST})
    options = {"hidden": 32, "epochs": 6, "lr": 2e-3, "calibration": "none"} | change
    rows = small_dataset.features[small_dataset.test_rows]
    exact, half = (fit(small_dataset, **options, precision=precision) for precision in ("float32", name))
    assert half.vectors.table.dtype == getattr(torch, name)
    assert all(value.dtype in (torch.float32, torch.int64) for value in half.model.state_dict().values())
    assert not np.array_equal(half.logits(rows), exact.logits(rows))
    labels = small_dataset.labels[small_dataset.test_rows]
    ours, theirs = (gzsl_scores(scorer.logits(rows), labels, scorer.seen).zsl for scorer in (half, exact))
    assert theirs > 20
    assert abs(ours - theirs) < 12, (ours, theirs)
    assert np.isfinite(half.top(rows, 3).probabilities).all()


def test_small_gradients_survive_float16(verdict):
    """Without scaling, these would be 0 in float16."""
    if not usable("float16"):
        pytest.skip("float16 does not work here")
    verdict(float16=FAST)
    torch.manual_seed(0)
    features, labels = torch.randn(64, 8), torch.zeros(64, dtype=torch.int64)
    config = TrainingConfig(epochs=1, batch_size=64, optimizer="sgd", lr=1.0, weight_decay=0.0, momentum=0.0)
    moved = []
    for precision in ("float32", "float16"):
        model = nn.Linear(8, 2)
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        loss = lambda x, y, model=model: 1e-6 * F.cross_entropy(model(x).float(), y)  # noqa: E731
        train(model, loss, features, labels, config, precision=precision)
        moved.append(model.weight.detach().clone())
    assert moved[0].abs().max() > 0
    assert torch.allclose(moved[0], moved[1], rtol=0.05, atol=0)


def test_a_model_trained_in_16_bits_scores_in_float32_where_that_is_all_there_is(small_dataset, verdict, tmp_path):
    scorer = fit(small_dataset, method="kernel", recipe="closed-form", calibration="none")
    scorer = replace(scorer, config=scorer.config.replace(precision="bfloat16"))
    verdict()
    loaded = Scorer.load(scorer.save(tmp_path), "cpu")
    assert loaded.config.precision == "bfloat16"
    assert loaded.vectors.table.dtype == torch.float32


def test_the_command_says_what_auto_has_come_to_and_refuses_what_cannot_be(verdict, tmp_path, capsys):
    verdict()
    command = "train synthetic:classes=10,unseen=3,rows=100,features=8 --hidden 8 --epochs 1 --validation-splits 1"
    command += f" --device cpu --out {tmp_path / 'run'}"
    main([*command.split(), "--precision", "auto"])
    assert "precision auto is float32 on this cpu (bfloat16: products run at 0.5 times" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--precision", "float16"])
    assert caught.value.code == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert error[-1].endswith("products run at 0.5 times the speed of float32; use --precision float32")
