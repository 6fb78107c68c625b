"""The card of a run folder: its README.md says what was trained, on what, how it was scored, and what each file is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from classnorm.io.escapes import markdown_text, one_line, printable
from classnorm.results.numbers import number_text

_FILES = {
    "result.json": "scores, settings, seed, checksums, versions and times; written last",
    "model.safetensors": "the weights of the model",
    "model.json": "the settings, the classes and the calibration of the model",
    "encoder.json": "the encoder that made the features; with it, the model takes pictures",
    "history.jsonl": "the loss, the learning rate and the time of each epoch",
    "predictions.npz": "for each test row: the label, the class that is predicted, and the best seen and unseen class "
    "with their scores before calibration",
    "examples.npz": "a few test pictures of unseen classes, for the report",
    "state.safetensors": "the learner and its strategy after the last task",
    "trials.csv": "the settings and the validation score of each trial",
    "trials.png": "the trials as a picture",
    "recipe.json": "the best settings, for `classnorm train --recipe`",
    "fits": "the validation fits, from which an interrupted search goes on",
    "test": "the runs with the best settings",
}
_SCORES = {
    "unseen": "accuracy on unseen classes, seen ones competing",
    "seen": "accuracy on seen classes, unseen ones competing",
    "harmonic": "harmonic mean of both",
    "zsl": "accuracy on unseen classes, only these competing",
    "ausuc": "area under the seen–unseen curve, which no calibration changes",
    "mSA": "accuracy on the classes seen so far, mean over tasks",
    "mUA": "accuracy on the classes still to come, mean over tasks",
    "mH": "harmonic mean of both, mean over tasks",
    "mAUC": "area under the seen–unseen curve, mean over tasks",
    "mJA": "accuracy on all classes, mean over tasks",
    "forgetting": "loss of accuracy on earlier tasks, a fraction",
}
_SEEN_AND_UNSEEN = (
    "Rows of unseen classes are never trained on. Test rows of both kinds compete among all classes. Accuracies are "
    "means over classes, in percent."
)


def run_card(document: Mapping[str, Any], files: Collection[str]) -> str:
    """The card of a run of a method or a stream.

    Args:
        document: that of `result.json`.
        files: names of the other files in the folder.
    """
    is_stream = document.get("kind") == "stream"
    name = _text(document["dataset"]["name"])
    return _joined(
        f"# {_text(document['strategy' if is_stream else 'method'])} on {name}",
        _stream_training(document) if is_stream else _training(document),
        "## Scores",
        _stream_protocol(document) if is_stream else _protocol(document),
        _table(
            ("score", "value", "meaning"),
            (
                (_text(score), _score(score, value), _SCORES.get(score, ""))
                for score, value in document["scores"].items()
            ),
        ),
        *([f"Notice: {_text(notice)}." for notice in document.get("notices", ())]),
        *_settings(document["config"]),
        _origin(document),
        *_listed(("result.json", *files)),
    )


def search_card(document: Mapping[str, Any], files: Collection[str]) -> str:
    """The card of a search.

    Args:
        document: what `classnorm search --json` prints.
        files: names of what is in the folder.
    """
    trials, method, dataset = document["trials"], _text(document["method"]), document["dataset"]
    best = max((trial["harmonic"] for trial in trials if trial["state"] == "complete"), default=None)
    return _joined(
        f"# Search for settings of {method} on {_text(dataset['name'])}",
        f"Trials: {len(trials)} ({_text(document['sampler'])}). The best has a harmonic mean of {number_text(best)} on "
        f"validation classes, which are training classes held out; no test row was looked at. It was trained again on "
        f"all training rows and scored once on the test rows. Seeds: {len(document['runs'])}.",
        "## Scores",
        _SEEN_AND_UNSEEN,
        _table(
            ("score", "mean over seeds", "meaning"),
            (
                (_text(score), _score(score, value), _SCORES.get(score, ""))
                for score, value in document["scores"].items()
            ),
        ),
        *_settings(document["best"]),
        _data(dataset),
        *_listed(files),
    )


def _training(document: Mapping[str, Any]) -> str:
    sizes = document["dataset"]["sizes"]
    return (
        f"Recipe {_text(document['recipe'])}, seed {document['seed']}, trained on {sizes['train_rows']:,} rows of "
        f"{sizes['seen_classes']} seen classes in {document['train_seconds']:.1f} seconds."
    )


def _stream_training(document: Mapping[str, Any]) -> str:
    tasks = document["stream"]["tasks"]
    encoder = document["encoder"]
    inputs = f"images, with the encoder {_text(encoder)}" if encoder else "features"
    return (
        f"A stream of {len(tasks)} tasks with {', '.join(map(str, tasks))} classes, learnt one after another from "
        f"{inputs}; seed {document['seed']}, trained in {document['train_seconds']:.1f} seconds."
    )


def _protocol(document: Mapping[str, Any]) -> str:
    sizes, validation = document["dataset"]["sizes"], document.get("validation")
    calibration = _text(document["calibration"])
    chosen = f", chosen on {validation['splits']} validation splits of the training rows" if validation else ""
    return (
        f"{_SEEN_AND_UNSEEN} {sizes['test_seen_rows']:,} test rows are of seen classes and "
        f"{sizes['test_unseen_rows']:,} of {sizes['unseen_classes']} unseen ones. Calibration of seen against unseen "
        f"classes: {calibration}{chosen}."
    )


def _stream_protocol(document: Mapping[str, Any]) -> str:
    protocol = (
        "After each task, all test rows are scored among all classes: those of the tasks so far are seen, the others "
        "unseen. Accuracies are means over classes, in percent."
    )
    if chosen := document.get("chosen"):
        names = ", ".join(map(_text, chosen["settings"]))
        protocol += f" Chosen by {_text(chosen['by'])} on earlier tasks, which are left out here: {names}."
    return protocol


def _settings(config: Mapping[str, Any]) -> tuple[str, str]:
    return "## Settings", _table(
        ("setting", "value"), ((_text(name), _text(value)) for name, value in sorted(config.items()))
    )


def _origin(document: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    command = document.get("command")
    lines = [
        _data(document["dataset"]),
        f"Made with {_text(versions)}" + (f" on {_text(document['device'])}." if document.get("device") else "."),
        *([f"    {printable(one_line(command))}"] if command else []),
    ]
    return "\n\n".join(lines)


def _data(dataset: Mapping[str, Any]) -> str:
    features = dataset["provenance"].get("features")
    kind = f" {_text(features)} features," if features else ""
    return f"## Origin\n\nData: {_text(dataset['name'])},{kind} checksum `{_text(dataset['checksum'])}`."


def _listed(files: Iterable[str]) -> tuple[str, str]:
    present = set(files)
    return "## Files", _table(("file", "holds"), (item for item in _FILES.items() if item[0] in present))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _score(name: str, value: float | None) -> str:
    return number_text(value, 2 if name == "forgetting" else 1)


def _text(value: object) -> str:
    return markdown_text(printable(str(value)))


def _joined(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"
