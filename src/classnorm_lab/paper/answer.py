"""The short answer: which claims of the paper hold, which hold weakly, and which do not, in how many settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from classnorm.results.numbers import signed
from classnorm_lab.diagnoses.diagnosis import VARIANCES
from classnorm_lab.paper.czsl import PROTOCOLS
from classnorm_lab.paper.measured import SCORINGS
from classnorm_lab.paper.verdicts import Finding, Judgement, Verdict


@dataclass(frozen=True)
class Question:
    """A claim of the paper, decided by the verdicts of tables and figures on it."""

    text: str
    items: tuple[str, ...]
    """Names of the tables and figures."""
    claims: tuple[str, ...]
    """Beginnings of the claims of their verdicts."""
    unit: str = ""
    """Of the differences."""
    scored: str = ""
    """The scoring that decides, if there are others besides the calibrated and the released one."""
    beside: str = SCORINGS["released"]
    """The scoring in parentheses."""


_BETWEEN, _ALL = VARIANCES["between"], VARIANCES["total"]
_THEORY = f"{_BETWEEN}, unit norm"
QUESTIONS = (
    Question("CN improves the plain MLP", ("main",), ("CN beats the plain MLP (",), "H"),
    Question(
        "CN improves the MLP without the ReLU on the prototypes, which only the release has",
        ("main",),
        ("CN beats the plain MLP, no final ReLU",),
        "H",
    ),
    Question(
        "CN improves the MLP if the paper's text is followed to the letter (recipe “literal”)",
        ("recipes",),
        ("CN beats the plain MLP in the recipe literal",),
        "H",
    ),
    Question(
        "CN beats standardization alone and the proper variance alone",
        ("main",),
        ("CN beats standardization alone", "CN beats the proper variance alone"),
        "H",
    ),
    Question("Without NS and AN the plain MLP collapses", ("ns-an-cn",), ("Without NS and AN",), "H"),
    Question("Without NS, but with AN, it collapses", ("ns-an-cn",), ("Without NS the",), "H"),
    Question("AN helps the plain MLP", ("ns-an-cn",), ("AN helps the plain MLP",), "H"),
    Question(
        "γ = 5 beats γ = 1 and γ = 20 (1 to 3 layers)",
        ("additional",),
        ("Linear: γ", "2-layer MLP: γ", "3-layer MLP: γ"),
        "H",
    ),
    Question(
        "CN beats dynamic normalization, as printed and by the root",
        ("additional",),
        ("CN beats dynamic normalization",),
        "H",
    ),
    Question(
        "Linear and 2-layer models and CVC-ZSL need NS or AN",
        ("tricks",),
        ("Linear", "2-layer MLP", "CVC-ZSL is worse"),
        "H",
    ),
    Question("CN helps RelationNet and CVC-ZSL", ("other-methods",), ("CN helps",), "H"),
    Question(
        "The model trains in a minute, 50 times faster than other systems with their published schedules",
        ("training-time",),
        ("The MLP with CN trains", "It trains"),
    ),
    Question(
        f"NS and AN bring the linear model's logits to unit variance ({_THEORY})",
        ("variance",),
        ("Linear with NS",),
        scored=_THEORY,
    ),
    Question(f"CN restores unit variance ({_THEORY})", ("variance",), ("CN restores",), scored=_THEORY),
    Question(
        "The variance formula of NS predicts the variance of all logits", ("variance-formula",), ("The f",), scored=_ALL
    ),
    Question(
        "It predicts the variance between classes, which a softmax sees",
        ("variance-formula",),
        ("The f",),
        scored=_BETWEEN,
    ),
    Question(
        "Zero-shot MLPs have a rougher loss surface than classifiers, and CN makes it smoother",
        ("smoothness",),
        ("A zero-shot MLP", "CN makes it smoother"),
    ),
    *(
        Question(
            f"{text} (settings from {PROTOCOLS['wider']}; in parentheses: {PROTOCOLS['paper']})",
            ("czsl-table",),
            (claim,),
            unit,
            PROTOCOLS["wider"],
            PROTOCOLS["paper"],
        )
        for text, claim, unit in (
            ("CN lifts the mH of the paper's continual methods by 30 %", "CN lifts", "mH"),
            ("CN lowers their forgetting", "CN lowers", ""),
        )
    ),
    Question(
        "CN lifts their mH by 30 % if the encoder is trained jointly, on small images",
        ("czsl-images",),
        ("CN lifts",),
        "mH",
    ),
)
_HEADINGS: dict[Judgement, str] = {
    "holds": "Hold",
    "holds weakly": "Hold in part or weakly",
    "does not hold": "Do not hold",
}
_FEW = 4  # verdicts of a claim whose numbers are quoted
_OVERALL = (
    "CN is class normalization, NS normalize+scale (by γ), AN attribute normalization; H is the harmonic mean of the "
    "accuracies on seen and unseen classes, mH its mean over the tasks of a stream. A setting is a dataset with its "
    "features and descriptors; where several models are compared in each, cases are counted.\n\n"
    "A claim holds here if it holds in all settings; in part or weakly, if it holds at least weakly in more than half "
    "of them. Differences are in points, positive in favour of the claim. Seen scores are "
    f"{SCORINGS['calibrated']}; in parentheses: {SCORINGS['released']}. All claims, also minor ones, and the rule for "
    "a single setting are listed below, and each table has its own verdicts."
)


def short_answer(artifacts: Sequence[Finding]) -> str:
    """The answer as Markdown; empty without verdicts."""
    lines: dict[Judgement, list[str]] = {judgement: [] for judgement in _HEADINGS}
    for question in QUESTIONS:
        verdicts = [
            verdict
            for artifact in artifacts
            if artifact.name in question.items
            for verdict in artifact.verdicts
            if verdict.claim.startswith(question.claims) and verdict.verdict != "not measured"
            if question.scored in ("", verdict.scoring) or verdict.scoring == question.beside
        ]
        if verdicts:
            judgement, line = _line(question, verdicts)
            lines[judgement].append(line)
    blocks = [f"**{_HEADINGS[judgement]}**\n\n{''.join(group)}" for judgement, group in lines.items() if group]
    return "\n".join(["## In short\n", f"{_OVERALL}\n", *blocks]) if blocks else ""


def _line(question: Question, verdicts: Sequence[Verdict]) -> tuple[Judgement, str]:
    beside = [v for v in verdicts if v.scoring == question.beside]
    headline = [v for v in verdicts if v.scoring != question.beside]
    held = sum(v.verdict == "holds" for v in headline)
    weak = sum(v.verdict == "holds weakly" for v in headline)
    overall: Judgement = "does not hold"
    if held == len(headline):
        overall = "holds"
    elif 2 * (held + weak) > len(headline):
        overall = "holds weakly"
    aside = f" ({_count(beside)})" if beside else ""
    return overall, f"- {question.text}: {_count(headline)}{aside}{_numbers(question, headline)}.\n"


def _count(verdicts: Sequence[Verdict]) -> str:
    """Like: 3 of 5, weakly in 1."""
    held, weak = (sum(v.verdict == judgement for v in verdicts) for judgement in ("holds", "holds weakly"))
    settings = len({v.dataset for v in verdicts})
    what = "" if settings == len(verdicts) else " cases"
    return f"{held} of {len(verdicts)}{what}" + (f", weakly in {weak}" if weak else "")


def _numbers(question: Question, verdicts: Sequence[Verdict]) -> str:
    differences = [verdict.difference for verdict in verdicts if verdict.difference is not None]
    if differences and question.unit:
        low, high = min(differences), max(differences)
        ends = signed(low) if signed(low) == signed(high) else f"{signed(low)} to {signed(high)}"
        return f"; {question.unit} {ends}"
    if len(verdicts) > _FEW:
        return ""
    example = f"{verdicts[0].dataset}: {verdicts[0].measured}"
    return f"; {'for example ' if len(verdicts) > 1 else ''}{example}"
