"""`classnorm export`: write a model as ONNX."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import print_json
from classnorm.cli.model_command import ModelCommand
from classnorm.cli.options import Flag, OutputOptions, optional
from classnorm.encoders import recorded_encoder
from classnorm.errors import ConfigError
from classnorm.progress import notice
from classnorm.results.run_folder import encoder_file, read_encoder

_HINT = """
  session = onnxruntime.InferenceSession("{file}")
  names = json.loads(session.get_modelmeta().custom_metadata_map["classnorm"])["class_names"]
  best = session.run(["scores"], {{"{name}": {name}}})[0].argmax(axis=1)  # {content} → index of names
"""


@dataclass(frozen=True, kw_only=True)
class Export(ModelCommand):
    """Write a model as ONNX, to run it with onnxruntime instead of PyTorch.

    Examples:
      classnorm export runs/mine/seed-0 mine.onnx
      classnorm export runs/animals/seed-0 animals.onnx --encoder-inside

    Notes:
      FILE.onnx turns features into scores and probabilities. FILE.prototypes.onnx
      turns descriptors of new classes into prototypes for it. Both are compared
      with PyTorch before they are written. With --encoder-inside, FILE.onnx takes
      images, resized and cropped as its metadata says, instead of features.
    """

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE.onnx")]
    """File to write; an existing one is replaced."""
    opset: int = 18
    """Version of the ONNX operators, 18 or later; onnxruntime 1.18 and later read 18 to 21."""
    encoder_inside: Flag = False
    """Put the image encoder into FILE.onnx: from pixels to scores."""
    weights: Annotated[Path | None, optional("FILE")] = None
    """Weights of the encoder, if the model was not trained with the default weights."""
    output: OutputOptions

    def run(self) -> None:
        if self.weights is not None and not self.encoder_inside:
            raise ConfigError("--weights are those of the encoder; it needs --encoder-inside")
        if self.file.suffix != ".onnx":
            raise ConfigError(f"{self.file}: the name of an ONNX file must end in .onnx")
        if self.encoder_inside and not encoder_file(self.model).is_file():
            raise ConfigError(
                f"{self.model}: trained on features, so it knows no encoder; leave out --encoder-inside, or train with "
                "--images"
            )
        from classnorm.scoring.onnx_export import export_onnx

        scorer = self.load()
        encoder = recorded_encoder(read_encoder(self.model), self.weights) if self.encoder_inside else None
        files = export_onnx(scorer, self.file, self.opset, encoder)
        if len(files) == 1:
            notice(
                f"no classes can be added to {self.file}: new prototypes of {scorer.method} cannot be exported; "
                "add classes before the export, with Scorer.add_classes"
            )
        if self.output.json:
            print_json(
                {
                    "files": [
                        {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()} for file in files
                    ],
                    "method": scorer.method,
                    "classes": len(scorer.class_names),
                    "feature_dim": scorer.d_z,
                    "descriptor_dim": scorer.d_a,
                    "calibration": str(scorer.calibration),
                    "opset": self.opset,
                }
            )
            return
        graphs = (f"{'features' if encoder is None else 'images'} → scores", "descriptors → prototypes")
        for file, graph in zip(files, graphs, strict=False):
            print(f"wrote {file} ({graph}, {file.stat().st_size / 1e3:,.0f} KB)")
        hint = {"name": "features", "content": f"float32 [rows, {scorer.d_z}]"}
        if encoder is not None:
            hint = {"name": "images", "content": f"uint8 [rows, {encoder.size}, {encoder.size}, 3], see docs/export.md"}
        print(_HINT.format(file=self.file, **hint), end="")
