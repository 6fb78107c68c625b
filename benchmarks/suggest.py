"""What next: labels of suggested pictures against labels of random ones.

``python benchmarks/suggest.py XLSA17/data/CUB --features efficientnet_lite0`` divides the test rows of a dataset at
random into a pool and rows to score, in each of ten draws. In five rounds, 20 pictures of the pool are labelled
(`Scorer.add_examples`) and the scorer suggests again. Suggested and random pictures are compared on the same rows: H,
the accuracy on unseen classes U, and the share of rows that are right, in percent. With ``--pool unseen`` only rows of
unseen classes are in the pool. ``--pool validation`` does the same on a validation split of the training rows, where
the rule was chosen, and also labels the most uncertain pictures (highest entropy).
"""

from __future__ import annotations

import argparse

import numpy as np

from classnorm.data import ZeroShotDataset, load, validation_dataset
from classnorm.metrics import accuracy, gzsl_scores, novelty_statistics
from classnorm.scoring import Scorer, fit, suggest

ROUNDS, LABELS = 5, 20


def choice(scorer: Scorer, features: np.ndarray, rule: str, random: np.random.Generator) -> np.ndarray:
    if rule == "random":
        return random.permutation(len(features))[:LABELS]
    if rule == "most uncertain":
        return np.argsort(-novelty_statistics(scorer.scores(features), scorer.seen, scorer.temperature)["entropy"])[
            :LABELS
        ]
    return np.array([picture["row"] for picture in suggest(scorer, features, LABELS, classes=0)["pictures"]])


def taught(scorer: Scorer, data: ZeroShotDataset, pool: np.ndarray, rule: str, seed: int) -> Scorer:
    """The scorer after all rounds."""
    random = np.random.default_rng(100 + seed)
    for _ in range(ROUNDS):
        chosen = choice(scorer, data.features[pool], rule, random)
        labels = [data.class_names[c] for c in data.labels[pool[chosen]]]
        scorer, pool = scorer.add_examples(data.features[pool[chosen]], labels), np.delete(pool, chosen)
    return scorer


def scores(scorer: Scorer, data: ZeroShotDataset, rows: np.ndarray) -> list[float]:
    table, labels = scorer.scores(data.features[rows]), data.labels[rows]
    found = gzsl_scores(table, labels, data.seen)
    return [found.harmonic, found.unseen, accuracy(table.argmax(axis=1), labels, average="sample")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--features", default="res101")
    parser.add_argument("--method", default="kernel")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--pool", choices=("all", "unseen", "validation"), default="all")
    options = parser.parse_args()
    data = load(options.data, features=options.features)
    if options.pool == "validation":
        data = validation_dataset(data)
    start = fit(data, method=options.method)
    rows = data.split.test_unseen if options.pool == "unseen" else data.test_rows
    rules = ["random", "suggested"] if options.pool != "validation" else ["random", "most uncertain", "suggested"]
    results: dict[str, list[list[float]]] = {"none": [], **{rule: [] for rule in rules}}
    for draw in range(options.draws):
        pool = np.sort(np.random.default_rng(draw).permutation(rows)[: len(rows) // 2])
        rest = np.setdiff1d(data.test_rows, pool)
        results["none"].append(scores(start, data, rest))
        for rule in rules:
            results[rule].append(scores(taught(start, data, pool, rule, draw), data, rest))
    print(f"| {ROUNDS} rounds of {LABELS} labels | H | U | right |\n| --- | ---: | ---: | ---: |")
    for name, table in results.items():
        mean, std = np.mean(table, axis=0), np.std(table, axis=0)
        print(f"| {name} | {' | '.join(f'{m:.1f} ± {s:.1f}' for m, s in zip(mean, std, strict=True))} |")
    wins = (np.array(results["suggested"]) > np.array(results["random"])).sum(axis=0)
    print(f"\nsuggested above random, of {options.draws} draws: H {wins[0]}, U {wins[1]}, right {wins[2]}")


if __name__ == "__main__":
    main()
