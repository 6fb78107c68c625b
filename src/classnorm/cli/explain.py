"""`classnorm explain`: which attributes speak for an answer, or what a model believes about a class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from classnorm.cli.console import print_json
from classnorm.cli.model_command import InputCommand, Inputs, InputsArgument
from classnorm.cli.options import OutputOptions, optional
from classnorm.data.descriptions import read_descriptions
from classnorm.data.names import TEXT, check_attribute_names, match_names, read_attribute_names, readable_name
from classnorm.errors import ConfigError, DataError
from classnorm.io.files import replacing
from classnorm.preparation.describing import framed_vectors, recorded_text_encoder
from classnorm.progress import notice
from classnorm.settings import check_positive

if TYPE_CHECKING:
    from classnorm.scoring import Scorer

_NAMED = 4  # attributes in a sentence
_WIDTH, _BAR = 44, 24  # characters of a name and of the longest bar
_DRAWN = 12  # rows in a picture


@dataclass(frozen=True, kw_only=True)
class Explain(InputCommand):
    """Say which attributes speak for an answer against the second best.

    Examples:
      classnorm explain runs/mine/seed-0 photo.jpg
      classnorm explain runs/mine/seed-0 photos --top 5 --out why.png
      classnorm explain runs/mine/seed-0 features.npy --json
      classnorm explain runs/mine/seed-0 photo.jpg --descriptions animals.csv
      classnorm explain runs/mine/seed-0 --class okapi
      classnorm explain runs/mine/seed-0 photos/okapi --class okapi

    Notes:
      The contributions of all attributes add up to the difference of the two
      scores; what is not shown is summed up in the last lines. The names of the
      attributes come from the training data. If classes were described in words,
      --descriptions shows the contributions of sentences or words. --class shows
      what the model believes about a class; with images or features of that class
      also what they are mistaken for, and the attributes whose change would help.
    """

    inputs: InputsArgument = ()
    of_class: Annotated[str | None, tyro.conf.arg(name="class"), optional("NAME")] = None
    """Explain this class instead of single answers; the images or features, if any, are of this class."""
    top: int = 10
    """Number of attributes to show."""
    descriptions: Annotated[Path | None, optional("FILE")] = None
    """The descriptions in words that the model was trained with."""
    attribute_names: Annotated[Path | None, optional("FILE")] = None
    """Names of the attributes, one per line or in the format of CUB's attributes.txt."""
    out: Annotated[Path | None, optional("FILE.png")] = None
    """Draw the contributions into this file."""
    output: OutputOptions

    def run(self) -> None:
        check_positive(top=self.top)
        if self.out is not None and self.out.suffix != ".png":
            raise ConfigError(f"--out {self.out}: must end in .png")
        if self.of_class is not None and (self.out or self.descriptions):
            raise ConfigError("--out and --descriptions are for single answers; leave them out with --class")
        if self.inputs or self.of_class is None:
            self.encoding.check(self.inputs)
        scorer = self._scorer()
        inputs = None
        if self.inputs:
            inputs = self.read(self.inputs, scorer.d_z)
        if self.of_class is not None:
            self._explain_class(scorer, self.of_class, inputs)
        elif inputs is not None:
            self._explain_rows(scorer, inputs)

    def _scorer(self) -> Scorer:
        scorer = self.load()
        if self.attribute_names is None:
            return scorer
        names = check_attribute_names(read_attribute_names(self.attribute_names), scorer.d_a, str(self.attribute_names))
        return replace(scorer, origin=replace(scorer.origin, attribute_names=names))

    def _explain_rows(self, scorer: Scorer, inputs: Inputs) -> None:
        explanations = self._explanations(scorer, inputs.features)
        kind, names = ("row", range(len(explanations))) if inputs.names is None else ("image", inputs.names)
        documents = [{kind: name, **explanation} for name, explanation in zip(names, explanations, strict=True)]
        if self.out is not None:
            self._draw(documents, self.out)
        if self.output.json:
            print_json({"explanations": documents})
            return
        for document in documents:
            print(*_lines(document), sep="\n", end="\n\n")
        if self.descriptions is None and set(scorer.attribute_names or ()) == {TEXT}:
            notice("the dimensions of a text mean nothing one by one; see `descriptions`")

    def _explanations(self, scorer: Scorer, features: Any) -> list[dict[str, Any]]:
        if self.descriptions is None:
            return scorer.explain(features, self.top)
        encoder, templates = recorded_text_encoder(scorer.origin.described_by)
        content = read_descriptions(self.descriptions)
        if content.table is not None:
            raise DataError(f"{self.descriptions}: holds numbers; give the descriptions in words")
        positions = match_names(scorer.class_names, str(self.model), content.names, str(self.descriptions))
        texts = {name: content.sentences[i] for name, i in zip(scorer.class_names, positions, strict=True)}
        return scorer.explain_texts(features, texts, partial(framed_vectors, encoder, templates), self.top)

    def _draw(self, documents: list[dict[str, Any]], path: Path) -> None:
        from classnorm.report.draw import png
        from classnorm.report.plots import contribution_plot

        if len(documents) > _DRAWN:
            notice(f"{path} shows the first {_DRAWN} of {len(documents)} rows")
        bars = [[(_name(entry, d), entry["contribution"]) for entry in d["attributes"]] for d in documents[:_DRAWN]]
        content = png(contribution_plot(list(zip(map(_title, documents), bars, strict=False))))
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        notice(f"wrote {path}")

    def _explain_class(self, scorer: Scorer, name: str, inputs: Inputs | None) -> None:
        [position] = match_names([name], "--class", scorer.class_names, str(self.model))
        features = None if inputs is None else inputs.features
        document = scorer.explain_class(scorer.class_names[position], features, self.top)
        if self.output.json:
            print_json({"class": document})
        else:
            print(*_class_lines(document), sep="\n")


def _title(document: dict[str, Any]) -> str:
    name = document.get("image", f"row {document.get('row')}")
    return f"{name}: says {readable_name(document['class'])} rather than {readable_name(document['against'])}"


def _lines(document: dict[str, Any]) -> list[str]:
    """A sentence, a bar for each contribution, and the neighbours."""
    entries = document["attributes"]
    speaking = [entry for entry in entries if entry["contribution"] > 0 and ("value" in entry or "of" in entry)]
    most = max((entry["contribution"] for entry in speaking), default=0.0)
    calibration = [entry for entry in entries if _is_calibration(entry) and entry["contribution"] > most]
    named = [*calibration, *speaking[:_NAMED]]
    reasons = ", ".join(f"{_name(entry, document)} ({entry['contribution']:+.2f})" for entry in named)
    longest = max((abs(entry["contribution"]) for entry in entries), default=0.0) or 1.0
    lines = [f"{_title(document)}, by {document['difference']:.2f}" + (f": {reasons}" if reasons else "")]
    for entry in entries:
        value = entry["contribution"]
        bar = ("█" if value > 0 else "░") * round(_BAR * abs(value) / longest)
        lines.append(f"  {_column(_name(entry, document))}{value:+8.2f} {bar}".rstrip())
    return [*lines, _neighbours(document)]


def _is_calibration(entry: dict[str, Any]) -> bool:
    return entry["name"] == "calibration" and "value" not in entry and "of" not in entry


def _name(entry: dict[str, Any], document: dict[str, Any]) -> str:
    """The name of an attribute, with `less` if the first class has less of it; a text, with `not` if it is of the other
    class."""
    if "of" in entry:
        return f"{'not ' if entry['of'] == document['against'] else ''}“{entry['name']}”"
    is_less = "value" in entry and entry["value"] < entry["value_against"]
    return f"{'less ' if is_less else ''}{entry['name']}"


def _column(name: str) -> str:
    return f"{name if len(name) <= _WIDTH else f'{name[: _WIDTH - 1]}…':{_WIDTH}}"


def _neighbours(document: dict[str, Any]) -> str:
    named = ", ".join(f"{readable_name(n['class'])} ({n['weight']:.2f})" for n in document["neighbours"])
    return f"  {readable_name(document['class'])} leans on: {named} ({document['neighbours_by']})"


def _class_lines(document: dict[str, Any]) -> list[str]:
    lines = [f"{readable_name(document['class'])} ({document['kind']}) is known by:"]
    lines.append(f"  {_column('attribute')}{'weight':>8}{'value':>9}{'mean of all':>13}")
    for entry in document["attributes"]:
        values = f"{entry['value']:9.3g}{entry['mean']:13.3g}" if "value" in entry else ""
        lines.append(f"  {_column(entry['name'])}{entry['weight']:8.3f}{values}")
    similar = ", ".join(f"{readable_name(s['class'])} ({s['cosine']:.2f})" for s in document["similar"])
    lines += [f"  most similar: {similar} (cosine of the prototypes)", _neighbours(document)]
    if "rows" in document:
        others = ", ".join(f"{readable_name(m['class'])} ({m['rows']})" for m in document["mistaken_for"])
        lines.append(f"{document['right']} of {document['rows']} rows right" + (others and f"; the others: {others}"))
    if document.get("needs"):
        lack = f"the others lack {document['short_by']:.2f} on average"
        lines.append(f"{lack}; a change of an attribute by its standard deviation would give them:")
        for entry in document["needs"]:
            name = _column(f"{'more' if entry['change'] > 0 else 'less'} {entry['name']}")
            lines.append(f"  {name}{entry['gain']:+8.2f} now {entry['value']:.3g}")
    return lines
