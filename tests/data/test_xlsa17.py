"""GBU folders: both MATLAB formats, joins by class name, and what a folder may get wrong."""

import h5py
import numpy as np
import pytest
import scipy.io

from classnorm.data import load_gbu, save_gbu
from classnorm.data.dataset import recognise
from classnorm.errors import DataError
from classnorm.io.matlab import read_mat

# d_a × K of `att`, from the table of the data's README; rows are those of the released feature files.
BENCHMARKS = {
    "CUB": (312, 200, 11788),
    "SUN": (102, 717, 14340),
    "AWA1": (85, 50, 30475),
    "AWA2": (85, 50, 37322),
    "APY": (64, 32, 15339),
}


@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_a_folder_gives_the_arrays_that_were_written(tmp_path, arrays, write_gbu, assert_holds, version):
    folder = write_gbu(tmp_path / "zoo", arrays, version=version)
    assert_holds(load_gbu(folder, attributes="original_att"), arrays)


def test_several_feature_files_are_joined_side_by_side(tmp_path, arrays, write_gbu):
    files = {"image_files": [[f"{name}/{i}.jpg"] for i, name in enumerate(np.repeat(arrays["class_names"], 6))]}
    folder = write_gbu(tmp_path / "zoo", arrays, features="first", in_features=files)
    second = arrays | {"features": 2 * arrays["features"][:, :3]}
    write_gbu(
        folder,
        second,
        features="second",
        in_features={"image_files": [[f"/data/{f[0]}"] for f in files["image_files"]]},
    )
    data = load_gbu(folder, "first+second")
    np.testing.assert_array_equal(data.features, np.hstack([arrays["features"], 2 * arrays["features"][:, :3]]))
    assert data.provenance["features"] == "first+second" and data.provenance["feature_blocks"] == "7,3"
    first, then, *others = files["image_files"]
    moved = {"image_files": [then, first, *others]}
    write_gbu(folder, second | {"labels": arrays["labels"]}, features="second", in_features=moved)
    with pytest.raises(DataError, match=r"first.mat and second.mat have rows of other images or in another order"):
        load_gbu(folder, "first+second")


def test_both_matlab_formats_give_the_same_dataset(tmp_path, arrays, write_gbu):
    files = {"image_files": [f"/home/x/{arrays['class_names'][c]}/{i}.jpg" for i, c in enumerate(arrays["labels"])]}
    old = load_gbu(write_gbu(tmp_path / "old", arrays, version="v5", in_features=files))
    new = load_gbu(write_gbu(tmp_path / "new", arrays, version="v7.3", in_features=files))
    assert old.checksum == new.checksum
    assert old.image_files == new.image_files == tuple(files["image_files"])


def test_the_v73_files_of_these_tests_look_like_matlabs_own(tmp_path, arrays, write_gbu):
    write_gbu(tmp_path, arrays, version="v7.3")
    raw = (tmp_path / "res101.mat").read_bytes()
    assert raw.startswith(b"MATLAB 7.3 MAT-file") and raw[512:516] == b"\x89HDF"
    with h5py.File(tmp_path / "res101.mat") as file:
        assert file["features"].shape == (30, 7)  # MATLAB shows 7 × 30


@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_a_variable_is_oriented_as_matlab_shows_it(tmp_path, write_mat, version):
    matrix = np.arange(16.0).reshape(4, 4)  # square: its shape cannot tell
    write_mat(tmp_path / "x.mat", {"att": matrix}, version)
    np.testing.assert_array_equal(read_mat(tmp_path / "x.mat", ["att"])["att"], matrix)


def test_an_empty_location_list_of_a_v73_file_is_empty(tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "zoo", arrays, version="v7.3", in_splits={"test_seen_loc": np.zeros((0, 0))})
    assert len(load_gbu(folder).split.test_seen) == 0


def test_att_has_unit_norm_and_original_att_is_raw(tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "zoo", arrays)
    unit, raw = load_gbu(folder).descriptors, load_gbu(folder, attributes="original_att").descriptors
    np.testing.assert_allclose((unit.astype(np.float64) ** 2).sum(axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(raw, arrays["descriptors"])


def test_provenance_says_which_features_and_attributes_were_used(tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "zoo", arrays, features="vit")
    provenance = load_gbu(folder, "vit", "original_att").provenance
    assert (provenance["features"], provenance["attributes"]) == ("vit", "original_att")


def test_the_feature_file_is_picked_by_name(tmp_path, arrays, write_gbu):
    write_gbu(tmp_path / "zoo", arrays)
    write_gbu(tmp_path / "zoo", arrays | {"features": arrays["features"] + 1}, features="vit")
    np.testing.assert_array_equal(load_gbu(tmp_path / "zoo", "vit").features, arrays["features"] + 1)


def test_a_missing_feature_file_names_one_that_is_there(tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "zoo", arrays, features="vit")
    with pytest.raises(DataError, match=r"res101\.mat: no such file; use `features='vit'`"):
        load_gbu(folder)


@pytest.mark.parametrize("version", ["v5", "v7.3"])
def test_labels_are_joined_by_class_name_where_the_feature_file_has_its_own_list(tmp_path, arrays, write_gbu, version):
    order = [3, 0, 4, 2, 1]  # own class i is class order[i] of att_splits
    own = {
        "allclasses_names": [str(arrays["class_names"][c]) for c in order],
        "labels": np.array([order.index(c) + 1.0 for c in arrays["labels"]])[:, None],
    }
    data = load_gbu(write_gbu(tmp_path / "zoo", arrays, version=version, in_features=own))
    np.testing.assert_array_equal(data.labels, arrays["labels"])


def test_a_label_beyond_the_feature_files_own_list_is_out_of_range(tmp_path, arrays, write_gbu):
    own = {"allclasses_names": ["zebra", "ant"], "labels": np.full((30, 1), 3.0)}
    folder = write_gbu(tmp_path / "zoo", arrays, in_features=own)
    with pytest.raises(DataError, match=r"res101\.mat: label 3 of row 1 .*2 class names allow 1 to 2"):
        load_gbu(folder)


def test_a_class_of_the_feature_file_that_the_split_lacks_is_named(tmp_path, arrays, write_gbu):
    own = {"allclasses_names": ["ant", "bee", "cow", "okapi", "quagga"]}
    with pytest.raises(DataError, match=r"res101\.mat: class 'quagga' is not in att_splits\.mat"):
        load_gbu(write_gbu(tmp_path / "zoo", arrays, in_features=own))


def test_image_folders_that_contradict_the_labels_are_an_error(tmp_path, arrays, write_gbu):
    names = [str(arrays["class_names"][c]) for c in arrays["labels"]]
    names[8] = "zebra"  # row 9, counted from 1, is a bee
    files = {"image_files": [f"/data/{name}/{i}.jpg" for i, name in enumerate(names)]}
    with pytest.raises(DataError, match=r"res101\.mat: row 9 .*labelled 'bee' but is in 'zebra'"):
        load_gbu(write_gbu(tmp_path / "zoo", arrays, in_features=files))


def test_image_folders_that_do_not_name_classes_say_nothing_about_labels(tmp_path, arrays, write_gbu):
    files = {"image_files": [f"zebra/{i}.jpg" if i else "elsewhere/0.jpg" for i in range(30)]}
    data = load_gbu(write_gbu(tmp_path / "zoo", arrays, in_features=files))
    np.testing.assert_array_equal(data.labels, arrays["labels"])


def test_features_stored_by_rows_are_turned_round(tmp_path, arrays, write_gbu):
    folder = write_gbu(tmp_path / "zoo", arrays, in_features={"features": arrays["features"]})
    np.testing.assert_array_equal(load_gbu(folder).features, arrays["features"])


@pytest.mark.parametrize(
    ("in_splits", "in_features", "message"),
    [
        ({}, {"labels": np.repeat(np.arange(5.0), 6)[:, None]}, r"res101\.mat: labels start at 0; .*1-based"),
        ({}, {"labels": np.full((30, 1), 6.0)}, r"res101\.mat: label 6 of row 1 \(1-based\).*allow 1 to 5"),
        ({}, {"labels": np.full((30, 1), 1.5)}, r"res101\.mat: labels must be whole numbers"),
        ({}, {"labels": np.full((30, 1), 1e300)}, r"res101\.mat: labels must be whole numbers"),
        ({}, {"labels": np.full((30, 1), np.inf)}, r"res101\.mat: labels must be whole numbers"),
        ({}, {"features": np.ones((7, 29))}, r"res101\.mat: features has shape \(7, 29\), but 30 columns"),
        ({"att": np.ones((4, 6))}, {}, r"att_splits\.mat: att has shape \(4, 6\), but 5 columns"),
        ({"trainval_loc": np.array([[0.0]])}, {}, r"att_splits\.mat: trainval_loc contains row 0; .*1-based"),
        ({"trainval_loc": np.array([[31.0]])}, {}, r"zoo: train names row 30 \(0-based\), but there are 30 rows"),
        ({"allclasses_names": np.arange(5.0)}, {}, r"att_splits\.mat: allclasses_names must be a cell array of str"),
    ],
)
def test_what_is_wrong_in_a_folder_is_named_with_its_file(tmp_path, arrays, write_gbu, in_splits, in_features, message):
    folder = write_gbu(tmp_path / "zoo", arrays, in_splits=in_splits, in_features=in_features)
    with pytest.raises(DataError, match=message):
        load_gbu(folder)


@pytest.mark.parametrize("key", ["att", "allclasses_names", "trainval_loc", "test_seen_loc", "test_unseen_loc"])
def test_a_missing_variable_is_named(tmp_path, arrays, write_gbu, gbu_variables, write_mat, key):
    folder = write_gbu(tmp_path / "zoo", arrays)
    splits, _ = gbu_variables(arrays)
    del splits[key]
    write_mat(folder / "att_splits.mat", splits)
    with pytest.raises(DataError, match=rf"att_splits\.mat: the variable '{key}' is missing"):
        load_gbu(folder)


@pytest.mark.parametrize("version", ["v5", "v7.3"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_a_truncated_file_is_named(tmp_path, write_mat, version, share):
    path = tmp_path / "res101.mat"
    write_mat(path, {"labels": np.ones((900, 1)), "features": np.random.default_rng(0).random((9, 900))}, version)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(DataError, match=r"res101\.mat: (not a readable MATLAB file|the variable)"):
        read_mat(path, ["features", "labels"])


@pytest.mark.parametrize("content", [b"", b"P", b"this is a text file, not a matrix\n" * 40, bytes(range(256)) * 20])
def test_a_file_that_is_not_matlabs_is_refused(tmp_path, content):
    path = tmp_path / "res101.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"res101\.mat: (not a readable MATLAB file|the variable)"):
        read_mat(path, ["features"])


@pytest.mark.parametrize("attributes", ["att", "original_att"])  # of unit norm already, and not
def test_saving_and_loading_a_folder_keeps_everything_a_checksum_sees(tmp_path, arrays, write_gbu, attributes):
    before = load_gbu(write_gbu(tmp_path / "zoo", arrays), attributes=attributes)
    save_gbu(before, tmp_path / "copy")
    assert load_gbu(tmp_path / "copy", "features", attributes).checksum == before.checksum


def test_a_saved_folder_is_laid_out_as_the_benchmarks_are(tmp_path, arrays, write_gbu):
    save_gbu(load_gbu(write_gbu(tmp_path / "zoo", arrays)), tmp_path / "copy")
    splits = scipy.io.loadmat(tmp_path / "copy" / "att_splits.mat")
    table = scipy.io.loadmat(tmp_path / "copy" / "features.mat")
    assert splits["att"].shape == (4, 5) and splits["allclasses_names"].shape == (5, 1)
    assert table["features"].shape == (7, 30) and table["labels"].shape == (30, 1)
    assert (table["labels"].min(), splits["trainval_loc"].min()) == (1, 1)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_benchmark_is_recognised_by_its_real_class_list(real_data, benchmark):
    path = real_data / "xlsa17" / "data" / benchmark / "att_splits.mat"
    d_a, n_classes, n_rows = BENCHMARKS[benchmark]
    content = scipy.io.loadmat(path)
    names = [str(cell[0][0]) for cell in content["allclasses_names"]]
    assert content["att"].shape == (d_a, n_classes)
    assert recognise(names[::-1], n_rows) == benchmark


def test_a_list_that_lacks_a_class_is_not_the_benchmark(real_data):
    content = scipy.io.loadmat(real_data / "xlsa17" / "data" / "APY" / "att_splits.mat")
    names = [str(cell[0][0]) for cell in content["allclasses_names"]]
    assert recognise(names[1:], 15339) is None


def test_the_real_cub_features_load_and_fit_their_split(real_data):
    data = load_gbu(real_data / "xlsa17" / "data" / "CUB", "efficientnet_lite0")
    # 11,788 images; 150 seen and 50 unseen classes; 7,057 / 1,764 / 2,967 rows (Xian et al., table 2).
    assert data.name == "CUB"
    assert (data.n_rows, data.d_z, data.d_a) == (11788, 1280, 312)
    assert (int(data.seen.sum()), int((~data.seen).sum())) == (150, 50)
    assert [len(rows) for rows in (data.split.train, data.split.test_seen, data.split.test_unseen)] == [
        7057,
        1764,
        2967,
    ]
    assert not data.notices
