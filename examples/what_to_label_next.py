"""What to label next: suggested pictures teach a classifier more than random ones, in five rounds of ten labels."""

import numpy as np

from classnorm import Scorer, fit
from classnorm.data import SyntheticConfig, synthetic
from classnorm.scoring import suggest

data = synthetic(SyntheticConfig(classes=40, unseen=12, rows=2400, features=64, attributes=30, noise=1.2))
names = np.array(data.class_names)
start = fit(data, method="kernel")
rows = np.random.default_rng(0).permutation(data.test_rows)
unlabelled, rest = rows[: len(rows) // 2], rows[len(rows) // 2 :]

suggestions = suggest(start, data.features[unlabelled], count=10)
for picture in suggestions["pictures"][:3]:
    print(f"label row {picture['row']}: {picture['reason']}; gain {picture['gain']:.2f} %")
for entry in suggestions["classes"][:2]:
    print(f"describe {entry['class']} better: {entry['reason']}; gain {entry['gain']:.2f} %")


def taught(scorer: Scorer, at_random: bool) -> Scorer:
    pool = unlabelled
    for number in range(5):
        chosen = np.random.default_rng(number).permutation(len(pool))[:10]
        if not at_random:
            chosen = np.array([picture["row"] for picture in suggest(scorer, data.features[pool], 10)["pictures"]])
        scorer = scorer.add_examples(data.features[pool[chosen]], names[data.labels[pool[chosen]]].tolist())
        pool = np.delete(pool, chosen)
    return scorer


def right(scorer: Scorer) -> float:
    return float(np.mean(np.array(scorer.predict(data.features[rest])) == names[data.labels[rest]]))


shares = right(start), right(taught(start, at_random=True)), right(taught(start, at_random=False))
print("right: {:.1%} without labels, {:.1%} with random ones, {:.1%} with suggested ones".format(*shares))
assert shares[2] > shares[1] > shares[0]
