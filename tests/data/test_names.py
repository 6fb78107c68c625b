"""Names of attributes travel from files to datasets and back, and change nothing else."""

import numpy as np
import pytest

from classnorm.data import load, load_folder, save_bundle, save_folder, save_gbu
from classnorm.data.descriptions import read_descriptions
from classnorm.data.names import attribute_order, attributes_of_columns, read_attribute_names
from classnorm.data.provenance import Provenance
from classnorm.errors import DataError

NAMES = ("stripes", "hooves", "wings", "horns")


def test_a_bundle_names_its_attributes_in_a_file_and_in_a_folder(arrays, write_bundle, tmp_path):
    plain = load(write_bundle(tmp_path / "plain.npz", arrays))
    named = load(write_bundle(tmp_path / "named.npz", arrays | {"attribute_names": np.array(NAMES)}))
    save_bundle(named, tmp_path / "again.npz")
    save_folder(named, tmp_path / "folder")
    assert plain.attribute_names is None
    assert load(tmp_path / "again.npz").attribute_names == load_folder(tmp_path / "folder").attribute_names == NAMES
    assert named.checksum == plain.checksum
    with pytest.raises(DataError, match=r"two.npz: 2 names of attributes for descriptors of 4 dimensions"):
        load(write_bundle(tmp_path / "two.npz", arrays | {"attribute_names": np.array(NAMES[:2])}))


@pytest.mark.parametrize("file", ["attributes.txt", "attributes/attributes.txt", "predicates.txt"])
def test_a_gbu_folder_may_hold_the_published_list_of_attributes(arrays, write_gbu, tmp_path, file):
    folder = write_gbu(tmp_path / "CUB", arrays)
    assert load(folder).attribute_names is None
    lines = ["1 has_bill_shape::curved_(up_or_down)", "2 has_wing_color::blue", "3 horns", "4 new world"]
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("\n".join(lines), encoding="utf-8")
    named = load(folder)
    assert named.attribute_names == ("bill shape: curved (up or down)", "wing color: blue", "horns", "new world")
    assert read_descriptions(folder, numbers=True).columns == named.attribute_names
    save_gbu(named, tmp_path / "again")
    assert load(tmp_path / "again", features="features").attribute_names == named.attribute_names
    (folder / file).write_text("1 horns", encoding="utf-8")
    with pytest.raises(DataError, match="1 names of attributes for descriptors of 4"):
        load(folder)


def test_a_list_without_numbers_has_a_name_per_line(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("2 legs\n4 legs\nwings\n", encoding="utf-8")
    assert read_attribute_names(path) == ("2 legs", "4 legs", "wings")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not readable as UTF-8"):
        read_attribute_names(path)


def test_the_columns_of_an_attribute_table_are_names_unless_they_are_numbered(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("name,stripes,hooves\nzebra,1,1\nokapi,0.5,1\n", encoding="utf-8")
    table = read_descriptions(path)
    assert attributes_of_columns(table.columns, table.provenance) == ("stripes", "hooves")
    path.write_text("zebra,1,1\nokapi,0.5,1\n", encoding="utf-8")
    table = read_descriptions(path)
    assert attributes_of_columns(table.columns, table.provenance) is None


@pytest.mark.parametrize("text", ["minilm", "[1]", '{"name": 5}', "", '{"name": null}'])
def test_any_provenance_of_a_table_is_survived(text):
    assert attributes_of_columns(["x", "y_0"], Provenance({"text_encoder": text, "joined": text})) == ("x", "y_0")


def test_the_attributes_of_glyphs_are_those_of_their_descriptors():
    data = load("glyphs-light")
    letter = data.class_names.index("latin small letter e with acute")
    assert data.attribute_names is not None
    on = {data.attribute_names[i] for i in np.flatnonzero(data.descriptors[letter])}
    assert on == {"latin", "small", "latin e", "acute", "above"}


def test_columns_are_matched_by_name_in_any_order_and_spelling():
    assert attribute_order(["wings", "has_horns", "Stripes ", "hooves"], NAMES, "new.csv") == [2, 3, 0, 1]


@pytest.mark.parametrize("columns", [list("0123"), ["a0", "a1", "a2", "a3"], ["x_1", "x_2", "x_3", "x_4"], ["7"]])
def test_numbered_columns_are_in_the_order_of_the_attributes(columns):
    assert attribute_order(columns, NAMES, "new.csv") is None


def test_attributes_that_share_a_name_are_told_by_their_order():
    assert attribute_order(["stripes", "minilm_0", "minilm_1"], ["stripes", "the text", "the text"], "new.csv") is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["stripes", "hoves", "wings", "horns"], "new.csv: the column 'hoves' is no attribute .* mean 'hooves'"),
        (["fur", *NAMES], "the column 'fur' is no attribute of the model; correct the name"),
        (NAMES[1:], "there is no column for the attribute 'stripes' of the model; add it"),
        ([*NAMES, "wings"], "5 columns for the 4 attributes of the model; name each one once"),
    ],
)
def test_columns_that_are_not_the_attributes_are_refused(columns, message):
    with pytest.raises(DataError, match=message):
        attribute_order(columns, NAMES, "new.csv")
