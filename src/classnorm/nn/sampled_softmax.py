"""Softmax over a sample of the classes, for training with tens of thousands of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class ClassSample(NamedTuple):
    """The classes of a batch and some others."""

    classes: Tensor
    """[m], numbers of the classes"""
    labels: Tensor
    """[b], positions of the labels in `classes`"""
    log_weights: Tensor
    """[m], logarithm of the number of classes that each stands for: 0 for those of the batch. Added to the logits, it
    makes the sum of their exponentials an unbiased estimate of the sum over all classes."""


def sample_classes(labels: Tensor, n_classes: int, size: int, generator: torch.Generator) -> ClassSample:
    """The classes of a batch and `size` others, drawn without replacement.

    Args:
        labels: [b], numbers of classes.
        generator: on the CPU, so that the draws do not depend on the device.

    >>> sample = sample_classes(torch.tensor([7, 2, 7]), 10, 4, torch.Generator().manual_seed(0))
    >>> sample.classes[sample.labels]
    tensor([7, 2, 7])
    >>> sample.log_weights.exp()
    tensor([1., 1., 2., 2., 2., 2.])
    """
    own, positions = torch.unique(labels, return_inverse=True)
    order = torch.randperm(n_classes, generator=generator).to(labels.device)
    others = order[~torch.isin(order, own)][:size]
    weight = math.log((n_classes - len(own)) / len(others)) if len(others) else 0.0
    log_weights = torch.cat([torch.zeros(len(own)), torch.full((len(others),), weight)]).to(labels.device)
    return ClassSample(torch.cat([own, others]), positions, log_weights)
