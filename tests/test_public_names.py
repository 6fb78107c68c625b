"""Names that others build on: Python names with their parameters, commands with their options, JSON keys, bundle keys.

A name may join a list; one that is missing is a renaming that breaks somebody's code.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from importlib.metadata import entry_points

import numpy as np
import pytest

from classnorm import ClassNormClassifier
from classnorm.cli import commands, main
from classnorm.continual import STRATEGIES
from classnorm.data import load, save_bundle
from classnorm.methods import METHODS

# Parameters in their order; others may stand between and after them.
PYTHON = {
    "classnorm:fit": "dataset method recipe seed device",
    "classnorm:ClassNormClassifier": "method recipe settings random_state device verbose",
    "classnorm:ClassNormClassifier.fit": "X y descriptors",
    "classnorm:ClassNormClassifier.predict": "X classes",
    "classnorm:ClassNormClassifier.predict_proba": "X classes",
    "classnorm:ClassNormClassifier.add_classes": "descriptors",
    "classnorm:Scorer.save": "folder",
    "classnorm:Scorer.load": "path device",
    "classnorm:Scorer.scores": "features",
    "classnorm:Scorer.probabilities": "features",
    "classnorm:Scorer.predict": "features",
    "classnorm:Scorer.top": "features k",
    "classnorm:Scorer.prototypes": "",
    "classnorm:Scorer.only": "names",
    "classnorm:Scorer.add_classes": "descriptors",
    "classnorm:Scorer.add_examples": "features labels",
    "classnorm:Scorer.adapt": "features",
    "classnorm:Scorer.novelty": "features",
    "classnorm:Scorer.known": "features reject",
    "classnorm:Scorer.prediction_sets": "features coverage",
    "classnorm:Scorer.explain": "features top",
    "classnorm.nn:ClassStandardization": "d_h divide_by momentum eps",
    "classnorm.nn:AttributeEmbedder": "d_a d_z layers hidden normalization init seed",
    "classnorm.nn:cosine_logits": "features prototypes gamma",
    "classnorm.nn:gamma_for_variance": "variance d_z",
    "classnorm.nn:proper_variance_": "layer distribution generator",
    "classnorm.metrics:gzsl_scores": "logits labels seen_mask average",
    "classnorm.metrics:ausuc": "logits labels seen_mask average",
    "classnorm.metrics:continual_scores": "logits_history labels tasks average",
    "classnorm.data:load": "source features attributes memory max_bytes",
}
RECIPES = {
    "classnorm": "paper literal reference fast baseline best",
    "kernel": "reference closed-form earlier",
    "clip": "reference",
    "cvc": "paper reference class-norm",
    "relationnet": "paper reference class-norm",
    "lsrgan": "paper reference released",
}
PAPER_AND_REFERENCE = (
    "ale cizsl conse dascn dcn dem devise dvbe epgn eszsl fclswgan fvaegan sae sgal sgma sje sync tfvaegan zsml"
)
RECIPES |= dict.fromkeys(PAPER_AND_REFERENCE.split(), "paper reference")
STRATEGY_NAMES = "sequential multitask ewc mas agem replay lwf analytic ranpac acil"

OUTPUT = "--json --quiet --plugin "
DATA = OUTPUT + "--features --attributes --memory --max-bytes "
PICTURES = OUTPUT + "--encoder --size --weights --device "
DESCRIBED = "--descriptions --text-encoder --template --like --hold-out --unseen --split-seed --strict "
PARALLEL = "--backend --jobs --address --gpus "
SEEDS = "--seed --seeds --out --label --device --resume "
TRAINING = "--epochs --batch-size --lr --momentum --hidden --gamma --final-relu --init-distribution --grad-clip "
NETWORK = "--layers --normalization --attribute-normalization --init --logits --calibration --validation-splits "
COMMANDS = {
    "train": f"DATA {DATA}{PICTURES}{DESCRIBED}{SEEDS}{TRAINING}{NETWORK}"
    "--method --recipe --images --flip --checkpoint-every",
    "evaluate": f"MODEL DATA {DATA}{PICTURES}--average --calibration",
    "predict": f"MODEL IMAGES|FEATURES {PICTURES}"
    "--descriptors --examples --only --top --reject --coverage --out --block-mb",
    "explain": f"MODEL IMAGES|FEATURES {PICTURES}--class --top --descriptions --attribute-names --out",
    "adapt": f"MODEL {PICTURES}--examples --unlabelled --out --force",
    "add-class": f"MODEL {OUTPUT}--descriptors --out",
    "suggest": f"MODEL {PICTURES}--unlabelled --count --classes",
    "search": f"DATA {DATA}{PARALLEL}{TRAINING}{NETWORK}"
    "--method --recipe --space --seeds --seed --out --sampler --trials --seconds --batch --splits --no-prune "
    "--recipe-first",
    "continual": f"DATA {DATA}{SEEDS}{PARALLEL}{TRAINING}"
    "--strategy --class-norm --tasks --image-split --descriptors --encoder --size --images --weights --freeze-blocks "
    "--validation-tasks --select --select-grid --calibrate --blurry --returning --imbalance --late-attributes "
    "--rows-at-once --bias --lr-decay --encoder-lr --encoder-momentum --augment --batch-norm",
    "report": f"RUNS {OUTPUT}--out --title --against --format",
    "extract": f"IMAGES {DATA}{PICTURES}{DESCRIBED}{PARALLEL}"
    "--out --flip --batch-size --dtype --maps --shard --rows-per-shard --unlabelled",
    "describe": f"CLASSES {OUTPUT}--out --encoder --template --attributes",
    "export": f"MODEL FILE.onnx {OUTPUT}--opset --encoder-inside --weights",
    "serve": f"MODEL {OUTPUT}--host --port --token --models --state --saved --allowed-host --workers --body-mb --files "
    "--megapixels --rows --top --classes --examples --name-length --text-length --in-flight --received-mb "
    "--connections --header-kb --header-seconds --body-seconds --answer-seconds --stop-seconds --session-mb "
    "--session-days --sessions-mb",
    "data check": f"DATA {DATA}",
    "data convert": f"DATA TARGET {DATA}--out --dtype --rows-per-shard",
    "data fetch": f"{OUTPUT}--out --mirror",
    "data merge": f"PART {OUTPUT}--out",
    "data synthesize": f"{OUTPUT}--rows --classes --unseen --features-dim --attributes-dim --noise --dtype "
    "--rows-per-shard --out --seed",
    "reproduce": f"NAME {OUTPUT}{PARALLEL}--data-root --data --light --one-seed --features --image-split --seeds "
    "--quick --images --encoder --weights --size --freeze-blocks --minutes --search-seconds --out --docs",
    "analyze variance": f"DATA {DATA}--out --seeds --iterations --jobs",
    "analyze smoothness": f"DATA {DATA}--out --seeds --iterations --every --jobs",
    "analyze attributes": f"DATA {DATA}--out",
    "bench": f"{OUTPUT}--shapes --features-dim --data-root --repeats --threads --quick --compare --out",
}

DATASET_KEYS = "name checksum split_checksum split_version sizes provenance"
TRAIN_KEYS = "dataset method recipe config average runs mean std"
TRAIN_RUN_KEYS = "seed scores calibration validation train_seconds fit_seconds model choices notices"
TRAIN_SCORES = "unseen seen harmonic zsl ausuc"
CONTINUAL_KEYS = "dataset strategy average runs chosen mean std scores per_task"
CONTINUAL_RUN_KEYS = "seed scores per_task matrix config stream train_seconds folder"
CONTINUAL_SCORES = "mSA mUA mH mAUC mJA forgetting"
TASK_SCORES = "seen unseen harmonic ausuc joint forgetting"
BUNDLE_KEYS = "features labels descriptors class_names train_idx test_seen_idx test_unseen_idx"
OPTIONAL_BUNDLE_KEYS = {"name": "zoo", "is_train": np.arange(30) % 3 > 0}


def missing(promised, found):
    return [name for name in promised.split() if name not in found]


@pytest.mark.parametrize("place", PYTHON)
def test_a_python_name_has_its_parameters_in_their_order(place):
    module, _, path = place.partition(":")
    found = importlib.import_module(module)
    assert path.partition(".")[0] in dir(found)
    for name in path.split("."):
        found = getattr(found, name)
    parameters = iter(inspect.signature(found).parameters)
    assert all(name in parameters for name in PYTHON[place].split())  # each is found after the one before


def test_a_fitted_estimator_has_its_classes_and_prototypes(arrays):
    rows = arrays["train_idx"]
    estimator = ClassNormClassifier(settings={"hidden": 4, "epochs": 1, "calibration": "none"})
    estimator.fit(arrays["features"][rows], arrays["labels"][rows], descriptors=arrays["descriptors"])
    assert len(estimator.prototypes_) == len(estimator.classes_) == 5


@pytest.mark.parametrize("method", RECIPES)
def test_a_method_has_its_recipes(method):
    assert not missing(RECIPES[method], METHODS[method].recipes)


def test_every_method_is_promised():
    assert set(METHODS) == set(RECIPES)


def test_the_strategies_have_their_names():
    assert not missing(STRATEGY_NAMES, STRATEGIES)


@pytest.mark.parametrize("group", ["classnorm.methods", "classnorm.commands"])
def test_the_laboratory_comes_in_through_entry_points(group):
    assert entry_points(group=group)


def test_every_command_is_promised():
    assert set(commands()) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_its_arguments_and_options(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    usage, _, listed = capsys.readouterr().out.partition("options")
    promised = COMMANDS[command].split()
    arguments = [re.escape(word) for word in promised if not word.startswith("--")]
    assert re.search(".*".join(arguments), usage)
    options = " ".join(word for word in promised if word.startswith("--"))
    assert not missing(options, re.findall(r"(?<![\w-])--[a-z][a-z-]*", listed + usage))


def printed(capsys, *arguments):
    main([*map(str, arguments), "--json", "--quiet"])
    return json.loads(capsys.readouterr().out)


QUICK = ("--hidden", 8, "--epochs", 1)


def test_train_json_has_its_keys(capsys, tiny_bundle):
    document = printed(capsys, "train", tiny_bundle, *QUICK, "--calibration", "none")
    assert not missing(TRAIN_KEYS, document)
    assert not missing(DATASET_KEYS, document["dataset"])
    [run] = document["runs"]
    assert not missing(TRAIN_RUN_KEYS, run)
    assert run["scores"].keys() == document["mean"].keys() == document["std"].keys() == set(TRAIN_SCORES.split())


def test_continual_json_has_its_keys(capsys, tiny_bundle):
    document = printed(capsys, "continual", tiny_bundle, "--tasks", 2, *QUICK)
    assert not missing(CONTINUAL_KEYS, document)
    assert not missing(DATASET_KEYS, document["dataset"])
    [run] = document["runs"]
    assert not missing(CONTINUAL_RUN_KEYS, run)
    for scores in (run["scores"], document["scores"], document["mean"], document["std"]):
        assert scores.keys() == set(CONTINUAL_SCORES.split())
    assert not missing(TASK_SCORES, document["per_task"][0]) and len(document["per_task"]) == 2


def test_a_bundle_has_its_keys(arrays, write_bundle, tmp_path):
    assert not missing(BUNDLE_KEYS, arrays)
    data = load(write_bundle(tmp_path / "written.npz", arrays | OPTIONAL_BUNDLE_KEYS))
    assert data.name == "zoo"
    save_bundle(data, tmp_path / "saved.npz")
    with np.load(tmp_path / "saved.npz") as saved:
        assert not missing(BUNDLE_KEYS, saved.files) and not missing("name is_train", saved.files)
