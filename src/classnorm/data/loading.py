"""`load`: any dataset by its name or file."""

from __future__ import annotations

import difflib
from pathlib import Path

from classnorm.data import glyphs
from classnorm.data.bundles import is_folder_bundle, load_bundle, load_folder
from classnorm.data.dataset import ZeroShotDataset
from classnorm.data.row_store import MEMORY
from classnorm.data.synthetic import SyntheticConfig, simulate, synthetic
from classnorm.data.xlsa17 import AttributesKey, load_gbu
from classnorm.errors import DataError

_SIMULATED_ROWS = 15_000  # about the size of SUN and CUB


def load(
    source: str | Path,
    *,
    features: str = "res101",
    attributes: AttributesKey = "att",
    memory: float = MEMORY,
    max_bytes: int | None = None,
) -> ZeroShotDataset:
    """Load and check a dataset.

    Args:
        source: ``glyphs``, ``glyphs-light`` or ``glyphs-greek`` (embedded), ``synthetic`` or
            ``synthetic:classes=1000,…``, a folder with `att_splits.mat`, ``simulated:FOLDER`` (its attributes with
            random features), an `.npz` bundle or a folder bundle.
        features: feature file in the folder, without `.mat`.
        attributes: attribute table in the folder, ``att`` or ``original_att``.
        memory: GiB of rows of a folder bundle that may be loaded at once, for methods that need them all.
        max_bytes: that the arrays of a compressed file may take in memory; by default 1 GiB or, if that is more, 50
            times the file.
    """
    name = str(source)
    if name in glyphs.NAMES and not (isinstance(source, Path) and source.exists()):
        return glyphs.load(glyphs.NAMES[name])
    kind, _, settings = name.partition(":")
    if kind == "synthetic":
        return synthetic(SyntheticConfig.parse(settings))
    if kind == "simulated" and settings:
        return simulate(Path(settings), rows=_SIMULATED_ROWS, attributes=attributes)
    path = Path(source)
    if is_folder_bundle(path):
        return load_folder(path, memory)
    if path.is_dir():
        return load_gbu(path, features, attributes, max_bytes)
    if path.suffix == ".npz":
        return load_bundle(path, max_bytes)
    if path.exists():
        raise DataError(f"{path}: not a dataset; use a folder with att_splits.mat, an .npz bundle or a folder bundle")
    if path.with_name(f"{path.name}.parts").is_dir():
        raise DataError(f"{path}: is not complete; run the command that writes it again")
    near = difflib.get_close_matches(name, (*glyphs.NAMES, "synthetic"), n=1, cutoff=0.7)
    choices = "use glyphs, glyphs-light, a folder with att_splits.mat, an .npz bundle or a folder bundle"
    raise DataError(f"{path}: no such dataset; {f'did you mean {near[0]}?' if near else choices}")
