"""What every method learns, in its recipes and variants: all classes far above chance, and the same from its file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from classnorm.methods import METHODS
from classnorm.scoring import Scorer, fit


class Learnt(NamedTuple):
    """A method with settings that train it in about a second, and the accuracies in percent that it must exceed."""

    method: str
    settings: dict[str, Any]
    unseen: int  # among the unseen classes alone; chance is 10 %
    seen: int = 0  # among all classes; chance is 2.5 %


PLAIN = {"hidden": 64, "epochs": 8, "lr": 3e-3}
CVC = {"hidden": 64, "epochs": 15, "lr": 3e-3, "ways": 16, "batch_size": 64}
RANKING = {"epochs": 10, "lr": 5e-3}
RELATION = {"hidden": 128, "relation_hidden": 128, "epochs": 10, "lr": 1e-3}
CONSE = {"epochs": 8, "lr": 3e-3}
GENERATIVE = {"hidden": 128, "epochs": 15, "lr": 2e-3, "classifier_lr": 1e-2, "classifier_epochs": 10}
ZSML = {"hidden": 128, "noise": 20, "epochs": 10, "tasks": 16, "inner_lr": 1e-2}
STANDARDIZED = {"feature_normalization": "standardize", "attribute_normalization": "standardize"}

CLASSNORM_CHOICES: list[dict[str, Any]] = [
    {"layers": 1},
    {"layers": 2},
    {"layers": 4},
    {"normalization": "class-variance"},
    {"normalization": "dynamic", "init": "xavier_fan_out"},
    {"normalization": "dynamic-root", "init": "xavier_fan_out"},
    {"normalization": "none", "init": "torch"},
    {"attribute_normalization": "standardize", "attribute_correction": True},
    {"attribute_normalization": "unit-plain"},
    {"init": "data_dependent"},
    {"init_distribution": "normal"},
    {"gamma": "auto"},
    {"learn_gamma": True},
    {"entropy_weight": 0.01},
    {"logits": "dot", "lr": 1e-3},
    {"optimizer": "adamw", "schedule": "cosine"},
    {"optimizer": "sgd", "lr": 0.1},
    {"geometry": True, "final_relu": False},
    {"virtual_classes": 32},
    {"descriptor_noise": 0.3},
]
CVC_CHOICES: list[dict[str, Any]] = [
    {},
    {"class_norm": True},
    {"attribute_normalization": "standardize"},
    {"class_norm": True, "attribute_normalization": "standardize"},
    {"logits": "dot"},
    {"logits": "dot", "class_norm": True, "attribute_normalization": "standardize"},
]
RANKING_CHOICES: list[dict[str, Any]] = [
    {},
    STANDARDIZED,
    {"feature_normalization": "none", "attribute_normalization": "unit-plain"},
    {"optimizer": "sgd", "lr": 0.05, "attribute_normalization": "none"},
]
TABLE = [
    Learnt("classnorm", PLAIN, 40, 40),
    Learnt("classnorm", {"recipe": "best", "hidden": 64}, 40),
    *(Learnt("classnorm", PLAIN | choice, 20) for choice in CLASSNORM_CHOICES),
    Learnt("kernel", {}, 40),
    Learnt("kernel", {"recipe": "closed-form"}, 40),
    Learnt("kernel", {"landmarks": 20, "blocks": "10,20"}, 20),
    *(Learnt(method, RANKING | choice, 30, 30) for method in ("devise", "ale", "sje") for choice in RANKING_CHOICES),
    *(Learnt("conse", CONSE | {"recipe": recipe}, 30, 30) for recipe in ("reference", "paper")),
    Learnt("eszsl", {"recipe": "reference"}, 50),
    Learnt("eszsl", {"recipe": "paper"}, 20),
    *(Learnt("sae", choice, 40) for choice in ({}, {"score_in": "descriptor"}, {"recipe": "paper"})),
    *(
        Learnt("sync", {"epochs": 10, "loss": loss}, 30, 30)
        for loss in ("one-versus-other", "crammer-singer", "structured")
    ),
    *(Learnt("cvc", CVC | choice, 30, 25) for choice in CVC_CHOICES),
    Learnt("relationnet", RELATION, 30, 30),
    Learnt("relationnet", RELATION | {"class_norm": True, "attribute_normalization": "standardize"}, 30, 30),
    Learnt("dem", {"hidden": 64, "epochs": 20, "lr": 5e-3}, 40, 40),
    Learnt("dcn", {"hidden": 128, "epochs": 20, "lr": 1e-3}, 40, 40),
    Learnt("epgn", {"hidden": 64, "critic_hidden": 16, "epochs": 10, "steps": 20, "lr": 3e-3}, 30, 20),
    Learnt("zsml", ZSML | {"classifier_lr": 1e-2, "classifier_epochs": 10}, 30, 30),
    Learnt("sgal", {"hidden": 128, "encoder_hidden": 128, "latent": 32, "epochs": 12, "warmup": 0.5}, 30, 40),
    Learnt("dvbe", {"hidden": 64, "channels": 16, "epochs": 20, "lr": 5e-3}, 40, 40),
    Learnt("sgma", {"hidden": 16, "epochs": 25, "lr": 5e-3, "attribute_normalization": "standardize"}, 30, 30),
    Learnt("fclswgan", GENERATIVE | {"critic_steps": 2}, 30, 30),
    Learnt("lsrgan", GENERATIVE | {"hidden": 64, "epochs": 8, "critic_steps": 2}, 30, 30),
    Learnt("cizsl", GENERATIVE | {"hidden": 64, "epochs": 8, "critic_steps": 2}, 30, 30),
    Learnt("fvaegan", GENERATIVE, 30, 30),
    Learnt("dascn", GENERATIVE | {"epochs": 10}, 30, 30),
    Learnt("tfvaegan", GENERATIVE | {"epochs": 10, "decoder_lr": 2e-3, "critic_steps": 2}, 30, 30),
]


each_row = pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.method, marks=pytest.mark.slow if row.method == "tfvaegan" else ()) for row in TABLE],
)


@pytest.fixture(scope="module")
def scorer_of(small_dataset):
    """Trains each row of the table once."""
    scorers: dict[int, Scorer] = {}

    def get(row):
        if id(row) not in scorers:
            scorers[id(row)] = fit(small_dataset, row.method, **({"calibration": "none"} | row.settings))
        return scorers[id(row)]

    return get


def test_every_method_is_in_the_table():
    assert {row.method for row in TABLE} == set(METHODS) - {"clip"}  # see test_clip.py


@each_row
def test_seen_and_unseen_classes_are_recognised_far_above_chance(small_dataset, scorer_of, accuracies, row):
    result = accuracies(scorer_of(row), small_dataset)
    assert result.zsl > row.unseen
    assert result.seen > row.seen


@each_row
def test_a_saved_model_scores_the_same(small_dataset, scorer_of, row, tmp_path):
    rows = small_dataset.features[:50]
    assert np.array_equal(Scorer.load(scorer_of(row).save(tmp_path)).scores(rows), scorer_of(row).scores(rows))


@each_row
def test_a_new_class_with_the_descriptor_of_another_scores_like_it(small_dataset, scorer_of, row):
    twin = scorer_of(row).add_classes({"twin": small_dataset.descriptors[3]})
    logits = twin.logits(small_dataset.features[:50])
    np.testing.assert_allclose(logits[:, -1], logits[:, 3], rtol=1e-4, atol=1e-5)
