"""Flags that several commands share, and flags made from a method's config."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from classnorm.data import AttributesKey, ZeroShotDataset, load

if TYPE_CHECKING:  # PyTorch is slow to import, and not every command needs it
    from classnorm.methods import MethodConfig

__all__ = ["DataOptions", "OutputOptions", "given", "parse", "settings_type"]

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
    """How the command talks."""

    json: bool = False
    """Print one JSON document on stdout and nothing else there."""
    quiet: bool = False
    """No progress or notices on stderr."""


def parse(command: type[Command], arguments: Sequence[str], program: str) -> Command:
    """The command with its flags filled in; a usage error exits with code 2."""
    return tyro.cli(
        command,
        prog=program,
        description=inspect.getdoc(command),
        args=list(arguments),
        config=(tyro.conf.FlagCreatePairsOff,),
    )


def settings_type(config: type[MethodConfig]) -> Any:
    """The config with every field optional: what is not given on the command line is the recipe's to say."""
    hints = typing.get_type_hints(config)
    fields = [(field.name, _optional(hints[field.name]), None) for field in dataclasses.fields(config)]
    settings = dataclasses.make_dataclass("settings", fields, bases=(config,), frozen=True, kw_only=True)
    return Annotated[settings, tyro.conf.arg(name="")]


def _optional(hint: Any) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        metavar = "{" + ",".join(typing.get_args(hint)) + "}"
    else:
        metavar = {bool: "{True,False}", int: "INT", float: "FLOAT", str: "STR"}.get(hint, "FLOAT|auto")
    return Annotated[hint | None, tyro.conf.arg(metavar=metavar, help_behavior_hint="")]


def given(settings: Any) -> dict[str, Any]:
    """The settings that were given."""
    return {name: value for name, value in vars(settings).items() if value is not None}
