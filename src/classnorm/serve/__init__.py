"""`classnorm serve`: models behind an HTTP API and a page, for visitors who invent classes of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from classnorm.registry import lazy_names
from classnorm.serve.settings import Limits, ServeSettings

if TYPE_CHECKING:
    from classnorm.serve.app import create_app
    from classnorm.serve.server import run

__all__ = ["Limits", "ServeSettings", "create_app", "run"]

__getattr__, __dir__ = lazy_names(__name__, {"app": "create_app", "server": "run"})  # they need PyTorch and Starlette
