"""A class at run time: a classifier trained on letters it has pictures of learns a new one from its description."""

import numpy as np

from classnorm import ClassNormClassifier
from classnorm.data import load

NEW = "latin small letter e with acute"

glyphs = load("glyphs-light")
names = np.array(glyphs.class_names)
known = {name: row for name, row, seen in zip(names, glyphs.descriptors, glyphs.seen, strict=True) if seen}
train = glyphs.split.train

clf = ClassNormClassifier(method="kernel").fit(glyphs.features[train], names[glyphs.labels[train]], descriptors=known)
pictures = glyphs.features[names[glyphs.labels] == NEW]
print(f"{len(clf.classes_)} classes; pictures of é are taken for:", ", ".join(set(clf.predict(pictures))))

clf.add_classes({NEW: glyphs.descriptors[names == NEW][0]})  # no picture, no training
share = np.mean(clf.predict(pictures) == NEW)
print(f"{len(clf.classes_)} classes; pictures of é recognised: {share:.0%}")
assert share > 0.5
