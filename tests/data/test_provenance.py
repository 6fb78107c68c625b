"""Where data is from: texts of anybody, of which some have a meaning."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classnorm.data.provenance import Provenance
from classnorm.errors import DataError

KEYS = ("encoder", "skipped", "text_encoder", "templates", "joined", "feature_blocks", "descriptor_blocks")
TEXTS = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.sampled_from(["[1]", "3,x", "null", "{}"])
)


@given(st.dictionaries(st.sampled_from(KEYS), TEXTS))
def test_any_text_is_kept_and_what_cannot_be_parsed_counts_as_not_recorded(entries):
    source = Provenance(entries)
    assert source == entries and dict(source) == entries
    for record in (source.encoder, source.text_encoder):
        assert record is None or isinstance(record, dict)
    assert all(isinstance(template, str) for template in source.templates)
    assert isinstance(source.skipped, dict) and isinstance(source.joined, Provenance)
    assert sum(source.feature_blocks(7)) in (0, 7) and sum(source.descriptor_blocks(7)) in (0, 7)


@given(
    st.dictionaries(
        st.from_regex("[a-z_]+", fullmatch=True), st.text(st.characters(min_codepoint=32, max_codepoint=900))
    )
)
def test_a_file_gives_back_what_was_written_in_its_order(entries):
    again = Provenance.from_array(Provenance(entries).as_array(), Path("x.npz"))
    assert list(again.items()) == list(entries.items())


def test_a_file_without_provenance_says_nothing():
    assert not Provenance.from_array(None, Path("x.npz"))
    with pytest.raises(DataError, match=r"x\.npz: provenance must contain"):
        Provenance.from_array(np.array(["a=b", "c"]), Path("x.npz"))


def test_values_are_written_as_json_and_nothing_is_left_out_but_none():
    source = Provenance.of(
        features="vit, 224 px", encoder={"name": "vit", "parts": []}, templates=["a {}"], skipped=None
    )
    assert dict(source) == {
        "features": "vit, 224 px",
        "encoder": json.dumps({"name": "vit", "parts": []}),
        "templates": '["a {}"]',
    }


def test_the_parts_of_features_are_those_of_their_encoders_or_else_those_of_their_files():
    two = {"parts": [{"d_z": 3}, {"d_z": 4}]}
    assert Provenance.of(encoder=two, feature_blocks="5,2").feature_blocks(7) == (3, 4)
    assert Provenance.of(feature_blocks="5,2").feature_blocks(7) == (5, 2)
    assert Provenance.of(feature_blocks="5,2").feature_blocks(8) == ()
    assert Provenance.of(descriptor_blocks="0,7").descriptor_blocks(7) == ()


def test_descriptors_joined_with_attributes_are_not_text_alone():
    text = Provenance.of(attributes="x", text_encoder={"name": "minilm"}, templates=["{}"])
    assert text.is_text and not (text | Provenance.of(joined={"attributes": "y"})).is_text
    assert text.of_text == {"text_encoder": '{"name": "minilm"}', "templates": '["{}"]'}
    assert (text | Provenance.of(joined=dict(text))).joined.text_encoder == {"name": "minilm"}
