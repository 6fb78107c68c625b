"""Plug-ins: what a file or a package may add, and how mistakes are reported."""

import os
import pickle
import re
import subprocess
import sys

import pytest

from classnorm.errors import ConfigError
from classnorm.registry import LoadedPlugins, Registry, load_plugin


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1 / 0", r"mine\.py cannot be loaded: ZeroDivisionError"),
        ("def f(:", r"mine\.py cannot be loaded: SyntaxError"),
        ("import no_such_package", r"mine\.py cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_a_file_that_fails_is_named_in_one_line(tmp_path, text, message):
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        load_plugin(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.py: no such file"):
        load_plugin(tmp_path / "nothing.py")


def test_another_process_gets_the_file_before_what_refers_to_it(tmp_path):
    path = tmp_path / "shapes.py"
    path.write_text("class Square:\n    side = 3\n", encoding="utf-8")
    load_plugin(path)
    content = pickle.dumps((LoadedPlugins(), sys.modules["classnorm_plugin_shapes"].Square()))
    path.unlink()  # it is the source that travels
    script = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())[1].side)"
    done = subprocess.run([sys.executable, "-c", script], input=content, capture_output=True, check=False)
    assert done.stdout.strip() == b"3", done.stderr


def test_a_package_must_offer_the_right_kind(tmp_path, monkeypatch):
    info = tmp_path / "wrong-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[classnorm.test]\nnumber = wrong_plugin:NUMBER\n", encoding="utf-8")
    (tmp_path / "wrong_plugin.py").write_text("NUMBER = 3\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert dict(Registry("classnorm.test", int, {})) == {"number": 3}
    texts = Registry("classnorm.test", str, {"empty": "string:whitespace"})
    assert list(texts) == ["empty", "number"]  # names are known before anything is imported
    with pytest.raises(ConfigError, match="wrong_plugin:NUMBER"):
        texts["number"]
    texts["number"] = "three"
    assert texts["number"] == "three"


BARE = """
import importlib.metadata as metadata, sys
version, points = metadata.version, metadata.entry_points
def without(name):
    if name == "classnorm":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = without
metadata.entry_points = lambda **group: [point for point in points(**group) if point.dist.name != "classnorm"]
from classnorm.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["reproduce", "list"], 2, "unknown command 'reproduce'.*install classnorm again"),
        (["train", "glyphs-light", "--method", "dcn"], 2, "unknown method 'dcn'.*install classnorm again"),
        (["--version"], 0, ""),
    ],
)
def test_a_checkout_that_is_not_installed_lacks_the_laboratory_and_says_so(arguments, code, message):
    done = subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert re.search(message, done.stderr)
    assert "Traceback" not in done.stderr


GREET = """
from dataclasses import dataclass
from classnorm.cli.options import Command, OutputOptions

@dataclass(frozen=True, kw_only=True)
class Greet(Command):
    \"\"\"Say hello to a class.\"\"\"

    name: str = "zebra"
    \"\"\"Whom to greet.\"\"\"
    output: OutputOptions

    def run(self) -> None:
        print(f"hello {self.name}")
"""


@pytest.fixture
def greeting_package(tmp_path, monkeypatch):
    """An installed package with a command."""
    package, info = tmp_path / "greeting", tmp_path / "greeting-1.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text(
        'COMMANDS = {"greet": ("greeting.greet:Greet", "say hello")}\n', encoding="utf-8"
    )
    (package / "greet.py").write_text(GREET, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[classnorm.commands]\nmine = greeting:COMMANDS\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("greeting", "greeting.greet"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("greeting_package")
def test_a_command_of_a_package_is_listed_without_being_imported_and_runs(classnorm):
    listing = classnorm("--help").out
    assert re.search(r"^  greet +say hello$", listing, re.MULTILINE)
    assert "greeting.greet" not in sys.modules
    assert classnorm("greet", "--name", "okapi").out == "hello okapi\n"
    assert "Whom to greet." in classnorm("greet", "--help").out


@pytest.mark.usefixtures("greeting_package")
def test_a_wrong_flag_of_a_packages_command_is_one_line_like_any_other(classnorm):
    outcome = classnorm("greet", "--nmae", "okapi")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1 and "--nmae" in outcome.err


def test_a_plug_in_whose_commands_do_not_load_leaves_the_own_ones_alone(tmp_path):
    info = tmp_path / "broken-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[classnorm.commands]\nmine = no_such_module:COMMANDS\n", encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    for arguments, message in (
        (["data", "check", "glpyhs"], "glyphs"),
        (["mine"], "plug-in no_such_module:COMMANDS cannot be loaded"),
    ):
        script = "import sys; from classnorm.cli import main; main(sys.argv[1:])"
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert message in done.stderr
