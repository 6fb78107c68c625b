"""Classes recognised by their descriptors."""

import torch

from classnorm_lab.rivals.parts.layers import known_classes


def test_a_descriptor_is_known_up_to_the_rounding_of_a_table():
    known = torch.rand(6, 20, generator=torch.Generator().manual_seed(0)) * 100
    order = [4, 0, 5]
    rounded = torch.tensor([[float(f"{value:.6g}") for value in row] for row in known[order].tolist()])
    assert known_classes(rounded, known).tolist() == order


def test_a_descriptor_that_differs_is_new():
    known = torch.rand(6, 20, generator=torch.Generator().manual_seed(0))
    between = 0.99 * known[2] + 0.01 * known[3]
    assert known_classes(torch.stack([between, known[2]]), known).tolist() == [-1, 2]
