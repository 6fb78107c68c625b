"""Zero-shot datasets, their file formats, and validation splits."""

from __future__ import annotations

from classnorm.data.bundles import load_bundle, load_folder, save_bundle, save_folder
from classnorm.data.dataset import Split, ZeroShotDataset
from classnorm.data.loading import load
from classnorm.data.synthetic import SyntheticConfig, simulate, synthesize, synthetic
from classnorm.data.validation import SplitKind, validation_dataset
from classnorm.data.xlsa17 import AttributesKey, load_gbu, read_splits, save_gbu

__all__ = [
    "AttributesKey",
    "Split",
    "SplitKind",
    "SyntheticConfig",
    "ZeroShotDataset",
    "load",
    "load_bundle",
    "load_folder",
    "load_gbu",
    "read_splits",
    "save_bundle",
    "save_folder",
    "save_gbu",
    "simulate",
    "synthesize",
    "synthetic",
    "validation_dataset",
]
