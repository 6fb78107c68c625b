"""The endpoints, asked as a client asks them."""

import io
import json

import httpx
import numpy as np
import pytest
from PIL import Image

from classnorm.data import SyntheticConfig, glyph_images, glyphs, synthetic
from classnorm.scoring import Scorer, fit
from classnorm.serve import ServeSettings

E_ACUTE = "latin small letter e with acute"


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_features_as_json_and_as_npy_have_the_answers_of_the_scorer(client, letters, model_folder):
    rows = letters.features[letters.test_rows[::40]]
    scorer = Scorer.load(model_folder)
    top = scorer.top(rows, 4)
    expected = [[scorer.class_names[c] for c in row] for row in top.indices]
    kinds = [["seen" if scorer.seen[c] else "unseen" for c in row] for row in top.indices]
    by_json = client.post("/predict", json={"features": rows.tolist(), "top": 4})
    by_npy = client.post("/predict?top=4", content=npy(rows), headers={"content-type": "application/x-npy"})
    for answer in (by_json, by_npy):
        assert answer.status_code == 200
        predictions = answer.json()["predictions"]
        assert [[best["class"] for best in row] for row in predictions] == expected
        assert [[best["kind"] for best in row] for row in predictions] == kinds
        found = [[best["probability"] for best in row] for row in predictions]
        np.testing.assert_allclose(found, top.probabilities, atol=1e-4)


def test_pictures_of_the_dataset_are_classified_like_its_features(client, letters):
    rows = letters.test_rows[::60]
    files = [("files", (f"{row}.png", png(np.asarray(letters.images[row])))) for row in rows]
    by_image = client.post("/predict", files=files).json()["predictions"]
    by_features = client.post("/predict", json={"features": letters.features[rows].tolist()}).json()["predictions"]
    same = [a[0]["class"] == b[0]["class"] for a, b in zip(by_image, by_features, strict=True)]
    assert np.mean(same) > 0.9  # the contrast may change a little


def test_a_picture_that_cannot_be_read_has_no_answer_and_the_others_have(client):
    files = [
        ("files", ("good.png", png(glyph_images.rendered(glyphs.character(E_ACUTE))))),
        ("files", ("bad.png", b"\x89PNG nothing")),
    ]
    answer = client.post("/predict", files=files).json()
    assert answer["predictions"][0] and answer["predictions"][1] is None
    assert answer["errors"][0] is None and "not an image" in answer["errors"][1]


def test_an_invented_class_competes_at_once_and_only_for_its_inventor(client, other_client, letters, model_folder):
    scorer = Scorer.load(model_folder)
    known = scorer.only([name for name in scorer.class_names if name != E_ACUTE])
    vector = scorer.descriptors[scorer.class_names.index(E_ACUTE)]
    rows = letters.features[letters.labels == letters.class_names.index(E_ACUTE)]
    assert client.post("/classes", json={"name": "my é", "descriptor": vector.tolist()}).status_code == 201

    def names(asker):
        answer = asker.post("/predict", json={"features": rows.tolist(), "top": 5}).json()
        return [{best["class"]: (best["kind"], best["probability"]) for best in row} for row in answer["predictions"]]

    both = [(row["my é"], row[E_ACUTE]) for row in names(client) if "my é" in row]
    assert both and all(mine == ("yours", theirs[1]) for mine, theirs in both)  # the same descriptor, the same score
    assert not any("my é" in row for row in names(other_client))
    listed = [entry["class"] for entry in other_client.get("/classes").json()["classes"]]
    assert listed == list(scorer.class_names) and "my é" not in known.class_names
    assert client.delete("/classes", params={"name": "my é"}).json() == {"removed": "my é"}
    assert not any("my é" in row for row in names(client))


def test_a_class_like_another_has_its_descriptor_with_the_changes(client, letters):
    base = "latin small letter e"
    document = {"name": "e, hooked", "like": base, "changes": {"hook": 1, "attached": 1}}
    assert client.post("/classes", json=document).status_code == 201
    [entry] = client.get("/classes", params={"name": "e, hooked"}).json()["classes"]
    columns = glyphs.attribute_names(letters.class_names)
    expected = letters.descriptors[letters.class_names.index(base)].copy()
    expected[[columns.index("hook"), columns.index("attached")]] = 1
    np.testing.assert_array_equal(entry["descriptor"], expected)
    assert entry["kind"] == "yours"


def test_the_map_has_a_place_for_every_class_and_points_lie_near_their_class(client, letters):
    row = letters.features[letters.labels == letters.class_names.index("latin capital letter a")][:1]
    answer = client.post("/map", json={"features": row.tolist()}).json()
    places = {entry["class"]: np.array([entry["x"], entry["y"]]) for entry in answer["classes"]}
    assert set(places) == set(letters.class_names)
    assert max(np.abs(place).max() for place in places.values()) == pytest.approx(1)
    [point] = answer["points"]
    distances = {name: np.hypot(*(place - [point["x"], point["y"]])) for name, place in places.items()}
    assert distances["latin capital letter a"] < np.quantile(list(distances.values()), 0.1)


def test_a_saved_model_is_a_model_with_the_visitors_classes(client, letters, address, tmp_path_factory):
    vector = letters.descriptors[3] + letters.descriptors[40]
    client.post("/classes", json={"name": "both", "descriptor": vector.tolist()})
    folder = next(path for path in tmp_path_factory.getbasetemp().glob("state*/"))
    assert client.post("/save", json={"name": "mine"}).json() == {"saved": "mine"}
    saved = Scorer.load(folder / "saved" / "mine")
    assert saved.class_names[-1] == "both" and not saved.seen[-1]
    np.testing.assert_array_equal(saved.descriptors[-1], vector)
    assert client.post("/save", json={"name": "mine"}).status_code == 409
    assert sorted(path.name for path in (folder / "saved").iterdir()) == ["mine"]


def test_the_api_document_lists_exactly_the_routes(address, model_folder, tmp_path):
    from starlette.routing import Mount

    from classnorm.serve import ServeSettings, create_app
    from classnorm.serve.app import document

    app = create_app(ServeSettings(models=(model_folder,), state=tmp_path)).app
    routes = {
        (route.path, method)
        for route in app.routes
        if not isinstance(route, Mount)
        for method in route.methods - {"HEAD"}
    }
    listed = {(path, method.upper()) for path, operations in document()["paths"].items() for method in operations}
    assert listed == routes


def test_an_explanation_names_the_two_best_classes_and_adds_up(client, letters):
    rows = letters.features[letters.test_rows[:2]].tolist()
    explanations = client.post("/explain", json={"features": rows, "top": 4}).json()["explanations"]
    predictions = client.post("/predict", json={"features": rows, "top": 2}).json()["predictions"]
    for explanation, (first, second) in zip(explanations, predictions, strict=True):
        assert (explanation["class"], explanation["against"]) == (first["class"], second["class"])
        total = sum(part["contribution"] for part in explanation["attributes"])
        assert total == pytest.approx(explanation["difference"], abs=1e-3)


def test_examples_move_the_answer_as_they_do_in_python_and_can_be_taken_back(client, letters, model_folder):
    scorer = Scorer.load(model_folder)
    rows = letters.features[letters.labels == letters.class_names.index(E_ACUTE)]
    asked = {"features": rows.tolist(), "top": 3}
    before = client.post("/predict", json=asked).json()["predictions"]
    given = client.post("/examples", json={"class": E_ACUTE, "features": rows[:2].tolist()})
    assert given.status_code == 201 and given.json() == {"class": E_ACUTE, "id": 1, "added": 2, "examples": 2}
    image = png(np.asarray(letters.images[letters.labels == letters.class_names.index(E_ACUTE)][2]))
    second = client.post("/examples", files={"files": ("é.png", image)}, data={"class": E_ACUTE}).json()
    assert (second["id"], second["examples"]) == (2, 3)
    assert client.delete("/examples", params={"id": 2}).json() == {"removed": 1}
    expected = scorer.add_examples(rows[:2], [E_ACUTE] * 2).top(rows, 3)
    after = client.post("/predict", json=asked).json()["predictions"]
    found = [[best["probability"] for best in row] for row in after]
    np.testing.assert_allclose(found, expected.probabilities, atol=1e-4)
    assert after != before
    assert client.delete("/examples", params={"class": E_ACUTE}).json() == {"removed": 2}
    assert client.post("/predict", json=asked).json()["predictions"] == before
    assert client.delete("/examples", params={"class": E_ACUTE}).status_code == 404
    assert client.post("/examples", json={"class": "none", "features": rows[:1].tolist()}).status_code == 404


@pytest.fixture(scope="module")
def calibrated(letters, tmp_path_factory):
    return fit(letters, method="kernel").save(tmp_path_factory.mktemp("calibrated") / "calibrated")


@pytest.fixture(scope="module")
def side_by_side(serve, model_folder, calibrated, tmp_path_factory):
    """A client of a server with two models of letters, the second with thresholds, and one of something else."""
    state = tmp_path_factory.mktemp("three")
    data = synthetic(SyntheticConfig(classes=10, unseen=3, rows=200, features=16))
    other = fit(data, method="eszsl", calibration="none").save(state / "other")
    settings = ServeSettings(models=(model_folder, calibrated, other), port=0, state=state)
    with serve(settings) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client


def test_what_looks_like_no_class_is_not_known_if_that_is_asked(side_by_side, calibrated, letters):
    noise = np.random.default_rng(0).random((20, letters.d_z), dtype=np.float32)
    rows = np.concatenate([letters.features[letters.test_rows[::50]], noise])
    asked = {"features": rows.tolist(), "model": "calibrated"}
    known = side_by_side.post("/predict", json=asked | {"reject": 0.1}).json()["known"]
    assert known == Scorer.load(calibrated).known(rows, 0.1).tolist()
    assert not any(known[-20:]) and any(known[:-20])
    assert side_by_side.post("/predict", json=asked).json()["known"] == [None] * len(rows)
    without = side_by_side.post("/predict", json=asked | {"reject": 0.1, "model": "letters"}).json()
    assert without["known"] == [None] * len(rows)
    assert side_by_side.post("/predict", json=asked | {"reject": 2}).status_code == 400


def test_models_answer_side_by_side_and_both_know_an_invented_class(side_by_side, model_folder, calibrated, letters):
    rows = letters.features[letters.test_rows[::200]]
    side_by_side.post("/classes", json={"name": "mine", "like": "latin small letter e", "changes": {"hook": 1}})
    answer = side_by_side.post("/predict", json={"features": rows.tolist(), "top": 1, "model": "all"}).json()
    assert [part["model"] for part in answer["models"]] == ["letters", "calibrated", "other"]
    assert answer["predictions"] == answer["models"][0]["predictions"]
    assert "takes 16" in answer["models"][2]["error"]
    for name in ("letters", "calibrated"):
        classes = side_by_side.get("/classes", params={"model": name}).json()["classes"]
        assert classes[-1] | {"character": None} == {"class": "mine", "kind": "yours", "examples": 0, "character": None}
    assert side_by_side.post("/predict", json={"features": rows.tolist(), "model": "none"}).status_code == 404


@pytest.mark.slow
def test_the_onnx_file_gives_the_answers_of_the_visitor(client, letters):
    onnxruntime = pytest.importorskip("onnxruntime")
    client.post("/classes", json={"name": "mine", "like": "latin small letter e", "changes": {"hook": 1}})
    session = onnxruntime.InferenceSession(client.get("/export.onnx").content)
    rows = letters.features[letters.test_rows[::100]]
    names = json.loads(session.get_modelmeta().custom_metadata_map["classnorm"])["class_names"]
    assert names[-1] == "mine"
    [probabilities] = session.run(["probabilities"], {"features": rows})
    answer = client.post("/predict", json={"features": rows.tolist(), "top": 1}).json()["predictions"]
    assert [names[c] for c in probabilities.argmax(axis=1)] == [row[0]["class"] for row in answer]


def test_a_method_that_learns_from_no_examples_says_so(side_by_side):
    [about] = [model for model in side_by_side.get("/model").json()["models"] if model["name"] == "other"]
    assert (about["takes_examples"], about["takes_images"], about["speaks_text"]) == (False, False, False)
    name = side_by_side.get("/classes", params={"model": "other"}).json()["classes"][0]["class"]
    given = side_by_side.post("/examples", json={"class": name, "features": [[1.0] * 16], "model": "other"})
    assert given.status_code == 400 and "pictures" in given.json()["error"]
    image = side_by_side.post(
        "/predict",
        files={"files": ("a.png", png(glyph_images.rendered(glyphs.character(E_ACUTE))))},
        data={"model": "other"},
    )
    assert image.status_code == 400 and "takes features" in image.json()["error"]
