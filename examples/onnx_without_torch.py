"""Classify, and add a class, with NumPy and onnxruntime alone."""

import json
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

# Where there is PyTorch: train on letters, leave é out, export, and keep what PyTorch says before and after adding it.
TRAIN = """
import numpy as np
from classnorm import fit
from classnorm.data import load
from classnorm.scoring.onnx_export import export_onnx

data = load("glyphs-light")
letter = data.class_names.index("latin small letter e with acute")
rows, descriptor = data.features[data.labels == letter], data.descriptors[letter]
known = fit(data, method="kernel", calibration="bias:1").only(np.delete(data.class_names, letter))
more = known.add_classes({"é": descriptor})
np.savez("rows.npz", rows=rows, descriptor=descriptor, before=known.predict(rows), after=more.predict(rows))
export_onnx(known, "letters.onnx")
"""
folder = tempfile.TemporaryDirectory()
subprocess.run([sys.executable, "-c", TRAIN], cwd=folder.name, check=True)
saved = np.load(f"{folder.name}/rows.npz")

# Where there is not: the model brings its classes along, so features are enough.
onnxruntime.set_default_logger_severity(3)  # it warns that the classes can be replaced, which is the point
session = onnxruntime.InferenceSession(f"{folder.name}/letters.onnx")
about = json.loads(session.get_modelmeta().custom_metadata_map["classnorm"])
before = np.array(about["class_names"])[session.run(["scores"], {"features": saved["rows"]})[0].argmax(axis=1)]

# A new class from its description: one more prototype, not seen in training.
embed = onnxruntime.InferenceSession(f"{folder.name}/letters.prototypes.onnx")
[known], [new] = embed.run(None, {}), embed.run(None, {"descriptors": saved["descriptor"][None]})
names, seen = np.array([*about["class_names"], "é"]), np.array([*about["seen"], False])
inputs = {"features": saved["rows"], "prototypes": np.concatenate([known, new]), "seen": seen}
after = names[session.run(["scores"], inputs)[0].argmax(axis=1)]

print(f"without é: {', '.join(before)}\nwith é:    {', '.join(after)}")
assert (before == saved["before"]).all() and (after == saved["after"]).all() and "torch" not in sys.modules
