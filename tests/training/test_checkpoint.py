"""Checkpoints notice what happened to them on disk."""

import numpy as np
import pytest
import torch

from classnorm.errors import ModelError
from classnorm.training.checkpoint import load_checkpoint, save_checkpoint


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


def test_no_flipped_bit_resumes_to_other_weights(checkpoint):
    whole = checkpoint.read_bytes()
    expected, _ = loaded = made()
    history = load_checkpoint(checkpoint, *loaded, "key")
    noticed = 0
    for place in np.random.default_rng(0).integers(8, len(whole), 200):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(place) % 8
        checkpoint.write_bytes(changed)
        model, optimizer = made()
        try:
            assert load_checkpoint(checkpoint, model, optimizer, "key") == history
        except ModelError as error:
            noticed += "not a readable checkpoint; delete it" in str(error)
        else:  # a bit in the name of the checksum
            assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    assert noticed >= 195
