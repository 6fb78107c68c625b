"""`classnorm serve`: a page and an HTTP API."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from classnorm.cli.console import print_json
from classnorm.cli.options import Command, OutputOptions, optional
from classnorm.errors import ConfigError
from classnorm.progress import notice
from classnorm.results.run_folder import model_files
from classnorm.serve.settings import Limits, ServeSettings


@dataclass(frozen=True, kw_only=True)
class Serve(Command):
    """Serve models: a page to invent classes and see them recognised, and an HTTP API.

    Examples:
      classnorm serve
      classnorm serve runs/mine/seed-0 --models saved
      classnorm serve runs/reference/seed-0 runs/baseline/seed-0
      CLASSNORM_TOKEN=… classnorm serve runs/mine/seed-0 --host 0.0.0.0 --workers 4

    Notes:
      Without a model, trains kernel prototypes on glyphs-light, which takes seconds.
      With several, the page shows their answers side by side. On anything but
      loopback a token is needed. /docs lists the endpoints; docs/serving.md has
      them in full. Ctrl-C or SIGTERM stops it once the pending requests are answered.
    """

    model: Annotated[tuple[Path, ...], tyro.conf.Positional, optional("[MODEL …]")] = ()
    """Folders of finished runs."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all."""
    port: int = 8000
    """Port; 0 for any free one."""
    token: Annotated[str | None, optional("TEXT")] = None
    """Token that requests must carry; better in the environment variable CLASSNORM_TOKEN."""
    models: Annotated[Path | None, optional("DIR")] = None
    """Folder where visitors may save models (default: they may not)."""
    state: Annotated[Path | None, optional("DIR")] = None
    """Folder of the visitors' classes and examples (default: in the cache)."""
    allowed_host: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], optional("NAME")] = ()
    """Name under which the server is reached, without port. Repeat the flag for several."""
    workers: int = 1
    """Processes that share the port."""
    limits: Limits = field(default_factory=Limits)
    output: OutputOptions

    def run(self) -> None:
        for name in ("starlette", "uvicorn", "httptools", "python_multipart"):
            if importlib.util.find_spec(name) is None:
                raise ConfigError(f"classnorm serve needs {name}; pip install 'classnorm[serve]'")
        for model in self.model:
            model_files(model)  # must exist
        token = self.token or os.environ.get("CLASSNORM_TOKEN") or None
        state = {} if self.state is None else {"state": self.state}
        with tempfile.TemporaryDirectory(prefix="classnorm-model-") as folder:
            settings = ServeSettings(
                models=self.model or (Path(folder) / "glyphs-light",),
                host=self.host,
                port=self.port,
                token=token,
                save_folder=self.models,
                allowed_hosts=tuple(name.lower() for name in self.allowed_host),
                workers=self.workers,
                limits=self.limits,
                **state,
            )
            from classnorm.serve.server import default_model, run  # PyTorch and Starlette

            if not self.model:
                notice("training kernel prototypes on glyphs-light")
                default_model(Path(folder))

            def started(address: str) -> None:
                link = f"{address}/#token={token}" if token and sys.stderr.isatty() else address
                notice(f"serving at {link}")
                if self.output.json:
                    print_json({"address": address})
                    sys.stdout.flush()

            run(settings, started)
