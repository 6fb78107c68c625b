"""Several sentences per class: their average against a set (`--text-encoder set:minilm`), on validation splits.

    python benchmarks/sentence_sets.py xlsa17/data/CUB CUB_200_2011 --features efficientnet_lite0

A class of CUB gets a sentence for each attribute that at least 30 % of its annotators saw: "a bird whose belly color is
white". In the second description every class words each of them in one of four ways, so that classes rarely share a
sentence. The third has the class name in five templates. Scores are H at the best bias and T1 on validation splits of
the training rows with the method `kernel`; test rows are not used.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from classnorm.data import ZeroShotDataset, load
from classnorm.data.descriptions import Descriptions
from classnorm.data.images import cub_attribute_names
from classnorm.data.names import readable_name
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.metrics import calibrated_gzsl_scores, choose_calibration
from classnorm.preparation.describing import describe
from classnorm.scoring.fitting import validate

WORDINGS = ("a bird whose {} is {}", "the {} is {}", "it has a {1} {0}", "{1} {0}")
TEMPLATES = ("{}", "a photo of a {}", "a photo of a {}, a type of bird", "the plumage of the {}", "a {} on a branch")
SHARE = 30.0  # percent of annotators


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="GBU folder of CUB")
    parser.add_argument("cub", type=Path, help="folder CUB_200_2011, for the names of the attributes")
    parser.add_argument("--features", default="res101")
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    data = load(options.data, features=options.features)
    raw = load(options.data, features=options.features, attributes="original_att").descriptors
    names = cub_attribute_names(options.cub, raw.shape[1])
    if names is None:
        parser.error(f"{options.cub} has no attributes.txt")
    pairs = [name.split(": ", 1) for name in names]
    print("| description | sentences | H | T1 | weights |\n| --- | --- | ---: | ---: | --- |")
    for label, wordings in (("attributes", WORDINGS[:1]), ("attributes, four wordings", WORDINGS)):
        draws = np.random.default_rng(0).integers(0, len(wordings), raw.shape)
        sentences = [
            tuple(wordings[draws[c, a]].format(*pairs[a]) for a in np.flatnonzero(raw[c] >= SHARE))
            for c in range(data.n_classes)
        ]
        compare(label, data, Descriptions("sentences", data.class_names, tuple(sentences)), (), options.splits)
    titles = tuple((readable_name(name),) for name in data.class_names)
    compare("names", data, Descriptions("names", data.class_names, titles), TEMPLATES, options.splits)


def compare(
    label: str, data: ZeroShotDataset, descriptions: Descriptions, templates: tuple[str, ...], splits: int
) -> None:
    for kind, encoder in (("averaged", "minilm"), ("a set", "set:minilm")):
        described = describe(descriptions, encoder, templates)
        blocks = ",".join(map(str, described.blocks)) if len(described.blocks) > 1 else ""
        part = replace(data, descriptors=described.table)
        job, scores, weights = FitJob(part, *resolve(part, "kernel", blocks=blocks)), [], []
        for split in range(splits):
            fitted = validate(job, split, FitContext(torch.device("cpu")))
            calibration, harmonic = choose_calibration([fitted.best_scores], "bias")
            scores.append([harmonic, calibrated_gzsl_scores(fitted.best_scores, calibration).zsl])
            weights.append(str(fitted.scorer.model.choices().get("block_weights", "")))
        harmonic, zsl = np.mean(scores, axis=0)
        print(f"| {label} | {kind} | {harmonic:.1f} | {zsl:.1f} | {'; '.join(weights)} |", flush=True)


if __name__ == "__main__":
    main()
