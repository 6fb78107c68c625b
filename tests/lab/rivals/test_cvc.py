"""CVC-ZSL: its episodes, its logits, and class normalization in its generator."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from classnorm.data import Split, SyntheticConfig, synthetic
from classnorm.methods import resolve
from classnorm.scoring import fit
from classnorm_lab.rivals import cvc
from classnorm_lab.rivals.cvc import Episodes

SMALL = {"hidden": 64, "epochs": 15, "lr": 3e-3, "ways": 16, "batch_size": 64}
LABELS = torch.from_numpy(np.random.default_rng(0).permutation(np.repeat(np.arange(12), np.arange(2, 14))))


def test_an_episode_has_exactly_its_ways_and_shots():
    for number in range(5):
        for rows in Episodes(LABELS, ways=5, shots=4, seed=1).epoch(number):
            classes, counts = LABELS[rows].unique(return_counts=True)
            assert len(classes) == 5
            assert (counts == 4).all()


def test_no_row_comes_twice_where_the_class_has_enough_of_them():
    for rows in Episodes(LABELS, ways=12, shots=4, seed=0).epoch(0):
        for label in range(12):
            own = rows[LABELS[rows] == label]
            assert len(own.unique()) == 4 if label >= 2 else len(own.unique()) <= label + 2


def test_every_row_of_a_class_is_drawn_equally_often():
    episodes = Episodes(LABELS, ways=12, shots=3, seed=0)
    drawn = torch.cat([rows for number in range(600) for rows in episodes.epoch(number)])
    times = drawn.bincount(minlength=len(LABELS)).double()
    for label in range(12):
        own = times[label == LABELS]
        assert (own / own.mean() - 1).abs().max() < 0.25
    assert len(times.unique()) > 5


def test_an_epoch_has_as_many_episodes_as_a_pass_over_the_rows_and_repeats_itself_alone():
    episodes = Episodes(LABELS, ways=5, shots=4, seed=3)
    one, again, other = ([rows.tolist() for rows in episodes.epoch(number)] for number in (2, 2, 3))
    assert len(one) == len(episodes) == -(-len(LABELS) // 20)
    assert one == again
    assert one != other


def test_there_are_never_more_ways_than_classes():
    rows = next(Episodes(LABELS % 3, ways=32, shots=2, seed=0).epoch(0))
    assert (LABELS[rows] % 3).bincount().tolist() == [2, 2, 2]


def test_logits_are_the_learnt_scale_times_the_cosine(small_dataset):
    scorer = fit(small_dataset, method="cvc", calibration="none", **(SMALL | {"epochs": 1}))
    features = torch.from_numpy(small_dataset.features[:6])
    cosine = F.cosine_similarity(features[:, None], torch.from_numpy(scorer.prototypes())[None], dim=2)
    scale = scorer.model.scale.detach()
    assert scale != 10
    torch.testing.assert_close(torch.from_numpy(scorer.logits(features)), scale * cosine, rtol=1e-4, atol=1e-4)


def test_weights_start_as_published_and_with_proper_variance_under_class_normalization():
    plain, normalized = (cvc.build(cvc.CVCConfig(class_norm=on), 50, 400, {}).embedder for on in (False, True))
    assert float(plain.body[0].weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    assert float(plain.output.weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    assert float(normalized.body[0].weight.detach().std()) == pytest.approx(0.02, rel=0.02)
    assert float(normalized.output.weight.detach().var()) == pytest.approx(1 / (400 * 1600), rel=0.02)


def test_two_seen_classes_with_one_row_each_are_enough_to_train():
    dataset = synthetic(SyntheticConfig(classes=4, unseen=2, rows=80, features=8, attributes=5))
    first = [dataset.split.train[dataset.labels[dataset.split.train] == c][0] for c in np.flatnonzero(dataset.seen)]
    few = replace(dataset, split=Split(np.array(first), dataset.split.test_seen, dataset.split.test_unseen))
    for data in (dataset, few):
        scorer = fit(data, method="cvc", calibration="none", hidden=8, epochs=2, class_norm=True)
        assert np.isfinite(scorer.scores(dataset.features)).all()


def test_the_class_norm_recipe_is_the_reference_with_class_normalization(small_dataset):
    reference = resolve(small_dataset, "cvc")[1].as_dict()
    normalized = resolve(small_dataset, "cvc", "class-norm")[1].as_dict()
    assert {name for name in reference if reference[name] != normalized[name]} == {"class_norm"}


def test_the_paper_recipe_has_a_million_episodes_of_32_ways_and_4_shots(small_dataset):
    config = resolve(small_dataset, "cvc", "paper")[1]
    rows_per_episode = 4 * 30  # 30 seen classes are fewer than the 32 ways
    assert config.batch_size // config.ways == 4
    assert config.epochs * -(-len(small_dataset.split.train) // rows_per_episode) == pytest.approx(1e6, rel=0.01)
