"""Classes that a saved model gets from a file: descriptors, or descriptions in the words that the model understands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from classnorm.cli.console import counted
from classnorm.data.descriptions import Descriptions, read_descriptions
from classnorm.data.table_files import descriptor_columns, read_descriptors
from classnorm.errors import DataError
from classnorm.preparation.describing import describe, recorded_text_encoder
from classnorm.progress import notice

if TYPE_CHECKING:
    from classnorm.scoring import Scorer


def with_new_classes(scorer: Scorer, path: Path) -> Scorer:
    """The scorer with the classes of a file; a notice counts them.

    A model whose descriptors were made from text reads text too, and encodes it with the same encoder and templates.
    Descriptors that were made otherwise are refused, as far as both sides record how.
    """
    speaks = "text_encoder" in scorer.described_by and "joined" not in scorer.described_by
    is_npz = path.suffix.lower() == ".npz"
    content = read_descriptions(path, numbers=is_npz) if speaks or is_npz else None
    columns: Sequence[str] = ()
    if content is None:  # a model of attributes
        table, columns = read_descriptors(path), descriptor_columns(path)
    elif content.table is None:
        encoder, templates = recorded_text_encoder(scorer.described_by)
        described = describe(content, encoder.name, templates)
        table = dict(zip(described.names, described.table, strict=True))
    else:
        _check_source(scorer, content)
        table, columns = dict(zip(content.names, content.table, strict=True)), content.columns
    more = scorer.add_classes(table, str(path), columns=columns)
    new = len(more.class_names) - len(scorer.class_names)
    known = f"; {len(table) - new} known already" if new < len(table) else ""
    notice(f"{counted(new, 'new class')} from {path}{known}")
    return more


def _check_source(scorer: Scorer, content: Descriptions) -> None:
    """Raise unless the descriptors were made like those of the model; either may not be recorded."""
    for key, what in (("text_encoder", "the text encoder"), ("templates", "the templates")):
        if key not in content.provenance or key not in scorer.described_by:
            continue
        new, known = (_parsed(source[key]) for source in (content.provenance, scorer.described_by))
        if isinstance(new, dict) and isinstance(known, dict):
            if new.get("sha256") == known.get("sha256"):
                continue
            new, known = [new.get("name")], [known.get("name")]
        if new != known:
            raise DataError(
                f"{content.where}: its descriptors were made with {what} {_shown(new)}, those of the model with "
                f"{_shown(known)}; give the text itself, or describe it again"
            )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a custom file may have free text here
        return [text]


def _shown(values: Any) -> str:
    return ", ".join(map(repr, values)) if isinstance(values, list) else repr(values)
