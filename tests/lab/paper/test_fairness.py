"""No arm of a comparison differs from its baseline in anything but what its label says."""

import pytest

from classnorm_lab.diagnoses.smoothness import INITIALIZATIONS, smoothness_tasks
from classnorm_lab.diagnoses.variance import variance_tasks
from classnorm_lab.paper import beyond, leaderboard
from classnorm_lab.paper.catalog import CATALOG
from classnorm_lab.paper.tables import TABLES
from classnorm_lab.paper.variants import CVC, LONGER, RELATIONNET, THREE_LAYERS, Variant, in_recipe

SAYS = {
    "+ CN": {"normalization", "init", "class_norm"},
    "+CN": {"normalization", "init"},
    "standardization (eq. 9)": {"normalization"},
    "proper variance (eq. 10)": {"init"},
    "no final ReLU": {"final_relu"},
    "-NS": {"logits"},
    "-AN": {"attribute_normalization"},
    "1/d_a": {"attribute_correction"},
    "γ = ": {"gamma"},
    "2-layer": {"layers"},
    "Linear": {"layers", "final_relu", "output_bias"},  # V·a: the notes of its tables say so
    "Dynamic Normalization": {"normalization", "init"},
    "Xavier": {"init"},
    "Kaiming": {"init"},
    "light: ": {"hidden", "epochs"},
    "closed form": {"closed_form"},
    "no square root": {"power"},
    "whitening": {"whitening"},
    "within-class covariance": {"within", "error_share"},
    "classes left out": {"within", "error_share"},
    "power of the descriptors": {"descriptor_power"},
    "average with the closed form": {"closed_share"},
    "no hubness correction": {"length", "hubness"},
    "no linear map": {"map_rate"},
    "without CN": {"normalization", "init"},
    "without the feature geometry": {"geometry"},
    "final ReLU": {"final_relu"},
    "without virtual classes": {"virtual_classes"},
    "without descriptor noise": {"descriptor_noise"},
}
"""Part of a label → settings in which its row may differ from the baseline."""
UNCHANGED = {"γ = 5"}
"""Parts of labels that name the baseline's own value."""


def baseline(variant: Variant) -> Variant:
    if variant.method == "relationnet":
        return LONGER[0] if variant.recipe == "paper" else RELATIONNET
    if variant.method == "cvc":
        return LONGER[2] if variant.recipe == "paper" else CVC
    if variant.method == "kernel":
        return Variant("Kernel prototypes", method="kernel")
    if variant.method != "classnorm":
        return variant
    if variant.recipe == "best":
        return Variant("best", recipe="best")
    return THREE_LAYERS if variant.recipe == "reference" else in_recipe(variant.recipe)[0]


def said(label: str) -> set[str]:
    return set().union(*(settings for part, settings in SAYS.items() if part in label))


def changed(first, second):
    return {name for name in first | second if first.get(name, "default") != second.get(name, "default")}


ROWS = [
    *((name, variant) for name, spec in TABLES.items() for variant in spec.variants),
    *(("beyond", variant) for _, variants in beyond.ABLATIONS for variant in variants),
    *(("beyond", variant) for variant in beyond.SWEEP.values()),
]


@pytest.mark.parametrize(("table", "variant"), ROWS, ids=lambda value: getattr(value, "label", value))
def test_a_row_differs_from_its_baseline_in_what_its_label_says(reproduce, tiny, tmp_path, table, variant):
    assert table in CATALOG
    reproduction = reproduce(tmp_path, tiny)
    row, base = (reproduction.experiment(v, tiny, 0) for v in (variant, baseline(variant)))
    differing = changed(row.config.as_dict(), base.config.as_dict())
    assert differing <= said(variant.label), f"{variant.label}: {differing - said(variant.label)}"
    if said(variant.label) and variant.changes and not any(variant.label.endswith(part) for part in UNCHANGED):
        assert differing
    assert (row.dataset.checksum, row.method, row.seed) == (base.dataset.checksum, base.method, base.seed)


@pytest.mark.parametrize("table", TABLES)
def test_claims_compare_rows_that_differ_in_what_their_labels_say(reproduce, tiny, tmp_path, table):
    reproduction = reproduce(tmp_path, tiny)
    for claim in TABLES[table].claims:
        better, worse = (reproduction.experiment(v, tiny, 0) for v in (claim.better, claim.worse))
        differing = changed(better.config.as_dict(), worse.config.as_dict())
        assert differing
        assert differing <= said(claim.better.label) | said(claim.worse.label), claim.text
        assert better.method == worse.method


def test_every_row_is_calibrated_in_the_same_way(reproduce, tiny, tmp_path):
    reproduction = reproduce(tmp_path, tiny)
    configs = [reproduction.experiment(variant, tiny, 0).config for _, variant in ROWS]
    assert {(c.calibration, c.validation, c.validation_splits) for c in configs} == {("validation", "matched", 1)}


@pytest.mark.parametrize("label", ["RelationNet", "CVC-ZSL", "3-layer MLP"])
def test_entries_of_the_leaderboard_with_and_without_cn_have_the_same_search(reproduce, tiny, tmp_path, label):
    entries = {entry.label: entry for entry in leaderboard.ENTRIES}
    reproduction = reproduce(tmp_path, tiny)
    (plain, space), (cn, cn_space) = (
        leaderboard.search_space(reproduction, tiny, entries[name]) for name in (label, f"{label} + CN")
    )
    assert space == cn_space
    assert changed(plain.as_dict(), cn.as_dict()) <= said(f"{label} + CN")


def test_arms_of_the_variance_figure_differ_in_what_their_labels_say(tiny):
    says = {"−NS": {"logits"}, "−AN": {"attribute_normalization"}, "√d_a": {"attribute_normalization"}}
    says |= {"+ CN": {"normalization", "init"}, "Linear": {"layers", "final_relu", "output_bias", "init"}}
    tasks = variance_tasks("tiny", tiny.dataset, seeds=1, iterations=3)
    base = tasks["tiny", "3-layer MLP", "+NS +AN", 0]
    for (_, model, variant, _), task in tasks.items():
        allowed = set().union(*(names for part, names in says.items() if part in f"{model} {variant}"))
        assert changed(task.config.as_dict(), base.config.as_dict()) <= allowed, f"{model} {variant}"
        assert task.settings == base.settings


def test_arms_of_the_smoothness_figure_have_one_config_and_one_initialisation(tiny):
    size = {"seeds": 1, "iterations": 3, "every": 1, "width": 8}
    tasks = smoothness_tasks("tiny", tiny.dataset, inits=tuple(INITIALIZATIONS), **size)
    for (_, init, model, _), task in tasks.items():
        first = tasks["tiny", init, "MLP classifier", 0]
        assert task.config == first.config
        assert task.settings == first.settings | {"model": model}
        assert INITIALIZATIONS[task.settings["init"]] == init
