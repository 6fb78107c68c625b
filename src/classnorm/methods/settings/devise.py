"""Settings of DeViSE."""

from __future__ import annotations

from dataclasses import dataclass

from classnorm.methods.settings.ranking import RankingConfig, ranking_method


@dataclass(frozen=True, kw_only=True)
class DeViSEConfig(RankingConfig):
    """Settings of DeViSE."""


METHOD = ranking_method("devise", DeViSEConfig, margin=0.1, feature_normalization="none")
