"""A visitor's model as files: a folder below the folder of saved models, or ONNX."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from classnorm.errors import OutputError
from classnorm.io.files import locked_folder
from classnorm.results.run_folder import ENCODER
from classnorm.serve.errors import RequestError
from classnorm.serve.models import Served
from classnorm.serve.sessions import Visit
from classnorm.serve.settings import ServeSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PREFIX = ".saving-"
_KEPT = (ENCODER,)  # files beside the model that say how to use it


def save_model(served: Served, visit: Visit, name: Any, settings: ServeSettings) -> str:
    """Write the model with the visitor's classes and examples, all or nothing, and return its name."""
    folder = settings.save_folder
    if folder is None:
        raise RequestError(403, "this server saves no models: it was started without a folder for them")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(400, "name must have 1 to 64 letters, digits, - or _, and start with a letter or digit")
    with locked_folder(folder):
        for left in folder.glob(f"{_PREFIX}*"):  # by a server that was killed
            shutil.rmtree(left, ignore_errors=True)
        if (folder / name).exists():
            raise RequestError(409, f"there is a model {name} already; choose another name")
        if sum(entry.is_dir() for entry in os.scandir(folder)) >= settings.limits.saved:
            raise RequestError(409, f"there are {settings.limits.saved} saved models, which is the limit")
        temporary = Path(tempfile.mkdtemp(dir=folder, prefix=_PREFIX))
        try:
            visit.scorer(served).save(temporary)
            for file in _KEPT:
                if (served.folder / file).is_file():
                    shutil.copyfile(served.folder / file, temporary / file)
            temporary.chmod(0o755)
            temporary.rename(folder / name)
        except OSError as error:
            raise OutputError(f"cannot write the model: {error.strerror}") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return name


def export_model(served: Served, visit: Visit) -> bytes:
    """The model with the visitor's classes as ONNX: features → scores and probabilities."""
    from classnorm.scoring.onnx_export import export_onnx

    with tempfile.TemporaryDirectory(prefix="classnorm-export-") as folder:
        files = export_onnx(visit.scorer(served), Path(folder) / "model.onnx")
        return files[0].read_bytes()
