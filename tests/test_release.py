"""What a release promises: one version, lower bounds that are tried, a citation, files in the archives."""

import re
import tomllib
from pathlib import Path

import classnorm

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _numbers(version):
    return [int(part) for part in version.split(".")]


def test_the_lowest_versions_that_are_tried_are_those_that_are_declared():
    declared = dict(requirement.split(">=") for requirement in PROJECT["dependencies"])
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    tried = dict(line.split("==") for line in lines if "==" in line)
    assert tried.keys() == declared.keys() - {"torch"}
    for name, version in tried.items():
        bound = _numbers(declared[name])
        assert _numbers(version)[: len(bound)] == bound, name
        assert not any(_numbers(version)[len(bound) :]), name


def test_the_version_stands_in_one_place():
    assert classnorm.__version__ == PROJECT["version"]
    mentions = [
        path
        for path in (ROOT / "src").rglob("*.py")
        if re.search(rf'["\']{re.escape(PROJECT["version"])}["\']', path.read_text(encoding="utf-8"))
    ]
    assert mentions == []


def test_the_citation_names_the_paper():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert text.startswith("cff-version: 1.2.0\n")
    assert "Class Normalization for (Continual)? Generalized Zero-Shot Learning" in text
    assert "version:" not in text.replace("cff-version:", "")  # it would be a second place


def test_every_extra_has_a_licence_in_the_list():
    page = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
    needed = {r for extra, rs in PROJECT["optional-dependencies"].items() if extra not in ("dev", "docs") for r in rs}
    for requirement in {*PROJECT["dependencies"], *needed}:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        assert re.search(rf"^\| {re.sub('[-_]', '[-_]', name)} \|", page, re.MULTILINE), name
