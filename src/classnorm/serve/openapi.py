"""The description of the API: `openapi.json`, and a page made from it."""

from __future__ import annotations

import html
import json
from functools import cache
from pathlib import Path
from typing import Any


@cache
def document() -> dict[str, Any]:
    text = (Path(__file__).parent / "openapi.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def page() -> str:
    """The endpoints as HTML, without scripts."""
    about = document()
    title = html.escape(about["info"]["title"])
    parts = [
        _section(method, path, operation)
        for path, operations in about["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/page/docs.css">'
        f'<h1>{title}</h1><p>{html.escape(about["info"]["description"])} <a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(parts)}</html>"
    )


def _section(method: str, path: str, operation: dict[str, Any]) -> str:
    text = f"{operation['summary']} {operation.get('description', '')}"
    parts = [f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{html.escape(text)}</p>"]
    rows = [
        f"<li><code>{html.escape(parameter['name'])}</code>: {html.escape(parameter['description'])}</li>"
        for parameter in operation.get("parameters", [])
    ]
    parts += [f"<ul>{''.join(rows)}</ul>"] if rows else []
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        parts.append(f"<p>Request: <code>{html.escape(kind)}</code></p>{_example(content)}")
    for status, response in operation["responses"].items():
        if "$ref" not in response:  # errors are the same everywhere
            parts.append(f"<p>{status}: {html.escape(response['description'])}</p>")
            parts += [_example(content) for content in response.get("content", {}).values()]
    return "".join(parts)


def _example(content: dict[str, Any]) -> str:
    example = content.get("example")
    return "" if example is None else f"<pre>{html.escape(json.dumps(example, ensure_ascii=False))}</pre>"
