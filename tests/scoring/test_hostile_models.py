"""Model folders that are damaged or made to harm: one error, before memory is taken."""

import hashlib
import json
import os
import tracemalloc

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from classnorm.data import SyntheticConfig, synthetic
from classnorm.errors import ClassNormError, ModelError
from classnorm.io.files import digest
from classnorm.methods import FitContext, FitJob, resolve
from classnorm.scoring import Scorer

SMALL = {"classnorm": {"hidden": 8, "epochs": 1}, "kernel": {}, "eszsl": {}}


@pytest.fixture(scope="module")
def data():
    return synthetic(SyntheticConfig(classes=8, unseen=2, rows=80, features=6, attributes=5))


@pytest.fixture(params=SMALL)
def model(request, data, tmp_path):
    method, config = resolve(data, request.param, calibration="none", **SMALL[request.param])
    job = FitJob(data, method, config)
    return Scorer.of(job, job.fit(FitContext(torch.device("cpu"))).model).save(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("feature_dim", 10**7), ("descriptor_dim", 10**7), ("feature_dim", 7), ("feature_dim", "6"), ("feature_dim", -1)],
)
def test_a_size_that_does_not_fit_the_weights_is_refused_before_it_is_allocated(model, key, value, rewrite_model):
    rewrite_model(model, lambda document: document.update({key: value}))
    tracemalloc.start()
    with pytest.raises(ModelError):
        Scorer.load(model)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 10**7},
        {"hidden": 30_000},
        {"layers": 10**9},
        {"layers": 90},
        {"epochs": 10**19},
        {"lr": "fast"},
        {"x": 1},
    ],
)
@pytest.mark.parametrize("model", ["classnorm"], indirect=True)
def test_settings_out_of_range_are_refused_with_the_model(model, change, rewrite_model):
    rewrite_model(model, lambda document: document["config"].update(change))
    with pytest.raises(ModelError, match="train the model again"):
        Scorer.load(model)


def leaves(document, keys=()):
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from leaves(value, (*keys, key))
        else:
            yield (*keys, key)


@pytest.mark.parametrize("model", ["classnorm"], indirect=True)
def test_every_change_of_the_description_is_noticed_and_every_value_of_a_wrong_kind_refused(model):
    path = model / "model.json"
    whole = path.read_text()
    for keys in leaves(json.loads(whole)):
        for value in ([], {}, None, -(10**30), 1e300):
            for with_old_checksum in (True, False):
                document = json.loads(whole)
                place = document
                for key in keys[:-1]:
                    place = place[key]
                place[keys[-1]] = value
                if not with_old_checksum:
                    document["document_sha256"] = digest({k: v for k, v in document.items() if k != "document_sha256"})
                path.write_text(json.dumps(document))
                try:
                    Scorer.load(model)
                    assert not with_old_checksum
                except ClassNormError as error:
                    assert "\n" not in str(error)  # noqa: PT017 (most are refused, for many reasons)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(model, bad, rewrite_model):
    tensors = load_file(model / "model.safetensors")
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point() and name != "descriptors")
    tensors[name].view(-1)[0] = bad
    save_file(tensors, model / "model.safetensors")
    sha = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    rewrite_model(model, lambda document: document.update(sha256=sha))
    with pytest.raises(ModelError, match="holds NaN or infinity"):
        Scorer.load(model)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
@pytest.mark.parametrize("model", ["eszsl"], indirect=True)
def test_a_pipe_in_place_of_a_model_file_is_not_waited_for(model):
    (model / "model.json").unlink()
    os.mkfifo(model / "model.json")
    with pytest.raises(ModelError):
        Scorer.load(model)


def test_a_model_without_the_checksum_of_its_document_is_refused(model):
    path = model / "model.json"
    document = json.loads(path.read_text())
    del document["document_sha256"]
    path.write_text(json.dumps(document))
    with pytest.raises(ModelError, match="checksum"):
        Scorer.load(model)
