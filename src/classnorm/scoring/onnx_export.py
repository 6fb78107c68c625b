"""A `Scorer` as ONNX graphs, to run with onnxruntime and without PyTorch.

- ``FILE.onnx``: `features` [rows, d_z], `prototypes` [classes, d], `seen` [classes] → calibrated `scores` and
  `probabilities`, both [rows, classes]. Prototypes and seen mask default to the classes of the model. If the model has
  examples, they are in its prototypes, and there is a fourth input, `penalties` [classes], subtracted from the scores
  before the calibration; it is 0 for classes without examples.
  With the image encoder inside, the first input is `images` [rows, size, size, channels] instead of `features`: bytes
  of images that are resized and cropped as the metadata says.
- ``FILE.prototypes.onnx``: `descriptors` [classes, d_a] → `prototypes` [classes, d], for new classes. Descriptors
  default to those of the model.

The metadata of both files holds class names and settings as JSON under the key ``classnorm``; that of the first also
has the checksum of the second.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from classnorm.encoders import Encoder
from classnorm.encoders.joined import JoinedEncoder
from classnorm.errors import ConfigError, OutputError
from classnorm.io.files import replacing
from classnorm.methods.model import ZeroShotModel
from classnorm.scoring.classes import ClassTable
from classnorm.scoring.scorer import Scorer

_IR_VERSION = 10  # supported by onnxruntime since 1.18 (May 2024)
_LARGEST = 2_000_000_000  # bytes; the limit of protobuf and therefore of an ONNX file
_TOLERANCE = 1e-4  # relative to the largest score
_CLASSES = 3  # number of classes in the traced example; PyTorch would take 1 for a constant


class _Scores(nn.Module):
    """Features, prototypes and seen mask → `Scorer.scores` and `Scorer.probabilities`."""

    factors: Tensor  # [2]: of unseen, of seen classes
    shifts: Tensor  # [2]

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.model = scorer.model
        factors, shifts = scorer.calibration.factors_and_shifts([False, True])
        self.register_buffer("factors", torch.from_numpy(factors).float())
        self.register_buffer("shifts", torch.from_numpy(shifts).float())
        self.temperature = scorer.temperature

    def forward(
        self, features: Tensor, prototypes: Tensor, seen: Tensor, penalties: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        logits = self.model.logits(features, prototypes)
        if penalties is not None:
            logits = logits - penalties
        scores = logits * self.factors[seen.long()] - self.shifts[seen.long()]
        return scores, (scores / self.temperature).softmax(dim=1)


class _ImageScores(_Scores):
    """Bytes of resized images [rows, size, size, channels], prototypes and seen mask → scores and probabilities."""

    mean: Tensor  # [channels]
    std: Tensor

    def __init__(self, scorer: Scorer, encoder: Encoder) -> None:
        super().__init__(scorer)
        self.encoder = copy.deepcopy(encoder.module).cpu().eval()
        self.encode = dataclasses.replace(encoder, module=self.encoder).encode
        self.register_buffer("mean", torch.tensor(encoder.preprocessing.mean))
        self.register_buffer("std", torch.tensor(encoder.preprocessing.std))

    def forward(
        self, images: Tensor, prototypes: Tensor, seen: Tensor, penalties: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        pixels = ((images.float() - self.mean) / self.std).permute(0, 3, 1, 2)
        return super().forward(self.encode(pixels), prototypes, seen, penalties)


class _Prototypes(nn.Module):
    """Descriptors → prototypes."""

    def __init__(self, model: ZeroShotModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, descriptors: Tensor) -> Tensor:
        return self.model.prototypes(descriptors)


def export_onnx(scorer: Scorer, path: Path | str, opset: int = 18, encoder: Encoder | None = None) -> list[Path]:
    """Write ``FILE.onnx`` and ``FILE.prototypes.onnx``, and return their paths.

    Methods without a formula for the prototype of a new class (generative ones train it) have only the first file: add
    classes with `Scorer.add_classes` before the export. Nothing is written unless the graphs agree with PyTorch.

    Args:
        path: name of the first file, ending in ``.onnx``.
        opset: version of the ONNX operators, at least 18.
        encoder: image encoder to put into the graph, which then takes images instead of features.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ConfigError(f"{path}: the name of an ONNX file must end in .onnx")
    if isinstance(encoder, JoinedEncoder):
        raise ConfigError(f"{encoder.name}: only one encoder fits into a graph of images; leave out `encoder_inside`")
    onnx = _onnx()
    scorer = dataclasses.replace(scorer, model=copy.deepcopy(scorer.model).cpu().eval())
    table = scorer.prototypes()
    parts = [scorer.model, *([encoder.module] if encoder is not None else [])]
    weights = [tensor for part in parts for tensor in part.state_dict().values()]
    size = table.nbytes + sum(tensor.numel() * tensor.element_size() for tensor in weights)
    if size > _LARGEST:
        raise ConfigError(
            f"the model has {size / 1e9:.1f} GB, an ONNX file at most 2; keep fewer classes (Scorer.only)"
        )
    few = np.zeros(_CLASSES, dtype=np.int64)
    defaults: dict[str, npt.NDArray[Any]] = {"prototypes": table, "seen": scorer.seen}
    if scorer.vectors.penalties is not None:
        defaults["penalties"] = scorer.vectors.penalties.numpy()
    module: nn.Module
    if encoder is None:
        first, example, module = "features", torch.zeros(2, scorer.d_z), _Scores(scorer)
    else:
        first, module = "images", _ImageScores(scorer, encoder)
        shape = (2, encoder.size, encoder.size, len(encoder.preprocessing.mean))
        example = torch.zeros(shape, dtype=torch.uint8)
    inputs = {
        first: example,
        **{name: torch.from_numpy(array[few]) for name, array in defaults.items()},
    }
    try:
        scores = _graph(module, inputs, ["scores", "probabilities"], opset)
    except RuntimeError as error:
        what = f"the method {scorer.method}" if encoder is None else f"{scorer.method} with {encoder.name} inside"
        raise ConfigError(
            f"{what} cannot be exported: ONNX has no form for its scores; predict with PyTorch"
        ) from error
    try:
        descriptors = torch.from_numpy(scorer.descriptors[few])
        prototypes = _graph(_Prototypes(scorer.model), {"descriptors": descriptors}, ["prototypes"], opset)
    except RuntimeError:
        prototypes = None
    graphs = {path: scores}
    about = _about(scorer)
    if encoder is not None:
        about["encoder"] = {"name": encoder.name, "preprocessing": dataclasses.asdict(encoder.preprocessing)}
    second = path.with_suffix(".prototypes.onnx")
    if prototypes is not None:
        graphs[second] = prototypes
        _complete(onnx, prototypes, about, {"descriptors": scorer.descriptors})
        about["prototypes_sha256"] = hashlib.sha256(prototypes.SerializeToString(deterministic=True)).hexdigest()
    _complete(onnx, scores, about, defaults)
    _verify(scorer, scores, prototypes, encoder)
    with ExitStack() as stack:  # both are written before the first is renamed
        for file, graph in graphs.items():
            stack.enter_context(replacing(file)).write_bytes(graph.SerializeToString(deterministic=True))
    if prototypes is None:
        second.unlink(missing_ok=True)  # left over from an earlier export
    return list(graphs)


def _onnx() -> Any:
    """The onnx package; an error if anything the export needs is missing."""
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"export needs {error.name}; pip install 'classnorm[onnx]'") from error
    if "custom_translation_table" not in inspect.signature(torch.onnx.export).parameters:
        raise ConfigError(f"export needs PyTorch 2.6 or later, not {torch.__version__}; pip install -U torch")
    return onnx


def _about(scorer: Scorer) -> dict[str, Any]:
    return {
        "format": "classnorm-onnx",
        "version": 1,
        "method": scorer.method,
        "class_names": list(scorer.class_names),
        "seen": scorer.seen.tolist(),
        "feature_dim": scorer.d_z,
        "descriptor_dim": scorer.d_a,
        "calibration": str(scorer.calibration),
        "temperature": scorer.temperature,
        "versions": {name: version(name) for name in ("classnorm", "torch", "onnx", "onnxscript")},
    }


def _graph(module: nn.Module, inputs: Mapping[str, Tensor], outputs: Sequence[str], opset: int) -> Any:
    """The ONNX model of a module, for any number of rows and classes; a `RuntimeError` if there is none."""
    rows, classes = torch.export.Dim("rows"), torch.export.Dim("classes")
    shapes = {name: {0: rows if name in ("features", "images") else classes} for name in inputs}
    with _quiet(), torch.inference_mode(False), torch.enable_grad():  # some methods evaluate in blocks without grad
        # Only strict mode traces `len(tensor)` for any length.
        traced = torch.export.export(module.eval(), (), dict(inputs), dynamic_shapes=shapes, strict=True)
        program = torch.onnx.export(
            traced,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=shapes,
            opset_version=opset,
            dynamo=True,
            custom_translation_table={torch.ops.aten._cdist_forward.default: _cdist},
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    supported = next(entry.version for entry in graph.opset_import if not entry.domain)
    if supported != opset:
        raise ConfigError(f"`opset={opset}` is not supported; use `opset={supported}`")
    return graph


def _cdist(left: Any, right: Any, p: float, compute_mode: int | None = None) -> Any:
    """Euclidean distances from differences, which is exact; the exporter has no translation of its own."""
    from onnxscript import opset18

    op: Any = opset18
    if p != 2.0:
        raise NotImplementedError(f"cdist with p = {p}")
    differences = op.Sub(op.Unsqueeze(left, [1]), op.Unsqueeze(right, [0]))
    return op.Sqrt(op.ReduceSumSquare(differences, [2], keepdims=0))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and logs of the exporter."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _complete(onnx: Any, graph: Any, about: dict[str, Any], defaults: dict[str, npt.NDArray[Any]]) -> None:
    """Add metadata and the defaults of inputs to the graph, and remove the stack traces of the exporter."""
    for part in (*graph.graph.node, *graph.graph.input, *graph.graph.output, *graph.graph.value_info, graph.graph):
        del part.metadata_props[:]
    graph.ir_version = min(graph.ir_version, _IR_VERSION)
    graph.producer_name, graph.producer_version = "classnorm", about["versions"]["classnorm"]
    onnx.helper.set_model_props(graph, {"classnorm": json.dumps(about, ensure_ascii=False)})
    graph.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in defaults.items())
    onnx.checker.check_model(graph, full_check=True)


def _verify(scorer: Scorer, scores: Any, prototypes: Any | None, encoder: Encoder | None) -> None:
    """Compare with PyTorch on random features or images and on means of descriptors, if onnxruntime is installed."""
    try:
        import onnxruntime
    except ImportError:
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    generator = np.random.default_rng(0)
    features = generator.random((5, scorer.d_z), dtype=np.float32)
    inputs: dict[str, npt.NDArray[Any]] = {"features": features}
    if encoder is not None:
        shape = (2, encoder.size, encoder.size, len(encoder.preprocessing.mean))
        inputs = {"images": generator.integers(0, 256, shape, dtype=np.uint8)}
        with torch.inference_mode():
            pixels = encoder.preprocessing.normalize(torch.from_numpy(inputs["images"]))
            features = dataclasses.replace(encoder, module=encoder.module.eval()).encode(pixels).cpu().numpy()
    checks: list[tuple[str, Any, Any, Any]] = [("scores", scores, inputs, scorer.scores(features))]
    if prototypes is not None:
        means = (0.5 * (scorer.descriptors + np.roll(scorer.descriptors, 1, axis=0))).astype(np.float32)
        plain = dataclasses.replace(scorer, classes=ClassTable(scorer.class_names, means, scorer.seen))
        expected = plain.prototypes()
        checks.append(("prototypes", prototypes, {"descriptors": means}, expected))
    for output, graph, inputs, expected in checks:
        try:
            session = onnxruntime.InferenceSession(graph.SerializeToString(), options, ["CPUExecutionProvider"])
            exported = session.run(None, inputs)[0]
        except Exception as error:  # onnxruntime has no common error type
            raise OutputError(
                f"onnxruntime {onnxruntime.__version__} cannot run the exported graph, so nothing was written; "
                "update it or choose a lower `opset`"
            ) from error
        difference = float(np.abs(exported - expected).max())
        if not difference <= _TOLERANCE * float(np.abs(expected).max()):
            raise OutputError(
                f"the exported {output} differ from PyTorch's by {difference:.2g}, so nothing was written; "
                "try another `opset` or other versions of torch and onnxruntime"
            )
