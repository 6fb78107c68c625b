"""Names of initialisations and normalizations; configs refer to them without PyTorch."""

from typing import Literal

Initialization = Literal[
    "proper", "xavier", "xavier_fan_out", "kaiming_fan_in", "kaiming_fan_out", "data_dependent", "torch"
]
Distribution = Literal["uniform", "normal"]
AttributeNormalizationKind = Literal["unit", "unit-plain", "standardize", "none"]
HiddenNormalization = Literal["class", "class-variance", "dynamic", "dynamic-root", "none"]
