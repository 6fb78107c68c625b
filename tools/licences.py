"""Print the licences of the dependencies that are installed, as a Markdown table: python tools/licences.py"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata, requires


def licence(name: str) -> str:
    """As the package states it: an SPDX expression, else its classifiers, else the first line of its text."""
    about = metadata(name)
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    classifiers = [text.rsplit(" :: ", 1)[1] for text in about.get_all("Classifier", []) if text.startswith("License")]
    return ", ".join(classifiers) or (about.get("License") or "not stated").strip().splitlines()[0]


def main() -> None:
    print("| package | needed by | licence |\n| --- | --- | --- |")
    for requirement in sorted(requires("classnorm") or [], key=str.casefold):
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"]([^'\"]+)", requirement)
        if name == "classnorm" or (extra and extra[1] in ("dev", "docs")):
            continue
        try:
            print(f"| {name} | {extra[1] if extra else 'classnorm'} | {licence(name)} |")
        except PackageNotFoundError:
            print(f"| {name} | {extra[1] if extra else 'classnorm'} | not installed |")


if __name__ == "__main__":
    main()
