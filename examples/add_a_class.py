"""Add classes at run time: a classifier of letters recognises new letters from their descriptions alone."""

import numpy as np

from classnorm import ClassNormClassifier
from classnorm.data import load

glyphs = load("glyphs-light")
names = np.array(glyphs.class_names)
table = dict(zip(names, glyphs.descriptors, strict=True))
train, test = glyphs.split.train, glyphs.split.test_unseen
known = {name: table[name] for name in names[glyphs.seen]}

clf = ClassNormClassifier(method="kernel").fit(glyphs.features[train], names[glyphs.labels[train]], descriptors=known)
letter = "latin small letter e with acute"
images = glyphs.features[names[glyphs.labels] == letter]
print(f"{len(clf.classes_)} classes; images of é are classified as:", ", ".join(set(clf.predict(images))))

clf.add_classes({name: table[name] for name in names[~glyphs.seen]})  # no image, no training
share = np.mean(clf.predict(glyphs.features[test]) == names[glyphs.labels[test]])
print(f"{len(clf.classes_)} classes; images of the new ones recognised: {share:.0%}")
assert share > 0.5
