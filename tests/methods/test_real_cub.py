"""The method on the real CUB attributes and splits with EfficientNet-Lite0 features (not the paper's ResNet-101)."""

import pytest

from classnorm.data import load
from classnorm.methods import resolve
from classnorm.scoring import fit

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cub(real_data):
    return load(real_data / "xlsa17" / "data" / "CUB", features="efficientnet_lite0")


@pytest.mark.long
def test_class_normalization_reaches_the_released_score_and_beats_the_plain_model(cub, accuracies):
    """The authors' release gives H 55.2 with and 52.4 without CN on these features; one seed varies by about 1."""
    harmonic = {}
    for recipe in ("reference", "baseline"):
        harmonic[recipe] = accuracies(fit(cub, recipe=recipe, seed=0), cub).harmonic
    assert harmonic["reference"] > 54.0
    assert harmonic["reference"] > harmonic["baseline"] + 1.0


def test_the_benchmark_gets_its_released_scale_and_the_papers_hyperparameters(cub):
    assert resolve(cub, recipe="reference")[1].calibration == "scale:1"
    paper = resolve(cub, recipe="paper")[1]
    assert (paper.batch_size, paper.lr, paper.hidden, paper.entropy_weight) == (512, 5e-3, 2048, 1e-3)
    assert (paper.calibration, paper.validation) == ("validation:grid", "paper")
