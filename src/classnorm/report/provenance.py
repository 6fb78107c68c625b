"""The provenance of a group: everything needed to trust its numbers and to reproduce them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from classnorm.report.summary import Group, arrivals_text
from classnorm.results.numbers import number_text


def facts(group: Group) -> dict[str, str]:
    """Name → value; if the runs of a group differ, all values in the order of the seeds."""
    values = {
        "command": _values(group, lambda d: d.get("command")),
        "dataset checksum": _values(group, lambda d: d["dataset"]["checksum"]),
        **(_stream_facts if group.is_stream else _run_facts)(group),
        "data": _values(group, lambda d: _pairs(d["dataset"]["provenance"])),
        "settings": _values(group, lambda d: _pairs(d["config"])),
        "seeds": ", ".join(str(result.document["seed"]) for result in group.results),
        "device": _values(group, lambda d: f"{d.get('device', 'unknown')}, {d.get('threads', '?')} threads"),
        "versions": _values(group, lambda d: _pairs(d["versions"])),
        "created": _values(group, lambda d: d.get("created")),
        "run folders": ", ".join(str(result.folder) for result in group.results),
    }
    return {name: value for name, value in values.items() if value}


def _run_facts(group: Group) -> dict[str, str]:
    return {
        "split": _values(group, lambda d: d["dataset"].get("split_version") or d["dataset"]["provenance"].get("split")),
        "split checksum": _values(group, lambda d: d["dataset"]["split_checksum"]),
        "calibration": _values(group, lambda d: d["calibration"]),
        "validation": _values(group, lambda d: _validation(d.get("validation"))),
        "parameters": _values(group, lambda d: d.get("parameters")),
    }


def _stream_facts(group: Group) -> dict[str, str]:
    return {
        "stream checksum": _values(group, lambda d: d["stream"]["checksum"]),
        "arrivals": _values(group, lambda d: arrivals_text(d["stream"])),
        "image split": _values(group, lambda d: d["stream"]["image_split"]),
        "encoder": _values(group, lambda d: d["encoder"] and f"{d['encoder']}, images of {d['image_size']} px"),
        "chosen": _values(group, lambda d: d.get("chosen") and _chosen(d)),
    }


def _chosen(document: dict[str, Any]) -> str:
    """The settings that a validation sequence chose, and the score it used."""
    chosen = {name: document["config"][name] for name in document["chosen"]["settings"]}
    return f"{_pairs(chosen)} by {document['chosen']['by']} on the {document['stream']['part'][0]} tasks before these"


def _values(group: Group, read: Callable[[dict[str, Any]], Any]) -> str:
    values = (read(result.document) for result in group.results)
    return "; ".join(dict.fromkeys(str(value) for value in values if value not in (None, "")))


def _pairs(mapping: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in mapping.items())


def _validation(record: dict[str, Any] | None) -> str:
    if record is None:
        return "none; the calibration was set by hand"
    if record["harmonic"] is None:
        return f"{record['splits']} {record['kind']} splits without rows of unseen classes"
    return f"H {number_text(record['harmonic'])} on {record['splits']} {record['kind']} splits"
