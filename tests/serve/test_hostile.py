"""Requests that mean harm, or nonsense: 4xx with one line, nothing written, and the server goes on."""

import io
import json
import random
import zlib
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from classnorm.serve import Limits, ServeSettings
from classnorm.serve.messages import Answer, RequestError

PATHS = ("/predict", "/classes", "/examples", "/explain", "/map", "/save")
KINDS = ("application/json", "application/x-npy", "multipart/form-data; boundary=b", "text/plain", "", "image/png")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def hostile(serve, model_folder, place):
    limits = Limits(megapixels=1, files=3, classes=3, text_length=100)
    settings = ServeSettings(
        models=(model_folder,), port=0, state=place / "state", save_folder=place / "saved", limits=limits
    )
    with serve(settings) as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client


def files_in(folder: Path):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def refused(response):
    assert 400 <= response.status_code < 500, (response.status_code, response.text)
    assert list(response.json()) == ["error"] and "\n" not in response.json()["error"]
    return response.json()["error"]


def npy(shape, body=b"", dtype="<f4", header=None):
    file = io.BytesIO()
    head = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head) if header is None else file.write(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    )
    return file.getvalue() + body


@pytest.mark.parametrize(
    "body",
    [
        npy((10**9, 392)),  # claims terabytes
        npy((-1, -392), bytes(4 * 392)),
        npy((1, 392), bytes(4 * 391)),
        npy((392,), bytes(4 * 392)),
        npy((1, 49), bytes(392), dtype="|O"),
        npy((1, 392), bytes(392 * 16), dtype="<c16"),
        npy((1, 392), np.full(392, np.nan, np.float32).tobytes()),
        npy((1, 392), np.full(392, 1e300).tobytes(), dtype="<f8"),
        npy((0, 392)),
        npy(None, header=b"(" * 900),
        npy(None, header=b"{'descr': __import__('os').system('true'), 'fortran_order': False, 'shape': (1,)}"),
        b"\x93NUMPY\x09\x00\x00\x00",
        b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",  # a pickle
        b"",
    ],
)
def test_arrays_that_are_not_what_they_say_are_refused(hostile, body):
    refused(hostile.post("/predict", content=body, headers={"content-type": "application/x-npy"}))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"features": [[1, "2"]]}',
        '{"features": [["1"]]}',
        '{"features": [[true]]}',
        '{"features": [[null]]}',
        '{"features": [[1], [1, 2]]}',
        '{"features": [[]]}',
        '{"features": []}',
        '{"features": [[NaN]]}',
        '{"features": [[1e999]]}',
        '{"features": [[1' + "0" * 400 + "]]}",
        '{"features": {"a": 1}}',
        '{"features": "x"}',
        '{"features": [[[1]]]}',
        '{"features": ' + json.dumps([[0.5] * 392]) + ', "top": 0}',
        '{"features": ' + json.dumps([[0.5] * 392]) + ', "top": 1e9}',
        '{"features": ' + json.dumps([[0.5] * 392]) + ', "top": [1]}',
        '{"features": ' + json.dumps([[0.5] * 392]) + ', "model": {"a": 1}}',
        '{"features": ' + json.dumps([[0.5] * 392]) + ', "model": "../../etc/passwd"}',
        "null",
        "1" * 5000,
        "\ud800".encode("utf-8", "surrogatepass"),
        '{"features": [[1]], "features": [[2, "\\ud800"]]}',
    ],
)
def test_documents_that_are_not_features_are_refused(hostile, text):
    refused(hostile.post("/predict", content=text, headers={"content-type": "application/json"}))


def bomb(width, height, text=b""):
    """A PNG of a few kilobytes that unfolds to width × height pixels, and a comment that unfolds to `text`."""

    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0])
    comment = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(text, 9)) if text else b""
    data = zlib.compress(bytes(min(height * (width + 1), 20_000_000)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + comment + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(1001, 1000), (30_000, 30_000), (2**31 - 1, 2**31 - 1)])
def test_pictures_that_unfold_are_refused_before_they_are_decoded(hostile, size):
    assert "megapixels" in (error := refused(hostile.post("/predict", files={"files": ("a.png", bomb(*size))}))) or (
        "not an image" in error
    )


@pytest.mark.parametrize("size", [(1, 1_000_000), (1_000_000, 1), (10, 99_999)])
def test_elongated_pictures_are_not_made_square_in_memory(hostile, size):
    file = io.BytesIO()
    Image.effect_noise(size, 100).save(file, "PNG")
    response = hostile.post("/predict", files={"files": ("a.png", file.getvalue())})
    assert response.status_code == 200 or refused(response)


def test_text_in_a_picture_that_unfolds_is_refused(hostile):
    refused(hostile.post("/predict", files={"files": ("a.png", bomb(8, 8, text=bytes(100_000_000)))}))


@pytest.mark.parametrize("kind", ["EPS", "PDF"])
def test_formats_that_need_other_programs_are_refused(hostile, kind):
    file = io.BytesIO()
    Image.new("RGB", (48, 48)).save(file, kind)
    assert "not an image" in refused(hostile.post("/predict", files={"files": ("a.png", file.getvalue())}))


def test_a_picture_without_a_letter_is_refused(hostile):
    file = io.BytesIO()
    Image.new("L", (48, 48), 255).save(file, "PNG")
    assert "no letter" in refused(hostile.post("/predict", files={"files": ("a.png", file.getvalue())}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b\r\n",
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="x"\r\n\r\nabc',
        b'--b\r\nContent-Disposition: form-data; filename="x"\r\n\r\nabc\r\n--b--\r\n',
        b'--b\r\nContent-Disposition: form-data; name="top"\r\n\r\n' + b"9" * 70_000 + b"\r\n--b--\r\n",
        b"".join(b'--b\r\nContent-Disposition: form-data; name="n%d"\r\n\r\n1\r\n' % i for i in range(50)) + b"--b--",
        b"".join(b'--b\r\nContent-Disposition: form-data; name="files"; filename="f"\r\n\r\n1\r\n' for _ in range(9))
        + b"--b--\r\n",
        b"--b\r\n" + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n\r\n--b--\r\n",
    ],
)
def test_damaged_forms_are_refused(hostile, body):
    kind = "multipart/form-data; boundary=b; charset=idna"
    refused(hostile.post("/predict", content=body, headers={"content-type": kind}))
    refused(hostile.post("/predict", content=body, headers={"content-type": "multipart/form-data"}))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"name": "x"},
        {"name": "", "like": "latin capital letter a"},
        {"name": "a\nb", "like": "latin capital letter a"},
        {"name": "a\u202eb", "like": "latin capital letter a"},
        {"name": "\ud800", "like": "latin capital letter a"},
        {"name": "x" * 201, "like": "latin capital letter a"},
        {"name": ["x"], "like": "latin capital letter a"},
        {"name": "latin capital letter a", "like": "latin capital letter b"},
        {"name": "x", "like": "no such class"},
        {"name": "x", "like": ["latin capital letter a"]},
        {"name": "x", "like": "latin capital letter a", "changes": {"no such attribute": 1}},
        {"name": "x", "like": "latin capital letter a", "changes": {"acute": "1"}},
        {"name": "x", "like": "latin capital letter a", "changes": {"acute": 1e300}},
        {"name": "x", "like": "latin capital letter a", "changes": [1]},
        {"name": "x", "like": "latin capital letter a", "text": "y"},
        {"name": "x", "text": "a letter"},
        {"name": "x", "text": "y" * 101},
        {"name": "x", "attributes": []},
        {"name": "x", "descriptor": [1, 2]},
        {"name": "x", "descriptor": "abc"},
        {"name": "x", "descriptor": [0] * 72},
        {"name": "x", "descriptor": [1e300] * 72},
        {"name": "x", "descriptor": [float("inf")] * 72},
        {"name": "x", "descriptor": [10**400] * 72},
        {"name": "x", "descriptor": [[1]] * 72},
        {"name": "x", "like": "latin capital letter a", "model": 5},
    ],
)
def test_classes_that_cannot_be_are_refused(hostile, place, document):
    before = files_in(place)
    content = json.dumps(document)
    refused(hostile.post("/classes", content=content, headers={"content-type": "application/json"}))
    assert files_in(place) == before


@pytest.mark.parametrize("value", [3e38, 1e-45])
def test_a_class_of_extreme_numbers_spoils_no_answer(hostile, value):
    with httpx.Client(base_url=hostile.base_url, timeout=30) as visitor:
        added = visitor.post("/classes", json={"name": "x", "descriptor": [value] * 72})
        assert added.status_code == 201 or refused(added)
        assert visitor.post("/predict", json={"features": [[0.5] * 392]}).status_code == 200


@pytest.mark.parametrize("name", ["../../evil", "<script>alert(1)</script>", "C:\\evil\\..", "/etc/passwd", "'; --"])
def test_class_names_are_text_and_nothing_else(hostile, place, name):
    with httpx.Client(base_url=hostile.base_url) as visitor:
        document = {"name": name, "like": "latin capital letter a"}
        assert visitor.post("/classes", json=document).status_code == 201
        answer = visitor.get("/classes", params={"name": name})
        assert answer.headers["content-type"] == "application/json" and answer.json()["classes"][0]["class"] == name
        assert "\n" not in answer.text
        assert visitor.delete("/classes", params={"name": name}).json() == {"removed": name}
    assert all(path.parent.name == "sessions" and path.suffix == ".safetensors" for path in files_in(place))


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".", "..", ".hidden", "a" * 65, "é", "x\0y", None, 5, ["a"]])
def test_models_are_saved_under_plain_names_only(hostile, place, name):
    refused(hostile.post("/save", json={"name": name}))
    assert not (place / "saved").exists() or not list((place / "saved").iterdir())


def test_the_number_of_classes_of_a_visitor_is_limited(hostile):
    with httpx.Client(base_url=hostile.base_url) as visitor:
        answers = [visitor.post("/classes", json={"name": f"x{i}", "like": "latin capital letter a"}) for i in range(4)]
        assert [answer.status_code for answer in answers] == [201, 201, 201, 409]


@pytest.mark.parametrize("key", ["", "x", "../../etc/passwd", "a" * 44, "é" * 43, "a" * 42 + "."])
def test_keys_that_were_not_given_out_are_nobody(hostile, key):
    listed = hostile.get("/classes", headers={"x-classnorm-session": key.encode()})
    assert listed.status_code == 200 and len(listed.json()["classes"]) == 426


@pytest.mark.parametrize(
    "path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2f..%2fcli/serve.py", "/page//etc"]
)
def test_files_beside_the_page_cannot_be_had(hostile, path):
    request = hostile.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    refused(hostile.send(request))


def random_body(rng):
    """Noise, or something valid with noise in it."""
    rows = np.zeros((1, 392), np.float32)
    file = io.BytesIO()
    np.save(file, rows)
    image = io.BytesIO()
    Image.fromarray(np.eye(48, dtype=np.uint8) * 255).save(image, "PNG")
    form = (
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="x"\r\n\r\n' + image.getvalue() + b"\r\n--b--"
    )
    document = {"features": [[0.5] * 3], "name": "x", "like": "y", "class": "z", "top": 2, "text": "t"}
    seeds = [b"", file.getvalue(), form, json.dumps(document).encode(), rng.randbytes(rng.randrange(200))]
    body = bytearray(rng.choice(seeds))
    for _ in range(rng.randrange(1, 8)):
        if body:
            body[rng.randrange(len(body))] = rng.randrange(256)
        if rng.random() < 0.2:
            del body[rng.randrange(len(body) + 1) :]
    return bytes(body)


def bombard(client, place, count):
    rng = random.Random(0)
    before = files_in(place / "saved")
    statuses = set()
    for _ in range(count):
        path, kind = rng.choice(PATHS), rng.choice(KINDS)
        response = client.post(path, content=random_body(rng), headers={"content-type": kind} if kind else {})
        statuses.add(response.status_code)
        if response.status_code not in (200, 201):
            refused(response)
    assert max(statuses) < 500
    assert files_in(place / "saved") == before
    assert client.get("/health").json()["status"] == "ok"


def test_random_bodies_are_refused(hostile, place):
    bombard(hostile, place, 500)


@pytest.mark.long
@pytest.mark.slow
def test_ten_thousand_random_bodies_are_refused(hostile, place):
    bombard(hostile, place, 10_000)


@pytest.mark.parametrize("path", ["/predict?reject=0.1", "/map", "/explain"])
@pytest.mark.parametrize("value", [3e38, -3e38, 1e-45, 0])
def test_extreme_features_have_a_finite_answer_or_none(hostile, path, value):
    response = hostile.post(path, json={"features": [[value] * 392, [0.5] * 392]})
    assert response.status_code == 200 or refused(response)


def test_what_is_not_finite_is_never_sent():
    for content in ({"x": float("nan")}, {"x": "\ud800"}):
        with pytest.raises(RequestError) as error:
            Answer(content)
        assert error.value.status == 400
