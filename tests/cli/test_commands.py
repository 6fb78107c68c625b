"""The front page and the help of every command."""

import re
import subprocess
import sys

import pytest

from classnorm.cli import main

COMMANDS = [
    *("train", "evaluate", "predict", "search", "continual", "reproduce"),
    *("analyze variance", "analyze smoothness", "analyze attributes"),
    *("report", "extract", "describe", "export", "bench", "data check", "data convert"),
]


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], []])
def test_the_front_page_lists_the_commands(capsys, arguments):
    main(arguments)
    out = capsys.readouterr().out
    assert re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", out, flags=re.MULTILINE) == COMMANDS


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


@pytest.mark.parametrize("command", ["report", "bench"])
def test_the_help_of_a_command_that_does_not_train_needs_no_pytorch(command):
    code = f"import sys; from classnorm.cli import main\ntry: main([{command!r}, '--help'])\nexcept SystemExit: pass\n"
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
