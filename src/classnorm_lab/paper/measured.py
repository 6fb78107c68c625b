"""What was measured, as plain numbers: from them pages are made, and every verdict can be recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from classnorm.metrics import Calibration, calibrated_scores
from classnorm.results.numbers import json_number, mean, mean_text
from classnorm.results.run_folder import Result

Scoring = Literal["calibrated", "released"]
SCORINGS: dict[Scoring, str] = {"calibrated": "calibrated by validation", "released": "as released, s fixed"}
"""Two ways to score the same fits. The first is the headline: the paper chooses s by cross-validation."""
_CALIBRATED = ("unseen", "seen", "harmonic")  # the scores that depend on the calibration
_FACTS = ("train_seconds", "fit_seconds", "cpu_seconds", "parameters")


@dataclass(frozen=True)
class Setting:
    """A dataset as tables name it."""

    name: str
    label: str
    """With features and descriptors."""
    paper: str = ""
    """The dataset of the paper whose figures can stand in the same table; features differ all the same."""
    missing: str = ""
    """Why it was not measured; empty if it was."""


@dataclass(frozen=True)
class SeedRuns:
    """Numbers of runs that differ in the seed only."""

    numbers: Mapping[str, Sequence[float | None]]
    """Name → one number per seed; None if undefined."""
    diverged: int = 0
    """Number of runs whose training diverged; their scores are 0."""
    key: str = ""
    """Identifies everything that determines the numbers, so that they need not be measured again."""
    chosen: str = ""
    """The settings that a search chose, as JSON: with them, further seeds can be run without the search."""

    @classmethod
    def of(cls, results: Sequence[Result | None], released: Calibration) -> SeedRuns:
        """The numbers of run folders; None is a diverged run."""
        documents = [None if result is None else _numbers(result, released) for result in results]
        measured = [document for document in documents if document]
        names = [n for n in measured[0] if all(n in d for d in measured)] if measured else list(_CALIBRATED)
        numbers = {name: [0.0 if d is None else json_number(d[name]) for d in documents] for name in names}
        return cls(numbers, sum(result is None for result in results))

    @classmethod
    def stored(cls, entry: Mapping[str, Any]) -> SeedRuns:
        """As `Measured.as_dict` stores it."""
        return cls(entry["numbers"], entry["diverged"], entry.get("key", ""), entry.get("chosen", ""))

    def as_dict(self) -> dict[str, Any]:
        """Its document; `stored` reads it back."""
        chosen = {"chosen": self.chosen} if self.chosen else {}
        return {"key": self.key, "diverged": self.diverged, **chosen, "numbers": dict(self.numbers)}

    def first(self, n: int) -> SeedRuns:
        """The first `n` seeds, of runs that did not diverge."""
        return replace(self, numbers={name: values[:n] for name, values in self.numbers.items()})

    def followed_by(self, other: SeedRuns) -> SeedRuns:
        """With the numbers of further seeds."""
        numbers = {
            name: [*values, *other.numbers[name]] for name, values in self.numbers.items() if name in other.numbers
        }
        return replace(self, numbers=numbers, diverged=self.diverged + other.diverged)

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(next(iter(self.numbers.values())))

    def values(self, score: str, scoring: Scoring = "calibrated") -> list[float]:
        """One value per seed: NaN if undefined, 0 if training diverged."""
        name = f"released {score}" if scoring == "released" and score in _CALIBRATED else score
        values = self.numbers.get(name, [0.0] * self.n) if self.diverged else self.numbers[name]
        return [float("nan") if value is None else float(value) for value in values]

    def mean(self, score: str, scoring: Scoring = "calibrated") -> float:
        return mean(self.values(score, scoring))

    def cell(self, score: str, digits: int = 1, spread: bool = True, scoring: Scoring = "calibrated") -> str:
        return "diverged" if self.diverged == self.n else mean_text(self.values(score, scoring), digits, spread)


def _numbers(result: Result, released: Calibration) -> dict[str, float]:
    fixed = calibrated_scores(result.best_scores, released)
    numbers = result.scores | {f"released {name}": value for name, value in zip(_CALIBRATED, fixed, strict=True)}
    validation = result.document.get("validation") or {}
    if validation.get("harmonic") is not None:
        numbers["validation harmonic"] = validation["harmonic"]
    return numbers | {name: float(result.document[name]) for name in _FACTS if name in result.document}


@dataclass(frozen=True)
class Measured:
    """The numbers of a table."""

    settings: Sequence[Setting]
    runs: Mapping[tuple[str, str], SeedRuns]
    """(label of a row, name of a setting) → its runs."""

    @property
    def available(self) -> list[Setting]:
        return [setting for setting in self.settings if not setting.missing]

    @property
    def missing(self) -> list[str]:
        return [setting.missing for setting in self.settings if setting.missing]

    def as_dict(self) -> dict[str, Any]:
        return {
            "settings": [asdict(setting) for setting in self.settings],
            "runs": [{"row": row, "setting": name, **runs.as_dict()} for (row, name), runs in self.runs.items()],
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Measured:
        runs = {(e["row"], e["setting"]): SeedRuns.stored(e) for e in document["runs"]}
        return cls([Setting(**setting) for setting in document["settings"]], runs)
