"""Do the attributes that an explanation names matter? Remove them and see how often the answer changes.

An attribute is removed by setting it to its mean over all classes, either in the description of the answer alone or in
those of all classes. Three removals are compared, for a sample of the test rows: the three attributes that speak most
for the answer, the three in which the descriptions of the two best classes differ most, and three random ones.

    python benchmarks/explanations.py xlsa17/data/CUB --features efficientnet_lite0 --method kernel
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from classnorm import fit
from classnorm.data import load
from classnorm.scoring import Scorer

REMOVED = 3
Choose = Callable[[int], npt.NDArray[np.int64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a dataset, as for classnorm train")
    parser.add_argument("--features", default="res101", help="feature file of a GBU folder")
    parser.add_argument("--method", default="kernel")
    parser.add_argument("--rows", type=int, default=500, help="test rows to explain")
    parser.add_argument("--draws", type=int, default=5, help="draws of random attributes")
    arguments = parser.parse_args()
    data = load(Path(arguments.data) if Path(arguments.data).exists() else arguments.data, features=arguments.features)
    scorer = fit(data, arguments.method)
    scorer = replace(scorer, origin=replace(scorer.origin, attribute_names=None))  # names become column numbers
    rows = np.random.default_rng(0).permutation(data.test_rows)[: arguments.rows]
    features = np.asarray(data.features[rows], dtype=np.float32)
    explanations = scorer.explain(features, top=scorer.d_a)
    position = {name: i for i, name in enumerate(scorer.class_names)}
    answers = np.array([position[e["class"]] for e in explanations])
    others = np.array([position[e["against"]] for e in explanations])
    spoken = np.zeros((len(rows), scorer.d_a))
    for row, explanation in enumerate(explanations):
        for entry in explanation["attributes"]:
            if entry["name"].startswith("attribute "):
                spoken[row, int(entry["name"].split()[1])] = entry["contribution"]
    apart = np.abs(scorer.descriptors[answers] - scorer.descriptors[others])
    generator = np.random.default_rng(1)
    removals: dict[str, list[Choose]] = {
        "speak most for the answer": [lambda row: np.argsort(-spoken[row])[:REMOVED]],
        "differ most between the two classes": [lambda row: np.argsort(-apart[row])[:REMOVED]],
        "random": [lambda row: generator.choice(scorer.d_a, REMOVED, replace=False)] * arguments.draws,
    }
    print(f"{data.name}, {arguments.features}, {arguments.method}: {len(rows)} test rows, {REMOVED} of {scorer.d_a}")
    print("| removed | from the answer | from all classes |\n| --- | ---: | ---: |")
    for name, choices in removals.items():
        cells = []
        for every in (False, True):
            shares = [100 * changed(scorer, features, answers, choose, every) for choose in choices]
            cells.append(f"{np.mean(shares):.1f} %" + (f" ± {np.std(shares):.1f}" if len(shares) > 1 else ""))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def changed(
    scorer: Scorer,
    features: npt.NDArray[np.float32],
    answers: npt.NDArray[np.int64],
    choose: Choose,
    every: bool,
) -> float:
    """Share of the rows whose answer changes when attributes are removed from `every` class or from the answer."""
    means = scorer.descriptors.mean(axis=0)
    count = 0
    for row, answer in enumerate(answers):
        columns = choose(row)
        table = scorer.descriptors.copy()
        table[np.ix_(np.arange(len(table)) if every else [answer], columns)] = means[columns]
        changed = replace(scorer, classes=replace(scorer.classes, descriptors=table))
        count += int(changed.top(features[row : row + 1], 1).indices[0, 0] != answer)
    return count / len(answers)


if __name__ == "__main__":
    main()
