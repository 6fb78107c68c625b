"""Settings of SJE."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.methods.settings.ranking import RankingConfig, ranking_method


@dataclass(frozen=True, kw_only=True)
class SJEConfig(RankingConfig):
    """Settings of SJE."""


METHOD = ranking_method("sje", SJEConfig)
