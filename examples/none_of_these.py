"""None of these: a letter that nobody described is answered `unknown`, and sets of classes say what an image may be."""

import numpy as np

from classnorm import fit
from classnorm.data import ZeroShotDataset, load
from classnorm.metrics import auroc

glyphs = load("glyphs-light")
# A random split: thresholds and examples presuppose images like those of the training, here the same fonts.
of_seen, test = glyphs.seen[glyphs.labels], np.random.default_rng(0).random(len(glyphs.labels)) < 0.3
data = ZeroShotDataset.from_arrays(
    *(glyphs.features, glyphs.labels, glyphs.descriptors, glyphs.class_names),
    train=np.flatnonzero(of_seen & ~test),
    test_seen=np.flatnonzero(of_seen & test),
    test_unseen=np.flatnonzero(~of_seen),
)
scorer = fit(data, method="kernel")
rows = data.test_rows
images, labels = data.features[rows], data.labels[rows]

# Leave out every third of the unseen letters: no image, no description.
unseen = np.flatnonzero(~data.seen)
left_out = unseen[::3]
known = scorer.only([name for i, name in enumerate(data.class_names) if i not in left_out])
novel = np.isin(labels, left_out)

novelty = known.novelty(images)  # higher is more novel
print(f"AUROC of known against undescribed letters: {auroc(novelty[~novel], novelty[novel]):.0f} %")
rejected = ~known.known(images, reject=0.1)
print(f"rejected: {rejected[~novel].mean():.0%} of the known letters, {rejected[novel].mean():.0%} of the others")
assert rejected[novel].mean() > 2 * rejected[~novel].mean()

sets = scorer.prediction_sets(images, coverage=0.9)
covered = np.mean([data.class_names[c] in names for c, names in zip(labels, sets, strict=True)])
print(f"sets of {np.mean(list(map(len, sets))):.1f} classes hold the right one for {covered:.0%} of the images")
assert abs(covered - 0.9) < 0.05

# Thresholds follow pictures: two of each unseen letter.
given = np.concatenate([np.flatnonzero(labels == c)[:2] for c in unseen])
few = scorer.add_examples(images[given], [data.class_names[c] for c in labels[given]])
rest = np.setdiff1d(np.arange(len(rows)), given)
sets = few.prediction_sets(images[rest], coverage=0.9)
covered = np.mean([data.class_names[c] in names for c, names in zip(labels[rest], sets, strict=True)])
print(f"with two pictures of each unseen letter: {covered:.0%}, {np.mean(list(map(len, sets))):.1f} classes")
assert abs(covered - 0.9) < 0.06
