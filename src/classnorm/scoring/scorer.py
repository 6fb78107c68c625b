"""`Scorer`: a trained model together with its classes, for prediction, saving and loading."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import torch

from classnorm.data.checks import check_features
from classnorm.data.descriptions import lookalike, respelled
from classnorm.data.descriptor_tables import aligned, column_names, descriptor_table, is_frame
from classnorm.data.row_store import Features, FloatArray, RowStore, RowView, row_blocks
from classnorm.errors import ConfigError, DataError, ModelWarning, unknown_name
from classnorm.methods import FitJob, MethodConfig, ProductModel, ZeroShotModel
from classnorm.metrics import Average, Calibration, SideScores, side_scores, softmax
from classnorm.scoring.class_explanation import explain_class
from classnorm.scoring.classes import described
from classnorm.scoring.conformal import PredictionSets, prediction_sets
from classnorm.scoring.examples import Examples, Trust, add_examples, corrected, description_weights, penalties
from classnorm.scoring.explanation import explain
from classnorm.scoring.images import image_features
from classnorm.scoring.novelty import Rejection, novelty
from classnorm.scoring.ranking import Top, top_classes
from classnorm.scoring.storage import save_scorer, saved_fields
from classnorm.scoring.thresholds import PictureThresholds, novelty_threshold, set_limits
from classnorm.scoring.unlabelled import adapted, place
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
    class_names: tuple[str, ...]
    descriptors: npt.NDArray[np.float32]  # [n_classes, d_a]
    seen: npt.NDArray[np.bool_]  # [n_classes]
    d_z: int
    calibration: Calibration = field(default_factory=Calibration)
    temperature: float = 1.0
    """Divides the calibrated scores before the softmax; changes probabilities, not predictions."""
    rejection: Rejection | None = None
    """Chosen by validation: what tells rows of no known class apart. None without validation."""
    sets: PredictionSets | None = None
    """From validation: how probable the right class of a row is. None without validation."""
    after_pictures: tuple[PictureThresholds, ...] = ()
    """From validation: the same two after pictures; empty in models of earlier versions."""
    block_bytes: int = 1 << 26
    """Memory of a block of scores, prototypes or rows: for any number of rows, work beyond the vectors of the classes
    takes a few blocks. Much smaller ones are slower: for 20,000 classes 64 MB hold 800 rows, 8 MB only 100."""

    attribute_names: tuple[str, ...] | None = None  # [d_a], columns of the descriptors
    described_by: Mapping[str, str] = field(default_factory=dict)
    """The text encoder and the templates that made the descriptors; empty for attributes and if unknown."""
    encoder: Mapping[str, Any] | None = None
    """The record of the image encoder that made the features (`Encoder.record`), if known."""

    examples: Examples = field(default_factory=Examples)
    """Labelled pictures that correct the prototypes of their classes."""
    unlabelled: Examples = field(default_factory=Examples)
    """The shares of unlabelled pictures in the classes."""
    undescribed: frozenset[str] = frozenset()
    """Classes known by pictures alone; their descriptors are guesses without weight."""
    trust: Trust | None = None
    """The weight of descriptions against pictures; None for a default."""

    @classmethod
    def of(cls, job: FitJob, model: ZeroShotModel) -> Self:
        """The uncalibrated scorer of a model that a job has trained."""
        data = job.dataset
        return cls(
            model,
            job.method.name,
            job.config,
            data.class_names,
            data.descriptors,
            data.seen,
            data.d_z,
            attribute_names=data.attribute_names,
            described_by=data.described_by,
            encoder=data.encoder_record,
        )

    def __repr__(self) -> str:
        sizes = f"{self.seen.sum()} seen and {(~self.seen).sum()} unseen classes"
        return f"Scorer(method={self.method!r}, {sizes}, calibration={str(self.calibration)!r})"

    @property
    def d_a(self) -> int:
        return int(self.descriptors.shape[1])

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def prototypes(self) -> npt.NDArray[np.float32]:
        """The representation of each class, [n_classes, d]."""
        return np.array(self._prototypes.cpu().numpy())

    @cached_property
    def _prototypes(self) -> torch.Tensor:
        return self._of_classes(slice(None), lambda prototypes: prototypes)

    @cached_property
    def _table(self) -> torch.Tensor:
        """Computed once: a scorer and its model do not change."""
        return self._table_of(slice(None))

    def _table_of(self, classes: slice) -> torch.Tensor:
        """What logits are computed from: the vectors of the classes, or prototypes if the model has no vectors."""
        model = self.model
        if isinstance(model, ProductModel):
            dtype = self._dtype
            return self._of_classes(classes, lambda prototypes: model.class_vectors(prototypes).to(dtype))
        return self._of_classes(classes, lambda prototypes: prototypes)

    @torch.inference_mode()
    def _of_classes(self, classes: slice, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """A function of prototypes, in blocks of classes: a method may compare them with all seen classes."""
        self.model.eval()
        start, stop, _ = classes.indices(len(self.descriptors))
        size = max(1, self.block_bytes // (4 * max(self.d_a, self.d_z, int(self.seen.sum()))))
        starts = range(start, max(stop, start + 1), size)
        return torch.cat([function(self._prototypes_of(i, min(i + size, stop))) for i in starts])

    def _prototypes_of(self, start: int, stop: int) -> torch.Tensor:
        """From the descriptors, and from the examples of classes that have any."""
        prototypes = self.model.prototypes(self.as_tensor(self.descriptors[start:stop]))
        if self.has_examples:
            classes, corrections = self._corrected
            low, high = np.searchsorted(classes, [start, stop])
            prototypes[torch.from_numpy(classes[low:high] - start).to(self.device)] = corrections[low:high]
        return prototypes

    @property
    def has_examples(self) -> bool:
        """Whether pictures, labelled or not, correct any prototype."""
        return bool(self.pictures.names)

    @cached_property
    def pictures(self) -> Examples:
        """Labelled and unlabelled ones."""
        return self.examples.plus(self.unlabelled)

    @cached_property
    def description_weights(self) -> npt.NDArray[np.float64]:
        """The weights of the descriptions in the prototypes of the classes in `pictures`."""
        return description_weights(self)

    @cached_property
    def _corrected(self) -> tuple[npt.NDArray[np.int64], torch.Tensor]:
        return corrected(self)

    @cached_property
    def _penalties(self) -> torch.Tensor:
        """Of classes with examples, [n_classes]."""
        return torch.from_numpy(penalties(self)).to(self.device)

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
        for part, block in self.class_blocks(rows, slice(None)):
            result[part] = block.cpu().numpy()
        return result

    def logit_blocks(self, features: Rows) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """The `logits` of some rows at a time, with the positions of the rows: memory does not grow with the rows. A
        block may use the memory of the one before."""
        for part, block in self.class_blocks(self._rows(features), slice(None)):
            yield part, block.cpu().numpy()

    def sides(self, features: Rows, labels: npt.ArrayLike, average: Average = "class") -> SideScores:
        """Uncalibrated scores of the best seen and unseen class of each row, from which all accuracies follow."""
        index = np.asarray(labels)
        parts = [side_scores(np.empty((0, len(self.seen))), index[:0], self.seen, average)]
        parts += [side_scores(block, index[part], self.seen, average) for part, block in self.logit_blocks(features)]
        return SideScores.joined(parts)

    def scores(self, features: Rows) -> npt.NDArray[np.float64]:
        """Calibrated scores, [n, n_classes]."""
        return self.calibration.apply(self.logits(features), self.seen)

    def probabilities(self, features: Rows) -> npt.NDArray[np.float64]:
        """Softmax of the calibrated scores divided by the temperature, [n, n_classes]."""
        rows = self._rows(features)
        result = np.empty((len(rows), len(self.class_names)))
        for part, block in self.class_blocks(rows, slice(None)):
            result[part] = softmax(self.calibration.apply(block.cpu().numpy(), self.seen), self.temperature)
        return result

    def top(self, features: Rows, k: int = 5) -> Top:
        """The k best classes of each row by `scores`; of equal scores, the first class wins.

        Memory is bounded for any number of rows and classes: scores and prototypes are computed in blocks of
        `block_bytes`.
        """
        return top_classes(self, self._rows(features), k)

    def _rows(self, features: Rows) -> Features | RowView:
        rows = features if isinstance(features, RowStore | RowView) else np.asanyarray(features)
        if rows.ndim != 2 or rows.shape[1] != self.d_z:
            raise DataError(f"features have shape {rows.shape}, but the model was trained on [n, {self.d_z}]")
        return rows

    @torch.inference_mode()
    def class_blocks(self, rows: Features | RowView, classes: slice) -> Iterator[tuple[slice, torch.Tensor]]:
        """Logits of some classes, for as many rows at a time as the memory limit allows. A block may use the memory of
        the one before."""
        n_classes = len(self.descriptors[classes])
        is_all = n_classes == len(self.descriptors)
        table = self._table if is_all else self._table_of(classes)
        size = max(1, self.block_bytes // (4 * max(n_classes, self.d_z)))
        size = size if isinstance(rows, np.ndarray) else -(-size // _SMALLER)
        buffer = torch.empty(min(size, len(rows)), n_classes, device=self.device)
        for part, array in row_blocks(rows, size):
            yield part, self._logits_of(self.row_vectors(self.as_tensor(array)), table, classes, buffer)

    def row_vectors(self, block: torch.Tensor) -> torch.Tensor:
        """What the logits of rows [n, d_z] are computed from. It depends on the model alone, not on the classes."""
        return self.model.row_vectors(block) if isinstance(self.model, ProductModel) else block

    def products(self, vectors: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
        """The logits of rows given by their `row_vectors` for classes given by prototypes."""
        if isinstance(self.model, ProductModel):
            return vectors @ self.model.class_vectors(prototypes).T
        return self.model.logits(vectors, prototypes)

    def logits_of(self, vectors: torch.Tensor) -> torch.Tensor:
        """The logits [n, n_classes] of rows given by their `row_vectors`."""
        return self._logits_of(vectors, self._table, slice(None))

    def _logits_of(
        self, vectors: torch.Tensor, table: torch.Tensor, classes: slice, buffer: torch.Tensor | None = None
    ) -> torch.Tensor:
        if not isinstance(self.model, ProductModel):
            logits = self.model.logits(vectors, table).float()
        elif table.dtype == torch.float32:
            logits = torch.mm(vectors, table.T, out=None if buffer is None else buffer[: len(vectors)])
        else:
            logits = (vectors.to(table.dtype) @ table.T).float()
        return logits.sub_(self._penalties[classes]) if self.has_examples else logits

    def predict(self, features: Rows) -> list[str]:
        """The name of the best class of each row."""
        return [self.class_names[c] for c in self.top(_checked(features), 1).indices[:, 0]]

    def predict_images(self, images: Sequence[Path | str], weights: Path | str | None = None) -> list[str]:
        """The name of the best class of each image file, encoded like those that the model was trained on.

        Args:
            weights: of the encoder, if they are not its default ones.
        """
        return self.predict(image_features(self, images, weights))

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
        return explain(self, self._rows(_checked(features)), top)

    def novelty(self, features: Rows) -> npt.NDArray[np.float64]:
        """How little each row looks like any of the classes, [n]; higher is more novel. Comparable between rows."""
        return novelty(self, features)

    def novelty_threshold(self, reject: float) -> float:
        """The `novelty` above which a row is of no known class, if the share `reject` of known rows may exceed it."""
        return novelty_threshold(self, reject)

    def known(self, features: Rows, reject: float = 0.05) -> npt.NDArray[np.bool_]:
        """Whether each row is of one of the classes, [n]; about the share `reject` of those that are is missed."""
        threshold = self.novelty_threshold(reject)
        return self.novelty(features) <= threshold

    def prediction_sets(self, features: Rows, coverage: float = 0.9) -> list[list[str]]:
        """The smallest set of classes of each row, best first, that holds the right one with this probability."""
        return prediction_sets(self, features, set_limits(self, coverage))

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
        return explain_class(self, name, None if features is None else self._rows(_checked(features)), top)

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
        added = cast(Self, described(self, descriptors, where, columns))
        if not examples:
            return added
        tables = {name: _checked(np.atleast_2d(np.asarray(rows))) for name, rows in examples.items()}
        for name, table in tables.items():
            added = cast(Self, add_examples(added, self._rows(table), [name] * len(table), where))
        return added

    def add_examples(self, features: Rows, labels: Sequence[str] | str, where: str = "examples") -> Self:
        """A scorer that also knows some classes by pictures, seen or unseen ones; see `scoring.examples`.

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
        added = cast(Self, add_examples(self, rows, names, where))
        if mistaken := lookalike(added.class_names[len(self.class_names) :], self.class_names):
            name, near = mistaken
            warnings.warn(f"{where}: {name!r} is a new class; did you mean {near!r}?", ModelWarning, stacklevel=2)
        return added

    def without_examples(self, names: Sequence[str] | str | None = None) -> Self:
        """A scorer without the pictures, labelled or not, of one or several named classes, or of all. Classes that are
        known by pictures alone disappear."""
        forgotten = set(self.class_names if names is None else self._known(names))
        kept = [name for name in self.class_names if name not in forgotten]
        rest = replace(self, examples=self.examples.of(kept), unlabelled=self.unlabelled.of(kept))
        gone = self.undescribed & forgotten
        return rest.only([name for name in self.class_names if name not in gone]) if gone else rest

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
        rows, gain = self._rows(_checked(features)), None if self.trust is None else self.trust.unlabelled_gain
        placed = place(self, rows)
        if gain is not None and gain <= 0.0 and not force:
            reason = f"on validation splits, unlabelled pictures did not help: they changed H by {gain:.2f} points"
            advice = "the model is left as it is (`force` adapts it all the same)"
            warnings.warn(f"{reason}; {advice}", ModelWarning, stacklevel=2)
            return self
        return cast(Self, adapted(self, placed)) if len(rows) else self

    def _known(self, names: Sequence[str] | str) -> Sequence[str]:
        """The names, or the single one, as the scorer spells them."""
        names = respelled([names] if isinstance(names, str) else names, self.class_names)
        known = set(self.class_names)
        unknown = next((name for name in names if name not in known), None)
        if unknown is not None:
            raise unknown_name("class", unknown, self.class_names)
        return names

    def only(self, names: Sequence[str] | str) -> Self:
        """A scorer restricted to the named classes, in this order."""
        position = {name: i for i, name in enumerate(self.class_names)}
        names = self._known(names)
        index = np.array([position[name] for name in dict.fromkeys(names)], dtype=np.int64)
        return replace(
            self,
            class_names=tuple(self.class_names[i] for i in index),
            descriptors=self.descriptors[index],
            seen=self.seen[index],
            examples=self.examples.of(names),
            unlabelled=self.unlabelled.of(names),
            undescribed=self.undescribed.intersection(names),
        )

    def calibrated(self, calibration: Calibration, temperature: float | None = None) -> Self:
        """A scorer with another calibration and, if given, another temperature."""
        temperature = self.temperature if temperature is None else temperature
        return replace(self, calibration=calibration, temperature=temperature)

    def as_tensor(self, array: FloatArray) -> torch.Tensor:
        """A float32 copy on the device of the model."""
        return torch.from_numpy(np.array(array, dtype=np.float32)).to(self.device)  # a copy: memory maps are read-only

    def save(self, folder: Path | str) -> Path:
        """Write `model.safetensors` and `model.json` into `folder`, and return it."""
        return save_scorer(self, Path(folder))

    @classmethod
    def load(cls, path: Path | str, device: Device = "auto") -> Scorer:
        """Load a saved scorer; `path` is the folder or either of its files."""
        return cls(**saved_fields(Path(path), device))


def _checked(features: Rows) -> Features | RowView:
    """The features, without NaN and infinity."""
    return features if isinstance(features, RowView) else check_features(features, "features")
