"""From arguments to a command that runs, with signals, and with every error as one line."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from classnorm import __version__
from classnorm.cli.messages import as_flags
from classnorm.errors import ClassNormError, ConfigError, unknown_name
from classnorm.io.escapes import printable
from classnorm.registry import not_installed, plugin_tables
from classnorm.training.distributed import launch

if TYPE_CHECKING:
    from classnorm.cli.options import Command

_OWN = {
    "train": ("classnorm.cli.train:Train", "train and score a model"),
    "evaluate": ("classnorm.cli.evaluate:Evaluate", "score a saved model on a dataset"),
    "predict": ("classnorm.cli.predict:Predict", "classify images or features, also into new classes"),
    "explain": ("classnorm.cli.explain:Explain", "say which attributes speak for an answer"),
    "adapt": ("classnorm.cli.adapt:Adapt", "learn from a few labelled or from unlabelled pictures"),
    "add-class": ("classnorm.cli.add_class:AddClass", "add classes to a model for good"),
    "suggest": ("classnorm.cli.suggest:Suggest", "say which pictures to label, which classes to describe better"),
    "search": ("classnorm.cli.search:Search", "choose hyperparameters on validation classes"),
    "continual": ("classnorm.cli.continual:Continual", "learn a stream of classes, task by task"),
    "report": ("classnorm.cli.report:Report", "compare runs in tables, plots and an HTML page"),
    "extract": ("classnorm.cli.extract:Extract", "turn images into features"),
    "describe": ("classnorm.cli.describe:Describe", "turn names, sentences or attributes into descriptors"),
    "export": ("classnorm.cli.export:Export", "write a model as ONNX"),
    "serve": ("classnorm.cli.serve:Serve", "serve a page and an HTTP API for models"),
    "data check": ("classnorm.cli.data:DataCheck", "inspect a dataset"),
    "data convert": ("classnorm.cli.data:DataConvert", "convert between GBU folders, .npz and folder bundles"),
    "data fetch": ("classnorm.cli.data:DataFetch", "download a public dataset"),
    "data merge": ("classnorm.cli.data:DataMerge", "join the parts of an extraction"),
    "data synthesize": ("classnorm.cli.data:DataSynthesize", "write a synthetic dataset of any size"),
}

Commands = Mapping[str, tuple[str, str]]
"""Name → "module:class" and what it does. An entry point of the group `classnorm.commands` names such a table."""

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

_SECONDS = 1.5  # that a command has to stop


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command. A user error prints one line on stderr and exits with code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    warnings.filterwarnings("ignore", "Image size .* exceeds limit")  # Pillow's, of large pictures
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # a cache that cannot be written is no concern of the user
    try:
        with _stoppable(), nullcontext() if launch().rank == 0 else _silence():
            _dispatch(arguments)
            sys.stdout.flush()  # here a full disk is an error with a message
    except ClassNormError as error:
        _report(f"error: {as_flags(' '.join(str(error).split()))}")
        raise SystemExit(2) from None
    except KeyboardInterrupt as interrupt:
        _report("; ".join(["interrupted", *getattr(interrupt, "__notes__", ())]))
        raise SystemExit(128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)) from None
    except BrokenPipeError:
        _forget_output()
        raise SystemExit(141) from None
    except OSError as error:  # those of files have become errors with a remedy; what remains is the environment
        _report(f"error: {error.filename or 'cannot go on'}: {error.strerror or error}")
        _forget_output()
        raise SystemExit(2) from None
    except MemoryError:
        _report("error: out of memory; use fewer rows, float16 features or a smaller model")
        raise SystemExit(2) from None
    finally:
        if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback from the interpreter as it ends


def _forget_output() -> None:
    """Let what stdout still holds go nowhere: no second error when it is flushed at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP stop a command as Ctrl-C does, within two seconds."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        names = []
    previous = {name: signal.signal(getattr(signal, name), _stop) for name in names}
    try:
        yield
    finally:
        for name, handler in previous.items():
            signal.signal(getattr(signal, name), handler)


def _stop(number: int, frame: object) -> None:
    last = threading.Timer(_SECONDS, os._exit, [128 + number])  # if something waits that cannot be interrupted
    last.daemon = True
    last.start()
    raise KeyboardInterrupt(number)


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


def commands() -> Commands:
    """The library's commands, and those of plug-ins."""
    return {**_OWN, **{name: entry for table in plugin_tables("classnorm.commands") for name, entry in table.items()}}


def _dispatch(arguments: list[str]) -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ConfigError("the working directory has been deleted; change to another one") from None
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_HELP.format(commands=_listing(commands())), end="")
        return
    if arguments[0] in ("-V", "--version"):
        print(f"classnorm {__version__}")
        return
    is_own = _OWN.keys() & {arguments[0], " ".join(arguments[:2])}  # then no plug-in has to load
    known = _OWN if is_own else commands()
    family = {name: entry for name, entry in known.items() if name.startswith(f"{arguments[0]} ")}
    length = 2 if family else 1
    name, rest = " ".join(arguments[:length]), arguments[length:]
    if family and name.removeprefix(arguments[0]).strip() in ("", "-h", "--help"):
        print(f"usage: classnorm {arguments[0]} COMMAND --help\n\ncommands:\n{_listing(family)}")
        return
    if name not in known:
        raise unknown_name("command", name, known, not_installed())
    if launch().count > 1 and name != "train":
        raise ConfigError(f"classnorm {name} runs in one process; run it without torchrun")
    module, _, class_name = known[name][0].partition(":")
    command: type[Command] = getattr(importlib.import_module(module), class_name)
    from classnorm.cli.console import display, guarded_output
    from classnorm.progress import shown_on

    try:
        parsed = command.parse(rest, f"classnorm {name}")
        with guarded_output(), shown_on(display(quiet=parsed.output.quiet)):
            parsed.run()
    except KeyboardInterrupt as interrupt:
        if command.to_continue:
            interrupt.add_note(f"to continue, {command.to_continue}")
        raise


def _listing(known: Commands) -> str:
    return "\n".join(f"  {name:20s}{summary}" for name, (_, summary) in known.items())
