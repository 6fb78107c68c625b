"""The softmax over a sample of the classes."""

import pytest
import torch

from classnorm.nn import entropy_regularizer, sample_classes


@pytest.fixture
def logits():
    return torch.randn(5, 40, generator=torch.Generator().manual_seed(0))


LABELS = torch.tensor([3, 39, 3, 0, 11])


def draws(size, n=4000):
    generator = torch.Generator().manual_seed(1)
    return [sample_classes(LABELS, 40, size, generator) for _ in range(n)]


def test_a_sample_has_the_classes_of_the_batch_and_others_once_each():
    for sample in draws(7, 50):
        assert torch.equal(sample.classes[sample.labels], LABELS)
        assert len(sample.classes.unique()) == len(sample.classes) == 4 + 7


def test_the_sum_over_a_sample_estimates_the_sum_over_all_classes_without_bias(logits):
    sums = torch.stack([(logits[:, s.classes] + s.log_weights).exp().sum(dim=1) for s in draws(7)])
    error = sums.std(dim=0) / len(sums) ** 0.5
    assert ((sums.mean(dim=0) - logits.exp().sum(dim=1)).abs() < 4 * error).all()
    assert (error < 0.02 * sums.mean(dim=0)).all()


def test_a_sample_of_all_other_classes_is_exact(logits):
    [sample] = draws(36, 1)
    assert torch.equal(sample.classes.sort().values, torch.arange(40))
    assert not sample.log_weights.any()
    [again] = draws(1000, 1)
    assert torch.equal(again.classes, sample.classes)
    found = entropy_regularizer(logits[:, sample.classes], sample.log_weights)
    assert torch.allclose(found, entropy_regularizer(logits))


def test_the_entropy_of_equal_logits_is_that_of_all_classes():
    [sample] = draws(7, 1)
    found = entropy_regularizer(torch.zeros(5, 11), sample.log_weights)
    assert torch.allclose(found, entropy_regularizer(torch.zeros(5, 40)))


def test_a_batch_with_every_class_needs_no_others():
    sample = sample_classes(torch.arange(6), 6, 3, torch.Generator().manual_seed(0))
    assert sample.classes.tolist() == list(range(6))
    assert not sample.log_weights.any()
