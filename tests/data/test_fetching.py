"""Downloads from a server on this machine that stalls, breaks, lies, redirects, and serves ranges or not."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from classnorm.data import fetching
from classnorm.data.fetching import SOURCES, Source, fetch
from classnorm.errors import ClassNormError, DataError, OutputError

Handler = http.server.BaseHTTPRequestHandler
NOISE = np.random.default_rng(0).bytes(300_000)  # that does not compress


def zipped(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


GOOD = zipped(**{"zoo/a.txt": b"a" * 1000, "zoo/deep/noise.bin": NOISE})


class Server:
    """A server whose answers a test chooses; it remembers the headers of all requests."""

    def __init__(self) -> None:
        self.answer: Callable[[Handler, int], None] = serve(GOOD)
        self.requests: list[dict[str, str]] = []
        server = self

        class Answers(Handler):
            def do_GET(self) -> None:
                server.requests.append({"path": self.path, **dict(self.headers.items())})
                server.answer(self, len(server.requests))

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/zoo.zip"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


def serve(
    content: bytes,
    *,
    ranges: bool = True,
    etag: str = '"1"',
    cut: dict[int, int] | None = None,
    stall: threading.Event | None = None,
    **headers: str,
) -> Callable[[Handler, int], None]:
    """Answers with the content; the answer of a number in `cut` ends after so many bytes, and waits if it stalls."""

    def answer(handler: Handler, number: int) -> None:
        start = 0
        asked, version = handler.headers.get("Range"), handler.headers.get("If-Range", etag)
        if ranges and asked and version == etag:
            start = int(asked.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                handler.send_response(416)
                handler.send_header("Content-Range", f"bytes */{len(content)}")
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        if etag:
            handler.send_header("ETag", etag)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        end = start + cut[number] if cut and number in cut else len(content)
        handler.wfile.write(content[start:end])
        if stall is not None and end < len(content):
            handler.wfile.flush()
            stall.wait(20)

    return answer


@pytest.fixture
def server(monkeypatch, tmp_path) -> Iterator[Server]:
    monkeypatch.setattr(fetching, "_PAUSE", 0.01)
    monkeypatch.setattr(fetching, "_STALL", 0.3)
    monkeypatch.setenv("CLASSNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    server = Server()
    source = Source("zoo", "zoo.zip", (server.url,), ("zoo/a.txt",), most=1 << 20, most_unpacked=1 << 21)
    monkeypatch.setitem(SOURCES, "zoo", source)
    yield server
    server.http.shutdown()
    server.http.server_close()


def set_source(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    monkeypatch.setitem(SOURCES, "zoo", dataclasses.replace(SOURCES["zoo"], **changes))


def leftovers(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file()} if folder.exists() else set()


def test_a_dataset_is_downloaded_unpacked_and_not_downloaded_again(server, tmp_path):
    target, fetched = fetch("zoo", tmp_path / "out")
    assert target == tmp_path / "out" / "zoo"
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE
    assert (fetched.files, fetched.bytes) == (2, 1000 + len(NOISE))
    assert (fetched.url, fetched.sha256) == (server.url, hashlib.sha256(GOOD).hexdigest())
    assert fetch("zoo", tmp_path / "out") == (target, fetched)
    assert len(server.requests) == 1
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["zoo"]


def test_a_broken_connection_is_continued_where_it_stopped(server, tmp_path):
    server.answer = serve(GOOD, cut={1: 100_000, 2: 50_000})
    target, _ = fetch("zoo", tmp_path)
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE
    assert [request.get("Range") for request in server.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert {request.get("If-Range") for request in server.requests[1:]} == {'"1"'}


def test_a_stalled_connection_is_continued(server, tmp_path):
    wait = threading.Event()
    server.answer = serve(GOOD, cut={1: 100_000}, stall=wait)
    target, _ = fetch("zoo", tmp_path)
    wait.set()
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE
    assert len(server.requests) == 2


def test_an_interrupted_command_is_continued_by_the_next(server, tmp_path):
    server.answer = serve(GOOD, cut={1: 100_000, 2: 0, 3: 0, 4: 0})
    with pytest.raises(DataError, match=r"the connection broke; 0\.1 MB are kept, run the same command again"):
        fetch("zoo", tmp_path)
    received = len(server.requests)
    target, _ = fetch("zoo", tmp_path)
    assert server.requests[received]["Range"] == "bytes=100000-"
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE


def test_a_download_that_was_whole_when_it_was_killed_is_not_repeated(server, tmp_path):
    work = tmp_path / ".zoo.fetch"
    work.mkdir()
    (work / "part").write_bytes(GOOD)
    (work / "part.json").write_text(json.dumps({"url": server.url, "validator": '"1"'}))
    target, _ = fetch("zoo", tmp_path)
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE
    assert server.requests[0]["Range"] == f"bytes={len(GOOD)}-"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_that_changed_meanwhile_is_downloaded_from_its_start(server, tmp_path, ranges):
    server.answer = serve(b"x" * 200_000, cut={1: 100_000, 2: 0, 3: 0, 4: 0}, etag='"0"')
    with pytest.raises(DataError):
        fetch("zoo", tmp_path)
    server.answer = serve(GOOD, ranges=ranges)
    target, _ = fetch("zoo", tmp_path)
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE


def test_a_server_without_ranges_or_versions_starts_again(server, tmp_path):
    server.answer = serve(GOOD, ranges=False, etag="", cut={1: 100_000})
    target, _ = fetch("zoo", tmp_path)
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE
    assert "Range" not in server.requests[1]


def test_with_a_known_checksum_a_beginning_of_another_address_is_continued_and_replaced_if_it_does_not_fit(
    server, tmp_path, monkeypatch
):
    set_source(monkeypatch, checksum=f"md5:{hashlib.md5(GOOD).hexdigest()}")
    work = tmp_path / ".zoo.fetch"
    work.mkdir()
    (work / "part").write_bytes(b"?" * 1000)
    (work / "part.json").write_text(json.dumps({"url": "http://elsewhere.invalid/zoo.zip"}))
    target, _ = fetch("zoo", tmp_path)
    assert (target / "zoo/deep/noise.bin").read_bytes() == NOISE
    assert [request.get("Range") for request in server.requests] == ["bytes=1000-", None]


def test_another_file_than_the_published_one_is_refused(server, tmp_path, monkeypatch):
    set_source(monkeypatch, checksum="md5:97eceeb196236b17998738112f37df78")
    with pytest.raises(DataError, match="another file than the published one"):
        fetch("zoo", tmp_path / "out")
    assert not (tmp_path / "out" / "zoo").exists()
    assert leftovers(tmp_path / "out") <= {"part.json"}


def test_without_a_published_checksum_the_first_download_counts(server, tmp_path):
    fetch("zoo", tmp_path / "first")
    other = zipped(**{"zoo/a.txt": b"replaced"})
    server.answer = serve(other)
    with pytest.raises(DataError, match=r"another file than at the first time.*delete .*zoo\.json"):
        fetch("zoo", tmp_path / "second")
    (tmp_path / "cache" / "fetched" / "zoo.json").unlink()
    target, _ = fetch("zoo", tmp_path / "second")
    assert (target / "zoo/a.txt").read_bytes() == b"replaced"


def test_mirrors_are_tried_first_and_the_publisher_last(server, tmp_path):
    missing = server.url.replace("zoo.zip", "gone.zip")
    good = serve(GOOD)
    server.answer = lambda handler, number: (
        handler.send_error(404) if handler.path == "/gone.zip" else good(handler, number)
    )
    _, fetched = fetch("zoo", tmp_path, [missing])
    assert [request["path"] for request in server.requests] == ["/gone.zip", "/zoo.zip"]
    assert fetched.url == server.url


def test_redirects_are_followed_but_not_without_end_and_to_no_file(server, tmp_path):
    good = serve(GOOD)

    def redirect(target: str) -> Callable[[Handler, int], None]:
        def answer(handler: Handler, number: int) -> None:
            if handler.path == "/real":
                good(handler, number)
                return
            handler.send_response(302)
            handler.send_header("Location", target)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        return answer

    (tmp_path / "secret").write_text("secret")
    for target, words in (
        ("/zoo.zip", "Exceeded 30 redirects"),
        (f"file://{tmp_path}/secret", "No connection adapters"),
    ):
        server.answer = redirect(target)
        with pytest.raises(DataError, match=words):
            fetch("zoo", tmp_path / "out")
    server.answer = redirect("/real")
    assert fetch("zoo", tmp_path / "out")[0].is_dir()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (serve(b"<html>log in</html>", Content_Type="text/html; charset=utf-8"), "a web page instead of the file"),
        (serve(b"not an archive" * 100), "neither a zip nor a gzipped tar"),
        (serve(GOOD[:-100]), "damaged"),
        (serve(GOOD[:1000] + bytes(8) + GOOD[1008:]), "damaged"),
        (serve(b"x" * (1 << 21)), "offers 2 MB, more than the file has"),
        (serve(zipped(**{"other/a.txt": b""})), r"zoo/a\.txt is missing; 127\.0\.0\.1 has another file"),
        (serve(zipped(**{"zoo/a.txt": bytes(1 << 22)})), "unpacks to more than 2 MB"),
    ],
)
def test_content_that_is_not_what_it_should_be_is_refused_and_nothing_of_it_stays(server, tmp_path, answer, words):
    server.answer = answer
    with pytest.raises(DataError, match=words) as error:
        fetch("zoo", tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out" / "zoo").exists()
    assert "zoo.zip" not in leftovers(tmp_path / "out")
    server.answer = serve(GOOD, etag='"2"')
    assert (fetch("zoo", tmp_path / "out")[0] / "zoo/a.txt").is_file()


def test_a_stream_without_end_is_stopped(server, tmp_path):
    def endless(handler: Handler, number: int) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(bytes(100_000))

    server.answer = endless
    with pytest.raises(DataError, match="sends more than 1 MB"):
        fetch("zoo", tmp_path)


def test_a_lie_about_the_encoding_changes_no_byte(server, tmp_path):
    server.answer = serve(GOOD, Content_Encoding="gzip")
    assert fetch("zoo", tmp_path)[1].sha256 == hashlib.sha256(GOOD).hexdigest()


def test_a_server_that_is_overloaded_is_asked_again(server, tmp_path):
    good = serve(GOOD)
    server.answer = lambda handler, number: handler.send_error(503) if number < 3 else good(handler, number)
    assert fetch("zoo", tmp_path)[0].is_dir()


def test_without_a_network_there_is_one_line(server, tmp_path, monkeypatch):
    set_source(monkeypatch, urls=("http://127.0.0.1:1/zoo.zip",))
    with pytest.raises(DataError, match=r"cannot be reached \(no network\?\); set `mirror`") as error:
        fetch("zoo", tmp_path / "out")
    assert "\n" not in str(error.value)
    assert [*(tmp_path / "out").iterdir()] == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "zoo.zip", "http://[", "http://"])
def test_an_address_that_is_none_is_refused(server, tmp_path, monkeypatch, url):
    set_source(monkeypatch, urls=())
    with pytest.raises(DataError):
        fetch("zoo", tmp_path, [url])


def test_a_folder_of_someone_else_is_not_touched(server, tmp_path):
    (tmp_path / "zoo").mkdir()
    with pytest.raises(DataError, match="was not written by `data fetch`"):
        fetch("zoo", tmp_path)


def test_a_target_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        fetch("zoo", tmp_path / "file")


def link(name: str, to: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, to
    return info, b""


def zip_link() -> bytes:
    info = zipfile.ZipInfo("zoo/a.txt")
    info.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


HOSTILE = {
    "zip-parent": zipped(**{"../evil": b"x"}),
    "zip-absolute": zipped(**{"/tmp/classnorm-evil": b"x"}),
    "zip-parents-below": zipped(**{"zoo/../../evil": b"x"}),
    "zip-backslash": zipped(**{"..\\evil": b"x"}),
    "zip-drive": zipped(**{"C:evil": b"x"}),
    "zip-link": zip_link(),
    "tar-parent": tarred((tarfile.TarInfo("../evil"), b"x")),
    "tar-absolute": tarred((tarfile.TarInfo("/tmp/classnorm-evil"), b"x")),
    "tar-through-a-link": tarred(link("zoo", ".."), (tarfile.TarInfo("zoo/evil"), b"x")),
    "tar-hard-link": tarred(link("zoo/a.txt", "/etc/passwd", tarfile.LNKTYPE)),
    "tar-fifo": tarred(link("zoo/a.txt", "", tarfile.FIFOTYPE)),
    "tar-file-as-folder": tarred((tarfile.TarInfo("zoo"), b"x"), (tarfile.TarInfo("zoo/a.txt"), b"x")),
    "tar-twice": tarred((tarfile.TarInfo("zoo/a.txt"), b"x"), (tarfile.TarInfo("zoo/a.txt"), b"y")),
}


@pytest.mark.parametrize("archive", HOSTILE.values(), ids=HOSTILE)
def test_an_archive_writes_nowhere_else_and_makes_no_links(server, tmp_path, archive):
    server.answer = serve(archive)
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(DataError):
        fetch("zoo", tmp_path / "out" / "deep")
    assert "evil" not in leftovers(tmp_path) and not Path("/tmp/classnorm-evil").exists()
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]
    assert {path.name for path in tmp_path.iterdir()} - before <= {"out"}


def test_a_header_of_a_tar_file_that_fills_the_memory_is_refused(server, tmp_path):
    info = tarfile.TarInfo("zoo/a.txt")
    info.type = tarfile.XHDTYPE
    server.answer = serve(tarred((info, bytes(100 << 20))))  # 100 MB of zeros are 100 kB
    with pytest.raises(DataError, match="a header that is too long"):
        fetch("zoo", tmp_path)


def test_a_damaged_record_of_a_fetched_folder_is_named(server, tmp_path):
    target, _ = fetch("zoo", tmp_path)
    (target / "fetched.json").write_text('{"name": 3}')
    with pytest.raises(ClassNormError, match=r"fetched\.json: name is 3"):
        fetch("zoo", tmp_path)


def test_the_real_sources_are_what_the_loaders_expect():
    assert {*SOURCES} >= {"gbu", "cub"}
    assert SOURCES["cub"].checksum == "md5:97eceeb196236b17998738112f37df78"
    assert all(url.startswith("https://") for source in SOURCES.values() for url in source.urls)
    assert {Path(file).parent.name for file in SOURCES["gbu"].content} == {"CUB", "SUN", "AWA1", "AWA2", "APY"}
    assert fetching.SOURCES is SOURCES
