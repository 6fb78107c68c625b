"""CUB-200-2011, read from the files that it is published in."""

import pytest

from classnorm.data.images import find_images
from classnorm.errors import DataError


def test_cub_is_joined_by_ids(cub):
    table = find_images(cub)
    files = ["002.Wren/b.png", "001.Owl/z.png", "001.Owl/a.png", "002.Wren/a.png"]
    assert list(table.files) == files
    assert [table.class_names[label] for label in table.labels] == [file.split("/")[0] for file in files]
    assert table.is_train is not None and table.is_train.tolist() == [True, True, False, False]
    assert table.descriptors is not None
    by_name = dict(zip(table.class_names, table.descriptors.tolist(), strict=True))
    assert by_name == {"002.Wren": [0.0, 5.0, 50.5], "001.Owl": [100.0, 7.0, 1.0]}


def test_cub_without_split_and_attributes_is_understood(cub):
    (cub / "train_test_split.txt").unlink()
    (cub / "attributes" / "class_attribute_labels_continuous.txt").unlink()
    table = find_images(cub)
    assert (table.is_train, table.descriptors) == (None, None)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (("images.txt", "1\n"), "images.txt: the line '1' is not of the form"),
        (("image_class_labels.txt", "1 7\n"), r"image 3 \(002.Wren/b.png\) has no class in classes.txt"),
        (("image_class_labels.txt", None), "image_class_labels.txt: not readable"),
        (("train_test_split.txt", "1 1\n2 2\n3 0\n4 0\n"), "must contain 0 or 1"),
        (("attributes/class_attribute_labels_continuous.txt", "1 2\n"), "1 rows for 2 classes"),
        (("attributes/class_attribute_labels_continuous.txt", "1 x\n2 3\n"), "not a table of numbers"),
    ],
)
def test_an_error_in_CUB_names_the_file(cub, spoil, message):
    name, text = spoil
    (cub / name).unlink() if text is None else (cub / name).write_text(text)
    with pytest.raises(DataError, match=message):
        find_images(cub)
