"""Few seen classes: a calibration that holds, and a warning where nothing helps."""

import importlib.util
import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from classnorm import ClassNormClassifier, fit
from classnorm.data import ZeroShotDataset, load
from classnorm.errors import ModelWarning
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.methods.kernel import shortest_length
from classnorm.runs.experiment import Experiment
from classnorm.scoring import fit_calibrated

_FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "few_classes.py"
_SPEC = importlib.util.spec_from_file_location("few_classes", _FILE)
few_classes = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(few_classes)

CPU = FitContext(torch.device("cpu"))


def zoo(n_seen, n_unseen, n_rows=6, noise=0.3, d=8):
    """Classes around the corners of a cube, described by their corner."""
    generator = np.random.default_rng(3)
    corners = generator.permutation(2 ** (d - 1))[: n_seen + n_unseen]
    table = np.array([[corner >> bit & 1 for bit in range(d - 1)] + [1] for corner in corners], dtype=np.float32)
    labels = np.repeat(np.arange(len(table)), n_rows)
    features = table[labels] + noise * generator.normal(size=(len(labels), d))
    rows = np.arange(len(labels))
    return ZeroShotDataset.from_arrays(
        features.astype(np.float32),
        labels,
        table,
        [f"class {i}" for i in range(len(table))],
        train=rows[labels < n_seen],
        test_unseen=rows[labels >= n_seen],
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["glyphs-light", "CUB"])
def test_with_2_to_10_seen_classes_scores_hold_against_simpler_models(source, request):
    if source == "CUB":
        folder = request.getfixturevalue("real_data") / "xlsa17" / "data" / "CUB"
        full = load(folder, features="efficientnet_lite0")
        object.__setattr__(full, "features", np.ascontiguousarray(full.features[:, ::5]))  # a fifth of them: quicker
    else:
        full = load(source)
    found = [few_classes.measure(few_classes.draw(full, seed), "kernel") for seed in range(50)]
    mean = {name: np.mean([draw[name] for draw in found], axis=0) for name in found[0]}
    _, seen, harmonic = mean["calibrated"]
    assert harmonic >= mean["uncalibrated"][2]
    assert harmonic >= mean["nearest mean"][2]
    assert seen >= 0.8 * mean["nearest mean, seen only"]
    assert all(draw["warned"] for draw in found if draw["training accuracy"] < 50)


@pytest.mark.parametrize("method", ["kernel", "classnorm", "eszsl"])
@pytest.mark.parametrize(("n_seen", "n_unseen"), [(2, 1), (3, 1), (5, 25)])
def test_the_rows_of_few_seen_classes_are_mostly_recognised(method, n_seen, n_unseen):
    data = zoo(n_seen, n_unseen, n_rows=12)
    method, config = resolve(data, method, **({"hidden": 64, "lr": 3e-3} if method == "classnorm" else {}))
    fitted = fit_calibrated(FitJob(data, method, config), CPU)
    rows = data.split.train
    right = np.array(fitted.scorer.predict(data.features[rows])) == np.array(data.class_names)[data.labels[rows]]
    assert np.mean(right) > 0.6
    assert fitted.training_accuracy == pytest.approx(100 * np.mean(right))
    assert any(f"{n_seen} seen classes are too few" in text for text in fitted.notices)


def test_the_estimator_does_not_label_its_training_rows_as_the_unseen_class():
    data = zoo(3, 1)
    X, y = data.features[data.split.train], data.labels[data.split.train]
    with pytest.warns(ModelWarning, match="3 seen classes are too few") as caught:
        clf = ClassNormClassifier(method="kernel").fit(X, y, descriptors=data.descriptors)
    assert np.mean(clf.predict(X) == y) >= 0.7
    assert caught[0].filename == __file__


def test_a_model_that_gets_its_own_training_rows_wrong_warns_wherever_it_is_made(tmp_path):
    data = zoo(20, 5)
    text = r"only \d+ % of its own training rows right, with all 25 classes"
    with pytest.warns(ModelWarning, match=text):
        fit(data, method="kernel", calibration="bias:1000")
    with pytest.warns(ModelWarning, match=text):
        ClassNormClassifier(method="kernel", settings={"calibration": "bias:1000"}).fit(
            data.features[data.split.train], data.labels[data.split.train], descriptors=data.descriptors
        )
    _, config = resolve(data, "kernel", calibration="bias:1000")
    Experiment(data, "kernel", "reference", config).run(tmp_path)
    document = json.loads((tmp_path / "result.json").read_text())
    assert document["training_accuracy"] == 0.0
    assert "do not rely on it" in document["notices"][0]


def test_a_good_model_of_many_classes_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(zoo(30, 5), method="kernel")


def test_without_unseen_classes_a_class_is_held_out_to_calibrate_for_those_to_come():
    data = zoo(6, 0)
    method, config = resolve(data, "kernel")
    fitted = fit_calibrated(FitJob(data, method, config), CPU)
    assert fitted.scorer.calibration.kind == "bias"
    assert fitted.validation["harmonic"] > 0
    assert not fitted.notices


def test_two_seen_classes_alone_leave_nothing_to_calibrate():
    data = zoo(2, 0)
    method, config = resolve(data, "kernel")
    fitted = fit_calibrated(FitJob(data, method, config), CPU)
    assert (str(fitted.scorer.calibration), fitted.validation) == ("none", None)


def test_the_length_of_prototypes_is_limited_for_few_classes_only():
    limits = [shortest_length(n_seen) for n_seen in (2, 10, 20, 150)]
    assert limits == pytest.approx([0.8, 0.8, 0.2, 0.8 / 225])


def test_noise_about_classes_unlike_the_seen_ones_does_not_become_a_prototype():
    data = zoo(2, 20)
    scorer = fit_calibrated(FitJob(data, *resolve(data, "kernel", calibration="none")), CPU).scorer
    lengths = np.linalg.norm(scorer.prototypes()[:, :-1], axis=1)
    assert lengths[~data.seen].max() <= 1.1 * lengths[data.seen].max()
