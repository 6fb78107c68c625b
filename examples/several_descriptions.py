"""Several descriptions of a class: kernels whose weights the fit chooses, and sentences as a set."""

from dataclasses import replace

import numpy as np

from classnorm import fit
from classnorm.data import load
from classnorm.data.descriptions import Descriptions
from classnorm.metrics import gzsl_scores
from classnorm.preparation.describing import describe

# Letters described by their strokes, and by numbers that say nothing about them.
letters = load("glyphs-light")
numbers = np.random.default_rng(0).normal(size=(letters.n_classes, 16)).astype(np.float32)
both = replace(letters, descriptors=np.concatenate([letters.descriptors, numbers], axis=1))
rows, blocks, h = letters.test_rows, f"{letters.d_a},16", {}
for name, data, settings in (
    ("strokes alone", letters, {}),
    ("both, chosen weights", both, {"blocks": blocks}),
    ("both, equal weights", both, {"blocks": blocks, "block_weights": "equal"}),
):
    scorer = fit(data, method="kernel", **settings)
    h[name] = gzsl_scores(scorer.scores(data.features[rows]), data.labels[rows], data.seen).harmonic
    print(f"{name}: H {h[name]:.1f} {scorer.model.choices() or ''}")
assert h["both, chosen weights"] > max(h["both, equal weights"], h["strokes alone"] - 3)

# A bird that looks two ways is like each of its sentences, not like their average.
birds = {
    "ptarmigan": ("a bird that is white as snow", "a mottled brown bird"),
    "snowy owl": ("a bird that is white as snow",),
    "sandpiper": ("a pale grey-brown bird",),
}
descriptions = Descriptions("birds", tuple(birds), tuple(birds.values()))
for encoder in ("minilm", "set:minilm"):
    described = describe(descriptions, encoder)
    block = described.table[:, -described.blocks[-1] :]  # of the set, the features of its wider kernel
    unit = block / np.linalg.norm(block, axis=1, keepdims=True)
    print(f"{encoder}: ptarmigan and snowy owl {unit[0] @ unit[1]:.2f}, and sandpiper {unit[0] @ unit[2]:.2f}")
assert described.blocks == (384, 1024, 1024)
assert unit[0] @ unit[1] > unit[0] @ unit[2] + 0.2
