"""The Class Normalization method: training, recipes and errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.data import Split, SyntheticConfig, ZeroShotDataset, synthetic
from classnorm.errors import ConfigError, TrainingError
from classnorm.methods import resolve
from classnorm.methods.classnorm import Augmentation, prepare
from classnorm.metrics import gzsl_scores
from classnorm.scoring import Scorer, fit


def scores(scorer, dataset):
    rows = dataset.test_rows
    return gzsl_scores(scorer.scores(dataset.features[rows]), dataset.labels[rows], dataset.seen)


def test_unseen_classes_are_recognised_far_above_chance(small_dataset, small):
    result = scores(fit(small_dataset, calibration="none", **small), small_dataset)
    assert result.zsl > 40  # chance is 10 %
    assert result.seen > 40  # chance is 2.5 %


@pytest.mark.parametrize(
    "change",
    [
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
    ],
    ids=lambda change: ",".join(f"{k}={v}" for k, v in change.items()),
)
def test_every_choice_of_the_model_trains_and_beats_chance(small_dataset, small, change):
    result = scores(fit(small_dataset, calibration="none", **(small | change)), small_dataset)
    assert result.zsl > 20  # chance is 10 %


def test_the_trained_loss_is_that_of_the_saved_model(small_dataset, small):
    """The loop normalises features once and the scorer in every call: both must mean the same logits."""
    scorer = fit(small_dataset, calibration="none", normalization="none", init="torch", **small)
    rows = small_dataset.split.train
    seen = np.flatnonzero(small_dataset.seen)
    logits = torch.from_numpy(scorer.logits(small_dataset.features[rows])[:, seen])
    cosine = F.cosine_similarity(
        torch.from_numpy(small_dataset.features[rows[:5]])[:, None],
        torch.from_numpy(scorer.prototypes()[seen])[None],
        dim=2,
    )
    torch.testing.assert_close(logits[:5], 25.0 * cosine, rtol=1e-4, atol=1e-4)
    loss = F.cross_entropy(logits, torch.from_numpy(np.searchsorted(seen, small_dataset.labels[rows])))
    assert float(loss) < np.log(len(seen)) / 2


def test_test_rows_and_unseen_descriptors_do_not_touch_the_weights(small_dataset, small):
    """With noise in place of all data that training must not use, the weights are bit-identical."""
    generator = np.random.default_rng(0)
    features, descriptors = small_dataset.features.copy(), small_dataset.descriptors.copy()
    features[small_dataset.test_rows] = generator.random((len(small_dataset.test_rows), features.shape[1]))
    descriptors[~small_dataset.seen] = generator.random((10, descriptors.shape[1])) + 1
    blinded = replace(small_dataset, features=features, descriptors=descriptors)
    settings = small | {"attribute_normalization": "standardize", "init": "data_dependent", "calibration": "validation"}
    one, other = fit(small_dataset, **settings), fit(blinded, **settings)
    assert one.calibration == other.calibration
    for ours, theirs in zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_same_seed_gives_the_same_scores_and_another_seed_others(small_dataset, small):
    logits = [
        fit(small_dataset, seed=s, calibration="none", **small).logits(small_dataset.features[:50]) for s in (0, 0, 1)
    ]
    assert np.array_equal(logits[0], logits[1])
    assert not np.array_equal(logits[0], logits[2])


def test_two_seen_classes_are_enough_to_train(small):
    dataset = synthetic(SyntheticConfig(classes=4, unseen=2, rows=80, features=8, attributes=5))
    scorer = fit(dataset, calibration="none", **small)
    assert np.isfinite(scorer.scores(dataset.features)).all()


def test_one_seen_class_is_refused(small_dataset, small):
    train = small_dataset.split.train
    one = train[small_dataset.labels[train] == small_dataset.labels[train[0]]]
    dataset = replace(small_dataset, split=Split(one, one[:0], small_dataset.split.test_unseen))
    with pytest.raises(ConfigError, match="at least 2 seen classes"):
        fit(dataset, calibration="none", **small)


def test_half_precision_features_give_nearly_the_same_scores(small_dataset, small):
    halved = replace(small_dataset, features=small_dataset.features.astype(np.float16))
    one = scores(fit(small_dataset, calibration="none", **small), small_dataset)
    other = scores(fit(halved, calibration="none", **small), halved)
    assert abs(one.harmonic - other.harmonic) < 3


def test_dot_products_with_a_wild_learning_rate_diverge_with_a_hint(small_dataset, small):
    wild = replace(small_dataset, features=small_dataset.features * np.float32(1e18))
    with pytest.raises(TrainingError, match='logits="cosine"'):
        fit(wild, calibration="none", **(small | {"logits": "dot", "lr": 1e18}))


def named(names, n_rows):
    """A constant dataset with these class names and this number of rows."""
    labels = np.arange(n_rows) % len(names)
    return ZeroShotDataset.from_arrays(
        np.ones((n_rows, 2), np.float32), labels, np.ones((len(names), 3)), names, train=np.arange(len(names) - 1)
    )


def test_the_reference_recipe_validates_on_unknown_datasets(small_dataset):
    assert resolve(small_dataset, recipe="reference")[1].calibration == "validation"


def test_the_recipe_literal_is_the_text_of_the_paper(small_dataset):
    paper, literal = (resolve(small_dataset, recipe=recipe)[1] for recipe in ("paper", "literal"))
    changes = {"attribute_normalization": "unit-plain", "standardize_before_relu": False, "output_bias": False}
    assert literal == paper.replace(final_relu=False, **changes)
    embedder = fit(small_dataset, recipe="literal", hidden=8, epochs=1, calibration="none").model.embedder
    assert embedder.output.bias is None
    assert " ".join(type(block).__name__ for block in embedder.body) == "Linear ReLU Linear ReLU ClassStandardization"


def test_an_added_setting_is_stored_only_if_it_is_not_the_default(small_dataset):
    config = resolve(small_dataset)[1]
    assert "output_bias" not in config.as_dict()
    changed = config.replace(output_bias=False)
    assert changed.as_dict() == config.as_dict() | {"output_bias": False}
    assert type(config)(**changed.as_dict()) == changed


def test_a_linear_model_without_a_bias_is_a_matrix(small_dataset, tmp_path):
    changes = {"layers": 1, "output_bias": False, "final_relu": False, "attribute_normalization": "none"}
    scorer = fit(small_dataset, epochs=1, calibration="none", **changes)
    scorer.save(tmp_path / "model")
    embedder = Scorer.load(tmp_path / "model").model.embedder
    descriptors = torch.from_numpy(np.asarray(small_dataset.descriptors, np.float32))
    torch.testing.assert_close(embedder(descriptors), descriptors @ embedder.output.weight.T)
    torch.testing.assert_close(embedder(2 * descriptors), 2 * embedder(descriptors))


def test_the_baseline_differs_from_the_reference_in_class_normalization_alone(small_dataset):
    reference = resolve(small_dataset, recipe="reference")[1].as_dict()
    baseline = resolve(small_dataset, recipe="baseline")[1].as_dict()
    differing = {name: baseline[name] for name in reference if reference[name] != baseline[name]}
    assert differing == {"normalization": "none", "init": "torch"}


@pytest.mark.parametrize(("n_classes", "batch", "lr", "width"), [(101, 512, 5e-3, 2048), (100, 128, 2e-3, 512)])
def test_the_paper_recipe_treats_other_datasets_by_their_number_of_classes(n_classes, batch, lr, width):
    config = resolve(named([f"c{i}" for i in range(n_classes)], 500), recipe="paper")[1]
    assert (config.batch_size, config.lr, config.hidden) == (batch, lr, width)


def test_an_unknown_recipe_or_method_suggests_the_nearest_name(small_dataset):
    with pytest.raises(ConfigError, match="did you mean 'reference'"):
        fit(small_dataset, recipe="refrence")
    with pytest.raises(ConfigError, match="did you mean 'classnorm'"):
        fit(small_dataset, method="clasnorm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden": 3}, "did you mean 'hidden'"),
        ({"hidden": "wide"}, "hidden cannot be 'wide'"),
        ({"hidden": True}, "hidden cannot be True"),
        ({"logits": "cosin"}, "did you mean 'cosine'"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"gamma": "five"}, "gamma cannot be 'five'"),
        ({"layers": 0}, "layers is 0"),
        ({"calibration": "scale:-1"}, "calibration 'scale:-1' is not understood"),
        ({"calibration": "validation:magic"}, "is not understood"),
        ({"validation_splits": 0}, "validation_splits"),
    ],
)
def test_unknown_or_invalid_settings_are_refused(small_dataset, change, message):
    with pytest.raises(ConfigError, match=message):
        fit(small_dataset, **({"epochs": 1, "hidden": 8} | change))


def test_the_recipe_best_learns_and_is_the_same_for_all_data(small_dataset):
    result = scores(fit(small_dataset, recipe="best", hidden=64, calibration="none"), small_dataset)
    assert result.zsl > 40  # chance is 10 %
    large = synthetic(SyntheticConfig(classes=10, unseen=3, rows=20_000, features=8))
    few_rows, many_rows = (resolve(data, recipe="best")[1] for data in (small_dataset, large))
    assert many_rows.epochs == 8 < few_rows.epochs
    assert few_rows.replace(epochs=8) == many_rows


def test_the_scorer_of_the_recipe_best_maps_features_as_in_training(small_dataset, tmp_path):
    scorer = fit(small_dataset, recipe="best", hidden=64, epochs=2, calibration="none")
    rows = torch.from_numpy(small_dataset.features[:9])
    placed = scorer.model.geometry(rows)
    prototypes = F.normalize(torch.from_numpy(scorer.prototypes())[:, :-1], dim=1)
    hubs = (prototypes @ scorer.model.means.T).sort(dim=1).values[:, -3:].mean(dim=1)
    assert np.allclose(scorer.logits(small_dataset.features[:9]), 16 * (placed @ prototypes.T - 0.2 * hubs), atol=1e-4)
    scorer.save(tmp_path)
    assert np.array_equal(Scorer.load(tmp_path).scores(rows.numpy()), scorer.scores(rows.numpy()))


def test_the_augmentation_of_a_step_depends_only_on_seed_and_step(small_dataset):
    """So an interrupted run resumes to the same result."""
    config = resolve(small_dataset, recipe="best", hidden=32)[1]
    problem = prepare(small_dataset, config, 0, torch.device("cpu"))
    features, labels = problem.features[:20], problem.labels[:20]

    def drawn(seed, step):
        augmentation = Augmentation(problem, config, seed)
        augmentation.start(step)
        return augmentation(features, labels)

    first, again, later, other = drawn(0, 7), drawn(0, 7), drawn(0, 8), drawn(1, 7)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], later[0])
    assert not torch.equal(first[0], other[0])


def test_a_virtual_class_is_a_mixture_of_two_rows_and_of_their_descriptors(small_dataset):
    config = resolve(small_dataset, recipe="best", hidden=32, virtual_classes=6, descriptor_noise=0.0)[1]
    problem = prepare(small_dataset, config, 0, torch.device("cpu"))
    n_seen = len(problem.descriptors)
    augmentation = Augmentation(problem, config, 0)
    augmentation.start(0)
    features, labels, descriptors = augmentation(problem.features[:20], problem.labels[:20])
    assert features.shape[0] == 26 and descriptors.shape[0] == n_seen + 6
    assert labels[20:].tolist() == list(range(n_seen, n_seen + 6))
    # The same share of the same two rows must explain a virtual row and its descriptor.
    of_rows, placed = problem.descriptors[problem.labels[:20]], problem.features[:20]
    for i in range(6):
        errors = []
        for other in range(20):
            apart, offset = of_rows[other] - of_rows[i], descriptors[n_seen + i] - of_rows[i]
            share = float(offset @ apart / apart.square().sum().clamp(min=1e-9))
            mixed = F.normalize(placed[i] + share * (placed[other] - placed[i]), dim=0)
            errors.append(float((offset - share * apart).norm() + (features[20 + i] - mixed).norm()))
        same_class = problem.labels[:20] == problem.labels[i]  # descriptors do not determine their share
        assert min(errors) < 1e-3 or same_class.sum() > 1


@pytest.mark.parametrize("bad", [{"virtual_classes": -1}, {"descriptor_noise": -0.1}, {"final_relu": True}])
def test_invalid_settings_of_the_recipe_best_are_refused(small_dataset, bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        fit(small_dataset, recipe="best", **bad)
