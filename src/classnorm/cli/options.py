"""Options shared by several commands, and flags made from the config of a method."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import shlex
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Self

import tyro

from classnorm.cli.messages import one_line_errors
from classnorm.data import AttributesKey, ZeroShotDataset, load
from classnorm.data.row_store import MEMORY
from classnorm.errors import ConfigError, unknown_name
from classnorm.progress import notice
from classnorm.registry import Registry, load_plugin, not_installed
from classnorm.report import SCORES, group_results
from classnorm.results.numbers import json_number
from classnorm.results.run_folder import Result, is_finished
from classnorm.settings import check_positive, check_seed
from classnorm.training import Device


def optional(metavar: str, help: str | None = None) -> Any:
    """Annotation of an optional flag: the help names its value and no default."""
    return tyro.conf.arg(metavar=metavar, help=help, help_behavior_hint="")


_DATASETS = "glyphs[-light|-greek], synthetic[:classes=…], simulated:FOLDER, a GBU folder, an .npz or folder bundle."
_TEMPLATE = 'Sentence with {} for the name or description: "a photo of a {}". Repeat the flag to average several.'

DataArgument = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA", help=f"Dataset: {_DATASETS}")]
Templates = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], optional("TEXT", _TEMPLATE)]
Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Files of a GBU folder, which is a folder with att_splits.mat, and memory for a folder bundle."""

    features: Annotated[str, tyro.conf.arg(metavar="NAME")] = "res101"
    """Feature file, without .mat; several joined by + have their features side by side."""
    attributes: AttributesKey = "att"
    """Attribute table: att (unit norm) or original_att (raw)."""
    memory: Annotated[float, tyro.conf.arg(metavar="GIB")] = MEMORY
    """Largest part of a folder bundle to load at once, for methods that cannot read it in blocks."""

    max_bytes: Annotated[int | None, optional("BYTES")] = None
    """Most that a compressed file may unpack to (default: 1 GiB or, if that is more, 50 times the file)."""

    def load(self, source: str, *, notices: bool = True) -> ZeroShotDataset:
        """Load a dataset and show its notices."""
        dataset = load(
            source, features=self.features, attributes=self.attributes, memory=self.memory, max_bytes=self.max_bytes
        )
        if notices:
            notice(*dataset.notices)
        return dataset


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output and plug-ins."""

    json: Flag = False
    """Print a single JSON document on stdout."""
    quiet: Flag = False
    """Print no progress or notices on stderr."""
    plugin: Annotated[tyro.conf.UseAppendAction[tuple[Path, ...]], optional("FILE.py")] = ()
    """Python file that registers methods, strategies or encoders. Repeat the flag to load several."""


class Command:
    """Base class of the commands: the fields of a command are its flags."""

    output: OutputOptions
    to_continue: ClassVar[str] = ""
    """What to do after an interruption; empty if nothing is kept."""

    @classmethod
    def parse(cls, arguments: Sequence[str], program: str) -> Self:
        """Load the plug-ins and fill in the flags."""
        for path in _flag_values(arguments, "plugin"):  # before parsing, since plug-ins add flags and values
            load_plugin(Path(path))
        return cls._parse(arguments, program)

    @classmethod
    def _parse(cls, arguments: Sequence[str], program: str) -> Self:
        parsed: Self = _fill_in(cls, arguments, program)
        return parsed

    def run(self) -> None:
        raise NotImplementedError


class SettingsCommand(Command):
    """A command with a flag for each setting of the method or strategy that it trains."""

    command_line: str = ""
    settings: Any  # becomes a field when the arguments name the method: the help shows its flags last
    """Unset options come from the recipe."""

    @property
    def set_values(self) -> dict[str, Any]:
        """The settings that have a value."""
        return {name: value for name, value in vars(self.settings).items() if value is not None}

    @classmethod
    def _parse_with_settings(
        cls,
        arguments: Sequence[str],
        program: str,
        flag: str,
        names: Registry[Any],
        config_of: Callable[[str], type[Any]],
        **fields: Any,
    ) -> Self:
        """Fill in the flags, which include the settings that `--flag NAME` selects."""
        name = _choice(cls, arguments, flag)
        if name not in names:
            raise unknown_name(flag, name, names, not_installed())
        config = config_of(name)
        _check_settings(cls, arguments, f"{flag} {name}", config, map(config_of, names.own))
        help_text = f"One of {', '.join(names)}. For the settings of another {flag}: {program} --{flag} NAME --help."
        fields |= {flag: _name_hint(help_text), "settings": _optional_settings(config)}
        fields["command_line"] = tyro.conf.Suppress[tyro.conf.Fixed[str]]
        typed = dataclasses.make_dataclass(
            cls.__name__, fields.items(), bases=(cls,), namespace={"__doc__": cls.__doc__}, frozen=True, kw_only=True
        )
        filled = _fill_in(typed, _with_truth_values(arguments, config), program)
        parsed: Self = dataclasses.replace(filled, command_line=shlex.join([*program.split(), *arguments]))
        return parsed


@dataclass(frozen=True, kw_only=True)
class MethodCommand(SettingsCommand):
    """A command that trains a method."""

    method: str = "classnorm"
    recipe: str = "reference"

    @classmethod
    def _parse(cls, arguments: Sequence[str], program: str) -> Self:
        from classnorm.methods import METHODS, recipe_named

        name = _choice(cls, arguments, "method")
        presets = ", ".join(METHODS[name].recipes) if name in METHODS else ""
        recipe = _name_hint(f"Preset of {name}: {presets}; or the recipe.json of a search.")
        parsed = cls._parse_with_settings(
            arguments, program, "method", METHODS, lambda name: METHODS[name].config, recipe=recipe
        )
        recipe_named(METHODS[name], parsed.recipe)  # raises before data is read
        return parsed


def _fill_in(command: type[Any], arguments: Sequence[str], program: str) -> Any:
    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    with one_line_errors(program):
        return tyro.cli(command, prog=program, description=inspect.getdoc(command), args=list(arguments), config=config)


def _choice(command: type[Command], arguments: Sequence[str], flag: str) -> str:
    return str([getattr(command, flag), *_flag_values(arguments, flag)][-1])


def _flag_values(arguments: Sequence[str], flag: str) -> list[str]:
    """The values of every `--flag`, before the arguments are parsed."""
    values = []
    for argument, following in itertools.pairwise([*arguments, ""]):
        if argument == f"--{flag}":
            values.append(following)
        elif argument.startswith(f"--{flag}="):
            values.append(argument.removeprefix(f"--{flag}="))
    return values


def _name_hint(help_text: str) -> Any:
    return Annotated[str, tyro.conf.arg(metavar="NAME", help=help_text)]


def _check_settings(
    command: type[Command], arguments: Sequence[str], owner: str, config: type[Any], others: Iterable[type[Any]]
) -> None:
    """Raise if an argument is a setting of another method, or if a setting hides a flag of the command."""
    settings, flags = _field_names(config), _field_names(command)
    if clash := settings & flags:
        raise ConfigError(f"{owner}: its setting {min(clash)} has the name of a flag of the command; rename it")
    present = {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}
    names = {option.removeprefix("--").removeprefix("no-").replace("-", "_") for option in present - {"--help"}}
    unknown = names - settings - flags
    if not unknown:  # spares the others' settings, which take time to load
        return
    for setting in next((found for other in others if (found := unknown & _field_names(other))), ()):
        raise ConfigError(f"{owner} has no setting {setting}; leave out --{setting.replace('_', '-')}")


def _field_names(options: Any) -> set[str]:
    """Names of the fields that are flags or arguments, including those of option groups."""
    groups = {name: hint for name, hint in typing.get_type_hints(options).items() if dataclasses.is_dataclass(hint)}
    names = {field.name for field in dataclasses.fields(options)} - {"settings", *groups}
    return names.union(*[_field_names(group) for group in groups.values()])


def _with_truth_values(arguments: Sequence[str], config: type[Any]) -> list[str]:
    """Replace `--flag` and `--no-flag` of boolean settings by `--flag True` and `--flag False`."""
    hints = typing.get_type_hints(config)
    flags = {f"--{name.replace('_', '-')}" for name, hint in hints.items() if hint is bool}
    expanded: list[str] = []
    for argument, following in itertools.pairwise([*arguments, ""]):
        if argument.startswith("--no-") and f"--{argument[5:]}" in flags:
            expanded += [f"--{argument[5:]}", "False"]
        elif argument in flags and following not in ("True", "False"):
            expanded += [argument, "True"]
        else:
            expanded.append(argument)
    return expanded


def _optional_settings(config: type[Any]) -> Any:
    """The config with None as the default of every field, which its checks do not know."""
    hints = typing.get_type_hints(config)
    fields = [
        (field.name, Annotated[hints[field.name] | None, optional(_metavar(hints[field.name]))], None)
        for field in dataclasses.fields(config)
    ]
    unchecked = {"__post_init__": lambda settings: None}
    return dataclasses.make_dataclass(
        "settings", fields, bases=(config,), namespace=unchecked, frozen=True, kw_only=True
    )


def _metavar(hint: Any) -> Any:
    """The value in the help: {a,b} for names, FLOAT|auto for a union; None leaves it to tyro."""
    if typing.get_origin(hint) is typing.Literal:
        return "{" + ",".join(map(str, typing.get_args(hint))) + "}"
    if typing.get_origin(hint) in (typing.Union, UnionType):
        kinds = [_metavar(kind) for kind in typing.get_args(hint) if kind is not type(None)]
        return "|".join(kind.strip("{}") for kind in kinds if kind)
    return {bool: "[True|False]", int: "INT", float: "FLOAT", str: "STR"}.get(hint)


_MOST_SEEDS = 10_000

DeviceOption = Annotated[Device, tyro.conf.arg(help="Where to compute; auto prefers CUDA, then MPS, then the CPU.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Seeds, folder and device of the runs."""

    seed: Annotated[int | None, optional("N")] = None
    """Run once, with this seed (default: 0)."""
    seeds: Annotated[int | None, optional("N")] = None
    """Run N times, with seeds 0 … N−1."""
    out: Annotated[Path | None, optional("DIR")] = None
    """Folder for the runs, with a subfolder per seed (default: a folder in runs/DATASET)."""
    label: Annotated[str | None, optional("TEXT")] = None
    """Name of the runs in reports, to tell them from others of the same data and method."""
    device: DeviceOption = "auto"
    resume: Flag = False
    """Continue interrupted runs and keep finished ones."""

    def seed_numbers(self) -> list[int]:
        if self.seed is not None and self.seeds is not None:
            raise ConfigError("--seed and --seeds exclude each other: run once with a seed, or with seeds 0 … N−1")
        check_positive(seeds=self.seeds)
        check_seed(self.seed or 0)
        if self.seeds is not None and self.seeds > _MOST_SEEDS:
            raise ConfigError(f"--seeds is {str(self.seeds)[:30]}; it must be at most {_MOST_SEEDS:,}")
        return list(range(self.seeds)) if self.seeds is not None else [self.seed or 0]

    def folders(self, root: Path, seeds: Sequence[int]) -> list[Path]:
        """The run folder of each seed; a notice announces runs that will be replaced."""
        folders = [root / f"seed-{seed}" for seed in seeds]
        for folder in folders:
            if not self.resume and is_finished(folder):
                notice(f"replacing the finished run {folder}")
        return folders


def mean_and_std(results: Sequence[Result]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation of the scores of one group of runs."""
    [group] = group_results(results)
    statistics: dict[str, Any] = {"mean": group.mean, "std": group.std}
    return {key: {name: json_number(value(name)) for name in SCORES} for key, value in statistics.items()}


def run_records(results: Sequence[Result], *keys: str) -> list[dict[str, Any]]:
    """The values of these keys and the folder of each run."""
    return [{key: result.document[key] for key in keys} | {"model": str(result.folder)} for result in results]
