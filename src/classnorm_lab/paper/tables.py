"""The paper's tables: variants and claims as data; measurements beside the published figures; contradictions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from classnorm.report.summary import SCORES
from classnorm.results.artifact import Cell, Table, ranks
from classnorm_lab.paper.measured import SCORINGS, Measured, Scoring, Setting
from classnorm_lab.paper.published import FEATURES, published, published_table
from classnorm_lab.paper.reproduction import Reproduction, measure
from classnorm_lab.paper.variants import (
    CN,
    CN_NO_RELU,
    CVC,
    CVC_CN,
    CVC_TRICKS,
    DYNAMIC,
    DYNAMIC_ROOT,
    INITIALIZED,
    LIGHT_MLPS,
    LINEAR,
    LONGER,
    PROPER_VARIANCE,
    RELATIONNET,
    RELATIONNET_CN,
    RIVAL_ROWS,
    STANDARDIZED,
    THREE_LAYERS,
    THREE_LAYERS_NO_RELU,
    TWO_LAYERS,
    VANILLA,
    VANILLA_NO_RELU,
    Variant,
    in_recipe,
    with_gamma,
    without_an,
    without_tricks,
)
from classnorm_lab.paper.verdicts import Claim, Finding

_VALIDATION = "validation harmonic"


@dataclass(frozen=True)
class TableSpec:
    """A table of the paper, whose name is also that of the CSV file with its figures, or one that belongs to it."""

    name: str
    title: str
    conclusion: str
    """What the paper concludes from it."""
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = ()
    of_the_paper: bool = True
    kind: ClassVar = "table"
    needs_features: ClassVar = True

    def measure(self, reproduction: Reproduction) -> dict[str, Any]:
        """Run the variants of the table and return their numbers."""
        claimed = (variant for claim in self.claims for variant in (claim.better, claim.worse))
        return measure(reproduction, self.name, [*self.variants, *claimed]).as_dict()

    def present(self, numbers: Mapping[str, Any]) -> Finding:
        """The table from its numbers, with the published figures beside them."""
        measured = Measured.of(numbers)
        tables = [_overview(self, measured, scoring) for scoring in SCORINGS]
        tables += [_detail(self, setting, measured) for setting in measured.available]
        if self.of_the_paper:
            tables.append(published_table(self.name, f"The paper's figures ({FEATURES})"))
        notes = [*self.notes, *measured.missing, *_unmeasured(self, measured)]
        return Finding(
            self.name,
            self.title,
            self.conclusion,
            tables=tables,
            verdicts=[verdict for claim in self.claims for verdict in claim.verdicts(measured)],
            notes=notes + contradictions(self) if self.of_the_paper else notes,
            data=dict(numbers),
        )


def _unmeasured(spec: TableSpec, measured: Measured) -> list[str]:
    """A note on rows that a table has got since it was measured."""
    labels = [
        variant.label
        for variant in spec.variants
        if any((variant.label, setting.name) not in measured.runs for setting in measured.available)
    ]
    return [f"Not measured yet in all settings: {', '.join(labels)}."] if labels else []


def _overview(spec: TableSpec, measured: Measured, scoring: Scoring) -> Table:
    """H in every setting, and the paper's on other features; a dash for a missing dataset."""
    header, columns = ["measured here"], [[Cell(variant.label) for variant in spec.variants]]
    for setting in measured.settings:
        header.append(setting.label)
        missing = [Cell("–")] * len(spec.variants)
        columns.append(missing if setting.missing else _harmonic_cells(spec.variants, setting, measured, scoring))
    if spec.of_the_paper:
        for name in dict.fromkeys(setting.paper for setting in measured.settings if setting.paper):
            header.append(f"paper: {name} (ResNet-101)")
            rows = [published(spec.name).get(variant.paper_label) for variant in spec.variants]
            columns.append([Cell((row.cells.get(f"{name} H", "") if row else "") or "–") for row in rows])
    body = [list(row) for row in zip(*columns, strict=True)]
    return Table(f"H {SCORINGS[scoring]}, mean ± std over seeds", header, body)


def _detail(spec: TableSpec, setting: Setting, measured: Measured) -> Table:
    """All scores in one setting, U, S and H under both scorings, of the rows that were measured there."""
    sided: tuple[str, ...] = ("unseen", "seen", "harmonic")
    variants = [variant for variant in spec.variants if (variant.label, setting.name) in measured.runs]
    groups = [measured.runs[variant.label, setting.name] for variant in variants]
    shares = [group.values("schedule")[0] for group in groups]
    harmonic = {scoring: _harmonic_cells(variants, setting, measured, scoring) for scoring in SCORINGS}
    body = []
    for i, (variant, group) in enumerate(zip(variants, groups, strict=True)):
        row = [Cell(variant.label)]
        for scoring in SCORINGS:
            row += [Cell(group.cell(score, scoring=scoring)) for score in sided[:2]] + [harmonic[scoring][i]]
        row += [Cell(group.cell(score)) for score in SCORES if score not in sided]
        row.append(Cell(group.cell(_VALIDATION) if _VALIDATION in group.numbers else "–"))
        body.append([*row, Cell(str(group.n)), Cell("" if math.isnan(shares[i]) else _percent(shares[i]))])
    short = [SCORES[score][0] for score in sided]
    header = ["measured here", *short, *(f"{name}, s fixed" for name in short), "T1", "AUSUC", "H on validation"]
    header += ["seeds", "schedule"]
    if all(math.isnan(share) for share in shares):
        header, body = header[:-1], [row[:-1] for row in body]
    return Table(f"{setting.label}: percent, averaged over classes, mean ± std over seeds", header, body)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _harmonic_cells(variants: Sequence[Variant], setting: Setting, measured: Measured, scoring: Scoring) -> list[Cell]:
    """H of each variant, ranked; a dash for one that was not measured."""
    runs = [measured.runs.get((variant.label, setting.name)) for variant in variants]
    groups = [group for group in runs if group]
    places = iter(ranks([group.mean("harmonic", scoring) for group in groups]))
    return [Cell(group.cell("harmonic", scoring=scoring), next(places)) if group else Cell("–") for group in runs]


def contradictions(spec: TableSpec) -> list[str]:
    """Where the paper gives one model different figures in two tables, or two models the same figures."""
    entries = [
        (table.name, variant, published(table.name)[variant.paper_label])
        for table in TABLES.values()
        if table.of_the_paper
        for variant in table.variants
        if variant.paper_label in published(table.name)
    ]
    notes = []
    for variant in spec.variants:
        row = published(spec.name).get(variant.paper_label)
        for table, other, other_row in entries:
            if row is None or (table, other.label) == (spec.name, variant.label):
                continue
            shared = [c for c in row.cells if row.cells[c] and other_row.cells.get(c)]
            differing = [c for c in shared if row.cells[c] != other_row.cells[c]]
            same_model = _settings(variant) == _settings(other)
            if same_model and differing and table != spec.name:
                values = ", ".join(f"{c} {row.cells[c]} and {other_row.cells[c]}" for c in differing[:3])
                notes.append(f"The paper on “{variant.label}”: table {spec.name} and table {table} differ ({values}).")
            elif not same_model and shared and not differing:
                notes.append(
                    f"The paper gives “{variant.label}” here the same figures as “{other.label}” in table {table}, "
                    "which is another model."
                )
    return list(dict.fromkeys(notes))


def _settings(variant: Variant) -> tuple[Any, ...]:
    """The settings that define the model, without the default γ = 5."""
    changes = {name: value for name, value in variant.changes.items() if (name, value) != ("gamma", 5.0)}
    return variant.method, variant.recipe, tuple(sorted(changes.items()))


_GAMMAS = {v.label: with_gamma(v) for v in (LINEAR, TWO_LAYERS, THREE_LAYERS)}
_ASSUMPTIONS = {v.label: without_an(v) for v in (LINEAR, TWO_LAYERS, THREE_LAYERS)}
_RECIPES = {recipe: in_recipe(recipe) for recipe in ("reference", "paper", "literal")}
_FINAL_RELU = (
    "The authors' release has a ReLU on the prototypes, which the paper's text does not mention; rows without it say "
    "so, all others have it (features here are non-negative)."
)
_LINEAR = "The linear model is V·a as in the paper: no bias, no ReLU on the prototypes."
_SHARE = (
    "“schedule” is the share of the published number of training steps that a model was trained for; for less than "
    "100 % its figures are not those of the published method."
)
_RIVALS = (
    f"Other methods with the settings of their recipe “reference”, one seed. {_SHARE} SGMA needs feature maps and is a "
    "linear embedding on pooled features, as here; DVBE has pooled features instead of maps."
)
_TRICKS = {v.label: without_tricks(v) for v in (LINEAR, TWO_LAYERS)}

_SPECS = (
    TableSpec(
        "ns-an-cn",
        "Effect of normalize+scale, attribute normalization and class normalization",
        "NS and AN lift a plain MLP to the level of much heavier methods, and CN lifts it beyond them.",
        (
            *(row for row in RIVAL_ROWS if row.label in ("DCN", "SGAL", "LsrGAN")),
            *VANILLA,
            CN.named("Vanilla MLP +NS +AN +CN"),
            *VANILLA_NO_RELU,
        ),
        (
            Claim("Without NS and AN the plain MLP collapses", VANILLA[3], VANILLA[0], 10.0),
            Claim("Without NS the plain MLP collapses", VANILLA[3], VANILLA[1], 10.0),
            Claim("AN helps the plain MLP", VANILLA[3], VANILLA[2]),
            Claim("CN helps the MLP with NS and AN", CN, VANILLA[3], 2.0),
            Claim("CN helps the MLP with NS and AN, no final ReLU", CN_NO_RELU, THREE_LAYERS_NO_RELU, 2.0),
        ),
        (_FINAL_RELU, _RIVALS),
    ),
    TableSpec(
        "main",
        "Generalized zero-shot results",
        "Only together do class standardization and the proper variance make a 3-layer MLP the best embedder, equal to "
        "generative models or better.",
        (THREE_LAYERS, STANDARDIZED, PROPER_VARIANCE, CN, THREE_LAYERS_NO_RELU, CN_NO_RELU, *RIVAL_ROWS),
        (
            Claim("CN beats the plain MLP", CN, THREE_LAYERS, 2.0),
            Claim("CN beats the plain MLP, no final ReLU", CN_NO_RELU, THREE_LAYERS_NO_RELU, 2.0),
            Claim("The plain MLP is better without the final ReLU", THREE_LAYERS_NO_RELU, THREE_LAYERS, 0.5),
            Claim("The MLP with CN is better without the final ReLU", CN_NO_RELU, CN, 0.5),
            Claim("CN beats standardization alone", CN, STANDARDIZED, 0.5),
            Claim("CN beats the proper variance alone", CN, PROPER_VARIANCE),
            Claim("Standardization alone already helps", STANDARDIZED, THREE_LAYERS),
            Claim("The proper variance alone hurts", THREE_LAYERS, PROPER_VARIANCE),
        ),
        (_FINAL_RELU, _RIVALS),
    ),
    TableSpec(
        "recipes",
        "What class normalization gains in each recipe",
        "The paper describes one model; its text, its hyperparameter table and the authors' release differ.",
        (*(v for pair in _RECIPES.values() for v in pair), *LIGHT_MLPS),
        (
            *(
                Claim(f"CN beats the plain MLP in the recipe {r}", cn, plain, 2.0)
                for r, (plain, cn) in _RECIPES.items()
            ),
            Claim("CN beats the plain MLP, light", LIGHT_MLPS[1], LIGHT_MLPS[0], 2.0),
        ),
        (
            "“reference”: the authors' release. “paper”: the same architecture with the hyperparameters of the paper's "
            "table. “literal”: these hyperparameters and the text to the letter: standardization once, before V; unit "
            "norm without the factor √d_a; no bias of V; no ReLU on the prototypes. “light”: reference with 512 units "
            "and 25 epochs, which other tables use where they say so, and which all MLPs have on embedded datasets.",
        ),
        of_the_paper=False,
    ),
    TableSpec(
        "additional",
        "Scale γ, dynamic normalization, other initialisations",
        "The scale γ of normalize+scale matters a lot; 5 is a good value. Dynamic normalization is no substitute for "
        "class standardization; with standardization, other initialisations come close to the proper variance.",
        (*(v for group in _GAMMAS.values() for v in group), DYNAMIC, DYNAMIC_ROOT, *INITIALIZED),
        (
            *(
                Claim(f"{label}: γ = 5 beats γ = {gamma}", group[2], group[other])
                for label, group in _GAMMAS.items()
                for gamma, other in ((1, 0), (20, 4))
            ),
            Claim("CN beats dynamic normalization", CN, DYNAMIC),
            Claim("CN beats dynamic normalization by the root", CN, DYNAMIC_ROOT),
            *(
                Claim(f"{v.label.split(' + ')[0]} with standardization beats the plain MLP", v, THREE_LAYERS)
                for v in INITIALIZED
            ),
        ),
        (
            "Dynamic normalization is printed as h / E‖h‖², which does not preserve the variance that the paper "
            "derives it from; h / √E‖h‖² does. Both are shown, the first as printed.",
            _LINEAR,
        ),
    ),
    TableSpec(
        "tricks",
        "Importance of AN and NS",
        "Linear and 2-layer models and CVC-ZSL need normalize+scale; the linear model and CVC-ZSL also need attribute "
        "normalization.",
        (*(v for group in _TRICKS.values() for v in group), *CVC_TRICKS),
        (
            *(Claim(f"{label} collapses without NS", group[0], group[2], 10.0) for label, group in _TRICKS.items()),
            *(
                Claim(f"{label} collapses without NS and AN", group[0], group[3], 10.0)
                for label, group in _TRICKS.items()
            ),
            Claim("Linear needs AN", _TRICKS["Linear"][0], _TRICKS["Linear"][1]),
            *(Claim(f"CVC-ZSL is worse with {v.label.removeprefix('CVC-ZSL ')}", CVC, v) for v in CVC_TRICKS[1:]),
        ),
        (_LINEAR, _SHARE),
    ),
    TableSpec(
        "other-methods",
        "Class normalization in RelationNet and CVC-ZSL",
        "Adding CN to the attribute networks of two other methods improves them in all setups.",
        (RELATIONNET, RELATIONNET_CN, CVC, CVC_CN),
        (
            Claim("CN helps RelationNet", RELATIONNET_CN, RELATIONNET, 0.5),
            Claim("CN helps CVC-ZSL", CVC_CN, CVC, 0.5),
        ),
        (_SHARE,),
    ),
    TableSpec(
        "longer-runs",
        "RelationNet and CVC-ZSL with their published settings",
        "Adding CN to the attribute networks of two other methods improves them in all setups.",
        LONGER,
        (
            Claim("CN helps RelationNet with its published settings", LONGER[1], LONGER[0], 0.5),
            Claim("CN helps CVC-ZSL with its published settings", LONGER[3], LONGER[2], 0.5),
        ),
        (_SHARE, "The published learning rates and networks; the rate drops at the published steps."),
        of_the_paper=False,
    ),
    TableSpec(
        "attribute-assumptions",
        "Standardized attributes instead of unit norm",
        "Standardizing attributes without the factor 1/d_a makes results worse; the factor improves them noticeably. "
        "(The paper's figures show this for the linear model; with 2 layers the factor lowers H on all four datasets, "
        "with 3 layers on two.)",
        tuple(v for group in _ASSUMPTIONS.values() for v in group),
        tuple(Claim(f"{label} -AN: 1/d_a helps", group[2], group[1]) for label, group in _ASSUMPTIONS.items()),
        (_LINEAR,),
    ),
)
TABLES: dict[str, TableSpec] = {spec.name: spec for spec in _SPECS}
