"""`classnorm suggest`: pictures by path or row, in lines or as JSON."""

import json

import numpy as np
import pytest

from classnorm import Scorer
from classnorm.scoring import suggest


def test_rows_of_features_are_suggested(classnorm, trained, world, tmp_path):
    np.savez(tmp_path / "pool.npz", features=world.features)
    outcome = classnorm("suggest", trained, "--unlabelled", tmp_path / "pool.npz", "--count", 4, "--json")
    assert outcome.code == 0 and outcome.err == ""
    assert json.loads(outcome.out) == json.loads(json.dumps(suggest(Scorer.load(trained), world.features, 4)))
    lines = classnorm("suggest", trained, "--unlabelled", tmp_path / "pool.npz", "--count", 4).out.splitlines()
    rows = [f"row {picture['row']}" for picture in json.loads(outcome.out)["pictures"]]
    assert [line.split("  ")[-2] for line in lines[1:5]] == rows
    assert lines[0].startswith("label these pictures")


def test_where_the_model_is_sure_there_is_little_to_gain(classnorm, trained, world, tmp_path):
    scorer = Scorer.load(trained)
    scorer.calibrated(scorer.calibration, 1e-3).save(tmp_path / "sure")
    np.save(tmp_path / "pool.npy", world.features)
    outcome = classnorm("suggest", tmp_path / "sure", "--unlabelled", tmp_path / "pool.npy", "--count", 3)
    assert outcome.out.startswith("there is little to gain: the model is sure of these pictures")


def test_images_are_suggested_by_their_path(classnorm, shapes, train_on_shapes):
    outcome = classnorm("suggest", train_on_shapes(shapes), "--unlabelled", shapes, "--count", 3, "--json")
    pictures = json.loads(outcome.out)["pictures"]
    assert len(pictures) == 3
    assert all((shapes / picture["path"]).is_file() for picture in pictures)
    assert {"path", "reason", "gain"} <= pictures[0].keys()


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--count", 0], "--count is 0"), (["--unlabelled", "nowhere"], "nowhere: no such file")],
)
def test_an_impossible_request_is_one_line(refused, trained, tmp_path, world, flags, message):
    np.save(tmp_path / "x.npy", world.features)
    assert message in refused("suggest", trained, "--unlabelled", tmp_path / "x.npy", *flags)
