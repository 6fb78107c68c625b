"""Install the wheel into a new environment and use it from outside the repository.

    python tools/smoke_test.py dist/classnorm-0.1.0-py3-none-any.whl [--constraints FILE …]

Runs with the Python that runs this file. Prints the commands; the first that fails ends it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

COMMANDS = (
    "--help",
    "train glyphs-light --method kernel --out runs --quiet",
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--constraints", type=Path, nargs="+", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        scripts = home / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
        limits = [part for file in options.constraints for part in ("-c", str(file.resolve()))]
        install = ["pip", "install", "--quiet", "--disable-pip-version-check", *limits, str(options.wheel.resolve())]
        run([str(scripts / "python"), "-m", *install], home)
        for command in COMMANDS:
            run([str(scripts / "classnorm"), *command.split()], home)
        run([str(scripts / "python"), "-c", LIBRARY], home)
    print(f"{options.wheel.name} works on Python {sys.version.split()[0]}")


def run(command: list[str], folder: Path) -> None:
    print("$", " ".join(command[:9]), flush=True)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
