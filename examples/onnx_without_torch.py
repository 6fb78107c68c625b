"""Classify and add a class with NumPy and onnxruntime alone."""

import json
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

# With PyTorch: train on letters without é, export, and save the predictions before and after adding é.
TRAIN = """
import numpy as np
from classnorm import fit
from classnorm.data import load
from classnorm.scoring.onnx_export import export_onnx

data = load("glyphs-light")
letter = data.class_names.index("latin small letter e with acute")
rows, descriptor = data.features[data.labels == letter], data.descriptors[letter]
known = fit(data, method="kernel", calibration="bias:1").only(np.delete(data.class_names, letter))
extended = known.add_classes({"é": descriptor})
np.savez("rows.npz", rows=rows, descriptor=descriptor, before=known.predict(rows), after=extended.predict(rows))
export_onnx(known, "letters.onnx")
"""
folder = tempfile.TemporaryDirectory()
subprocess.run([sys.executable, "-c", TRAIN], cwd=folder.name, check=True)
saved = np.load(f"{folder.name}/rows.npz")

# Without PyTorch: the file contains the classes, so features are enough.
onnxruntime.set_default_logger_severity(3)  # hides the warning that classes can be replaced
session = onnxruntime.InferenceSession(f"{folder.name}/letters.onnx")
metadata = json.loads(session.get_modelmeta().custom_metadata_map["classnorm"])
before = np.array(metadata["class_names"])[session.run(["scores"], {"features": saved["rows"]})[0].argmax(axis=1)]

# A new class from its description: one more prototype, marked as unseen.
embed = onnxruntime.InferenceSession(f"{folder.name}/letters.prototypes.onnx")
[known], [new] = embed.run(None, {}), embed.run(None, {"descriptors": saved["descriptor"][None]})
names, seen = np.array([*metadata["class_names"], "é"]), np.array([*metadata["seen"], False])
inputs = {"features": saved["rows"], "prototypes": np.concatenate([known, new]), "seen": seen}
after = names[session.run(["scores"], inputs)[0].argmax(axis=1)]

print(f"without é: {', '.join(before)}\nwith é:    {', '.join(after)}")
assert (before == saved["before"]).all() and (after == saved["after"]).all() and "torch" not in sys.modules
