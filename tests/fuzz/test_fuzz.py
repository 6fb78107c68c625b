"""Damaged and hostile files at scale: every case is accepted or ends in one of our errors, in bounded time and memory.

A few cases of each kind run with the other tests; `make fuzz CASES=100000` draws that many new ones, and prints counts.
"""

from __future__ import annotations

import copy
import faulthandler
import itertools
import json
import os
import resource
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from classnorm.cli import main
from classnorm.data import SyntheticConfig, load, save_bundle, save_folder, synthetic
from classnorm.data.decoding import read_images
from classnorm.data.table_files import read_descriptors, read_features
from classnorm.errors import ClassNormError
from classnorm.io.arrays import read_npy
from classnorm.io.files import digest
from classnorm.io.matlab import read_mat
from classnorm.methods import METHODS, FitContext, FitJob, read_recipe, resolve
from classnorm.report import files as report_files
from classnorm.report import group_results, write_report
from classnorm.results.artifact import Artifact, Cell, Plot, Series, Table, find_artifacts
from classnorm.results.run_folder import find_results
from classnorm.scoring import Scorer
from classnorm.training.epochs import load_checkpoint, save_checkpoint

CASES = int(os.environ.get("CLASSNORM_FUZZ", "0"))  # of all kinds together
SECONDS, MEMORY = 20, 8 << 30  # of the CPU, so that a busy machine does not count
HANGS = 600  # seconds on the clock
COUNTS: Counter[tuple[str, str]] = Counter()

Read = Callable[[Path], Any]


@pytest.fixture(scope="session", autouse=True)
def bounded() -> Iterator[None]:
    """Refuse allocations beyond what the tests need, so that a file that asks for more shows; print the counts."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    if CASES:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    if CASES:
        Path("fuzz-counts.json").write_text(
            json.dumps({" ".join(key): n for key, n in sorted(COUNTS.items())}, indent=2)
        )


changes = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from(["set", "flip", "cut", "insert", "remove"]), st.binary(min_size=1, max_size=8)
    ),
    min_size=1,
    max_size=4,
)


def damaged(content: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    result = bytearray(content)
    for where, kind, value in edits:
        at = int(where * max(0, len(result) - 1))
        if kind == "set":
            result[at : at + len(value)] = value
        elif kind == "flip" and result:
            result[at] ^= 1 << (value[0] % 8)
        elif kind == "cut":
            del result[at:]
        elif kind == "insert":
            result[at:at] = value * (1 + value[0])
        else:
            del result[at : at + len(value)]
    return bytes(result)


HOSTILE = [
    None,
    True,
    -1,
    0,
    10**9,
    10**19,
    10**400,
    1e308,
    "",
    "<script>",
    "../../x",
    "\x00\x1b[2J",
    "\ud800",
    [],
    {},
    [[]],
]
HOSTILE += [[1] * 1000, "x" * 100_000, {"a": {"b": {}}}, [None], "$\\a$", "a[/b]", "NaN"]
edits_of_documents = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, len(HOSTILE)), st.booleans()), min_size=1, max_size=3
)


def edited(content: bytes, edits: list[tuple[float, int, bool]]) -> bytes:
    """A JSON document with values anywhere replaced, or removed."""
    document = json.loads(content)
    for where, number, _ in edits:
        places: list[tuple[Any, Any]] = []
        waiting = [document]
        while waiting:
            value = waiting.pop()
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            places += [(value, key) for key in keys]
            waiting += [value[key] for key in keys if isinstance(value[key], dict | list)]
        if not places:
            break
        holder, key = places[int(where * (len(places) - 1))]
        if number == len(HOSTILE):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(HOSTILE[number])
    return json.dumps(document).encode()


@pytest.fixture(scope="session")
def files(
    tmp_path_factory: pytest.TempPathFactory, write_run: Any, gbu_variables: Any, write_mat: Any
) -> dict[str, tuple[Path, Read]]:
    """Kind → a valid file, and what reads it."""
    root = tmp_path_factory.mktemp("fuzz")
    data = synthetic(SyntheticConfig(classes=8, unseen=2, rows=64, features=6, attributes=5))
    save_bundle(data, root / "stored.npz")
    with np.load(root / "stored.npz") as archive:
        arrays = dict(archive)
    np.savez_compressed(root / "packed.npz", **arrays)
    splits, table = gbu_variables(arrays)
    for name, packed in (("v5", False), ("v5-packed", True)):
        scipy.io.savemat(root / f"{name}.mat", splits | table, do_compression=packed)
    write_mat(root / "v73.mat", splits | table, "v7.3")
    save_folder(data, root / "folder", rows_per_shard=20)
    np.save(root / "rows.npy", data.features)
    names = list(data.class_names)
    (root / "d.csv").write_text(
        "\n".join(f"{n},{','.join(map(str, v))}" for n, v in zip(names, data.descriptors.tolist(), strict=True))
    )
    (root / "d.json").write_text(json.dumps(dict(zip(names, data.descriptors.tolist(), strict=True))))
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(
        pyarrow.table([pyarrow.array(names), *data.descriptors.T], names=["name", *"abcde"]), root / "d.parquet"
    )
    method, config = resolve(data, hidden=8, epochs=1, calibration="none")
    job = FitJob(data, method, config)
    Scorer.of(job, job.fit(FitContext(torch.device("cpu"))).model).save(root / "model")
    recipe = {"format": "classnorm-recipe", "method": "classnorm", "config": config.as_dict()}
    (root / "recipe.json").write_text(json.dumps(recipe))
    for seed in (0, 1):
        write_run(root / "runs" / str(seed), seed=seed, validated=True, classes=6)
    series = [Series("s", "m", [1.0, 2.0], [3.0, 4.0])]
    (root / "artifact").mkdir()
    Artifact("n", "t", "x", [Table("t", ["a"], [[Cell("x", 1)]])], [Plot("p", "lines", "t", "x", "y", series)]).save(
        root / "artifact"
    )
    network = torch.nn.Linear(4, 4)
    save_checkpoint(
        root / "c.safetensors", network, torch.optim.Adam(network.parameters()), "key", [{"epoch": 1, "loss": 1.0}]
    )
    for kind in ("png", "jpg", "gif", "tiff", "webp", "bmp"):
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(root / f"i.{kind}")

    draw, make_plots, drawn = report_files.png, report_files._plots, itertools.count()

    def report(path: Path) -> None:
        runs = path.parent if path.parent.name == "artifact" else path.parents[1]
        artifacts = find_artifacts([runs])
        groups = group_results(find_results([runs], may_be_empty=True))
        number = next(drawn)  # plots take 0.2 s and drawing them 2 s: a tenth and a hundredth of what is accepted
        if number % 10:
            report_files._plots = lambda *arguments: {}
        elif number % 100:
            report_files.png = lambda figure: b""
        try:
            write_report(groups, root / "page", "t", artifacts=artifacts)
        finally:
            report_files.png, report_files._plots = draw, make_plots

    def predict(path: Path) -> None:
        json.dumps(Scorer.load(path.parent, "cpu").probabilities(data.features[:3]).tolist(), allow_nan=False)

    def checkpoint(path: Path) -> None:
        load_checkpoint(path, network, torch.optim.Adam(network.parameters()), "key")

    def picture(path: Path) -> None:
        list(read_images([path], [0], lambda image: np.asarray(image.convert("RGB").resize((8, 8)))))

    def mat(path: Path) -> None:
        read_mat(path, ["features", "allclasses_names", "trainval_loc"])

    readers: dict[str, tuple[str, Read]] = {
        "npz": ("stored.npz", load),
        "npz compressed": ("packed.npz", load),
        "mat v5": ("v5.mat", mat),
        "mat v5 compressed": ("v5-packed.mat", mat),
        "mat v7.3": ("v73.mat", mat),
        "folder shard": ("folder/features-00000.npy", lambda path: load(path.parent).checksum),
        "folder manifest": ("folder/dataset.json", lambda path: load(path.parent).checksum),
        "npy": ("rows.npy", read_npy),
        "features": ("rows.npy", read_features),
        "csv": ("d.csv", read_descriptors),
        "json": ("d.json", read_descriptors),
        "parquet": ("d.parquet", read_descriptors),
        "model.json": ("model/model.json", predict),
        "model.safetensors": ("model/model.safetensors", predict),
        "recipe": ("recipe.json", lambda path: read_recipe(path, METHODS["classnorm"])),
        "result.json": ("runs/0/result.json", report),
        "predictions": ("runs/0/predictions.npz", report),
        "history": ("runs/0/history.jsonl", report),
        "artifact": ("artifact/artifact.json", report),
        "checkpoint": ("c.safetensors", checkpoint),
        **{f"image {kind}": (f"i.{kind}", picture) for kind in ("png", "jpg", "gif", "tiff", "webp", "bmp")},
    }
    return {kind: (root / name, read) for kind, (name, read) in readers.items()}


KINDS = [
    "npz",
    "npz compressed",
    "mat v5",
    "mat v5 compressed",
    "mat v7.3",
    "folder shard",
    "folder manifest",
    "npy",
    "features",
]
KINDS += [
    "csv",
    "json",
    "parquet",
    "model.json",
    "model.safetensors",
    "recipe",
    "result.json",
    "predictions",
    "history",
]
KINDS += ["artifact", "checkpoint", *(f"image {kind}" for kind in ("png", "jpg", "gif", "tiff", "webp", "bmp"))]
DOCUMENTS = ["folder manifest", "json", "model.json", "recipe", "result.json", "artifact"]
few = settings(
    max_examples=max(6, CASES // (len(KINDS) + len(DOCUMENTS) + 1)) if CASES else 6,
    deadline=None,  # of the wall: see `survives`
    derandomize=not CASES,
    suppress_health_check=list(HealthCheck),
)


def survives(kind: str, path: Path, content: bytes, read: Read) -> None:
    """Read a file with this content, in bounded CPU time and without waiting forever; put the valid one back."""
    whole = path.read_bytes()
    path.write_bytes(content)
    started = time.process_time()
    faulthandler.dump_traceback_later(HANGS, exit=True)
    try:
        read(path)
        COUNTS[kind, "accepted"] += 1
    except ClassNormError as error:
        assert "\n" not in str(error)  # noqa: PT017
        COUNTS[kind, "refused"] += 1
    finally:
        faulthandler.cancel_dump_traceback_later()
        path.write_bytes(whole)
    assert time.process_time() - started < SECONDS


def signed(kind: str, content: bytes) -> bytes:
    """The content with the right checksum, if it has one, so that values are looked at."""
    if kind == "model.json":
        with suppress(ValueError, RecursionError, AttributeError):
            document = json.loads(content)
            document.pop("document_sha256", None)
            return json.dumps(document | {"document_sha256": digest(document)}).encode()
    return content


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_accepted_or_refused(files: dict[str, tuple[Path, Read]], kind: str) -> None:
    path, read = files[kind]

    @few
    @given(changes)
    def run(edits: list[tuple[float, str, bytes]]) -> None:
        survives(kind, path, signed(kind, damaged(path.read_bytes(), edits)), read)

    run()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_a_hostile_document_is_accepted_or_refused(files: dict[str, tuple[Path, Read]], kind: str) -> None:
    path, read = files[kind]

    @few
    @given(edits_of_documents)
    def run(edits: list[tuple[float, int, bool]]) -> None:
        survives(f"{kind} values", path, signed(kind, edited(path.read_bytes(), edits)), read)

    run()


WORDS = [
    "train",
    "search",
    "report",
    "predict",
    "continual",
    "data",
    "check",
    "--seed",
    "--epochs",
    "--hidden",
    "--layers",
]
WORDS += [
    "--lr",
    "--jobs",
    "--out",
    "--recipe",
    "--method",
    "kernel",
    "-1",
    "0",
    "1e400",
    "9" * 30,
    "nan",
    "",
    "\x00",
    "\x1b",
]
WORDS += [
    "no/such",
    "--json",
    "--seeds",
    "--tasks",
    "1,2",
    "--space",
    "lr=a..b",
    "--size",
    "--help",
    "--",
    "💥",
    "\ud800",
]


@pytest.mark.filterwarnings("ignore")
def test_a_command_line_of_any_words_ends_with_a_known_code(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("words"))

    @few
    @given(st.lists(st.sampled_from(WORDS), max_size=6))
    def run(words: list[str]) -> None:
        words = [word for word in words if word != "train"] or ["report"]  # without data it would train on glyphs
        if words[0] in ("search", "continual"):
            words.insert(1, "no/such")
        try:
            main(words)
            COUNTS["command line", "accepted"] += 1
        except SystemExit as end:
            assert end.code in (0, 2)  # noqa: PT017
            COUNTS["command line", "refused"] += 1
        capsys.readouterr()

    run()
    shutil.rmtree("report", ignore_errors=True)
