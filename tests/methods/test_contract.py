"""The contract that every registered method meets."""

import dataclasses
import json
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from classnorm.data import Split, SyntheticConfig, synthetic
from classnorm.errors import ConfigError, DataError, TrainingError
from classnorm.methods import METHODS, FitContext, FitJob, resolve
from classnorm.methods.space import grid
from classnorm.scoring import Scorer, fit

# Numbers that may be 0: a weight, a share or a count that switches something off.
MAY_BE_ZERO = {
    *("adversarial_weight", "attention_weight", "centroid_weight", "classification_weight", "classifier_reach"),
    *("closed_share", "creativity_weight", "descriptor_noise", "dropout", "dual_weight", "entropy_weight"),
    *("error_share", "feedback_weight", "gate_weight", "generated", "grad_clip", "gradient_penalty", "hubness"),
    *("length", "lr_drop", "lr_drop_at", "map_rate", "margin_weight", "margin_width", "momentum", "parts", "penalty"),
    *("realism_weight", "reconstruction_weight", "refine_steps", "regression_weight", "relation_slack"),
    *("relation_weight", "semantic_weight", "shrinkage", "spread", "triplet_weight", "virtual_classes"),
    *("visual_weight", "warmup", "weight_decay", "whitening", "within"),
}
AT_MOST_ONE = {
    *("closed_share", "dropout", "error_share", "hubness", "map_rate", "shrinkage", "spread", "warmup", "whitening"),
    "within",
}
each_method = pytest.mark.parametrize("method", [name for name in METHODS if name != "clip"])  # see test_clip.py


@each_method
def test_the_same_seed_gives_the_same_scores_to_the_bit(tiny_data, fast_settings, tiny_scorer, method):
    again = fit(tiny_data, method, seed=0, **fast_settings(method))
    assert np.array_equal(again.scores(tiny_data.features), tiny_scorer(method).scores(tiny_data.features))


@each_method
def test_rows_outside_training_do_not_change_a_bit_of_the_weights(tiny_data, fast_settings, tiny_scorer, method):
    features = tiny_data.features.copy()
    outside = np.setdiff1d(np.arange(tiny_data.n_rows), tiny_data.split.train)
    features[outside] = np.random.default_rng(1).uniform(0.0, 9.0, (len(outside), tiny_data.d_z))
    other = fit(replace(tiny_data, features=features), method, **fast_settings(method)).model.state_dict()
    weights = tiny_scorer(method).model.state_dict()
    assert other.keys() == weights.keys()
    assert all(torch.equal(other[name], weights[name]) for name in weights)


@each_method
def test_descriptors_of_unseen_classes_change_the_weights_only_of_methods_that_say_so(
    tiny_data, fast_settings, tiny_scorer, method
):
    descriptors = tiny_data.descriptors.copy()
    unseen = ~tiny_data.seen
    descriptors[unseen] = np.random.default_rng(2).uniform(0.0, 1.0, (unseen.sum(), tiny_data.d_a))
    other = fit(replace(tiny_data, descriptors=descriptors), method, **fast_settings(method)).model.state_dict()
    weights = tiny_scorer(method).model.state_dict()
    changed = any(not torch.equal(other[name], weights[name]) for name in weights if name != "descriptors")
    assert changed == METHODS[method].sees_unseen


@each_method
def test_an_interrupted_training_resumes_to_the_same_weights(
    tiny_data, fast_settings, tiny_scorer, method, tmp_path, watching
):
    if "epochs" not in {field.name for field in dataclasses.fields(METHODS[method].config)}:
        pytest.skip("skipped: the method is not trained in epochs")

    def stop(_, epoch):
        if epoch.done == 2:
            raise KeyboardInterrupt

    job = FitJob(tiny_data, METHODS[method], resolve(tiny_data, method, **fast_settings(method))[1])
    context = FitContext(torch.device("cpu"), tmp_path / "training.safetensors", checkpoint_every=1)
    with pytest.raises(KeyboardInterrupt), watching(stop):
        job.fit(context)
    resumed = job.fit(replace(context, resume=True))
    assert [record["epoch"] for record in resumed.history] == [1, 2, 3]
    weights = tiny_scorer(method).model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in resumed.model.state_dict().items())


@each_method
def test_another_seed_gives_other_scores_where_training_draws(tiny_data, fast_settings, tiny_scorer, method):
    scores = fit(tiny_data, method, seed=7, **fast_settings(method)).scores(tiny_data.features)
    assert np.isfinite(scores).all()
    draws = "epochs" in {field.name for field in dataclasses.fields(METHODS[method].config)}
    assert np.array_equal(scores, tiny_scorer(method).scores(tiny_data.features)) != draws


@each_method
def test_a_saved_scorer_loads_with_the_same_scores(tiny_data, tiny_scorer, method, tmp_path):
    loaded = Scorer.load(tiny_scorer(method).save(tmp_path), "cpu")
    assert np.array_equal(loaded.scores(tiny_data.features), tiny_scorer(method).scores(tiny_data.features))
    assert (loaded.method, loaded.config, loaded.class_names) == (
        method,
        tiny_scorer(method).config,
        tiny_data.class_names,
    )


@each_method
def test_classes_added_at_prediction_time_get_scores_and_leave_the_others_alone(tiny_data, tiny_scorer, method):
    generator = np.random.default_rng(zlib.crc32(method.encode()))
    between = np.array([generator.permutation(column)[:2] for column in tiny_data.descriptors.T]).T
    more = tiny_scorer(method).add_classes({"okapi": between[0], "quagga": between[1]})
    scores = more.scores(tiny_data.features[:30])
    assert scores.shape == (30, tiny_data.n_classes + 2)
    assert np.isfinite(scores).all()
    known = tiny_scorer(method).scores(tiny_data.features[:30])
    np.testing.assert_allclose(scores[:, : tiny_data.n_classes], known, rtol=1e-3, atol=1e-4)
    assert np.abs(scores[:, -1] - scores[:, -2]).max() > 0, "two descriptors, one score"


@each_method
def test_an_added_class_scores_the_same_after_saving(tiny_data, tiny_scorer, method, tmp_path):
    more = tiny_scorer(method).add_classes({"okapi": tiny_data.descriptors.mean(axis=0)})
    loaded = Scorer.load(more.save(tmp_path), "cpu")
    assert np.array_equal(loaded.scores(tiny_data.features[:30]), more.scores(tiny_data.features[:30]))


@each_method
def test_classes_left_out_do_not_change_the_scores_of_the_rest(tiny_data, tiny_scorer, method):
    index = [12, 3, 7]
    few = tiny_scorer(method).only([tiny_data.class_names[c] for c in index]).scores(tiny_data.features[:30])
    whole = tiny_scorer(method).scores(tiny_data.features[:30])
    np.testing.assert_allclose(few, whole[:, index], rtol=1e-3, atol=1e-4)


@each_method
def test_scores_do_not_depend_on_which_rows_come_together(tiny_data, tiny_scorer, method):
    whole = tiny_scorer(method).scores(tiny_data.features[:12])
    pieces = np.concatenate([tiny_scorer(method).scores(tiny_data.features[i : i + 1]) for i in range(12)])
    np.testing.assert_allclose(pieces, whole, rtol=1e-3, atol=1e-4)


@each_method
def test_features_of_another_width_are_refused(tiny_scorer, method):
    with pytest.raises(DataError, match=r"trained on \[n, 16\]"):
        tiny_scorer(method).scores(np.ones((3, 15), np.float32))


@each_method
def test_one_seen_class_is_refused(tiny_data, fast_settings, method):
    train = tiny_data.split.train
    one = train[tiny_data.labels[train] == tiny_data.labels[train[0]]]
    alone = replace(tiny_data, split=Split(one, one[:0], tiny_data.split.test_unseen))
    with pytest.raises(ConfigError, match="at least 2 seen classes"):
        fit(alone, method, **fast_settings(method))


@each_method
def test_two_seen_classes_are_enough(fast_settings, method):
    few = synthetic(SyntheticConfig(classes=4, unseen=2, rows=80, features=8, attributes=5))
    assert np.isfinite(fit(few, method, **fast_settings(method)).scores(few.features)).all()


@each_method
def test_a_seen_class_with_a_single_row_is_enough(tiny_data, fast_settings, method):
    train = tiny_data.split.train
    lonely = np.flatnonzero(tiny_data.labels[train] == tiny_data.labels[train[0]])[1:]
    thinned = replace(tiny_data, split=replace(tiny_data.split, train=np.delete(train, lonely)))
    assert np.isfinite(fit(thinned, method, **fast_settings(method)).scores(thinned.features)).all()


@each_method
def test_features_of_either_sign_train(tiny_data, fast_settings, method):
    shifted = replace(tiny_data, features=tiny_data.features - tiny_data.features.mean(axis=0))
    assert np.isfinite(fit(shifted, method, **fast_settings(method)).scores(shifted.features)).all()


@each_method
def test_half_precision_features_give_nearly_the_same_scores(tiny_data, fast_settings, tiny_scorer, method):
    halved = replace(tiny_data, features=tiny_data.features.astype(np.float16))
    scores = fit(halved, method, **fast_settings(method)).scores(halved.features)
    assert np.corrcoef(scores.ravel(), tiny_scorer(method).scores(tiny_data.features).ravel())[0, 1] > 0.99


@each_method
def test_a_calibration_by_validation_works_from_end_to_end(tiny_data, fast_settings, method):
    scorer = fit(tiny_data, method, **fast_settings(method, calibration="validation:bias", validation_splits=1))
    assert scorer.calibration.kind in ("bias", "none")
    assert np.isfinite(scorer.scores(tiny_data.features)).all()


@each_method
def test_the_two_common_recipes_exist_and_are_valid(tiny_data, method):
    for recipe in ("reference",) if method == "kernel" else ("paper", "reference"):  # kernel has no publication
        resolve(tiny_data, method, recipe)


@each_method
def test_configs_survive_json(tiny_data, method):
    for recipe in METHODS[method].recipes:
        _, config = resolve(tiny_data, method, recipe)
        document = json.loads(json.dumps(config.as_dict()))
        assert METHODS[method].config(**document) == config
        assert METHODS[method].config().replace(**document) == config


@each_method
@pytest.mark.parametrize(
    "change",
    [
        {"calibration": "scale:-1"},
        {"calibration": "magic"},
        {"validation_splits": 0, "calibration": "validation"},
    ],
    ids=str,
)
def test_invalid_values_are_refused(tiny_data, fast_settings, method, change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        fit(tiny_data, method, **fast_settings(method, **change))


def values_outside(method, field):
    """Values that the method refuses: negative ones, what is no number, and 0 or 1.5 where they mean nothing."""
    if type(field.default) not in (int, float) or field.name == "validation_splits":
        return []
    values = [-1] if isinstance(field.default, int) else [-1.0, float("nan"), float("inf")]
    if field.name not in MAY_BE_ZERO and (method, field.name) != ("sgal", "margin"):
        values.append(type(field.default)(0))
    return values + [1.5] * (field.name in AT_MOST_ONE)


@each_method
def test_a_number_outside_its_range_is_refused_by_name(tiny_data, fast_settings, method):
    for field in dataclasses.fields(METHODS[method].config):
        if (method, field.name) != ("classnorm", "entropy_weight"):  # any number
            for value in values_outside(method, field):
                with pytest.raises(ConfigError, match=f"{field.name} is {value}"):
                    fit(tiny_data, method, **fast_settings(method, **{field.name: value}))


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("classnorm", {"hiden": 3}, "did you mean 'hidden'"),
        ("classnorm", {"hidden": "wide"}, "hidden cannot be 'wide'"),
        ("classnorm", {"hidden": True}, "hidden cannot be True"),
        ("classnorm", {"logits": "cosin"}, "did you mean 'cosine'"),
        ("classnorm", {"gamma": "five"}, "gamma cannot be 'five'"),
        ("classnorm", {"calibration": "validation:magic"}, "is not understood"),
        ("classnorm", {"sampled_classes": -1}, "sampled_classes is -1; it must be at least 0"),
        ("classnorm", {"recipe": "best", "final_relu": True}, "final_relu"),
        ("kernel", {"blocks": "8", "block_weights": "1,2"}, "a number from 0 for each"),
        ("kernel", {"blocks": "30,9"}, "add up to the 8 descriptor dimensions"),
        ("kernel", {"blocks": "x"}, "add up to the 8 descriptor dimensions"),
        ("kernel", {"blocks": "16,-8"}, "add up to the 8 descriptor dimensions"),
        ("kernel", {"sampled_classes": -1}, "sampled_classes is -1; it must be at least 0"),
        ("eszsl", {"feature_penalty": 0.0}, "feature_penalty is 0.0; it must be positive"),
        ("sync", {"penalty": -1.0}, "penalty is -1.0; it must be at least 0"),
        ("sync", {"loss": "hinge"}, "hinge"),
        ("conse", {"top": 0}, "top is 0; it must be at least 1"),
        ("ale", {"feature_normalization": "unti"}, "feature_normalization"),
        ("cvc", {"ways": 1}, "ways is 1"),
        ("cvc", {"ways": 32, "batch_size": 31}, "batch_size is 31; it must be at least the 32 ways"),
        ("cvc", {"logits": "cos"}, "logits"),
        ("dcn", {"dropout": 1.0}, "dropout is 1.0"),
        ("sgal", {"dropout": 1.0}, "dropout is 1.0"),
        ("sgal", {"warmup": 1.5}, "warmup is 1.5; it must lie between 0 and 1"),
        ("dvbe", {"positions": 7}, "positions is 7, which does not divide the .* extract with `maps`"),
        ("sgma", {"positions": 9}, "positions is 9, which does not divide the .* extract with `maps`"),
        ("sgma", {"positions": 3}, "positions is 3; it must be a square number"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_what_to_do(tiny_data, fast_settings, method, change, message):
    with pytest.raises(ConfigError, match=message):
        fit(tiny_data, method, **fast_settings(method, **change))


@pytest.mark.parametrize(
    ("method", "wild", "hint"),
    [
        ("classnorm", {"logits": "dot", "lr": 1e18}, 'logits="cosine"'),
        ("epgn", {"lr": 1e25}, "lower `lr`"),
        ("fclswgan", {"lr": 1e25}, "lower `lr`"),
        ("fvaegan", {"lr": 1e25}, "lower `lr`"),
        ("zsml", {"inner_lr": 1e25}, "lower `inner_lr` or `lr`$"),
    ],
)
def test_a_wild_learning_rate_diverges_in_one_line_with_a_hint(tiny_data, fast_settings, method, wild, hint):
    far = replace(tiny_data, features=tiny_data.features * np.float32(1e18)) if method == "classnorm" else tiny_data
    with pytest.raises(TrainingError, match="diverged") as caught:
        fit(far, method, **fast_settings(method, **wild))
    assert re.search(hint, str(caught.value)) and "\n" not in str(caught.value)


@each_method
def test_an_unknown_setting_is_refused_by_name(tiny_data, method):
    with pytest.raises(ConfigError, match="unknown setting 'colour'"):
        fit(tiny_data, method, colour="red")


@each_method
def test_there_is_a_space_to_search_for_either_sampler(method):
    assert METHODS[method].space
    assert len(grid(METHODS[method].search_space("grid"))) > 1


@each_method
def test_a_model_has_parameters_to_count(tiny_scorer, method):
    assert sum(parameter.numel() for parameter in tiny_scorer(method).model.parameters()) > 0
