"""The Class Normalization method: training, recipes and errors."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.data import SyntheticConfig, ZeroShotDataset, synthetic
from classnorm.errors import ConfigError
from classnorm.methods import resolve
from classnorm.methods.classnorm import Augmentation, prepare
from classnorm.scoring import Scorer, fit


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


def test_the_recipe_best_is_the_same_for_all_data_but_for_its_epochs(small_dataset):
    large = synthetic(SyntheticConfig(classes=10, unseen=3, rows=20_000, features=8))
    few_rows, many_rows = (resolve(data, recipe="best")[1] for data in (small_dataset, large))
    assert many_rows.epochs == 8 < few_rows.epochs
    assert few_rows.replace(epochs=8) == many_rows


def test_the_scorer_of_the_recipe_best_maps_features_as_in_training(small_dataset, tmp_path):
    scorer = fit(small_dataset, recipe="best", hidden=64, epochs=2, calibration="none")
    rows = torch.from_numpy(small_dataset.features[:9])
    transformed = scorer.model.geometry(rows)
    prototypes = F.normalize(torch.from_numpy(scorer.prototypes())[:, :-1], dim=1)
    hubs = (prototypes @ scorer.model.means.T).sort(dim=1).values[:, -3:].mean(dim=1)
    assert np.allclose(
        scorer.logits(small_dataset.features[:9]), 16 * (transformed @ prototypes.T - 0.2 * hubs), atol=1e-4
    )
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
    of_rows, transformed = problem.descriptors[problem.labels[:20]], problem.features[:20]
    for i in range(6):
        errors = []
        for other in range(20):
            apart, offset = of_rows[other] - of_rows[i], descriptors[n_seen + i] - of_rows[i]
            share = float(offset @ apart / apart.square().sum().clamp(min=1e-9))
            mixed = F.normalize(transformed[i] + share * (transformed[other] - transformed[i]), dim=0)
            errors.append(float((offset - share * apart).norm() + (features[20 + i] - mixed).norm()))
        same_class = problem.labels[:20] == problem.labels[i]  # descriptors do not determine their share
        assert min(errors) < 1e-3 or same_class.sum() > 1
