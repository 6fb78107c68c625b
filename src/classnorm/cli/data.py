"""`classnorm data`: look at datasets, convert, download, join and make them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.table import Table
from rich.text import Text

from classnorm.cli.console import counted, print_json, print_table
from classnorm.cli.messages import as_flags
from classnorm.cli.options import Command, DataArgument, DataOptions, Flag, OutputOptions, optional
from classnorm.data import (
    SyntheticConfig,
    load_bundle,
    load_folder,
    save_bundle,
    save_folder,
    save_gbu,
    synthesize,
)
from classnorm.data.duplicates import RowPair, search_cost
from classnorm.data.fetching import SOURCES, fetch
from classnorm.data.inspection import Inspection, inspect_dataset
from classnorm.data.inspection_facts import Spread
from classnorm.data.row_store import DType
from classnorm.errors import ConfigError
from classnorm.preparation.parts import merge
from classnorm.progress import notice, stage
from classnorm.results.numbers import number_text
from classnorm.settings import check_positive

_LONG = 5e11  # operations: about ten seconds on one core

Facts = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class DataCheck(Command):
    """Inspect a dataset: sizes, split, features, class balance, attributes, leaks.

    Examples:
      classnorm data check glyphs
      classnorm data check xlsa17/data/CUB --features res101 --json

    Notes:
      Ends with warnings and a verdict. The exit code is 2 if the dataset cannot be
      used.
    """

    to_continue = "run the same command again"

    data: DataArgument
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        dataset = self.dataset.load(self.data, notices=False)
        search = f"comparing {len(dataset.test_rows)} test rows with {len(dataset.split.train)} training rows"
        with stage(search) if search_cost(dataset) >= _LONG else nullcontext():
            inspection = inspect_dataset(dataset)
        inspection = replace(inspection, warnings=tuple(map(as_flags, inspection.warnings)))
        if self.output.json:
            print_json(inspection.as_dict())
            return
        print_table(_table(inspection))
        for text in inspection.warnings:
            print(f"warning: {text}")
        print(inspection.verdict)


@dataclass(frozen=True, kw_only=True)
class DataConvert(Command):
    """Convert a dataset to an .npz bundle, a folder bundle or a GBU folder.

    Examples:
      classnorm data convert xlsa17/data/CUB cub.npz --features res101 --float16
      classnorm data convert large.npz --out large --dtype float16
      classnorm data convert glyphs glyphs-gbu

    Notes:
      A folder bundle holds the features in shards. Training and scoring read them in
      blocks, so that they need not fit in memory.
    """

    to_continue = "run the same command again"

    data: DataArgument
    target: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET", help_behavior_hint="")] = None
    """Bundle to write, if it ends in .npz, else the GBU folder."""
    out: Annotated[Path | None, optional("FOLDER")] = None
    """Folder bundle to write, instead of TARGET."""
    dtype: Annotated[DType | None, optional("{float16,float32}")] = None
    """Precision of the features in a bundle (default: as they are)."""
    float16: Flag = False
    """The same as --dtype float16."""
    rows_per_shard: Annotated[int | None, optional("N")] = None
    """Rows of each shard of a folder bundle (default: 128 MiB)."""
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        target, dtype = self._checked()
        dataset = self.dataset.load(self.data, notices=False)
        if self.out is not None:
            with stage("convert"):
                save_folder(dataset, self.out, dtype, self.rows_per_shard)
            dataset = load_folder(self.out)
        elif target.suffix == ".npz":
            save_bundle(dataset, target, dtype)
            dataset = load_bundle(target)
        else:
            save_gbu(dataset, target)
        if self.output.json:
            print_json({"target": str(target), "checksum": dataset.checksum, "sizes": dataset.sizes})
        else:
            is_gbu = self.out is None and target.suffix != ".npz"
            hint = "; train with --features features, and --attributes original_att for the unscaled descriptors"
            notice(f"wrote {target}{hint * is_gbu}")

    def _checked(self) -> tuple[Path, DType | None]:
        """The target and the precision."""
        check_positive(rows_per_shard=self.rows_per_shard)
        target = self.out or self.target
        if target is None or (self.out and self.target):
            raise ConfigError("give either TARGET or --out FOLDER")
        if self.rows_per_shard is not None and self.out is None:
            raise ConfigError("--rows-per-shard is for folder bundles; use --out FOLDER")
        if Path(self.data).is_dir() and target.resolve() == Path(self.data).resolve():
            raise ConfigError(f"{target}: is the dataset itself; give another target")
        if self.float16 and self.dtype == "float32":
            raise ConfigError("--float16 and --dtype float32 contradict each other; leave out one")
        dtype = "float16" if self.float16 else self.dtype
        if dtype is not None and self.out is None and target.suffix != ".npz":
            raise ConfigError(
                f"--{'float16' if self.float16 else 'dtype'} is for bundles; MATLAB files are in double precision"
            )
        return target, dtype


@dataclass(frozen=True, kw_only=True)
class DataFetch(Command):
    """Download a public dataset: gbu (ResNet-101 features of CUB, SUN, AWA1, AWA2, APY) or cub (the images).

    Examples:
      classnorm data fetch gbu
      classnorm train data/gbu/xlsa17/data/CUB
      classnorm data fetch cub --out data --mirror https://example.org/CUB_200_2011.tgz

    Notes:
      To continue an interrupted download, run the same command again. The archive is
      compared with its published checksum or, if there is none, with that of the first
      download.
    """

    to_continue = "run the same command again"

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="{gbu,cub}")]
    """Dataset to download."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("data")
    """Folder in which a folder of that name is made."""
    mirror: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], optional("URL")] = ()
    """Address of the same archive, tried before the publisher's. Repeat the flag for several."""
    output: OutputOptions

    def run(self) -> None:
        target, fetched = fetch(self.name, self.out, self.mirror)
        if self.output.json:
            print_json({"target": str(target), **asdict(fetched)})
            return
        size = f"{counted(fetched.files, 'file')}, {fetched.bytes / 2**20:.0f} MB, from {fetched.url}"
        notice(f"{target}: {size}", SOURCES[self.name].terms)


@dataclass(frozen=True, kw_only=True)
class DataMerge(Command):
    """Join the parts that extract --shard has written to one folder bundle.

    Examples:
      classnorm data merge part-* --out photos
    """

    to_continue = "run the same command again"

    parts: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PART…")]
    """Folders of all parts, in any order."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder bundle to write."""
    output: OutputOptions

    def run(self) -> None:
        with stage("merge"):
            table = merge(self.parts, self.out)
        if self.output.json:
            print_json({"target": str(self.out), "parts": len(self.parts), "images": len(table)})
        else:
            notice(f"wrote {self.out}: {len(table)} images of {len(self.parts)} parts")


@dataclass(frozen=True, kw_only=True)
class DataSynthesize(Command):
    """Write a synthetic dataset of any size as a folder bundle.

    Examples:
      classnorm data synthesize --rows 50000 --classes 500 --unseen 100 --out small
      classnorm data synthesize --rows 1300000 --classes 1000 --unseen 200 --features-dim 2048 --out large

    Notes:
      Class means depend on skewed, correlated attributes; rows scatter around them. A
      fifth of the rows of each seen class are test rows. Memory does not grow with
      the rows. To continue after an interruption, run the same command again.
    """

    to_continue = "run the same command again"

    rows: int = SyntheticConfig.rows
    """Number of rows."""
    classes: int = SyntheticConfig.classes
    """Number of classes."""
    unseen: int = SyntheticConfig.unseen
    """Number of unseen classes."""
    features_dim: int = SyntheticConfig.features
    """Dimension of the features."""
    attributes_dim: int = SyntheticConfig.attributes
    """Dimension of the class descriptors."""
    noise: float = SyntheticConfig.noise
    """Standard deviation within a class, relative to that of the class means."""
    dtype: DType = "float16"
    """Precision of the features."""
    rows_per_shard: Annotated[int | None, optional("N")] = None
    """Rows of each shard (default: 128 MiB)."""
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder bundle to write."""
    seed: int = 0
    """Seed of all random numbers."""
    output: OutputOptions

    def run(self) -> None:
        check_positive(rows_per_shard=self.rows_per_shard)
        config = SyntheticConfig(
            classes=self.classes,
            unseen=self.unseen,
            rows=self.rows,
            features=self.features_dim,
            attributes=self.attributes_dim,
            noise=self.noise,
            seed=self.seed,
        )
        with stage("synthesize"):
            synthesize(config, self.out, self.dtype, self.rows_per_shard)
        dataset = load_folder(self.out)
        if self.output.json:
            print_json({"target": str(self.out), "checksum": dataset.checksum, "sizes": dataset.sizes})
        else:
            notice(f"wrote {self.out}: {dataset.n_rows} rows of {dataset.d_z} dimensions")


def _table(inspection: Inspection) -> Table:
    table = Table(title=Text(inspection.name), title_justify="left", show_header=False, box=box.SIMPLE)
    table.add_column()
    table.add_column(overflow="fold")  # never cut a checksum
    sections = {
        "Dataset": _dataset(inspection),
        "Features": _features(inspection),
        "Classes": _classes(inspection),
        "Attributes": _attributes(inspection),
        "Duplicates and leaks": _duplicates(inspection),
    }
    for heading, facts in sections.items():
        table.add_section()
        table.add_row(Text(heading, style="bold"), "")
        for name, value in facts:
            table.add_row(Text(f"  {name}"), Text(value))  # not markup: a class may be called [b]
    return table


def _dataset(inspection: Inspection) -> Facts:
    sizes, unused = inspection.sizes, inspection.leaks.unused_rows
    rows = f"{sizes['train_rows']} train, {sizes['test_seen_rows']} test seen, {sizes['test_unseen_rows']} test unseen"
    return [
        ("benchmark", inspection.benchmark or "not one of the GBU benchmarks"),
        *((name, value) for name, value in inspection.provenance.items() if name != "split"),
        ("split", inspection.split_version),
        ("split checksum", inspection.split_checksum),
        ("checksum", inspection.checksum),
        ("rows", f"{sizes['rows']}: {rows}" + (f", {unused} in no part" if unused else "")),
        ("classes", f"{sizes['classes']}: {sizes['seen_classes']} seen, {sizes['unseen_classes']} unseen"),
    ]


def _features(inspection: Inspection) -> Facts:
    facts = inspection.features
    sign = "non-negative" if facts.non_negative else "of either sign"
    return [
        ("dimensions", f"{inspection.sizes['feature_dim']}, {facts.dtype}, {sign}"),
        ("values", f"{facts.min:.3g} to {facts.max:.3g}, {facts.zero_share:.1%} zero"),
        ("mean norm", f"{facts.mean_norm:.3g}"),
        ("constant columns", str(facts.constant_columns)),
        ("all-zero rows", str(facts.zero_rows)),
    ]


def _classes(inspection: Inspection) -> Facts:
    facts = inspection.classes
    smallest = ", ".join(f"{name} ({rows})" for name, rows in facts.smallest.items())
    return [
        ("training rows per seen class", _spread(facts.train_rows)),
        ("largest / smallest", f"{facts.imbalance:.3g}"),
        *([("smallest", smallest)] if facts.imbalance > 1 else []),
        ("test rows per seen class", _spread(facts.test_seen_rows)),
        ("test rows per unseen class", _spread(facts.test_unseen_rows)),
        ("classes without rows", str(len(facts.without_rows))),
    ]


def _attributes(inspection: Inspection) -> Facts:
    facts = inspection.attributes
    seen = {True: "seen", False: "unseen"}
    return [
        ("dimensions", str(facts.dimension)),
        ("values", f"{facts.min:.3g} to {facts.max:.3g}"),
        ("norm per class", "1 (unit norm)" if facts.unit_norm else _spread(facts.norm)),
        ("mean |correlation|", number_text(facts.mean_absolute_correlation, 2)),
        ("median skewness", number_text(facts.median_skewness, 2)),
        ("constant columns", str(len(facts.constant_columns))),
        ("constant among seen classes only", str(len(facts.constant_among_seen))),
        ("missing values", str(facts.missing_values)),
        ("pairs with equal descriptors", str(facts.equal_pairs)),
        *(
            ("", f"{pair.one} ({seen[pair.one_seen]}) and {pair.other} ({seen[pair.other_seen]})")
            for pair in facts.first_equal_pairs
        ),
    ]


def _duplicates(inspection: Inspection) -> Facts:
    facts, leaks = inspection.duplicates, inspection.leaks
    compared = f"a sample of {facts.compared_rows} of " if facts.compared_rows < facts.test_rows else ""
    near = f"{facts.near} of {compared}{facts.test_rows} (cosine distance under {facts.threshold:g})"
    if facts.near:
        near += f": {facts.exact} exact, {facts.other_label} of another class, {facts.in_test_unseen} of unseen classes"
    elif facts.closest is not None:
        near += f", closest {facts.closest:.2g}"
    files = "unknown" if leaks.files_in_both is None else str(leaks.files_in_both)
    shown = [
        ("test rows nearly equal to a training row", near),
        *((f"  test row {pair.row}", _pair_text(pair)) for pair in facts.first),
        ("repeated training rows", str(facts.train_repeats)),
        ("identical rows with different labels", str(facts.contradictions)),
        *((f"  row {pair.row}", _pair_text(pair)) for pair in facts.first_contradictions),
        ("image files in train and test", files),
    ]
    if leaks.train_rows_held_out is not None:
        disagree = f"{leaks.train_rows_held_out} training rows, {leaks.test_rows_given_out} test rows of seen classes"
        shown.append(("disagree with is_train", disagree))
    return shown


def _pair_text(pair: RowPair) -> str:
    """A test row, the training row it resembles, and their distance."""
    like = "equals" if pair.exact else f"{pair.cosine_distance:.1g} from"
    one = ", ".join(filter(None, (pair.class_name, pair.file)))
    other = ", ".join(filter(None, (pair.train_class if pair.other_label else "same class", pair.train_file)))
    return f"{one}; {like} training row {pair.train_row}: {other}"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "none"
    if spread.min == spread.max:
        return f"{spread.min:.4g}"
    return f"{spread.min:.4g} to {spread.max:.4g}, median {spread.median:.4g}"
