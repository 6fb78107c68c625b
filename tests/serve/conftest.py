"""Real servers on loopback, with a model of letters that trains in a second."""

import threading
import time
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from classnorm.data import load
from classnorm.scoring import fit
from classnorm.serve import ServeSettings
from classnorm.serve.server import config_of


@pytest.fixture(scope="session")
def letters():
    return load("glyphs-light")


@pytest.fixture(scope="session")
def model_folder(letters, tmp_path_factory):
    return fit(letters, method="kernel", calibration="none").save(tmp_path_factory.mktemp("models") / "letters")


@contextmanager
def serving(settings):
    """The address of a server that runs in a thread of this process."""
    server = uvicorn.Server(config_of(settings))
    server.install_signal_handlers = lambda: None
    socket = server.config.bind_socket()
    thread = threading.Thread(target=server.run, args=([socket],))
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        socket.close()


@pytest.fixture(scope="session")
def serve():
    """`serving`, for tests with settings of their own."""
    return serving


@pytest.fixture(scope="session")
def address(model_folder, tmp_path_factory):
    """A server that several tests share; each has visitors of its own."""
    state = tmp_path_factory.mktemp("state")
    settings = ServeSettings(models=(model_folder,), port=0, state=state, save_folder=state / "saved")
    with serving(settings) as address:
        yield address


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture
def other_client(address):
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client
