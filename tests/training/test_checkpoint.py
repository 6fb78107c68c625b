"""Checkpoints notice what happened to them on disk."""

import numpy as np
import pytest
import torch

from classnorm.errors import ModelError
from classnorm.training.epochs import load_checkpoint, save_checkpoint


def made():
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    return model, torch.optim.Adam(model.parameters())


@pytest.fixture
def checkpoint(tmp_path):
    model, optimizer = made()
    model(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    save_checkpoint(tmp_path / "c.safetensors", model, optimizer, "key", [{"epoch": 1, "loss": 2.0}])
    return tmp_path / "c.safetensors"


def test_a_checkpoint_that_is_whole_is_restored(checkpoint):
    assert load_checkpoint(checkpoint, *made(), "key") == [{"epoch": 1, "loss": 2.0}]


def test_no_flipped_bit_is_taken_for_a_checkpoint(checkpoint):
    whole = checkpoint.read_bytes()
    for place in np.random.default_rng(0).integers(8, len(whole), 200):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(place) % 8
        checkpoint.write_bytes(changed)
        with pytest.raises(ModelError, match="not a readable checkpoint; delete it"):
            load_checkpoint(checkpoint, *made(), "key")
