"""Your own data in pandas: a table of features with a label column, and a table that describes every class.

Letters with diacritics stand in for your data: 340 classes with training images, 86 known by description alone.
"""

import pandas as pd

from classnorm import ClassNormClassifier
from classnorm.data import load

glyphs = load("glyphs-light")
names = pd.Index(glyphs.class_names)
rows = pd.DataFrame(glyphs.features).add_prefix("feature ").assign(label=names[glyphs.labels])
classes = pd.DataFrame(glyphs.descriptors, index=names)  # one row per class, including unseen ones

train, test = rows.iloc[glyphs.split.train], rows.iloc[glyphs.test_rows]
clf = ClassNormClassifier(method="kernel")  # the most accurate method; the default is Class Normalization
clf.fit(train.drop(columns="label"), train["label"], descriptors=classes)

harmonic = clf.score(test.drop(columns="label"), test["label"])
print(f"{clf.seen_mask_.sum()} seen and {(~clf.seen_mask_).sum()} unseen classes, harmonic mean {harmonic:.2f}")
sample = test.sample(4, random_state=0)
best = clf.top(sample.drop(columns="label"), k=2)
for truth, labels, chances in zip(sample["label"], best.classes, best.probabilities, strict=True):
    guesses = ", ".join(f"{label} ({chance:.0%})" for label, chance in zip(labels, chances, strict=True))
    print(f"{truth}: {guesses}")
assert harmonic > 0.7
