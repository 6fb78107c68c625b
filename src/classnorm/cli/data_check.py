"""`classnorm data check`: inspect a dataset."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rich import box
from rich.table import Table
from rich.text import Text

from classnorm.cli.console import print_json, print_table, stage_progress
from classnorm.cli.flags import as_flags
from classnorm.cli.options import Command, DataArgument, DataOptions, OutputOptions
from classnorm.data.inspection import Inspection, RowPair, Spread, inspect_dataset, search_cost
from classnorm.results.numbers import number_text

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

    data: DataArgument
    dataset: DataOptions
    output: OutputOptions

    def run(self) -> None:
        dataset = self.dataset.load(self.data)
        stage = f"comparing {len(dataset.test_rows)} test rows with {len(dataset.split.train)} training rows"
        with stage_progress(stage, self.output.quiet or search_cost(dataset) < _LONG) as progress:
            inspection = inspect_dataset(dataset, progress=progress)
        inspection = replace(inspection, warnings=tuple(map(as_flags, inspection.warnings)))
        if self.output.json:
            print_json(inspection.as_dict())
            return
        print_table(_table(inspection))
        for text in inspection.warnings:
            print(f"warning: {text}")
        print(inspection.verdict)


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
