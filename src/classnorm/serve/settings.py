"""Settings of a server: where it listens, what it serves and what a request may cost."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from classnorm.errors import ConfigError
from classnorm.io.files import cache_folder

_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Limits:
    """What requests and visitors may use. Counts of requests and connections are per worker."""

    body_mb: int = 16
    """Size of a request."""
    megapixels: int = 40
    """Size of an image."""
    files: int = 32
    """Images in a request."""
    rows: int = 4096
    """Rows of features in a request."""
    top: int = 100
    """Classes in the answer for a row."""
    classes: int = 100
    """Classes that a visitor may add."""
    examples: int = 500
    """Examples that a visitor may give."""
    name_length: int = 200
    """Characters in the name of a class."""
    text_length: int = 5000
    """Characters in the description of a class."""
    in_flight: int = 128
    """Requests that are being received or answered at a time; others are asked to come back."""
    received_mb: int = 256
    """Bodies in memory at a time."""
    connections: int = 1024
    header_kb: int = 32
    """Size of the request line and the headers."""
    header_seconds: float = 10.0
    body_seconds: float = 20.0
    answer_seconds: float = 60.0
    stop_seconds: int = 10
    """Time to finish what has been received before the server stops."""
    session_mb: int = 8
    """File of a visitor."""
    session_days: float = 7.0
    """Time after which a visitor's classes are forgotten if not used."""
    sessions_mb: int = 1024
    """Files of all visitors; the oldest are deleted."""
    saved: int = 100
    """Models in the folder of saved models."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ConfigError(f"`{name}` is {value}; it must be positive")


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """A server. Workers are processes that share the port."""

    models: tuple[Path, ...]
    """Folders of models; the first is the default one."""
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = field(default=None, repr=False)
    save_folder: Path | None = None
    """Where visitors may save models; None forbids it."""
    state: Path = field(default_factory=lambda: cache_folder() / "serve")
    """Folder of the visitors' classes and examples."""
    run_folder: Path | None = None
    """Folder of the counters that the workers share while the server runs."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that a request may address, in addition to loopback; without any, all if it listens elsewhere."""
    workers: int = 1
    limits: Limits = field(default_factory=Limits)

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The host names that requests may address; None for all."""
        if not self.is_loopback and not self.allowed_hosts:
            return None
        return frozenset({"localhost", "127.0.0.1", "[::1]", self.host, *self.allowed_hosts})

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"`port` is {self.port}; it must be between 0 and 65535")
        if self.workers < 1:
            raise ConfigError(f"`workers` is {self.workers}; it must be at least 1")
        if self.token is not None and (len(self.token) < _SHORTEST_TOKEN or not self.token.isascii()):
            raise ConfigError(f"the `token` must have at least {_SHORTEST_TOKEN} characters, all ASCII")
        if self.token is None and not self.is_loopback:
            raise ConfigError(
                f"anyone who reaches {self.host} could use the model; set `token` or the environment variable "
                "CLASSNORM_TOKEN"
            )
