"""Every command that the documentation prints is one that the program takes; those that can run here do."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
from contextlib import suppress
from functools import cache
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

import classnorm.registry
from classnorm import Scorer
from classnorm.cli import commands as known_commands
from classnorm.cli import main
from classnorm.continual import STRATEGIES
from classnorm.encoders import ENCODERS
from classnorm.methods import METHODS

ROOT = Path(__file__).resolve().parents[2]

# What is parsed, but not run, and why. Everything else in a console block that starts with `classnorm` runs.
NOT_RUN = {
    r"\bxlsa17/|\bCUB|\bcub/|\bruns/birds/": "needs data that is not embedded",
    r"\bDATA\b|\bS --lr R\b|\bHOST\b|\bFIRST\b": "has a placeholder",
    r"--encoder hf:": "downloads a model",
    r"^classnorm (train photos.npz --method (clip|kernel)|report runs/photos)$": "needs the features of that model",
    r"^torchrun ": "starts processes; tests/training/test_distributed.py does",
    r"^classnorm serve\b": "runs until it is stopped; tests/serve does",
    r"^classnorm bench\b": "takes minutes; tests/lab/commands/test_bench.py runs it with --quick",
    r"^classnorm reproduce (?!list)": "takes minutes to hours; tests/lab/commands/test_reproduce.py runs small ones",
    r"^classnorm analyze": "takes minutes; tests/lab/commands/test_analyze.py runs short ones",
    r"--rows 1300000": "writes 5 GB",
    r"^classnorm data fetch": "downloads; tests/data/test_fetching.py does, from a local server",
    r"--shard 3/16|^classnorm data merge": "needs the parts of 16 machines; tests/cli/test_extract.py joins fewer",
    r"^classnorm search mine\.npz --trials 25|--plugin ridge\.py .*--trials 10": "takes minutes",
    r"^classnorm continual .*(agem|convnet|first-task)": "takes minutes; tests/cli/test_continual.py runs short ones",
    r"^classnorm train glyphs-light --seeds": "takes minutes",
}


def commands(text):
    """The commands of console blocks, without comments, continued lines joined."""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ").strip()
        if re.match(r"(classnorm|torchrun) ", line):
            yield shlex.join(shlex.split(line, comments=True))


@pytest.fixture(scope="module")
def printed(pages, blocks):
    """Command → the pages that print it."""
    found = {}
    for page in pages:
        for command in commands("\n".join(blocks(page, "console"))):
            found.setdefault(command, []).append(page)
    return found


@pytest.fixture
def registries(monkeypatch):
    """Plug-ins that a test loads are gone after it."""
    for registry in (METHODS, STRATEGIES, ENCODERS):
        monkeypatch.setattr(registry, "data", dict(registry.data))
    monkeypatch.setattr(classnorm.registry, "_SOURCES", {})


def write_plugins(folder, blocks):
    strategy, encoder = blocks("docs/plugins.md")
    for name, text in {"ridge": blocks("docs/methods.md")[0], "first_task": strategy, "histogram": encoder}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def split(arguments):
    """The command's class, and its own arguments."""
    name = next(name for name in known_commands() if f"{' '.join(arguments)} ".startswith(f"{name} "))
    module, _, kind = known_commands()[name][0].partition(":")
    return getattr(importlib.import_module(module), kind), name, arguments[len(name.split()) :]


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_every_printed_command_has_valid_arguments(printed, blocks, tmp_path, monkeypatch, capsys):
    write_plugins(tmp_path, blocks)
    monkeypatch.chdir(tmp_path)
    wrong = {}
    for command, where in printed.items():
        arguments = shlex.split(command)
        for model in (Path(argument) for argument in arguments if argument.startswith("runs/")):
            model.mkdir(parents=True, exist_ok=True)
            for name in ("model.json", "model.safetensors"):  # a model must be there; it is not read
                (model / name).touch()
        command_class, name, rest = split(arguments[arguments.index("classnorm") + 1 :])
        try:
            command_class.parse(rest, f"classnorm {name}")
        except SystemExit:
            wrong[command] = (where, capsys.readouterr().err)
    assert len(printed) > 80
    assert wrong == {}


@cache
def flags(name, *choice):
    """All flags of a command, with the settings of its method or strategy."""
    module, _, kind = known_commands()[name][0].partition(":")
    command = getattr(importlib.import_module(module), kind)
    with patch("sys.stdout", new_callable=StringIO) as shown, suppress(SystemExit):
        command.parse([*choice, "--help"], f"classnorm {name}")
    return set(re.findall(r"--[a-z][a-z-]*", shown.getvalue().replace("--no-", "--")))


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_flags_in_the_text_exist(pages, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    wrong = []
    for page in pages:
        text = re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for span in re.findall(r"`classnorm ((?!COMMAND)[^`]+)`", text):
            words = " ".join(span.split())
            name = next((name for name in known_commands() if re.match(rf"{name}\b", words)), None)
            if name is None:
                wrong.append((page, words))
            elif "--plugin" not in words:  # its settings are those of a file
                given = re.findall(r"(--(?:method|strategy))[ =]([a-z0-9-]+)", words)
                choice = [word for pair in given for word in pair if pair[1] in {*METHODS, *STRATEGIES}]
                unknown = set(re.findall(r"--[a-z][a-z-]*", words.replace("--no-", "--"))) - flags(name, *choice)
                wrong += [(page, words, flag) for flag in unknown]
    assert wrong == []


def test_make_targets_exist(pages, blocks):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in pages:
        printed = re.findall(r"^make ([a-z-]+)", "\n".join(blocks(page, "console")), re.MULTILINE)
        assert set(printed) <= targets, page


ANIMALS = {
    "ant": "a small black insect",
    "bee": "a striped insect with wings",
    "cat": "a furry animal with whiskers",
    "dog": "a furry animal that barks",
    "elk": "a large deer with antlers",
    "fox": "a red animal with a bushy tail",
    "yak": "a shaggy ox of the mountains",
    "zebra": "a horse with black and white stripes",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, blocks):
    """A folder with the files that the pages speak of: pictures, descriptions, features and a model of them."""
    folder = tmp_path_factory.mktemp("place")
    for number, name in enumerate([*ANIMALS][:6]):
        for seed in range(6):
            write_picture(folder / "photos" / name / f"{seed}.jpg", 10 * number + seed)
    for path in ("new_photos/a.jpg", "disk/a.jpg", "disk/b.jpg", "few/okapi/1.jpg", "few/zebra/1.jpg", "photo.jpg"):
        write_picture(folder / path, len(path))
    write_sentences(folder / "animals.csv", ANIMALS)
    write_sentences(folder / "classes.csv", ANIMALS)
    write_sentences(folder / "new_classes.csv", {"quagga": "a zebra without stripes on its back"})
    write_sentences(folder / "okapi.csv", {"okapi": "a brown animal with striped legs"})
    write_plugins(folder, blocks)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        main(shlex.split("train --images photos --descriptions animals.csv --method kernel --out runs/mine --quiet"))
    shutil.copytree(folder / "runs" / "mine", folder / "runs" / "animals")
    for name in ("mine.npz", "large.npz"):
        shutil.copy(folder / "runs" / "mine" / "features.npz", folder / name)
    features = np.load(folder / "mine.npz")["features"]
    np.save(folder / "features.npy", features[:4])
    np.savez(folder / "features.npz", features=features)
    return folder


def write_picture(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((40, 30), Image.Resampling.BICUBIC).save(path)


def write_sentences(path, sentences):
    lines = ["name,description", *(f'{name},"{sentence}"' for name, sentence in sentences.items())]
    path.write_text("\n".join(lines), encoding="utf-8")


PAGES_WITH_COMMANDS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    if "```console" in path.read_text(encoding="utf-8")
)


@pytest.mark.long
@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", PAGES_WITH_COMMANDS)
def test_the_commands_of_a_page_run_one_after_another(page, place, blocks, tmp_path, monkeypatch, capfd):
    here = shutil.copytree(place, tmp_path / "here")
    monkeypatch.chdir(here)
    for command in commands("\n".join(blocks(page, "console"))):
        if any(re.search(pattern, command) for pattern in NOT_RUN):
            continue
        try:
            main(shlex.split(command)[1:])
        except SystemExit as error:
            pytest.fail(f"{command}: exit code {error.code}: {capfd.readouterr().err.splitlines()[-1:]}")


@pytest.mark.long
def test_the_exported_encoder_of_the_documentation_classifies_pictures(place, blocks, tmp_path, monkeypatch, capfd):
    here = shutil.copytree(place, tmp_path / "here")
    monkeypatch.chdir(here)
    main(shlex.split("export runs/animals/seed-0 animals.onnx --encoder-inside --quiet"))
    files = ["okapi.jpg", "zebra.jpg"]
    for seed, file in enumerate(files):
        write_picture(here / file, seed)
    capfd.readouterr()
    exec(compile(blocks("docs/export.md")[1], "export.md", "exec"), {})
    assert capfd.readouterr().out.strip() == str(Scorer.load("runs/animals/seed-0").predict_images(files))
