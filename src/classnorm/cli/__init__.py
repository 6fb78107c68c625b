"""The command line: one file per command, imported only when it runs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

from classnorm.cli.flags import as_flags
from classnorm.errors import ClassNormError, ConfigError, unknown_name
from classnorm.escapes import printable
from classnorm.launch import launch

__all__ = ["main"]

_COMMANDS = {
    "train": ("train:Train", "train and score a model"),
    "evaluate": ("evaluate:Evaluate", "score a saved model on a dataset"),
    "predict": ("predict:Predict", "classify images or features, also into new classes"),
    "explain": ("explain:Explain", "say which attributes speak for an answer"),
    "add-class": ("add_class:AddClass", "add classes to a model for good"),
    "suggest": ("suggest:Suggest", "say which pictures to label, which classes to describe better"),
    "search": ("search:Search", "choose hyperparameters on validation classes"),
    "continual": ("continual:Continual", "learn a stream of classes, task by task"),
    "reproduce": ("reproduce:Reproduce", "regenerate tables and figures of the paper"),
    "analyze variance": ("analyze:Variance", "measure the variance of the logits"),
    "analyze smoothness": ("analyze:Smoothness", "measure the smoothness of the loss surface"),
    "analyze attributes": ("analyze:Attributes", "test if class descriptors are normal and independent"),
    "report": ("report:Report", "compare runs in tables, plots and an HTML page"),
    "extract": ("extract:Extract", "turn images into features"),
    "describe": ("describe:Describe", "turn names, sentences or attributes into descriptors"),
    "export": ("export:Export", "write a model as ONNX"),
    "serve": ("serve:Serve", "serve a page and an HTTP API for models"),
    "bench": ("bench:Bench", "measure the speed on this machine"),
    "data check": ("data_check:DataCheck", "inspect a dataset"),
    "data convert": ("data_convert:DataConvert", "convert between GBU folders, .npz and folder bundles"),
    "data merge": ("data_merge:DataMerge", "join the parts of an extraction"),
    "data synthesize": ("data_synthesize:DataSynthesize", "write a synthetic dataset of any size"),
}

_HELP = """classnorm: recognise classes that have a description but no training image.

usage: classnorm COMMAND [ARGUMENTS]
       classnorm COMMAND --help

examples:
  classnorm train glyphs
  classnorm train xlsa17/data/CUB --features res101 --seeds 3
  classnorm predict runs/mine/seed-0 features.npy --descriptors new_classes.csv

commands:
{commands}
"""

_CONTINUE = {
    **dict.fromkeys(("train", "continual"), "; to continue, run the same command with --resume"),
    **dict.fromkeys(("search", "reproduce", "analyze", "extract", "data"), "; to continue, run the same command again"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. A user error prints one line on stderr and exits with code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with nullcontext() if launch().rank == 0 else _silence():
            _dispatch(arguments)
    except ClassNormError as error:
        _report(f"error: {as_flags(' '.join(str(error).split()))}")
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        _report(f"interrupted{_CONTINUE.get(arguments[0], '')}")
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # no second error when stdout is flushed at exit
        raise SystemExit(141) from None
    except MemoryError:
        _report("error: out of memory; use fewer rows, float16 features or a smaller model")
        raise SystemExit(2) from None


@contextmanager
def _silence() -> Iterator[None]:
    """Of several processes only the first prints."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def _report(message: str) -> None:
    """Print a message on stderr; of several processes only one does."""
    if launch().count > 1:
        from classnorm.training.distributed import is_first_to_fail

        if not is_first_to_fail():
            return
    print(f"classnorm: {printable(message)}".encode(errors="backslashreplace").decode(), file=sys.stderr)


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_HELP.format(commands=_listing(_COMMANDS)), end="")
        return
    if arguments[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(f"classnorm {version('classnorm')}")
        return
    family = [name for name in _COMMANDS if name.startswith(f"{arguments[0]} ")]
    length = 2 if family else 1
    name, rest = " ".join(arguments[:length]), arguments[length:]
    if family and name.removeprefix(arguments[0]).strip() in ("", "-h", "--help"):
        print(f"usage: classnorm {arguments[0]} COMMAND --help\n\ncommands:\n{_listing(family)}")
        return
    if name not in _COMMANDS:
        raise unknown_name("command", name, _COMMANDS)
    if launch().count > 1 and name != "train":
        raise ConfigError(f"classnorm {name} runs in one process; run it without torchrun")
    module, _, command = _COMMANDS[name][0].partition(":")
    parsed = getattr(importlib.import_module(f"classnorm.cli.{module}"), command).parse(rest, f"classnorm {name}")
    from classnorm.cli.console import guarded_output

    with guarded_output():
        parsed.run()


def _listing(names: Iterable[str]) -> str:
    return "\n".join(f"  {name:20s}{_COMMANDS[name][1]}" for name in names)
