"""The command line: one file per command, loaded only when it is asked for."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from classnorm.cli.flags import as_flags
from classnorm.errors import ClassNormError, unknown_name

__all__ = ["main"]

_COMMANDS = {
    "train": ("train", "fit and score a model"),
    "evaluate": ("evaluate", "score a saved model on a dataset"),
    "predict": ("predict", "classify images or features, also into classes unknown at training time"),
    "search": ("search", "choose hyperparameters by validation, score the winner once"),
    "continual": ("continual", "learn a stream of classes, task by task"),
    "reproduce": ("reproduce", "a table or figure of the paper, on the data at hand"),
    "analyze variance": ("analyze", "variance of the logits at the start and in training"),
    "analyze smoothness": ("analyze", "smoothness of the loss surface"),
    "analyze attributes": ("analyze", "are the class descriptors normal and independent?"),
    "report": ("report", "tables, plots and an HTML page from run folders"),
    "extract": ("extract", "images → features"),
    "describe": ("describe", "class names, sentences, attributes → descriptors"),
    "export": ("export", "a model for onnxruntime"),
    "data check": ("data_check", "look at a dataset"),
    "data convert": ("data_convert", "GBU folder ↔ .npz bundle"),
}

_HELP = """classnorm: recognise classes that have a description but no training picture.

usage: classnorm COMMAND [ARGUMENTS]        classnorm COMMAND --help

{commands}

examples:
  classnorm train glyphs                                  the embedded dataset
  classnorm train xlsa17/data/CUB --features res101 --seeds 3
  classnorm predict runs/mine/seed-0 features.npy --descriptors new_classes.csv --top 3
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. A mistake of the user's ends with one line on stderr and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        _dispatch(arguments)
    except ClassNormError as error:
        print(f"classnorm: error: {as_flags(' '.join(str(error).split()))}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        again = dict.fromkeys(("search", "reproduce", "analyze", "extract"), "; go on with the same command")
        how = {**dict.fromkeys(("train", "continual"), "; go on with the same command and --resume"), **again}
        print(f"classnorm: interrupted{how.get(arguments[0], '')}", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; say nothing at exit either
        raise SystemExit(141) from None
    except MemoryError:
        print("classnorm: error: out of memory; use fewer rows, float16 features or a smaller model", file=sys.stderr)
        raise SystemExit(2) from None


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  {name:20s}{text}" for name, (_, text) in _COMMANDS.items())
        print(_HELP.format(commands=commands), end="")
        return
    if arguments[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(f"classnorm {version('classnorm')}")
        return
    family = [name for name in _COMMANDS if name.startswith(f"{arguments[0]} ")]
    length = 2 if family else 1
    name, rest = " ".join(arguments[:length]), arguments[length:]
    if family and name.removeprefix(arguments[0]).strip() in ("", "-h", "--help"):
        print("\n".join(f"classnorm {name:20s}{_COMMANDS[name][1]}" for name in family))
        print("--help after any of them for more")
        return
    if name not in _COMMANDS:
        raise unknown_name("command", name, _COMMANDS)
    if any(argument.split("=")[0] == "--plugin" for argument in rest):
        from classnorm.cli.options import load_plugins

        load_plugins(rest)
    module = importlib.import_module(f"classnorm.cli.{_COMMANDS[name][0]}")
    module.main(rest, f"classnorm {name}")
