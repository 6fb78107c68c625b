"""The endpoints, asked as a client asks them."""

import io

import numpy as np
import pytest
from PIL import Image

from classnorm.data import glyphs
from classnorm.scoring import Scorer

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
        np.testing.assert_allclose(found, top.probabilities, atol=2e-6)


def test_pictures_of_the_dataset_are_classified_like_its_features(client, letters):
    rows = letters.test_rows[::100]
    files = [("files", (f"{row}.png", png(np.asarray(letters.images[row])))) for row in rows]
    by_image = client.post("/predict", files=files).json()["predictions"]
    by_features = client.post("/predict", json={"features": letters.features[rows].tolist()}).json()["predictions"]
    same = [a[0]["class"] == b[0]["class"] for a, b in zip(by_image, by_features, strict=True)]
    assert np.mean(same) > 0.9  # pixels are resampled on the way


def test_a_picture_that_cannot_be_read_has_no_answer_and_the_others_have(client):
    files = [("files", ("good.png", png(glyphs.picture(E_ACUTE)))), ("files", ("bad.png", b"\x89PNG nothing"))]
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
    from classnorm.serve.openapi import document

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
