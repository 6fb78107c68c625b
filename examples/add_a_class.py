"""Add a class at run time: a classifier of letters recognises a new letter from its description alone."""

import numpy as np

from classnorm import ClassNormClassifier
from classnorm.data import load

NEW = "latin small letter e with acute"

glyphs = load("glyphs-light")
names = np.array(glyphs.class_names)
known = {name: row for name, row, seen in zip(names, glyphs.descriptors, glyphs.seen, strict=True) if seen}
train = glyphs.split.train

clf = ClassNormClassifier(method="kernel").fit(glyphs.features[train], names[glyphs.labels[train]], descriptors=known)
images = glyphs.features[names[glyphs.labels] == NEW]
print(f"{len(clf.classes_)} classes; images of é are classified as:", ", ".join(set(clf.predict(images))))

clf.add_classes({NEW: glyphs.descriptors[names == NEW][0]})  # no image, no training
share = np.mean(clf.predict(images) == NEW)
print(f"{len(clf.classes_)} classes; images of é recognised: {share:.0%}")
assert share > 0.5
