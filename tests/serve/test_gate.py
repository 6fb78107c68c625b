"""Who may ask, how much, and how long."""

import json
import socket
import threading
import time
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from classnorm.errors import ConfigError
from classnorm.serve import Limits, ServeSettings

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def guarded(serve, model_folder, tmp_path_factory):
    """A server with a token, and limits that tests reach quickly."""
    limits = Limits(body_mb=1, rows=100, in_flight=4, header_seconds=1.5, body_seconds=1.5, header_kb=8, connections=40)
    state = tmp_path_factory.mktemp("guarded")
    with serve(ServeSettings(models=(model_folder,), port=0, token=TOKEN, state=state, limits=limits)) as address:
        yield address


def connect(address):
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=10)


def answer(connection):
    """Status and document of the answer on a connection, after which the server has closed it."""
    content = b""
    while part := connection.recv(65536):
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def is_one_line(response):
    return list(response.json()) == ["error"] and "\n" not in response.json()["error"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "", "localhost@evil.example"])
def test_requests_for_another_host_are_refused(address, host):
    response = httpx.get(f"{address}/model", headers={"host": host})
    assert response.status_code == 421 and is_one_line(response)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1", "[::1]:8000"])
def test_loopback_names_are_accepted(address, host):
    assert httpx.get(f"{address}/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_pages_of_other_sites_change_nothing(client, headers):
    response = client.post("/classes", json={"name": "x", "like": "latin capital letter a"}, headers=headers)
    assert response.status_code == 403 and is_one_line(response)


def test_the_servers_own_page_may_ask(client, address, letters):
    headers = {"origin": address, "sec-fetch-site": "same-origin"}
    assert client.post("/predict", json={"features": letters.features[:1].tolist()}, headers=headers).is_success


@pytest.mark.parametrize("given", [None, "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"])
def test_without_the_token_only_the_page_is_shown(guarded, given):
    headers = {} if given is None else {"authorization": given.encode()}
    response = httpx.get(f"{guarded}/model", headers=headers)
    assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer" and is_one_line(response)
    for path in ("/health", "/", "/docs", "/openapi.json"):
        assert httpx.get(f"{guarded}{path}", headers=headers).status_code == 200
    assert httpx.get(f"{guarded}/model", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_other_addresses_need_a_token_that_is_not_short():
    settings = partial(ServeSettings, models=(Path("model"),))
    with pytest.raises(ConfigError, match="CLASSNORM_TOKEN"):
        settings(host="0.0.0.0")
    with pytest.raises(ConfigError, match="at least 16"):
        settings(host="0.0.0.0", token="short")
    settings(host="0.0.0.0", token=TOKEN)
    settings(host="::1")


def test_what_is_too_large_is_refused_before_it_is_read(guarded):
    connection = connect(guarded)
    head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n"
    connection.sendall(f"{head}content-length: 99999999999\r\n\r\n".encode())
    status, document = answer(connection)
    assert status == 413 and "larger than 1 MB" in document["error"]


def test_what_is_too_large_is_refused_while_it_arrives(guarded):
    def endless():
        for _ in range(200):
            yield bytes(10_000)

    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/x-npy"}
    try:
        response = httpx.post(f"{guarded}/predict", content=endless(), headers=headers)
        assert response.status_code == 413
    except httpx.WriteError:
        pass  # the server has closed the connection


def test_more_rows_than_allowed_are_refused(guarded, letters):
    document = {"features": np.zeros((101, 3)).tolist()}
    response = httpx.post(f"{guarded}/predict", json=document, headers={"authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 413 and is_one_line(response)


def test_slow_headers_and_slow_bodies_time_out(guarded):
    silent, headers, body = connect(guarded), connect(guarded), connect(guarded)
    started = time.monotonic()
    headers.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
    head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 1000\r\n\r\n"
    body.sendall(head.encode())
    for connection in (silent, headers, body):
        status, document = answer(connection)
        assert status == 408 and "1.5 s" in document["error"]
    assert time.monotonic() - started < 10


def test_endless_headers_are_refused(guarded):
    connection = connect(guarded)
    connection.sendall(b"GET /health HTTP/1.1\r\n" + b"".join(b"x-%d: %s\r\n" % (i, b"y" * 90) for i in range(100)))
    status, document = answer(connection)
    assert status == 431 and "8 KB" in document["error"]


def test_what_is_not_http_gets_one_line(address):
    connection = connect(address)
    connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n")
    assert answer(connection) == (400, {"error": "this is not HTTP"})


def test_too_many_requests_at_a_time_are_asked_to_come_back(guarded):
    head = f"POST /predict HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 9\r\n\r\n"
    waiting = [connect(guarded) for _ in range(4)]
    for connection in waiting:
        connection.sendall(head.encode())
    time.sleep(0.2)
    response = httpx.get(f"{guarded}/model", headers={"authorization": f"Bearer {TOKEN}"})
    assert response.status_code == 429 and response.headers["retry-after"] == "1"
    assert httpx.get(f"{guarded}/health").status_code == 200  # whoever watches the server still gets an answer
    for connection in waiting:
        answer(connection)


def test_too_many_connections_are_asked_to_come_back(guarded):
    idle = [connect(guarded) for _ in range(40)]
    time.sleep(0.1)
    one_more = connect(guarded)
    assert answer(one_more)[0] == 429
    for connection in idle:
        connection.close()


def test_a_server_finishes_what_it_has_before_it_stops(serve, model_folder, tmp_path, letters):
    body = json.dumps({"features": letters.features[:1].tolist()}).encode()
    with serve(ServeSettings(models=(model_folder,), port=0, state=tmp_path)) as address:
        connection = connect(address)
        head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:100])
        time.sleep(0.1)
        rest = threading.Timer(0.3, connection.sendall, [body[100:]])
        rest.start()
    status, document = answer(connection)
    assert status == 200 and len(document["predictions"]) == 1


def test_every_answer_forbids_scripts_and_frames_of_others(client):
    for path in ("/", "/health", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_other_sites_may_link_to_the_page_but_not_load_from_the_api(client):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/export.onnx", headers=link).status_code == 403


def test_an_answer_that_takes_too_long_is_given_up(serve, model_folder, tmp_path, letters, monkeypatch):
    from classnorm.serve.models import Served

    def slowly(self, sent, limits):
        time.sleep(0.5)

    monkeypatch.setattr(Served, "rows", slowly)
    with serve(
        ServeSettings(models=(model_folder,), port=0, state=tmp_path, limits=Limits(answer_seconds=0.1))
    ) as address:
        response = httpx.post(f"{address}/explain", files={"files": ("a.png", b"x")})
        assert response.status_code == 408 and is_one_line(response)
