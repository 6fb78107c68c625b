"""`classnorm data check` and `data convert`."""

from __future__ import annotations

import json
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import load
from classnorm.runs.job import dataset_record


@pytest.fixture
def bundle(tmp_path, arrays, write_bundle) -> Path:
    return write_bundle(tmp_path / "zoo.npz", arrays)


@pytest.fixture
def folder(tmp_path, arrays, write_gbu) -> Path:
    return write_gbu(tmp_path / "gbu", arrays, features="vit")


def test_check_as_json_says_what_the_dataset_is(classnorm, bundle):
    document = json.loads(classnorm("data", "check", bundle, "--json").out)
    data = load(bundle)
    assert document["name"] == "zoo"
    assert document["sizes"] == data.sizes
    assert (document["checksum"], document["split_checksum"]) == (data.checksum, data.split.checksum)
    assert (document["benchmark"], document["notices"]) == (None, [])


def test_check_passes_notices_on(classnorm, tmp_path, arrays):
    np.savez(tmp_path / "x.npz", **arrays | {"test_seen_idx": np.zeros(0, dtype=int)})
    document = json.loads(classnorm("data", "check", tmp_path / "x.npz", "--json").out)
    assert "no test rows of seen classes" in document["notices"][0]


def test_check_of_a_folder_takes_its_feature_file_by_name(classnorm, folder):
    document = json.loads(classnorm("data", "check", folder, "--features", "vit", "--json").out)
    assert document["provenance"]["features"] == "vit"


def test_check_without_json_ends_with_a_word_for_people(classnorm, bundle):
    assert classnorm("data", "check", bundle).out.endswith("ready to train\n")


def test_check_as_json_holds_what_results_say_of_their_data(classnorm, bundle):
    document = json.loads(classnorm("data", "check", bundle, "--json").out)
    assert document.items() >= dataset_record(load(bundle)).items()
    assert {"features", "classes", "attributes", "duplicates", "leaks", "warnings", "verdict"} <= document.keys()


@pytest.fixture
def leaky(tmp_path, arrays, write_bundle) -> Path:
    """Row 4, a test row, is the training row 0; the classes have names that a terminal could take for markup."""
    arrays["features"][4] = arrays["features"][0]
    arrays["descriptors"][3] = arrays["descriptors"][0]
    arrays["class_names"] = np.array(["[b]ant[/b]", "bee", "cow", "[okapi]", "zebra"])
    return write_bundle(tmp_path / "leaky.npz", arrays)


def test_check_of_a_leaky_dataset_names_the_rows_and_classes_and_ends_with_warnings(classnorm, leaky):
    outcome = classnorm("data", "check", leaky)
    assert outcome.code == 0
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "test row 4 [b]ant[/b]; equals training row 0: same class" in lines
    assert "[b]ant[/b] (seen) and [okapi] (unseen)" in lines
    assert lines[-3].startswith("warning: 1 pair of classes") and lines[-2].startswith("warning: 1 test row")
    assert lines[-1] == "usable, with warnings"


def test_check_says_in_json_what_it_says_to_people(classnorm, leaky):
    document = json.loads(classnorm("data", "check", leaky, "--json").out)
    lines = classnorm("data", "check", leaky).out.splitlines()
    assert lines[-3:-1] == [f"warning: {text}" for text in document["warnings"]]
    assert lines[-1] == document["verdict"]


def test_check_says_on_stderr_what_takes_long_unless_quiet(classnorm, bundle, monkeypatch):
    monkeypatch.setattr("classnorm.cli.data._LONG", 0.0)
    outcome = classnorm("data", "check", bundle, "--json")
    assert "comparing 18 test rows with 12 training rows" in outcome.err and json.loads(outcome.out)
    assert classnorm("data", "check", bundle, "--quiet").err == ""


def test_check_fits_a_screen_or_two(classnorm):
    assert len(classnorm("data", "check", "synthetic:classes=10,rows=100,unseen=2").out.splitlines()) < 60


@pytest.mark.slow
def test_check_recognises_the_real_cub(classnorm, real_data):
    cub = real_data / "xlsa17" / "data" / "CUB"
    document = json.loads(classnorm("data", "check", cub, "--features", "efficientnet_lite0", "--json").out)
    assert (document["benchmark"], document["sizes"]["rows"]) == ("CUB", 11788)
    assert document["verdict"] == "ready to train"


def test_a_bundle_made_into_a_folder_and_back_is_the_same(classnorm, bundle, tmp_path):
    classnorm("data", "convert", bundle, tmp_path / "folder")
    which = ["--features", "features", "--attributes", "original_att"]
    classnorm("data", "convert", tmp_path / "folder", tmp_path / "back.npz", *which)
    assert load(tmp_path / "back.npz").checksum == load(bundle).checksum


@pytest.mark.parametrize("attributes", ["att", "original_att"])
def test_a_folder_made_into_a_bundle_and_back_is_the_same(classnorm, folder, tmp_path, attributes):
    classnorm("data", "convert", folder, tmp_path / "x.npz", "--features", "vit", "--attributes", attributes)
    classnorm("data", "convert", tmp_path / "x.npz", tmp_path / "back")
    again = load(tmp_path / "back", features="features", attributes=attributes)
    assert again.checksum == load(folder, features="vit", attributes=attributes).checksum


def test_convert_as_json_names_the_target_and_what_it_holds(classnorm, bundle, tmp_path):
    document = json.loads(classnorm("data", "convert", bundle, tmp_path / "copy.npz", "--json").out)
    assert document["target"] == str(tmp_path / "copy.npz")
    assert document["checksum"] == load(tmp_path / "copy.npz").checksum


def test_float16_halves_the_features_and_keeps_their_values_nearly(classnorm, bundle, tmp_path):
    classnorm("data", "convert", bundle, tmp_path / "half.npz", "--float16")
    half = load(tmp_path / "half.npz").features
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, load(bundle).features, rtol=1e-3, atol=1e-4)


def test_a_folder_is_not_converted_onto_itself(classnorm, folder):
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    outcome = classnorm("data", "convert", folder, folder / ".." / "gbu", "--features", "vit")
    assert outcome.code == 2 and "is the dataset itself" in outcome.err
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_fetch_downloads_from_a_mirror_and_says_where_it_is(classnorm, tmp_path, monkeypatch, folder):
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    monkeypatch.setenv("CLASSNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    with zipfile.ZipFile(served / "mine.zip", "w") as archive:
        for name in ("CUB", "SUN", "AWA1", "AWA2", "APY"):
            archive.write(folder / "att_splits.mat", f"xlsa17/data/{name}/att_splits.mat")
            archive.write(folder / "vit.mat", f"xlsa17/data/{name}/res101.mat")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=served)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        arguments = ["data", "fetch", "gbu", "--out", tmp_path / "data", "--mirror"]
        mirror = f"http://127.0.0.1:{server.server_port}/mine.zip"
        document = json.loads(classnorm(*arguments, mirror, "--json").out)
        words = classnorm(*arguments, mirror)
        server.shutdown()
    assert document["target"] == str(tmp_path / "data" / "gbu")
    assert (document["files"], document["url"]) == (10, mirror)
    assert words.code == 0 and "10 files" in words.err and "cite their paper" in words.err
    assert load(tmp_path / "data" / "gbu" / "xlsa17" / "data" / "CUB").checksum == load(folder, features="vit").checksum


def test_fetch_of_an_unknown_dataset_names_the_known_ones(classnorm):
    outcome = classnorm("data", "fetch", "gub")
    assert outcome.code == 2
    assert outcome.err == "classnorm: error: unknown dataset to fetch 'gub'. Known: cub, gbu\n"
