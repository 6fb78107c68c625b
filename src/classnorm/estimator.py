"""`ClassNormClassifier`: a scikit-learn classifier for seen and unseen classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from classnorm.data import ZeroShotDataset
from classnorm.data.checks import check_array
from classnorm.data.descriptor_tables import (
    aligned,
    column_names,
    descriptor_table,
    is_frame,
    joined_classes,
    numbered_table,
)
from classnorm.errors import ClassNormError, ModelError, ModelWarning
from classnorm.io.documents import read_json
from classnorm.io.files import write_json
from classnorm.methods import ClassNormConfig, FitContext, FitJob, resolve
from classnorm.metrics import (
    best_seen_and_unseen,
    choose_calibration,
    expected_calibration_error,
    fit_temperature,
    harmonic_mean,
    softmax,
)
from classnorm.progress import Display, shown_on
from classnorm.scoring import Scorer, fit_calibrated
from classnorm.training import Device, pick_device

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_FILE = "estimator.json"
_LONGEST_LABEL = 1 << 14  # bytes
_FORMAT = "classnorm-estimator"
_NESTED = "settings__"
# Without descriptors: a linear layer on one-hot descriptors, that is, one free prototype per class. The default 50
# epochs are meant for thousands of rows; a few dozen rows need more.
_PLAIN = {"layers": 1, "lr": 0.03, "schedule": "cosine", "weight_decay": 0.0}
_MIN_STEPS = 200
_BLOCK = 240  # rows scored together; a multiple of the tiles of matrix kernels: a remainder would round differently


class _PrintedStages(Display):
    def stage(self, name: str) -> AbstractContextManager[None]:
        print(f"[ClassNormClassifier] {name}")
        return nullcontext()


class InputError(ClassNormError, ValueError):
    """A user error that is also a `ValueError`, as scikit-learn expects."""


class TopClasses(NamedTuple):
    """The best classes of each row, best first. All [n, k]."""

    classes: Array
    scores: Floats
    probabilities: Floats
    """With all classes competing, not only these k."""


@contextmanager
def _value_errors() -> Iterator[None]:
    """Turn errors of this library into `InputError`."""
    try:
        yield
    except ClassNormError as error:
        raise InputError(str(error)) from error


class ClassNormClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Zero-shot classifier with the interface of scikit-learn.

    `fit` takes a descriptor of every class, including classes without rows in `X`, and `predict` chooses among all of
    them. Features are used unchanged. The balance of seen and unseen classes and the temperature of the probabilities
    are chosen on validation splits of the training rows; `fit` warns if there are too few classes for that.

    Without descriptors it is an ordinary classifier with one prototype per class. Features are then standardized and
    extended by a constant, because cosine similarity ignores their offset and norm.

    Args:
        method: name of a method in `classnorm.methods.METHODS`.
        recipe: name of a recipe of the method.
        settings: config fields that override the recipe, e.g. ``{"hidden": 512}``.
        random_state: seed of the training; a `RandomState` or None draws one.
        device: "auto" uses CUDA if available, then MPS, then the CPU.
        verbose: 1 prints the stages of `fit`.

    Attributes:
        classes_: all competing classes, sorted: those of `y`, unseen and added ones. The columns of
            `decision_function` and `predict_proba` and the attributes below are in this order.
        seen_mask_: [n_classes], true for the classes of `y`.
        descriptors_: [n_classes, d_a].
        prototypes_: [n_classes, d], the representation of each class.
        temperature_: divides the scores before the softmax of `predict_proba`.
        validation_: the choice on validation splits and its scores there; None without validation.
        calibration_error_: expected calibration error before and after `calibrate`; None until then.
        eval_score_: score on the `eval_set` of `fit`; None without one.
        scorer_: the trained `Scorer`; its class names are the labels as text.
        n_features_in_, feature_names_in_: as in all scikit-learn estimators.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 8)) + 3 * np.repeat(np.eye(3, 8), 20, axis=0)
    >>> y = np.repeat(["cat", "dog", "horse"], 20)
    >>> table = {"cat": [1, 0, 0], "dog": [0, 1, 0], "horse": [0, 0, 1], "foal": [0, 0.5, 1]}
    >>> clf = ClassNormClassifier(settings={"hidden": 32}).fit(X, y, descriptors=table)
    >>> clf.classes_.tolist(), clf.seen_mask_.tolist()
    (['cat', 'dog', 'foal', 'horse'], [True, True, False, True])
    >>> clf.predict_proba(X[:5], classes=["cat", "foal"]).shape
    (5, 2)
    """

    def __init__(
        self,
        method: str = "classnorm",
        recipe: str = "reference",
        settings: Mapping[str, Any] | None = None,
        random_state: Any = 0,
        device: Device = "auto",
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.recipe = recipe
        self.settings = settings
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @_value_errors()
    def fit(
        self, X: Any, y: Any, descriptors: Any = None, eval_set: tuple[Any, Any] | None = None, labels: Any = None
    ) -> Self:
        """Train on the rows of `X`.

        Args:
            X: [n, d_z] finite features.
            y: [n] labels: text, integers or booleans.
            descriptors: one per competing class, including all classes of `y`: a DataFrame indexed by class (or with
                one column of text that names them), a mapping from class to vector, an array, or a function that
                returns any of these. The rows of an array are the sorted classes of `y` or, if there are more rows,
                the classes 0, 1, 2, … Use a function in cross-validation if the table has as many rows as `X`:
                scikit-learn would split it.
            eval_set: (X, y) to score after training, see `eval_score_`. It does not affect the training.
            labels: names of the classes 0, 1, 2, … of `y`, if it is numbered but `descriptors` has names. Only these
                compete, under their numbers. `cross_val_predict` needs it for probabilities: it numbers the labels,
                so that ``labels=np.unique(y)``, and has columns for those of `y` only.
        """
        X, y = validate_data(self, X, y, dtype=(np.float32, np.float64))
        check_classification_targets(y)
        seen, positions = np.unique(y, return_inverse=True)
        if len(seen) < 2:
            raise InputError(f"y holds 1 class, {seen.tolist()[0]!r}; a classifier needs rows of at least 2 classes")
        described = descriptors is not None
        descriptors = aligned(descriptors() if callable(descriptors) else descriptors)
        if labels is None:
            table = descriptor_table(descriptors, seen)
        else:
            table = numbered_table(descriptors, np.asarray(labels))
        classes = joined_classes(seen, list(table))
        missing = [label for label in seen.tolist() if label not in table]
        if missing:
            raise InputError(
                f"class {missing[0]!r} of y is not among the {len(table)} descriptors; add it (if cross-validation "
                "split the table because it has as many rows as X: give a function that returns it)"
            )
        mean, scale = (None, None) if described else _moments(X)
        dataset = ZeroShotDataset.from_arrays(
            _standardized(X, mean, scale),
            np.searchsorted(classes, seen)[positions],
            [table[label] for label in classes.tolist()],
            [str(label) for label in classes.tolist()],
            train=np.arange(len(y)),
            name="the data",
            attribute_names=column_names(descriptors),
        )
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        changes = self._changes(described, len(y))
        job = FitJob(dataset, *resolve(dataset, self.method, self.recipe, **changes), int(seed))
        with shown_on(_PrintedStages()) if self.verbose else nullcontext():
            fitted = fit_calibrated(job, FitContext(pick_device(self.device)))
        self.classes_, self.seen_mask_, self.scorer_ = classes, dataset.seen, fitted.scorer
        self.mean_, self.scale_, self._described = mean, scale, described
        self.validation_ = fitted.validation
        for text in fitted.notices:
            warnings.warn(text, ModelWarning, stacklevel=3)
        self.calibration_error_: dict[str, float] | None = None
        self.eval_score_ = None if eval_set is None else self.score(*eval_set)
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As in scikit-learn; with `deep`, also each of `settings` as ``settings__NAME``."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and isinstance(self.settings, Mapping):
            params |= {f"{_NESTED}{name}": value for name, value in self.settings.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; ``settings__ridge=0.1`` sets one of `settings`, also in the grid of a search."""
        nested = {name.removeprefix(_NESTED): params.pop(name) for name in list(params) if name.startswith(_NESTED)}
        super().set_params(**params)
        if nested:
            self.settings = {**(self.settings or {}), **nested}
        return self

    def _changes(self, described: bool, n_rows: int) -> dict[str, Any]:
        """The settings that override the recipe."""
        changes: dict[str, Any] = {}
        if not described:  # nothing to calibrate
            changes["calibration"] = "none"
        if not described and self.method == "classnorm":
            steps = -(-n_rows // ClassNormConfig.batch_size)  # per epoch
            changes |= _PLAIN | {"epochs": max(ClassNormConfig.epochs, -(-_MIN_STEPS // steps))}
        settings = (self.settings or {}).items()
        return changes | {name: v.item() if isinstance(v, np.generic) else v for name, v in settings}

    def predict(self, X: Any, classes: Any = None) -> Array:
        """The best class of each row, [n]; only `classes` compete if given."""
        scorer, labels = self._competing(classes)
        return labels[_by_block(lambda rows: scorer.top(rows, 1).indices[:, 0], self._rows(X))]

    def predict_proba(self, X: Any, classes: Any = None) -> Floats:
        """Probability of each class, [n, n_classes]; only `classes` compete, in their order, if given."""
        return _by_block(self._competing(classes)[0].probabilities, self._rows(X))

    def decision_function(self, X: Any, classes: Any = None) -> Floats:
        """Calibrated scores, [n, n_classes]; only of `classes`, in their order, if given.

        For a classifier of two classes, and without `classes`: [n], positive for the second class.
        """
        scores = _by_block(self._competing(classes)[0].scores, self._rows(X))
        return scores[:, 1] - scores[:, 0] if classes is None and scores.shape[1] == 2 else scores

    def top(self, X: Any, k: int = 5) -> TopClasses:
        """The k best classes of each row with scores and probabilities, in bounded memory."""
        check_is_fitted(self)
        with _value_errors():
            top = self.scorer_.top(self._rows(X), k)
        return TopClasses(self.classes_[top.indices], top.scores, top.probabilities)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Harmonic mean of the per-class accuracies on seen and on unseen classes, between 0 and 1, if `y` has both;
        otherwise the accuracy."""
        labels = column_or_1d(y)
        right = self.predict(X) == labels
        weights = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        is_seen = np.isin(labels, self.classes_[self.seen_mask_])
        if not (is_seen.any() and np.isin(labels, self.classes_[~self.seen_mask_]).any()):
            return float(np.average(right, weights=weights))
        best_scores = []
        for side in (~is_seen, is_seen):
            _, index = np.unique(labels[side], return_inverse=True)
            total, hits = np.bincount(index, weights[side]), np.bincount(index, weights[side] * right[side])
            best_scores.append(float(np.mean(hits[total > 0] / total[total > 0])))
        return harmonic_mean(*best_scores)

    @_value_errors()
    def add_classes(self, descriptors: Any) -> Self:
        """Add unseen classes by their descriptors: a mapping from class to vector, or a DataFrame."""
        check_is_fitted(self)
        if not self._described:
            raise InputError("the model was fitted without descriptors, so none can describe a new class")
        if not isinstance(descriptors, Mapping) and not is_frame(descriptors):
            raise InputError("new classes need names: give a mapping from class to vector, or a DataFrame")
        descriptors = aligned(descriptors)
        table = descriptor_table(descriptors, self.classes_)
        joined = joined_classes(self.classes_, list(table))
        names = {label: str(label) for label in joined.tolist()}
        vectors = {names[label]: vector for label, vector in table.items()}
        scorer = self.scorer_.add_classes(vectors, columns=column_names(descriptors))
        self.scorer_ = scorer.only(list(names.values()))
        self.classes_, self.seen_mask_ = joined, self.scorer_.seen
        return self

    @_value_errors()
    def adapt(self, X: Any, y: Any = None, force: bool = False) -> Self:
        """Learn from a few more rows without training; see docs/few-shot.md.

        With labels, the rows correct the prototypes of their classes; a label that is not in `classes_` is a new class
        without a descriptor. Without labels, the classifier becomes *transductive*: it has seen these rows.

        Args:
            force: learn from unlabelled rows even if validation found that they would not help.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        if y is None:
            self.scorer_ = self.scorer_.adapt(rows, force)
            return self
        labels = column_or_1d(y)
        joined = joined_classes(self.classes_, list(dict.fromkeys(labels.tolist())))
        scorer = self.scorer_.add_examples(rows, [str(label) for label in labels.tolist()], "X and y")
        self.scorer_ = scorer.only([str(label) for label in joined.tolist()])
        self.classes_, self.seen_mask_ = joined, self.scorer_.seen
        return self

    @_value_errors()
    def calibrate(self, X: Any, y: Any) -> Self:
        """Choose the bias of seen classes and the temperature on rows that were not used for training.

        The bias stays unchanged unless `y` has both seen and unseen classes. `calibration_error_` has the expected
        calibration error on these rows before and after.
        """
        check_is_fitted(self)
        labels = self._positions(y)
        logits = self.scorer_.logits(self._rows(X))
        if len(labels) != len(logits):
            raise InputError(f"{len(labels)} labels for {len(logits)} rows; give one label per row")
        calibration, seen = self.scorer_.calibration, self.scorer_.seen
        before = softmax(calibration.apply(logits, seen), self.scorer_.temperature)
        if 0 < np.count_nonzero(seen[labels]) < len(labels):
            calibration, _ = choose_calibration([best_seen_and_unseen(logits, labels, seen)], "bias")
        scores = calibration.apply(logits, seen)
        self.scorer_ = self.scorer_.calibrated(calibration, fit_temperature(scores, labels))
        self.calibration_error_ = {
            "before": expected_calibration_error(before, labels),
            "after": expected_calibration_error(softmax(scores, self.scorer_.temperature), labels),
        }
        return self

    @property
    def descriptors_(self) -> npt.NDArray[np.float32]:
        return self.scorer_.descriptors

    @property
    def prototypes_(self) -> npt.NDArray[np.float32]:
        return self.scorer_.prototypes()

    @property
    def temperature_(self) -> float:
        return self.scorer_.temperature

    def save(self, folder: Path | str) -> Path:
        """Write the model files of `Scorer.save` and `estimator.json` into `folder`, and return it."""
        check_is_fitted(self)
        folder = self.scorer_.save(folder)
        params = self.get_params(deep=False)
        if not isinstance(params["random_state"], int):
            params["random_state"] = None
        names = getattr(self, "feature_names_in_", None)
        mean, scale, feature_names = (None if a is None else a.tolist() for a in (self.mean_, self.scale_, names))
        document = {
            "format": _FORMAT,
            "version": 1,
            "params": params,
            "classes": self.classes_.tolist(),
            "label_type": self.classes_.dtype.str,
            "described": self._described,
            "mean": mean,
            "scale": scale,
            "features": self.n_features_in_,
            "feature_names": feature_names,
            "validation": self.validation_,
            "calibration_error": self.calibration_error_,
            "eval_score": self.eval_score_,
        }
        write_json(folder / _FILE, document)
        return folder

    @classmethod
    def load(cls, folder: Path | str, device: Device = "auto") -> Self:
        """Load a saved classifier, or the model of a run, whose class names become the labels."""
        path = Path(folder) / _FILE
        scorer = Scorer.load(folder, device)
        if not path.exists():
            return cls._of_run(scorer)
        try:
            document = read_json(path, dict[str, Any], "save it again", ModelError)
            if document["format"] != _FORMAT:
                raise ValueError("unknown format")
            result = cls(**document["params"])
            label_type = np.dtype(document["label_type"])
            if label_type.kind not in "biufUO" or label_type.itemsize > _LONGEST_LABEL:
                raise ValueError(f"label_type {label_type}")
            result.classes_ = np.array(document["classes"], dtype=label_type)
            result._described = bool(document["described"])
            moments = (document["mean"], document["scale"])
            result.mean_, result.scale_ = (None if values is None else np.array(values) for values in moments)
            result.n_features_in_ = int(document["features"])
            if document["feature_names"] is not None:
                result.feature_names_in_ = np.array(document["feature_names"], dtype=object)
            result.validation_, result.calibration_error_ = document["validation"], document["calibration_error"]
            result.eval_score_ = document["eval_score"]
            if [str(label) for label in result.classes_.tolist()] != list(scorer.class_names):
                raise ValueError("its classes are not those of the model")
        except (OSError, ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
            raise ModelError(f"{path}: not a readable estimator ({error}); fit and save it again") from error
        result.scorer_, result.seen_mask_ = scorer, scorer.seen
        return result

    @classmethod
    def _of_run(cls, scorer: Scorer) -> Self:
        result = cls(scorer.method, settings=scorer.config.as_dict())
        result.classes_ = np.array(sorted(scorer.class_names))
        result.scorer_ = scorer.only(result.classes_.tolist())
        result.seen_mask_, result.n_features_in_ = result.scorer_.seen, scorer.d_z
        result.mean_ = result.scale_ = result.validation_ = result.calibration_error_ = result.eval_score_ = None
        result._described = True
        return result

    def _rows(self, X: Any) -> Array:
        """The features, checked and in the form that the model expects."""
        X = validate_data(self, X, dtype=(np.float32, np.float64), reset=False)
        with _value_errors():
            return check_array(_standardized(X, self.mean_, self.scale_), "X")

    def _competing(self, classes: Any) -> tuple[Scorer, Array]:
        """The scorer restricted to `classes`, if given, and their labels."""
        check_is_fitted(self)
        if classes is None:
            return self.scorer_, self.classes_
        index = self._positions(classes)
        if len(np.unique(index)) < max(1, len(index)):
            raise InputError("`classes` must name at least one class, and none twice")
        return self.scorer_.only([self.scorer_.class_names[i] for i in index]), self.classes_[index]

    def _positions(self, labels: Any) -> npt.NDArray[np.int64]:
        """Positions of labels in `classes_`."""
        position = {label: i for i, label in enumerate(self.classes_.tolist())}
        try:
            return np.array([position[label] for label in np.asarray(labels).ravel().tolist()], dtype=np.int64)
        except KeyError as error:
            raise InputError(
                f"{error.args[0]!r} is none of the {len(position)} classes; add its descriptor with add_classes"
            ) from None


def _by_block(score: Callable[[Array], Array], rows: Array) -> Array:
    """`score` of all rows, computed in blocks of a fixed size; the last one is padded with zeros.

    The rounding of a matrix product depends on its shape. With a fixed shape, the scores of a row do not depend on the
    other rows, which the checks of scikit-learn rely on.
    """
    padded = np.zeros((-(-len(rows) // _BLOCK) * _BLOCK, rows.shape[1]), dtype=rows.dtype)
    padded[: len(rows)] = rows
    blocks = padded.reshape(-1, _BLOCK, rows.shape[1])
    return np.concatenate([score(block) for block in blocks])[: len(rows)]


def _standardized(X: Array, mean: Floats | None, scale: Floats | None) -> Array:
    """Without descriptors, standardized features and a constant as large as the typical row norm; else unchanged."""
    if mean is None or scale is None:
        return X
    return np.hstack([(X - mean) / scale, np.full((len(X), 1), np.sqrt(X.shape[1]))]).astype(np.float32)


def _moments(X: Array) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each feature; the latter is 1 for a constant feature."""
    mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    return mean, np.where(deviation > 1e-7 * np.abs(mean), deviation, 1.0)
