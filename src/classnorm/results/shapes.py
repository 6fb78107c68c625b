"""The shapes of the documents in a run folder: what reports may rely on."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from classnorm.io.documents import Count, Positive, Within

Percent = Annotated[float, Within(0, 100.01)] | None
"""Null if undefined: JSON has no NaN."""
Seconds = Annotated[float, Within(0, 1e12)]
Forgetting = Annotated[float, Within(-1.01, 1.01)] | None
Coordinate = Annotated[float, Within(-1e15, 1e15)]


class Sizes(TypedDict):
    train_rows: Count
    test_seen_rows: Count
    test_unseen_rows: Count
    seen_classes: Count
    unseen_classes: Count
    feature_dim: Count


class _Dataset(TypedDict):
    name: str
    checksum: str
    split_version: NotRequired[str]
    split_checksum: str
    provenance: dict[str, str]


class RunDataset(_Dataset):
    sizes: Sizes


class StreamDataset(_Dataset):
    sizes: NotRequired[dict[str, Count]]


class _Document(TypedDict):
    key: NotRequired[str]
    kind: NotRequired[Literal["run", "stream"]]
    config: dict[str, Any]
    seed: Count
    train_seconds: Seconds
    device: NotRequired[str]
    threads: NotRequired[int]
    versions: dict[str, str]
    command: NotRequired[str]
    label: NotRequired[str]
    created: NotRequired[str]


class Scores(TypedDict):
    unseen: Percent
    seen: Percent
    harmonic: Percent
    zsl: Percent
    ausuc: Percent


class Curves(TypedDict):
    value: list[Coordinate]
    unseen: list[Percent]
    seen: list[Percent]
    harmonic: list[Percent]


class Validation(TypedDict):
    harmonic: Percent
    splits: Count
    kind: str
    curves: NotRequired[dict[str, Curves] | None]


class RunDocument(_Document):
    """`result.json` of a run of a method."""

    dataset: RunDataset
    method: str
    recipe: str
    scores: Scores
    calibration: str
    validation: NotRequired[Validation | None]
    choices: NotRequired[dict[str, Any]]
    fit_seconds: Seconds
    parameters: NotRequired[Count]


class Stream(TypedDict):
    tasks: list[Positive]
    checksum: str
    image_split: str
    part: list[Count | None]
    arrivals: NotRequired[dict[str, float]]


class StreamScores(TypedDict):
    mSA: Percent
    mUA: Percent
    mH: Percent
    mAUC: Percent
    mJA: Percent
    forgetting: Forgetting


class Step(TypedDict):
    seen: Percent
    unseen: Percent
    harmonic: Percent
    ausuc: Percent
    joint: Percent
    forgetting: Forgetting


class Chosen(TypedDict):
    settings: list[str]
    by: str


class StreamDocument(_Document):
    """`result.json` of a stream."""

    dataset: StreamDataset
    stream: Stream
    encoder: str | None
    image_size: int | None
    freeze_blocks: NotRequired[Count]
    strategy: str
    chosen: NotRequired[Chosen | None]
    scores: StreamScores
    per_task: list[Step]
    matrix: list[list[Percent]]
    bias_curve: NotRequired[dict[str, list[Coordinate | None]]]


class EpochRecord(TypedDict):
    """A line of `history.jsonl`."""

    epoch: NotRequired[Count]
    loss: NotRequired[Coordinate]


Side = Annotated[int, Within(1, 1 << 13)]


class Preprocessing(TypedDict):
    resize: Side
    crop: Side
    mean: list[float]
    std: list[float]


class PartRecord(TypedDict):
    """One of several encoders in `encoder.json`."""

    name: str
    weights: str
    sha256: str
    d_z: int
    preprocessing: Preprocessing
    flip: NotRequired[bool]


class EncoderRecord(TypedDict):
    """`encoder.json`."""

    name: str
    weights: str
    sha256: str
    preprocessing: Preprocessing
    flip: NotRequired[bool]
    parts: NotRequired[list[PartRecord]]


class CellShape(TypedDict):
    text: str
    rank: NotRequired[Literal[1, 2] | None]


class TableShape(TypedDict):
    title: str
    header: list[str]
    body: list[list[CellShape]]


class SeriesShape(TypedDict):
    label: str
    model: str
    x: list[Coordinate]
    y: list[Coordinate]
    low: NotRequired[list[Coordinate] | None]
    high: NotRequired[list[Coordinate] | None]
    variant: NotRequired[str]


class PlotShape(TypedDict):
    name: str
    kind: Literal["lines", "boxes", "histogram", "points", "heatmap", "bars"]
    title: str
    x_label: str
    y_label: str
    series: list[SeriesShape]
    log_x: NotRequired[bool]
    log_y: NotRequired[bool]
    lines_at: NotRequired[dict[str, Coordinate]]
    limits: NotRequired[list[Coordinate] | None]
    ticks: NotRequired[list[str]]
    colors: NotRequired[dict[str, str]]


class ArtifactDocument(TypedDict):
    """`artifact.json`."""

    format: Literal["classnorm-artifact"]
    name: str
    title: str
    text: str
    tables: list[TableShape]
    plots: list[PlotShape]
    verdicts: NotRequired[list[dict[str, str | Coordinate | None]]]
    notes: list[str]
    data: dict[str, Any]
