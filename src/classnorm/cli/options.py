"""Flags that several commands share, and flags made from a method's config."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar

import tyro

from classnorm.data import AttributesKey, ZeroShotDataset, load
from classnorm.errors import ConfigError, unknown_name
from classnorm.plugins import load_plugin

__all__ = [
    "DataOptions",
    "MethodCommand",
    "OutputOptions",
    "chosen_seeds",
    "flag_values",
    "given",
    "load_plugins",
    "parse",
    "parse_for_method",
    "parse_with_settings",
    "settings_type",
]

Command = TypeVar("Command")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Which files of a GBU folder."""

    features: str = "res101"
    """Feature file of a GBU folder, without .mat."""
    attributes: AttributesKey = "att"
    """Attribute table of a GBU folder: att (unit norm) or original_att (raw)."""

    def load(self, source: str) -> ZeroShotDataset:
        return load(
            Path(source) if Path(source).exists() else source, features=self.features, attributes=self.attributes
        )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Output and plug-ins."""

    json: bool = False
    """Print one JSON document on stdout and nothing else there."""
    quiet: bool = False
    """No progress or notices on stderr."""
    plugin: Annotated[
        tyro.conf.UseAppendAction[tuple[Path, ...]], tyro.conf.arg(metavar="FILE.py", help_behavior_hint="")
    ] = ()
    """Run this Python file first: it may register methods, strategies and encoders. May be given again."""


def parse(command: type[Command], arguments: Sequence[str], program: str) -> Command:
    """The command with its flags filled in; a usage error exits with code 2."""
    return tyro.cli(
        command,
        prog=program,
        description=inspect.getdoc(command),
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )


@dataclass(frozen=True, kw_only=True)
class MethodCommand:
    """A command that trains: it has a flag for every setting of the method that it is told."""

    method: str = "classnorm"
    settings: Any
    """What was given of the method's config; the rest is the recipe's to say."""


def parse_for_method(command: type[Command], arguments: Sequence[str], program: str) -> Command:
    """The command with its flags filled in, among them those of the method that the arguments name."""
    from classnorm.methods import METHODS

    configs = {name: method.config for name, method in METHODS.items()}
    chosen = [MethodCommand.method, *flag_values(arguments, "method")][-1]
    recipes = ", ".join(METHODS[chosen].recipes) if chosen in METHODS else ""
    help_text = f"Preset of {chosen}: {recipes}; or the recipe.json of a search."
    recipe = (
        "recipe",
        Annotated[str, tyro.conf.arg(metavar="NAME", help=help_text)],
        dataclasses.field(default="reference"),
    )
    return parse_with_settings(command, arguments, program, "method", MethodCommand.method, configs, [recipe])


def parse_with_settings(
    command: type[Command],
    arguments: Sequence[str],
    program: str,
    flag: str,
    default: str,
    configs: Mapping[str, type[Any]],
    more: Sequence[tuple[str, Any, Any]] = (),
) -> Command:
    """The command with its flags filled in; `--flag NAME` decides whose settings are among them."""
    chosen = [default, *flag_values(arguments, flag)][-1]
    if chosen not in configs:
        raise unknown_name(flag, chosen, configs)
    _refuse_other_settings(arguments, flag, chosen, configs)
    names = ", ".join(configs)
    help_text = f"Which {flag}: {names}. Each has settings of its own: {program} --{flag} NAME --help."
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        *more,
        (flag, Annotated[str, tyro.conf.arg(metavar="NAME", help=help_text)], dataclasses.field(default=chosen)),
        ("settings", settings_type(configs[chosen])),
    ]
    typed = dataclasses.make_dataclass(
        command.__name__, fields, bases=(command,), namespace={"__doc__": command.__doc__}, frozen=True, kw_only=True
    )
    return parse(typed, _with_truth_values(arguments, configs[chosen]), program)


def _refuse_other_settings(arguments: Sequence[str], flag: str, chosen: str, configs: Mapping[str, type[Any]]) -> None:
    """Raise for a setting that others have but the chosen one has not."""
    settings = {name: [field.name for field in dataclasses.fields(config)] for name, config in configs.items()}
    flags = {argument.partition("=")[0].replace("_", "-") for argument in arguments}
    for name in itertools.chain(*settings.values()):
        option = name.replace("_", "-")
        if name not in settings[chosen] and flags & {f"--{option}", f"--no-{option}"}:
            raise ConfigError(f"{flag} {chosen} has no setting {name}; leave out --{option}")


def load_plugins(arguments: Sequence[str]) -> None:
    """Run the files that `--plugin` names, before what they register can be a flag or a value."""
    for path in flag_values(arguments, "plugin"):
        load_plugin(Path(path))


def flag_values(arguments: Sequence[str], flag: str) -> list[str]:
    """The values of every `--flag`, looked up before the other flags are known."""
    values = []
    for argument, following in itertools.pairwise([*arguments, ""]):
        if argument == f"--{flag}":
            values.append(following)
        elif argument.startswith(f"--{flag}="):
            values.append(argument.removeprefix(f"--{flag}="))
    return values


def _with_truth_values(arguments: Sequence[str], config: type[Any]) -> list[str]:
    """`--flag` and `--no-flag` of a setting that is true or false, spelt out as `--flag True` and `--flag False`."""
    hints = typing.get_type_hints(config)
    flags = {f"--{name.replace('_', '-')}" for name, hint in hints.items() if hint is bool}
    spelt: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument.startswith("--no-") and f"--{argument[5:]}" in flags:
            spelt += [f"--{argument[5:]}", "False"]
        elif argument in flags and following not in ("True", "False"):
            spelt += [argument, "True"]
        else:
            spelt.append(argument)
    return spelt


def settings_type(config: type[Any]) -> Any:
    """The config with every field optional: what is not given on the command line is the recipe's to say."""
    hints = typing.get_type_hints(config)
    fields = [(field.name, _optional(hints[field.name]), None) for field in dataclasses.fields(config)]
    settings = dataclasses.make_dataclass("settings", fields, bases=(config,), frozen=True, kw_only=True)
    return Annotated[settings, tyro.conf.arg(name="")]


def _optional(hint: Any) -> Any:
    return Annotated[hint | None, tyro.conf.arg(metavar=_metavar(hint), help_behavior_hint="")]


def _metavar(hint: Any) -> str | None:
    """How the help shows a value: {a,b} for names, FLOAT|auto for either of two kinds, else tyro's own way."""
    if typing.get_origin(hint) is typing.Literal:
        return "{" + ",".join(map(str, typing.get_args(hint))) + "}"
    if typing.get_origin(hint) in (typing.Union, UnionType):
        kinds = [_metavar(kind) for kind in typing.get_args(hint) if kind is not type(None)]
        return "|".join(kind.strip("{}") for kind in kinds if kind)
    return {bool: "[{True,False}]", int: "INT", float: "FLOAT", str: "STR"}.get(hint)


def given(settings: Any) -> dict[str, Any]:
    """The settings that were given."""
    return {name: value for name, value in vars(settings).items() if value is not None}


def chosen_seeds(seed: int | None, seeds: int | None) -> list[int]:
    """What `--seed` and `--seeds` ask for: one run with a given seed, or seeds 0 … N−1."""
    if seed is not None and seeds is not None:
        raise ConfigError("--seed and --seeds exclude each other: one run with a given seed, or seeds 0 … N−1")
    if seeds is not None:
        if seeds < 1:
            raise ConfigError(f"--seeds is {seeds}; it must be at least 1")
        return list(range(seeds))
    if seed is not None and seed < 0:
        raise ConfigError(f"--seed is {seed}; it must not be negative")
    return [seed or 0]
