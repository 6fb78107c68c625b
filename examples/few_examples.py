"""From zero pictures to a few: three labelled ones per class, then all others without labels."""

import numpy as np

from classnorm import Scorer, fit
from classnorm.data import SyntheticConfig, synthetic
from classnorm.metrics import gzsl_scores

data = synthetic(SyntheticConfig(classes=60, unseen=15, rows=3000, features=64, attributes=24, noise=1.0))
scorer = fit(data, method="kernel")

# Three test rows of every unseen class come with a label; the others are scored.
unseen = np.flatnonzero(~data.seen)
given = np.concatenate([np.flatnonzero(data.labels == c)[:3] for c in unseen])
rest = np.setdiff1d(data.test_rows, given)


def zsl(scorer: Scorer) -> float:
    """Accuracy among unseen classes, in percent."""
    return gzsl_scores(scorer.scores(data.features[rest]), data.labels[rest], data.seen).zsl


labels = [data.class_names[c] for c in data.labels[given]]
few = scorer.add_examples(data.features[given], labels)
transductive = few.adapt(data.features[rest], force=True)  # it sees the rows that it is scored on
print(
    f"descriptions {zsl(scorer):.1f}, + 3 pictures {zsl(few):.1f}, + unlabelled (transductive) {zsl(transductive):.1f}"
)
assert zsl(scorer) < zsl(few)

# A class that nobody has described, and the way back.
okapi = few.add_classes({}, examples={"okapi": data.features[data.labels == unseen[0]][:2]})
assert okapi.class_names[-1] == "okapi"
assert few.without_examples().prototypes().tolist() == scorer.prototypes().tolist()

few.save("few-model")
assert Scorer.load("few-model").predict(data.features[rest[:9]]) == few.predict(data.features[rest[:9]])
