"""What the documentation site (mkdocs.yml) has beyond docs/: files of the repository, the notebook, formulas."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import latex2mathml.converter
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md", "tour.md": "examples/tour.ipynb"}
LINKED = ("examples/*.*", "benchmarks/*.py", "constraints-lowest.txt", "CITATION.cff", "Dockerfile")


def on_config(config: MkDocsConfig) -> None:
    config.markdown_extensions.append(Docstrings())  # type: ignore[arg-type]  # mkdocstrings uses it too


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add pages from outside docs/, and the files that pages link to."""
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".ipynb"):
            text, images = notebook_page(json.loads(text), Path(source).stem)
            for name, content in images.items():
                files.append(File.generated(config, f"{posixpath.dirname(source)}/{name}", content=content))
        files.append(File.generated(config, page, content=text))
    for path in sorted(path for pattern in LINKED for path in ROOT.glob(pattern)):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links between docs/ and the rest of the repository to the place of the file on the site."""
    address = page.file.src_uri
    folder = posixpath.dirname(PAGES.get(address, f"docs/{address}"))
    moved = {source: page for page, source in PAGES.items()} | {"README.md": "index.md"}

    def link(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        path = moved.get(path, path.removeprefix("docs/"))
        return f"]({posixpath.relpath(path, posixpath.dirname(address) or '.')}{match[2]})"

    return re.sub(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*|)\)", link, markdown)


def notebook_page(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and the images of its outputs by their names."""
    parts, images = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{stem}-{len(images)}.png"
                images[name] = base64.b64decode(data["image/png"])
                parts.append(f"![Plot of the cell above]({name})")
            elif text := "".join(output.get("text", data.get("text/plain", ""))):
                parts.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts), images


class Docstrings(Extension):
    """Examples of docstrings (>>>) as code; formulas (:math:`…`) as MathML, which browsers show without a script."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(_Examples(md), "examples", 100)  # before fences are read
        md.inlinePatterns.register(_Formula(r":math:`([^`]+)`", md), "formula", 200)  # before code in backticks


class _Examples(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = "\n".join(lines).strip()
        return re.sub(r"(?:^|(?<=\n\n))(>>> .*?)(?=\n\n|$)", r"```pycon\n\1\n```", text, flags=re.DOTALL).split("\n")


class _Formula(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[ElementTree.Element, int, int]:  # noqa: N802
        return latex2mathml.converter.convert_to_element(m[1]), m.start(0), m.end(0)
