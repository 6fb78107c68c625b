"""Settings of ALE."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.methods.settings.ranking import RankingConfig, ranking_method


@dataclass(frozen=True, kw_only=True)
class ALEConfig(RankingConfig):
    """Settings of ALE."""


METHOD = ranking_method("ale", ALEConfig)
