"""Do `reject` and `coverage` keep their promises after pictures have corrected the prototypes?

    python benchmarks/thresholds.py xlsa17/data/CUB --features efficientnet_lite0

In each draw a third of the unseen classes is undescribed, and K test rows of every other unseen class are given back
with their labels, or all test rows of known classes without (`unlabelled`, which is transductive). Drawn rows are left
out. Shows the share of rows that `reject` rejects, and, with all classes described, how often the set of `coverage`
holds the right class, averaged over classes; percent. `as described` keeps the thresholds without pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from classnorm import Scorer, fit
from classnorm.data import ZeroShotDataset, load

HEADER = ["rejected: seen", "unseen", "undescribed", "covered: seen", "unseen", "classes per set"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="anything that `classnorm train` takes")
    parser.add_argument("--features", default=None, help="feature file of a GBU folder")
    parser.add_argument("--method", default="kernel")
    parser.add_argument("--examples", type=int, nargs="+", default=[1, 2, 5], metavar="K")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--reject", type=float, default=0.05)
    parser.add_argument("--coverage", type=float, default=0.9)
    options = parser.parse_args()
    data = load(options.data, **({"features": options.features} if options.features else {}))
    scorer = fit(data, options.method)
    results: dict[tuple[str, str], list[list[float]]] = {}
    for draw in range(options.draws):
        for pictures, both in one_draw(scorer, data, options.examples, draw):
            for thresholds, adapted in (("as described", as_described), ("corrected", lambda scorer: scorer)):
                kept = measured(*map(adapted, both), data, draw, options)
                results.setdefault((pictures, thresholds), []).append(kept)
    print(f"| pictures | thresholds | {' | '.join(HEADER)} |\n| --- | --- |{' ---: |' * len(HEADER)}")
    for (pictures, thresholds), values in results.items():
        cells = [f"{m:.1f} ± {s:.1f}" for m, s in zip(np.mean(values, axis=0), np.std(values, axis=0), strict=True)]
        print(f"| {pictures} | {thresholds} | {' | '.join(cells)} |")


def undescribed(data: ZeroShotDataset, draw: int) -> np.ndarray:
    unseen = np.flatnonzero(~data.seen)
    return np.random.default_rng(draw).permutation(unseen)[: len(unseen) // 3]


def drawn_rows(data: ZeroShotDataset, draw: int, count: int) -> np.ndarray:
    """The first `count` drawn rows of each unseen class."""
    draws, test = np.random.default_rng([draw, 1]), data.split.test_unseen
    rows = [draws.permutation(test[data.labels[test] == c]) for c in np.unique(data.labels[test])]
    return np.concatenate([own[:count] for own in rows])


def one_draw(
    scorer: Scorer, data: ZeroShotDataset, counts: list[int], draw: int
) -> Iterator[tuple[str, tuple[Scorer, Scorer]]]:
    """For each kind of pictures: its name, and the scorers of some and of all described classes."""
    left_out = undescribed(data, draw)
    names = [data.class_names[c] for c in np.setdiff1d(np.arange(data.n_classes), left_out)]
    some = scorer.only(names)
    yield "none", (some, scorer)
    for count in counts:
        given = drawn_rows(data, draw, count)
        labels = np.array(data.class_names)[data.labels[given]]
        known = ~np.isin(data.labels[given], left_out)
        both = (
            some.add_examples(data.features[given[known]], labels[known]),
            scorer.add_examples(data.features[given], labels),
        )
        yield f"{count} per unseen class", both
    rows = data.test_rows[~np.isin(data.labels[data.test_rows], left_out)]
    yield (
        "unlabelled",
        (some.adapt(data.features[rows], force=True), scorer.adapt(data.features[data.test_rows], force=True)),
    )


def as_described(scorer: Scorer) -> Scorer:
    return replace(scorer, validation=replace(scorer.validation, after_pictures=()))


def measured(some: Scorer, every: Scorer, data: ZeroShotDataset, draw: int, options: argparse.Namespace) -> list[float]:
    rows = np.setdiff1d(data.test_rows, drawn_rows(data, draw, max(options.examples)))
    features, labels = data.features[rows], data.labels[rows]
    novel, of_seen = np.isin(labels, undescribed(data, draw)), data.seen[labels]
    rejected = ~some.known(features, options.reject)
    shares = [100 * rejected[group].mean() for group in (of_seen, ~of_seen & ~novel, novel)]
    sets = every.prediction_sets(features, options.coverage)
    right = np.array([data.class_names[c] in names for c, names in zip(labels, sets, strict=True)])
    sides = [[c for c in np.unique(labels) if data.seen[c] == side] for side in (True, False)]
    shares += [100 * np.mean([right[labels == c].mean() for c in classes]) for classes in sides]
    return [*shares, float(np.mean(list(map(len, sets))))]


if __name__ == "__main__":
    main()
