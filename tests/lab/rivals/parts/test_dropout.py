"""Dropout whose draws depend only on the seed and the step."""

import torch

from classnorm_lab.rivals.parts.layers import StepDropout


def dropped(share, seed, step, shape=(200, 300)):
    dropout = StepDropout(share, seed)
    dropout.start(step)
    return dropout(torch.ones(shape))


def test_the_share_is_zero_and_the_mean_is_kept():
    values = dropped(0.75, 0, 0)
    assert set(values.unique().tolist()) == {0.0, 4.0}
    # The standard deviation of the mean of 60,000 values of variance 3 is 0.007.
    assert abs(float(values.mean()) - 1) < 0.05


def test_the_draws_depend_on_seed_and_step_alone():
    assert torch.equal(dropped(0.5, 3, 7), dropped(0.5, 3, 7))
    assert not torch.equal(dropped(0.5, 3, 7), dropped(0.5, 3, 8))
    assert not torch.equal(dropped(0.5, 3, 7), dropped(0.5, 4, 7))


def test_masks_within_a_step_differ():
    dropout = StepDropout(0.5, 0)
    dropout.start(0)
    assert not torch.equal(dropout(torch.ones(50)), dropout(torch.ones(50)))


def test_a_share_of_zero_changes_nothing():
    values = torch.randn(5, generator=torch.Generator().manual_seed(0))
    assert StepDropout(0.0, 0)(values) is values
