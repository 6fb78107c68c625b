"""Install the wheel into a new environment and use it from outside the repository.

    python tools/smoke_test.py dist/classnorm-0.1.0-py3-none-any.whl [--constraints FILE …]

Runs with the Python that runs this file: commands, the help of every command, and the Python of the README. Prints
them; the first that fails ends it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

PACKAGES = ("classnorm", "classnorm_lab")
COMMANDS = (
    "--help",
    "train glyphs-light --method kernel --out runs --quiet",
    "train glyphs-light --method dem --epochs 1 --calibration none --out rival --quiet",
    "evaluate runs/seed-0 glyphs-light --quiet",
    "report runs --out report --quiet",
    "data check glyphs-light --quiet",
)
LIBRARY = """
import classnorm
from classnorm.data import load
data = load("glyphs-light")
scorer = classnorm.Scorer.load("runs/seed-0")
print(classnorm.__version__, scorer.predict(data.features[data.split.test_unseen[:1]]))
"""


HELP = """
import contextlib
from classnorm.cli import commands, main
for name in commands():
    with contextlib.suppress(SystemExit):
        main([*name.split(), "--help"])
"""


def check_contents(wheel: Path) -> None:
    """A wheel holds both packages and its own record, nothing else."""
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    others = {name for name in names if not name.endswith(".dist-info")}
    if others != {*PACKAGES}:
        raise SystemExit(f"{wheel.name} holds {', '.join(sorted(others))}; it should hold {' and '.join(PACKAGES)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--constraints", type=Path, nargs="+", default=[])
    options = parser.parse_args()
    check_contents(options.wheel)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        scripts = home / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        limits = [part for file in options.constraints for part in ("-c", str(file.resolve()))]
        install = ["pip", "install", "--quiet", "--disable-pip-version-check", *limits, str(options.wheel.resolve())]
        run([str(scripts / "python"), "-m", *install], home)
        for command in COMMANDS:
            run([str(scripts / "classnorm"), *command.split()], home)
        readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
        for code in (LIBRARY, HELP, *re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)):
            run([str(scripts / "python"), "-c", code], home)
    print(f"{options.wheel.name} works on Python {sys.version.split()[0]}")


def run(command: list[str], folder: Path) -> None:
    print("$", " ".join(command[:9])[:300].strip(), flush=True)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
