"""`Scorer`: a trained model together with its classes, for prediction, saving and loading."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data.checks import check_features
from classnorm.data.descriptor_tables import aligned, column_names, descriptor_table, is_frame
from classnorm.data.names import attribute_order, lookalike, respelled
from classnorm.data.row_store import Features, RowStore, RowView, row_blocks
from classnorm.encoders import recorded_encoder
from classnorm.errors import ConfigError, DataError, ModelError, ModelWarning
from classnorm.methods import FitJob, MethodConfig, ZeroShotModel
from classnorm.methods.model import ExampleSpace
from classnorm.metrics import Average, BestScores, Calibration, best_seen_and_unseen, softmax
from classnorm.preparation import encode_images
from classnorm.scoring.answers import Answers, Question, Top, answers
from classnorm.scoring.class_vectors import (
    ClassVectors,
    adapted,
    as_tensor,
    summed,
    transformed,
    with_likely_descriptors,
)
from classnorm.scoring.classes import ClassTable, Origin
from classnorm.scoring.explanation import Explainer
from classnorm.scoring.storage import read_model, write_model
from classnorm.scoring.text_explanation import explain_texts
from classnorm.scoring.validation import DescriptionWeight, Validation
from classnorm.training import Device, pick_dtype

_SMALLER = 4  # blocks of rows that are not in memory are smaller by this factor: the next one is read meanwhile

Rows = npt.ArrayLike | RowStore | RowView
"""Features [n, d_z]."""


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores features against classes. Immutable: `add_classes`, `add_examples`, `only` and `calibrated` return a new
    scorer."""

    model: ZeroShotModel
    method: str
    config: MethodConfig
    d_z: int
    classes: ClassTable
    validation: Validation = field(default_factory=Validation)
    origin: Origin = field(default_factory=Origin)
    block_bytes: int = 1 << 26
    """Memory of a block of scores, prototypes or rows: for any number of rows, work beyond the vectors of the classes
    takes a few blocks. Much smaller ones are slower: for 20,000 classes 64 MB hold 800 rows, 8 MB only 100."""

    @classmethod
    def of(cls, job: FitJob, model: ZeroShotModel, validation: Validation | None = None) -> Self:
        """The scorer of a model that a job has trained; uncalibrated without a validation."""
        data = job.dataset
        classes = ClassTable(data.class_names, data.descriptors, data.seen)
        origin = Origin(data.provenance.encoder, data.provenance.of_text, data.attribute_names)
        return cls(model, job.method.name, job.config, data.d_z, classes, validation or Validation(), origin)

    def __repr__(self) -> str:
        sizes = f"{self.seen.sum()} seen and {(~self.seen).sum()} unseen classes"
        return f"Scorer(method={self.method!r}, {sizes}, calibration={str(self.calibration)!r})"

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.classes.names

    @property
    def descriptors(self) -> npt.NDArray[np.float32]:
        """[n_classes, d_a]"""
        return self.classes.descriptors

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """[n_classes]"""
        return self.classes.seen

    @property
    def calibration(self) -> Calibration:
        return self.validation.calibration

    @property
    def temperature(self) -> float:
        return self.validation.temperature

    @property
    def attribute_names(self) -> tuple[str, ...] | None:
        """[d_a], the columns of the descriptors, if they have names."""
        return self.origin.attribute_names

    @property
    def d_a(self) -> int:
        return self.classes.d_a

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def is_transductive(self) -> bool:
        """Whether it has learnt from unlabelled pictures."""
        return bool(self.classes.unlabelled.names)

    def prototypes(self) -> npt.NDArray[np.float32]:
        """The representation of each class, [n_classes, d]."""
        return np.array(self._prototypes.cpu().numpy())

    @cached_property
    def _prototypes(self) -> torch.Tensor:
        return self.vectors.prototypes()

    @cached_property
    def vectors(self) -> ClassVectors:
        """What rows are compared with. Computed once: a scorer and its model do not change."""
        block = max(1, self.block_bytes // (4 * max(self.d_a, self.d_z, int(self.seen.sum()))))
        return ClassVectors.of(self.model, self.classes, self.description_weight, block, self._dtype)

    @property
    def description_weight(self) -> DescriptionWeight:
        """The weight of descriptions against pictures."""
        if self.validation.description_weight is not None:
            return self.validation.description_weight
        space = self.model.example_space()
        return DescriptionWeight.default(self.calibration, space is not None and space.variance is not None)

    def example_space(self) -> ExampleSpace:
        """Where the model averages pictures and prototypes."""
        space = self.model.example_space()
        if space is None:
            raise ConfigError(
                f"{self.method} with these settings cannot learn from single pictures: its prototypes are no points "
                "among the features; docs/few-shot.md names the methods that can"
            )
        return space

    @property
    def _dtype(self) -> torch.dtype:
        """The type of products: float32 also on a device that has no use for the precision of the training."""
        try:
            return pick_dtype(getattr(self.config, "precision", "float32"), self.device) or torch.float32
        except ConfigError:
            return torch.float32

    def logits(self, features: Rows) -> npt.NDArray[np.float32]:
        """Uncalibrated scores, [n, d_z] → [n, n_classes]. Features may be memory-mapped, in a store, or float16."""
        rows = self._rows(features)
        result = np.empty((len(rows), len(self.class_names)), dtype=np.float32)
        for part, block in self._blocks(rows):
            result[part] = block.cpu().numpy()
        return result

    def logit_blocks(self, features: Rows) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """The `logits` of some rows at a time, with the positions of the rows: memory does not grow with the rows. A
        block may use the memory of the one before."""
        for part, block in self._blocks(self._rows(features)):
            yield part, block.cpu().numpy()

    def best_scores(self, features: Rows, labels: npt.ArrayLike, average: Average = "class") -> BestScores:
        """Uncalibrated scores of the best seen and unseen class of each row, from which all accuracies follow."""
        index = np.asarray(labels)
        parts = [best_seen_and_unseen(np.empty((0, len(self.seen))), index[:0], self.seen, average)]
        for part, block in self._blocks(self._rows(features)):
            parts.append(best_seen_and_unseen(block.cpu().numpy(), index[part], self.seen, average))
        return BestScores.joined(parts)

    def scores(self, features: Rows) -> npt.NDArray[np.float64]:
        """Calibrated scores, [n, n_classes]."""
        return self.calibration.apply(self.logits(features), self.seen)

    def probabilities(self, features: Rows) -> npt.NDArray[np.float64]:
        """Softmax of the calibrated scores divided by the temperature, [n, n_classes]."""
        rows = self._rows(features)
        result = np.empty((len(rows), len(self.class_names)))
        for part, block in self.logit_blocks(rows):
            result[part] = softmax(self.calibration.apply(block, self.seen), self.temperature)
        return result

    def answers(self, features: Rows, top: int = 1, novelty: bool = False, coverage: float | None = None) -> Answers:
        """All that a model says of rows, in one pass: the `top` best classes and, if asked, how novel each row is, and
        the smallest set of classes that holds the right one with the probability `coverage`.

        Memory is bounded for any number of rows: scores are computed in blocks of `block_bytes`.
        """
        if min(top, len(self.class_names)) < 1:
            raise ConfigError(f"top needs at least 1 class per row, not {min(top, len(self.class_names))}")
        limits = None if coverage is None else self._set_limits(coverage)
        logits = (block for _, block in self._blocks(self._rows(features)))
        return answers(logits, self.seen, self.validation, Question(top, novelty, limits))

    def top(self, features: Rows, k: int = 5) -> Top:
        """The k best classes of each row by `scores`; of equal scores, the first class wins."""
        return self.answers(features, k).top

    def predict(self, features: Rows) -> list[str]:
        """The name of the best class of each row."""
        return [self.class_names[c] for c in self.top(_checked(features), 1).indices[:, 0]]

    def predict_images(self, images: Sequence[Path | str], weights: Path | str | None = None) -> list[str]:
        """The name of the best class of each image file, encoded like those that the model was trained on.

        Args:
            weights: of the encoder, if they are not its default ones.
        """
        if self.origin.encoder is None:
            raise ModelError(
                "the model was trained on features and does not know their encoder; encode the images and use predict"
            )
        encoder = recorded_encoder(self.origin.encoder, weights)
        features, reasons = encode_images([Path(image) for image in images], encoder, self.device)
        for image, reason in zip(images, reasons, strict=True):
            if reason:
                raise DataError(f"{image}: {reason}")
        return self.predict(features)

    def novelty(self, features: Rows) -> npt.NDArray[np.float64]:
        """How little each row looks like any of the classes, [n]; higher is more novel. Comparable between rows."""
        novelty = self.answers(features, novelty=True).novelty
        assert novelty is not None
        return novelty

    def novelty_threshold(self, reject: float) -> float:
        """The `novelty` above which a row is of no known class, if the share `reject` of known rows may exceed it."""
        return self.validation.novelty_threshold(reject, self.seen, self._shares())

    def known(self, features: Rows, reject: float = 0.05) -> npt.NDArray[np.bool_]:
        """Whether each row is of one of the classes, [n]; about the share `reject` of those that are is missed."""
        threshold = self.novelty_threshold(reject)
        return self.novelty(features) <= threshold

    def prediction_sets(self, features: Rows, coverage: float = 0.9) -> list[list[str]]:
        """The smallest set of classes of each row, best first, that holds the right one with this probability."""
        sets = self.answers(features, coverage=coverage).sets
        assert sets is not None
        return [[self.class_names[c] for c in chosen] for chosen in sets]

    def check_question(self, reject: float | None, coverage: float | None) -> None:
        """Raise if validation has no thresholds for what is to be asked."""
        if reject is not None:
            self.novelty_threshold(reject)
        if coverage is not None:
            self._set_limits(coverage)

    def _set_limits(self, coverage: float) -> npt.NDArray[np.float64]:
        return self.validation.set_limits(coverage, self.seen, self._shares())

    def _shares(self) -> npt.NDArray[np.float64] | None:
        """The weights of labelled and of unlabelled pictures in the prototypes of unseen classes, [2, n_classes]."""
        if not self.classes.pictures.names or self.vectors.corrections is None:
            return None
        return self.vectors.corrections.shares

    def _rows(self, features: Rows) -> Features | RowView:
        rows = features if isinstance(features, RowStore | RowView) else np.asanyarray(features)
        if rows.ndim != 2 or rows.shape[1] != self.d_z:
            raise DataError(f"features have shape {rows.shape}, but the model was trained on [n, {self.d_z}]")
        return rows

    @torch.inference_mode()
    def _blocks(self, rows: Features | RowView) -> Iterator[tuple[slice, torch.Tensor]]:
        """Logits of as many rows at a time as the memory limit allows. A block may use the memory of that before."""
        n_classes = len(self.class_names)
        size = max(1, self.block_bytes // (4 * max(n_classes, self.d_z)))
        size = size if isinstance(rows, np.ndarray) else -(-size // _SMALLER)
        buffer = torch.empty(min(size, len(rows)), n_classes, device=self.device)
        for part, array in row_blocks(rows, size):
            yield part, self.vectors.logits(self.vectors.rows(as_tensor(self.model, array)), buffer)

    def explain(self, features: Rows, top: int = 10) -> list[dict[str, Any]]:
        """Why the best class of each row and not the second best, see `scoring.explanation`.

        Returns:
            One dict per row: ``class`` and ``against``, the two classes; ``difference`` of their calibrated scores;
            ``attributes``, the `top` largest contributions, each with ``name``, signed ``contribution`` and the
            ``value`` and ``value_against`` in the two descriptors, then entries for ``other attributes``, the
            ``calibration`` and ``examples`` of classes, so that all add up to the difference; ``by``, how they are
            computed; ``neighbours``, the training classes that the prototype of ``class`` leans on, each with
            ``class`` and ``weight``; ``neighbours_by``, what the weights are.

        Raises:
            ConfigError: the scores of the method are not a continuous function of the descriptors.
        """
        rows = self._rows(_checked(features))
        return self._explainer.explain(rows, self.top(rows, 2), top)

    def explain_texts(
        self,
        features: Rows,
        texts: Mapping[str, Sequence[str]],
        encode: Callable[[Sequence[str]], npt.NDArray[np.float32]],
        top: int = 10,
    ) -> list[dict[str, Any]]:
        """Like `explain`, with sentences or words of the descriptions in place of attributes.

        Args:
            texts: the sentences that describe each class.
            encode: sentences → vectors [n, d_a], as the descriptors of the model were made.
        """
        rows = self._rows(_checked(features))
        return explain_texts(self._explainer, self._explainer.pairs(rows, self.top(rows, 2), top), texts, encode, top)

    @property
    def _explainer(self) -> Explainer:
        return Explainer(self.model, self.classes, self.calibration, self.attribute_names)

    def explain_class(self, name: str, features: Rows | None = None, top: int = 10) -> dict[str, Any]:
        """What the model believes about a class and, given rows of it, which attributes it would need to be right.

        Args:
            features: [n, d_z], rows that are known to be of this class.

        Returns:
            ``class`` and ``kind``; ``attributes``, the `top` that the prototype depends on most, each with ``name``,
            ``weight`` (how far the prototype moves, relative to its length, if the attribute is set to its mean),
            ``value`` and ``mean``; ``similar``, the classes with the most similar prototypes; ``neighbours`` as in
            `explain`. With rows: ``rows``, ``right``, ``mistaken_for``; ``short_by``, how much the score lacks on
            average where it is wrong; ``needs``, the attributes whose change would help most there, each with
            ``change``, up or down by the standard deviation between classes, and ``gain``, what it adds to the score.
        """
        rows = None if features is None else self._rows(_checked(features))
        document = self._explainer.of_class(name, self.prototypes(), top)
        if rows is None:
            return document
        return document | self._explainer.mistakes(name, rows, self.top(rows, 1), self.scores, top)

    def add_classes(
        self,
        descriptors: Mapping[str, npt.ArrayLike] | Any,
        where: str = "new classes",
        examples: Mapping[str, npt.ArrayLike] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Self:
        """A scorer with additional unseen classes.

        Known classes are skipped if their descriptor is the same (tables often list all classes); a different one is
        an error.

        Args:
            descriptors: class name → vector [d_a], or a DataFrame indexed by class. Columns of a DataFrame that have
                names are matched with `attribute_names`.
            examples: features [n, d_z] of pictures by class. A class may have pictures and no descriptor.
            columns: the names of the attributes in the vectors, if they may be in another order than the model's.
        """
        descriptors = aligned(descriptors)
        if is_frame(descriptors):
            columns = column_names(descriptors)
            descriptors = descriptor_table(descriptors, np.array(self.class_names))
        order = None
        if descriptors and columns and self.attribute_names:
            order = attribute_order(columns, self.attribute_names, where)
        classes = self.classes.with_descriptors(descriptors, where, order)
        added = self if classes is self.classes else replace(self, classes=classes)
        if not examples:
            return added
        tables = {name: _checked(np.atleast_2d(np.asarray(rows))) for name, rows in examples.items()}
        for name, table in tables.items():
            added = added._with_examples(self._rows(table), [name] * len(table), where)
        return added

    def add_examples(self, features: Rows, labels: Sequence[str] | str, where: str = "examples") -> Self:
        """A scorer that also knows some classes by pictures, seen or unseen ones; see `scoring.class_vectors`.

        The result does not depend on the order of the pictures, or on how they are divided among calls.

        Args:
            features: [n, d_z]
            labels: [n] class names, in any spelling, or one for all rows. One that the model does not know is a new
                class without a description; a warning says if it looks like a known one.

        Raises:
            ConfigError: pictures cannot correct the prototypes of the method.
        """
        rows = self._rows(_checked(features))
        names = [labels] * len(rows) if isinstance(labels, str) else np.asarray(labels, dtype=object).tolist()
        added = self._with_examples(rows, names, where)
        if mistaken := lookalike(added.class_names[len(self.class_names) :], self.class_names):
            name, near = mistaken
            warnings.warn(f"{where}: {name!r} is a new class; did you mean {near!r}?", ModelWarning, stacklevel=2)
        return added

    def _with_examples(self, rows: Features | RowView, labels: Sequence[str], where: str) -> Self:
        if len(rows) != len(labels):
            raise DataError(f"{where}: {len(rows)} rows of features, but {len(labels)} labels")
        wrong = next((label for label in labels if not isinstance(label, str) or not label), None)
        if wrong is not None:
            raise DataError(f"{where}: labels must be class names, not {wrong!r}")
        self.example_space()
        if not len(rows):
            return self
        labels = respelled(labels, self.class_names)
        examples = summed(self.model, rows, labels, max(1, self.block_bytes // (8 * self.d_z)))
        classes = self.classes.with_examples(examples)
        if classes.undescribed.intersection(examples.names):
            classes = with_likely_descriptors(self.model, classes)
        return replace(self, classes=classes)

    def without_examples(self, names: Sequence[str] | str | None = None) -> Self:
        """A scorer without the pictures, labelled or not, of one or several named classes, or of all. Classes that are
        known by pictures alone disappear."""
        return replace(self, classes=self.classes.without_examples(names))

    def adapt(self, features: Rows, force: bool = False) -> Self:
        """A *transductive* scorer, which has learnt from unlabelled pictures; see `scoring.unlabelled`.

        Pictures are added to those of earlier calls. If validation found that they would not help, a warning says so
        and the scorer is returned as it is.

        Args:
            features: [n, d_z]
            force: adapt in any case.

        Raises:
            ConfigError: pictures cannot correct the prototypes of the method.
        """
        rows, gain = self._rows(_checked(features)), self.description_weight.unlabelled_gain
        self.example_space()
        if gain is not None and gain <= 0.0 and not force:
            reason = f"on validation splits, unlabelled pictures did not help: they changed H by {gain:.2f} points"
            advice = "the model is left as it is (`force` adapts it all the same)"
            warnings.warn(f"{reason}; {advice}", ModelWarning, stacklevel=2)
            return self
        if not len(rows):
            return self
        blocks = transformed(self.vectors, rows, self.block_bytes)
        after = adapted(self.vectors, self.calibration, self.temperature, blocks)
        return replace(
            self, classes=after.classes, validation=replace(self.validation, description_weight=after.weight)
        )

    def only(self, names: Sequence[str] | str) -> Self:
        """A scorer restricted to the named classes, in this order."""
        return replace(self, classes=self.classes.only(names))

    def calibrated(self, calibration: Calibration, temperature: float | None = None) -> Self:
        """A scorer with another calibration and, if given, another temperature."""
        temperature = self.temperature if temperature is None else temperature
        return replace(self, validation=replace(self.validation, calibration=calibration, temperature=temperature))

    def save(self, folder: Path | str) -> Path:
        """Write `model.safetensors` and `model.json` into `folder`, and return it."""
        about = {"method": self.method, "config": self.config.as_dict(), "feature_dim": self.d_z}
        about |= {"descriptor_dim": self.d_a, **self.validation.document(), **self.classes.document()}
        weights = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        return write_model(Path(folder), about, weights, self.classes.tensors(), self.origin)

    @classmethod
    def load(cls, path: Path | str, device: Device = "auto") -> Scorer:
        """Load a saved scorer; `path` is the folder or either of its files."""
        return cls(**read_model(Path(path), device))


def _checked(features: Rows) -> Features | RowView:
    """The features, without NaN and infinity."""
    return features if isinstance(features, RowView) else check_features(features, "features")
