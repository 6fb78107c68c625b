"""The scikit-learn face: every check of scikit-learn's own, and what zero-shot learning adds to them."""

import copy
import json
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from classnorm import ClassNormClassifier, Scorer
from classnorm.data import SyntheticConfig, synthetic
from classnorm.errors import ClassNormError, ModelError
from classnorm.methods import resolve
from classnorm.metrics import gzsl_scores
from classnorm.runs.experiment import Experiment

FAST = {"hidden": 32, "epochs": 15, "lr": 3e-3, "validation_splits": 1}


@pytest.mark.slow
@parametrize_with_checks([ClassNormClassifier(), ClassNormClassifier(method="kernel", settings={"dimensions": 16})])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    """Rows of seen classes to train on, rows of all classes to test on, and the table of all classes."""
    dataset = synthetic(SyntheticConfig(classes=16, unseen=4, rows=960, features=32, attributes=12, noise=0.6))
    names = np.array([f"bird {c:02d}" for c in range(16)])
    half = np.random.default_rng(0).permutation(dataset.test_rows)
    parts = {"train": dataset.split.train, "test": half[::2], "calibration": half[1::2]}
    rows = {part: (dataset.features[index], names[dataset.labels[index]]) for part, index in parts.items()}
    return rows | {"table": pd.DataFrame(dataset.descriptors, index=names), "seen": dataset.seen}


@pytest.fixture(scope="module")
def fitted(data):
    return ClassNormClassifier(settings=FAST).fit(*data["train"], descriptors=data["table"])


@pytest.fixture
def mutable(fitted):
    """A copy to change."""
    return copy.deepcopy(fitted)


def test_labelled_rows_correct_their_classes_and_may_bring_new_ones(mutable, data):
    (X, y), (X_test, y_test) = data["calibration"], data["test"]
    unseen = np.isin(y, data["table"].index[~data["seen"]])
    before = mutable.score(X_test, y_test)
    assert mutable.adapt(X[unseen], y[unseen]) is mutable
    assert mutable.score(X_test, y_test) > before
    expected = mutable.scorer_.add_examples(X[:3], ["aardvark"] * 3).only(["aardvark", *mutable.classes_])
    mutable.adapt(X[:3], ["aardvark"] * 3)
    assert list(mutable.classes_[:2]) == ["aardvark", "bird 00"] and not mutable.seen_mask_[0]
    np.testing.assert_allclose(mutable.decision_function(X_test[:5]), expected.scores(X_test[:5]), rtol=1e-4, atol=1e-4)


def test_unlabelled_rows_make_a_transductive_classifier(mutable, data):
    X, _ = data["test"]
    expected = mutable.scorer_.adapt(X, force=True).scores(X)
    np.testing.assert_allclose(mutable.adapt(X, force=True).decision_function(X), expected)
    assert mutable.scorer_.is_transductive


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_without_descriptors_it_is_an_ordinary_classifier(load):
    X, y = load(return_X_y=True)
    assert cross_val_score(ClassNormClassifier(), X, y, cv=3).mean() > 0.92


@pytest.mark.parametrize("method", ["classnorm", "kernel"])
def test_scores_of_a_row_do_not_depend_on_the_rows_it_comes_with(data, method):
    """In float64, as scikit-learn compares them, whatever the shapes do to the rounding of products."""
    clf = ClassNormClassifier(method=method, settings={"epochs": 2}).fit(*data["train"], descriptors=data["table"])
    X = np.tile(data["test"][0], (4, 1))[:600]
    whole = clf.decision_function(X)
    for rows in (np.arange(1), np.arange(17, 20), np.arange(599, -1, -7), np.arange(100, 500)):
        # Strict where scikit-learn is, among few rows; in another place a row may round differently on some processors.
        tolerance = 1e-7 if len(rows) < 10 else 1e-5
        np.testing.assert_allclose(clf.decision_function(X[rows]), whole[rows], rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(
            clf.predict_proba(X[rows]), clf.predict_proba(X)[rows], rtol=tolerance, atol=tolerance
        )


def test_unseen_classes_compete_and_are_recognised(data, fitted):
    X, y = data["test"]
    assert fitted.classes_.tolist() == sorted(data["table"].index)
    assert fitted.seen_mask_.tolist() == data["seen"].tolist()
    unseen = ~np.isin(y, fitted.classes_[fitted.seen_mask_])
    assert np.mean(fitted.predict(X)[unseen] == y[unseen]) > 0.3  # chance: 0.06
    assert fitted.scorer_.calibration.kind != "none"
    assert fitted.temperature_ == fitted.validation_["temperature"] != 1.0


def test_the_score_is_the_harmonic_mean_where_both_kinds_of_classes_are_present(data, fitted):
    X, y = data["test"]
    index = np.searchsorted(fitted.classes_, y)
    expected = gzsl_scores(fitted.decision_function(X), index, fitted.seen_mask_).harmonic / 100
    assert fitted.score(X, y) == pytest.approx(expected)
    seen = fitted.seen_mask_[index]
    for side in (seen, ~seen):
        assert fitted.score(X[side], y[side]) == pytest.approx(np.mean(fitted.predict(X[side]) == y[side]))
    doubled = np.where(seen, 1.0, 7.0)  # a weight for all rows of a side leaves its average alone
    assert fitted.score(X, y, sample_weight=doubled) == pytest.approx(expected)


def test_named_classes_alone_compete(data, fitted):
    X, _ = data["test"]
    pair = ["bird 07", "bird 02"]
    assert set(fitted.predict(X, classes=pair)) <= set(pair)
    np.testing.assert_allclose(fitted.predict_proba(X, classes=pair).sum(axis=1), 1.0)
    columns = [7, 2]
    np.testing.assert_allclose(
        fitted.decision_function(X, classes=pair), fitted.decision_function(X)[:, columns], rtol=1e-4, atol=1e-4
    )


def test_top_ranks_by_score_and_gives_probabilities_of_all_classes(data, fitted):
    X, _ = data["test"]
    top = fitted.top(X, k=3)
    np.testing.assert_array_equal(top.classes[:, 0], fitted.predict(X))
    best = -np.sort(-fitted.predict_proba(X), axis=1)[:, :3]
    np.testing.assert_allclose(top.probabilities, best, atol=1e-5)
    assert (np.diff(top.scores, axis=1) <= 0).all()


@pytest.mark.parametrize("kind", ["frame", "mapping", "array", "function"])
def test_descriptors_may_come_in_many_forms(data, kind):
    X, y = data["train"]
    table = data["table"]
    numbers = np.array([int(name[-2:]) for name in y])
    frame = table.set_axis(range(16), axis=0)
    forms = {"frame": frame, "mapping": dict(enumerate(table.to_numpy())), "array": table.to_numpy()}
    descriptors = forms.get(kind, lambda: frame.sample(frac=1, random_state=0))
    clf = ClassNormClassifier(settings=FAST | {"calibration": "none"}).fit(X, numbers, descriptors=descriptors)
    assert clf.classes_.tolist() == list(range(16))
    assert clf.classes_.dtype == numbers.dtype
    np.testing.assert_array_equal(clf.descriptors_, table.to_numpy(np.float32))
    assert clf.prototypes_.shape == (16, 32)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], dtype=object),
        np.array([False, True]),
        np.array([-3, 12]),
        np.array([1.0, 2.0]),
        pd.Series(["no", "yes"]),
    ],
    ids=lambda labels: str(getattr(labels, "dtype", "")),
)
def test_labels_of_any_kind_come_back_after_saving_too(labels, tmp_path):
    y = np.asarray(labels)[np.arange(40) % 2]
    X = np.random.default_rng(0).standard_normal((40, 3)) + 4.0 * (np.arange(40) % 2)[:, None]
    y = pd.Series(y) if isinstance(labels, pd.Series) else y
    clf = ClassNormClassifier().fit(X, y)
    loaded = ClassNormClassifier.load(clf.save(tmp_path))
    for one in (clf, loaded):
        assert one.predict(X).tolist() == y.tolist()
        assert one.classes_.dtype == clf.classes_.dtype


def test_data_frames_bring_their_column_names(data):
    X, y = data["train"]
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(32)])
    clf = ClassNormClassifier(settings=FAST | {"calibration": "none"}).fit(frame, pd.Series(y), data["table"])
    assert clf.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(frame[frame.columns[::-1]])


def test_classes_are_added_at_run_time(data):
    X, y = data["train"]
    table = data["table"]
    clf = ClassNormClassifier(settings=FAST).fit(X, y, descriptors=table[data["seen"]])
    assert clf.seen_mask_.all()
    assert clf.add_classes(table[~data["seen"]]) is clf
    assert clf.classes_.tolist() == table.index.tolist()
    assert clf.seen_mask_.tolist() == data["seen"].tolist()
    np.testing.assert_array_equal(clf.descriptors_, table.to_numpy(np.float32))
    test, labels = data["test"]
    unseen = np.isin(labels, table.index[~data["seen"]])
    assert np.mean(clf.predict(test)[unseen] == labels[unseen]) > 0.3  # chance: 0.06
    assert clf.predict_proba(test).shape == (len(test), 16)
    assert "aardvark" in clf.add_classes({"aardvark": np.ones(12)}).classes_[:1]


def test_columns_of_new_classes_are_matched_by_name(data):
    table = data["table"].set_axis([f"part {letter}" for letter in "abcdefghijkl"], axis=1)
    clf = ClassNormClassifier(settings=FAST).fit(*data["train"], descriptors=table[data["seen"]])
    clf.add_classes(table[~data["seen"]][table.columns[::-1]])
    np.testing.assert_array_equal(clf.descriptors_, table.to_numpy(np.float32))
    with pytest.raises(ValueError, match="the column 'prat a' is no attribute of the model; did you mean 'part a'"):
        clf.add_classes(table[~data["seen"]].rename(columns={"part a": "prat a"}))


def test_series_are_matched_by_name_in_fit_and_afterwards(data):
    table = data["table"].set_axis([f"part {letter}" for letter in "abcdefghijkl"], axis=1)
    shuffled = {name: row.sample(frac=1, random_state=i) for i, (name, row) in enumerate(table.iterrows())}
    seen, unseen = table.index[data["seen"]], table.index[~data["seen"]]
    clf = ClassNormClassifier(settings=FAST).fit(*data["train"], descriptors={name: shuffled[name] for name in seen})
    clf.add_classes({name: shuffled[name] for name in unseen})
    expected = table[sorted(table.columns)].to_numpy(np.float32)
    np.testing.assert_array_equal(clf.descriptors_, expected)
    scorer = clf.scorer_.only(list(seen)).add_classes({name: shuffled[name] for name in unseen})
    np.testing.assert_array_equal(scorer.descriptors[-1], expected[table.index.get_loc(unseen[-1])])
    broken = pd.Series(range(12), index=["part a"] * 12)
    with pytest.raises(ValueError, match=r"cannot be aligned .* name each attribute once"):
        clf.add_classes({"x": broken, "y": shuffled[unseen[0]]})


def test_calibrating_lowers_the_calibration_error(data, mutable):
    mutable.scorer_ = mutable.scorer_.calibrated(mutable.scorer_.calibration, 0.1)  # far too sure
    assert mutable.calibrate(*data["calibration"]) is mutable
    assert mutable.calibration_error_["after"] < 0.5 * mutable.calibration_error_["before"]
    assert mutable.temperature_ != 0.1
    assert mutable.scorer_.calibration.kind == "bias"


def test_calibrating_on_seen_classes_alone_leaves_the_balance(data, mutable, fitted):
    X, y = data["calibration"]
    seen = np.isin(y, mutable.classes_[mutable.seen_mask_])
    mutable.calibrate(X[seen], y[seen])
    assert mutable.scorer_.calibration == fitted.scorer_.calibration
    np.testing.assert_array_equal(mutable.predict(X), fitted.predict(X))


def test_a_saved_classifier_loads_with_the_same_answers(data, fitted, tmp_path):
    loaded = ClassNormClassifier.load(fitted.save(tmp_path), device="cpu")
    X, y = data["test"]
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.get_params() == fitted.get_params()
    assert loaded.score(X, y) == fitted.score(X, y)
    assert loaded.add_classes({"okapi": np.ones(12)}).classes_[-1] == "okapi"
    names = [str(name) for name in fitted.predict(X)]
    assert Scorer.load(tmp_path).predict(X) == names, "the folder serves the command line too"


@pytest.mark.parametrize("change", [{"format": "other"}, {"classes": ["a"]}, {"label_type": "nonsense"}, None])
def test_a_damaged_classifier_is_refused_in_one_line(fitted, tmp_path, change):
    path = fitted.save(tmp_path) / "estimator.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change) if change else "{")
    with pytest.raises(ModelError) as caught:
        ClassNormClassifier.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_ordinary_classifier_survives_saving_and_pickling(tmp_path):
    X, y = load_iris(return_X_y=True)
    clf = ClassNormClassifier().fit(X, y)
    for again in (ClassNormClassifier.load(clf.save(tmp_path)), pickle.loads(pickle.dumps(clf))):  # noqa: S301
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_the_random_state_decides_the_weights(data):
    X, y = load_iris(return_X_y=True)

    def proba(state):
        return ClassNormClassifier(settings={"epochs": 3}, random_state=state).fit(X, y).predict_proba(X)

    np.testing.assert_array_equal(proba(3), proba(3))
    assert not np.array_equal(proba(3), proba(4))
    np.testing.assert_array_equal(proba(np.random.RandomState(1)), proba(np.random.RandomState(1)))


def test_an_eval_set_is_scored_and_changes_nothing(data, fitted):
    again = clone(fitted).fit(*data["train"], descriptors=data["table"], eval_set=data["test"])
    assert again.eval_score_ == fitted.score(*data["test"])
    assert again.scorer_.calibration == fitted.scorer_.calibration


def test_verbose_prints_the_stages(data, capsys):
    ClassNormClassifier(settings=FAST, verbose=1).fit(*data["train"], descriptors=data["table"])
    assert capsys.readouterr().out.splitlines() == [
        *(f"[ClassNormClassifier] validation {fold}/3" for fold in (1, 2, 3)),  # 12 seen classes are few
        "[ClassNormClassifier] training",
    ]


def test_a_pipeline_passes_descriptors_on(data):
    pipeline = Pipeline([("scale", MinMaxScaler()), ("clf", ClassNormClassifier(settings=FAST))])
    pipeline.fit(*data["train"], clf__descriptors=data["table"])
    assert pipeline.score(*data["test"]) > 0.3
    assert pipeline.classes_.tolist() == data["table"].index.tolist()


@pytest.mark.slow
def test_a_grid_search_over_settings_in_two_processes(data):
    grid = [FAST | {"calibration": "none", "hidden": hidden} for hidden in (1, 32)]
    search = GridSearchCV(ClassNormClassifier(), {"settings": grid}, cv=3, n_jobs=2, error_score="raise")
    search.fit(*data["train"], descriptors=data["table"])
    assert search.best_params_["settings"]["hidden"] == 32
    assert search.best_estimator_.predict(data["test"][0]).shape == data["test"][1].shape


def test_metadata_routing_brings_descriptors_through_search_and_pipeline(data):
    with sklearn.config_context(enable_metadata_routing=True):
        clf = ClassNormClassifier(settings=FAST | {"calibration": "none"}).set_fit_request(descriptors=True)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), clf)
        scores = cross_val_score(pipeline, *data["train"], cv=3, params={"descriptors": data["table"]})
        assert scores.mean() > 0.5  # chance: 0.06
        search = GridSearchCV(pipeline, {"classnormclassifier__recipe": ["reference", "baseline"]}, cv=2)
        search.fit(*data["train"], descriptors=data["table"])
        assert len(search.best_estimator_.classes_) == 16


def test_a_table_as_long_as_the_rows_is_cut_by_cross_validation_but_a_function_is_not():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 4)
    X = rng.random((12, 6))
    table = pd.DataFrame(rng.random((12, 5)), index=["a", "b", "c", *(f"unseen {i}" for i in range(9))])
    clf = ClassNormClassifier(settings=FAST | {"calibration": "none", "epochs": 1})
    with pytest.raises(ValueError, match="give a function that returns it"):
        cross_val_score(clf, X, y, cv=2, params={"descriptors": table}, error_score="raise")
    assert len(cross_val_score(clf, X, y, cv=2, params={"descriptors": lambda: table}, error_score="raise")) == 2


@pytest.mark.parametrize(
    ("descriptors", "message"),
    [
        ({"a": [1.0, 2.0]}, "class 'b' of y is not among the 1 descriptors"),
        ({"a": [1.0, 2.0], "b": [1.0]}, r"class 'b' has shape \(1,\), that of 'a' \(2,\)"),
        ({"a": [1.0, 2.0], "b": [1.0, np.nan]}, "class 'b' holds NaN"),
        ({"a": [1.0, 2.0], "b": [0.0, 0.0]}, "class 'b' is all zero"),
        ({"a": [1.0, 2.0], "b": ["tall", "red"]}, "class 'b' holds something that is not a number"),
        ({}, "empty"),
        ({"a": [1.0], "b": [1.0], 3: [1.0]}, "labels are like 'a', but a descriptor is named 3"),
        (np.ones((3, 2)), "leaves open which row"),
        (np.ones(2), r"class 'a' has shape \(\)"),
        (pd.DataFrame([[1.0], [2.0], [3.0]], index=["a", "b", "a"]), "class 'a' has two descriptors"),
    ],
)
def test_bad_descriptors_are_refused_in_one_line(descriptors, message):
    with pytest.raises(ClassNormError, match=message) as caught:
        ClassNormClassifier().fit(np.eye(4), ["a", "a", "b", "b"], descriptors=descriptors)
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "clasnorm"}, "did you mean 'classnorm'"),
        ({"recipe": "refrence"}, "did you mean 'reference'"),
        ({"settings": {"hiden": 3}}, "did you mean 'hidden'"),
        ({"settings": {"lr": -1.0}}, "lr is -1.0"),
        ({"device": "tpu"}, "not available"),
    ],
)
def test_bad_parameters_are_refused_by_name_in_fit(params, message):
    with pytest.raises(ValueError, match=message):
        ClassNormClassifier(**params).fit(np.eye(4), [0, 0, 1, 1])


def test_bad_requests_of_a_fitted_classifier_are_refused(data, mutable):
    X, y = data["test"]
    for request, message in [
        (lambda: mutable.predict(X, classes=["bird 99"]), "'bird 99' is none of the 16 classes"),
        (lambda: mutable.predict(X, classes=[]), "at least one class"),
        (lambda: mutable.predict_proba(X, classes=["bird 01", "bird 01"]), "none twice"),
        (lambda: mutable.top(X, 0), "at least 1 class"),
        (lambda: mutable.add_classes({"okapi": [1.0]}), "'okapi' has 1 dimensions; the model was trained on 12"),
        (lambda: mutable.add_classes({"bird 01": np.ones(12)}), "known to the model with another descriptor"),
        (lambda: mutable.add_classes({7: np.ones(12)}), "a descriptor is named 7"),
        (lambda: mutable.add_classes(np.ones((1, 12))), "new classes need names"),
        (lambda: mutable.calibrate(X, y[:-1]), "labels for"),
        (lambda: mutable.calibrate(X, ["okapi"] * len(X)), "'okapi' is none of the 16 classes"),
    ]:
        with pytest.raises(ValueError, match=message):
            request()


def test_a_classifier_without_descriptors_takes_no_new_classes():
    clf = ClassNormClassifier(settings={"epochs": 1}).fit(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(ValueError, match="fitted without descriptors"):
        clf.add_classes({2: [1.0, 0.0]})


def test_two_seen_classes_are_enough_beside_unseen_ones():
    X = np.random.default_rng(0).random((20, 6)) + 3.0 * np.eye(2, 6)[np.arange(20) % 2]
    table = {0: [1.0, 0.0], 1: [0.0, 1.0], 2: [1.0, 1.0]}
    clf = ClassNormClassifier(settings={"hidden": 16}).fit(X, np.arange(20) % 2, descriptors=table)
    assert clf.decision_function(X).shape == (20, 3)
    assert clf.validation_["kind"] == "rows"


def test_one_row_a_class_is_enough_to_fit_and_save(tmp_path):
    table = dict(zip("abcde", np.random.default_rng(0).random((5, 4)), strict=True))
    clf = ClassNormClassifier(settings={"hidden": 16}).fit(np.eye(4)[:3] + 0.1, ["a", "b", "c"], descriptors=table)
    assert ClassNormClassifier.load(clf.save(tmp_path)).classes_.tolist() == list("abcde")


def test_help_answers_without_scikit_learn_or_pytorch():
    script = "import sys, classnorm.cli as c; c.main(['--help']); assert not {'torch', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)


def test_a_table_may_name_its_classes_in_a_column(data, fitted):
    frame = data["table"].reset_index(names="species")
    again = ClassNormClassifier(settings=FAST).fit(*data["train"], descriptors=frame)
    assert again.classes_.tolist() == fitted.classes_.tolist()
    np.testing.assert_array_equal(again.descriptors_, fitted.descriptors_)
    assert again.predict(data["test"][0]).tolist() == fitted.predict(data["test"][0]).tolist()


@pytest.mark.parametrize("columns", [[], ["species", "family"]])
def test_a_numbered_table_without_one_column_of_names_says_what_to_do(data, columns):
    frame = data["table"].reset_index(drop=True).assign(**dict.fromkeys(columns, "x"))
    with pytest.raises(ValueError, match=r"numbered, but labels are like 'bird 00'.*set_index"):
        ClassNormClassifier(settings=FAST).fit(*data["train"], descriptors=frame)


def test_cross_validated_probabilities_have_names_and_the_error_says_how(data):
    X, y = data["train"]
    table, names = data["table"], np.unique(data["train"][1])
    clf = ClassNormClassifier(method="kernel", settings={"calibration": "none"})
    with pytest.raises(ValueError, match=r"cross_val_predict numbers the labels .*'labels': np.unique\(y\)"):
        cross_val_predict(clf, X, y, cv=3, method="predict_proba", params={"descriptors": table})
    params = {"descriptors": table, "labels": names}
    probabilities = cross_val_predict(clf, X, y, cv=3, method="predict_proba", params=params)
    assert probabilities.shape == (len(y), len(names))
    assert np.mean(names[probabilities.argmax(axis=1)] == y) > 0.8
    by_array = cross_val_predict(
        clf, X, y, cv=3, method="predict_proba", params={"descriptors": table.loc[names].to_numpy()}
    )
    np.testing.assert_array_equal(probabilities, by_array)


def test_labels_name_the_numbers_of_y_in_their_order(data):
    X, y = data["train"]
    names = np.unique(y)[::-1]
    numbers = np.array([names.tolist().index(label) for label in y])
    settings = FAST | {"calibration": "none"}
    numbered = ClassNormClassifier(settings=settings).fit(X, numbers, data["table"], labels=names)
    assert numbered.classes_.tolist() == list(range(len(names)))
    np.testing.assert_allclose(numbered.descriptors_, data["table"].loc[names].to_numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "nobody"], "class 'nobody' of `labels` is not among the 2 descriptors"),
        (["a", "a"], "distinct names"),
        ("ab", "distinct names"),
        (["a"], "class 1 of y is not among the 1 descriptors"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    table = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    with pytest.raises(ClassNormError, match=message):
        ClassNormClassifier().fit(np.eye(4), [0, 0, 1, 1], descriptors=table, labels=labels)


def test_a_search_varies_single_settings(data):
    clf = ClassNormClassifier(method="kernel", settings={"calibration": "none", "closed_form": True})
    search = GridSearchCV(clf, {"settings__ridge": [1e6, 0.1], "settings__length": [1.0]}, cv=3, error_score="raise")
    search.fit(*data["train"], descriptors=data["table"])
    assert search.best_params_["settings__ridge"] == 0.1
    expected = {"calibration": "none", "closed_form": True, "ridge": 0.1, "length": 1.0}
    assert search.best_estimator_.settings == expected
    assert clf.settings == {"calibration": "none", "closed_form": True}
    assert clone(search.best_estimator_).get_params()["settings__ridge"] == 0.1
    with pytest.raises(ValueError, match="unknown setting 'rigde'; did you mean 'ridge'"):
        clone(clf).set_params(settings__rigde=1.0).fit(*data["train"], descriptors=data["table"])


def test_the_folder_of_a_run_loads_as_a_classifier(tmp_path, small_dataset):
    shuffled = small_dataset.restricted(np.random.default_rng(1).permutation(small_dataset.n_classes))
    _, config = resolve(shuffled, "kernel", calibration="bias:0.5")
    Experiment(shuffled, "kernel", "reference", config).run(tmp_path)
    clf = ClassNormClassifier.load(tmp_path)
    rows = shuffled.features[shuffled.test_rows]
    assert clf.predict(rows).tolist() == Scorer.load(tmp_path).predict(rows)
    assert clf.classes_.tolist() == sorted(shuffled.class_names)
    assert clf.settings["calibration"] == "bias:0.5"
    again = ClassNormClassifier.load(clf.save(tmp_path / "saved"))
    np.testing.assert_allclose(again.predict_proba(rows), clf.predict_proba(rows))
