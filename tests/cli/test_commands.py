"""The front page and the help of every command."""

import re

import pytest

from classnorm.cli import main
from classnorm.cli.options import Command

COMMANDS = [
    *("train", "evaluate", "predict", "explain", "adapt", "add-class", "suggest", "search", "continual", "report"),
    *("extract", "describe", "export", "serve", "data check", "data convert", "data fetch", "data merge"),
    *("data synthesize", "reproduce", "analyze variance", "analyze smoothness", "analyze attributes", "bench"),
]
RESUMED = dict.fromkeys((command.split()[0] for command in COMMANDS), "")
RESUMED |= dict.fromkeys(("train", "continual"), " with --resume")
RESUMED |= dict.fromkeys(("search", "reproduce", "analyze", "extract", "data"), " again")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_the_front_page_lists_the_commands(capsys, arguments):
    main(arguments)
    out = capsys.readouterr().out
    assert re.findall(r"^  ([a-z-]+(?: [a-z]+)?)  ", out, flags=re.MULTILINE) == COMMANDS


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_text_with_examples(capsys, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as caught:
        main([*command.split(), "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out.index("Examples:") < out.index(f"\n  classnorm {command} ") < out.index("options")
    assert "--command-line" not in out


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interruption_says_how_to_continue_where_work_is_kept(capsys, monkeypatch, command):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Command, "parse", interrupted)
    with pytest.raises(SystemExit) as caught:
        main(command.split())
    how = "; to continue, run the same command" if RESUMED[command.split()[0]] else ""
    assert capsys.readouterr().err == f"classnorm: interrupted{how}{RESUMED[command.split()[0]]}\n"
    assert caught.value.code == 130
