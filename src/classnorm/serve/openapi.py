"""The description of the API: `openapi.json`, and a page made from it."""

from __future__ import annotations

import html
import json
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["document", "page"]


@cache
def document() -> dict[str, Any]:
    text = (Path(__file__).parent / "openapi.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def page() -> str:
    """The endpoints as HTML, without scripts."""
    about = document()
    parts = []
    for path, operations in about["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(operation['summary'])} {html.escape(operation.get('description', ''))}</p>")
            rows = [
                f"<li><code>{html.escape(p['name'])}</code> {html.escape(p['description'])}</li>"
                for p in operation.get("parameters", [])
            ]
            parts.append(f"<ul>{''.join(rows)}</ul>" if rows else "")
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                example = content.get("example")
                shown = "" if example is None else f"<pre>{html.escape(json.dumps(example, ensure_ascii=False))}</pre>"
                parts.append(f"<p>Request: <code>{html.escape(kind)}</code></p>{shown}")
            for status, response in operation["responses"].items():
                if "$ref" in response:
                    continue
                contents: list[dict[str, Any]] = list(response.get("content", {}).values())
                example = contents[0].get("example") if contents else None
                shown = "" if example is None else f"<pre>{html.escape(json.dumps(example, ensure_ascii=False))}</pre>"
                parts.append(f"<p>{status}: {html.escape(response['description'])}</p>{shown}")
    title = html.escape(about["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><h1>{title}</h1>'
        f'<p>{html.escape(about["info"]["description"])} <a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(parts)}</html>"
    )
