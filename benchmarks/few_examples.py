"""A few labelled pictures, and unlabelled ones, of classes without training images: what they gain.

    python benchmarks/few_examples.py xlsa17/data/CUB --features efficientnet_lite0

Trains on the training rows; validation chooses how far descriptions are trusted and how classes are biased. Then, in
each draw, gives K test rows of every unseen class back with their labels. All drawn rows are left out of the score, and
all K are scored on the same remaining rows. `unlabelled` has all test rows without their labels: it is transductive.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

import numpy as np

from classnorm import Scorer, fit
from classnorm.data import ZeroShotDataset, load
from classnorm.metrics import gzsl_scores

SHOWN = {"harmonic": "H", "zsl": "T1", "unseen": "U", "seen": "S"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="anything that `classnorm train` takes")
    parser.add_argument("--features", default=None, help="feature file of a GBU folder")
    parser.add_argument("--method", default="kernel")
    parser.add_argument("--recipe", default="reference")
    parser.add_argument("--examples", type=int, nargs="+", default=[1, 2, 5], metavar="K")
    parser.add_argument("--all-classes", action="store_true", help="also give test rows of seen classes back")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    data = load(arguments.data, **({"features": arguments.features} if arguments.features else {}))
    scorer = fit(data, arguments.method, arguments.recipe)
    classes = np.unique(data.labels[data.test_rows if arguments.all_classes else data.split.test_unseen])
    results: dict[str, list[dict[str, float]]] = {}
    for draw in range(arguments.draws):
        for name, scores in one_draw(scorer, data, classes, arguments.examples, draw).items():
            results.setdefault(name, []).append(scores)
    rows = data.test_rows
    for name, adapted in (("description (all test rows)", scorer), ("unlabelled", scorer.adapt(data.features[rows]))):
        results[name] = [scored(adapted, data, rows)]
    print(json.dumps(results) if arguments.json else table(results, scorer))


def one_draw(
    scorer: Scorer, data: ZeroShotDataset, classes: np.ndarray, counts: list[int], seed: int
) -> dict[str, dict[str, float]]:
    """Scores with the description, with pictures only, and with both."""
    draws, test = np.random.default_rng(seed), data.test_rows
    drawn = [draws.permutation(test[data.labels[test] == c])[: max(counts)] for c in classes]
    rows = np.setdiff1d(test, np.concatenate(drawn))
    described = [name for name, seen in zip(data.class_names, data.seen, strict=True) if seen]
    results = {"description": scored(scorer, data, rows)}
    for count in counts:
        given = np.concatenate([own[:count] for own in drawn])
        labels = [data.class_names[c] for c in data.labels[given]]
        alone = scorer.only(described).add_examples(data.features[given], labels).only(data.class_names)
        both = scorer.add_examples(data.features[given], labels)
        results[f"{count} pictures"] = scored(alone, data, rows)
        results[f"description + {count} pictures"] = scored(both, data, rows)
    return results


def scored(scorer: Scorer, data: ZeroShotDataset, rows: np.ndarray) -> dict[str, float]:
    scores = gzsl_scores(scorer.scores(data.features[rows]), data.labels[rows], data.seen)
    return {name: scores[name] for name in SHOWN}


def table(results: Mapping[str, list[dict[str, float]]], scorer: Scorer) -> str:
    lines = [f"| | draws | {' | '.join(SHOWN.values())} |", f"| --- | ---: |{' ---: |' * len(SHOWN)}"]
    for name, draws in results.items():
        cells = []
        for score in SHOWN:
            values = [draw[score] for draw in draws]
            spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.1f}{spread}")
        lines.append(f"| {name} | {len(draws)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", str(scorer.description_weight)])


if __name__ == "__main__":
    main()
