"""The continual table from images, on a stream of tiny pictures."""

import json
from dataclasses import replace

import numpy as np
import pytest

from classnorm.progress import Display, shown_on
from classnorm.runs.streams import ImageMode
from classnorm_lab.paper import czsl_images
from classnorm_lab.paper.page import Numbers, known_streams, write_numbers

SIZE = 16


@pytest.fixture(scope="module")
def pictures(tiny):
    """The dataset with an image for each row, whose brightness in nine parts follows its features."""
    data = tiny.dataset
    parts = data.features[:, :9] / data.features[:, :9].max()
    images = np.kron(parts.reshape(-1, 3, 3), np.ones((1, 6, 6)))[:, :SIZE, :SIZE]
    return replace(tiny, loaded=replace(data, images=(255 * images).clip(0, 255).astype(np.uint8)))


@pytest.fixture(scope="module")
def reproduction(reproduce, pictures, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLASSNORM_CACHE", str(tmp_path_factory.mktemp("cache")))
        labels = (
            "Sequential",
            "Sequential + CN",
            "Frozen encoder, Analytic",
            "Adapted on the first task, then Analytic",
        )
        patch.setattr(czsl_images, "IMAGE_ARMS", [a for a in czsl_images.IMAGE_ARMS if a.label in labels])
        patch.setattr(czsl_images, "_RATES", czsl_images.Grid({"lr": (0.01, 0.1)}))
        made = reproduce(tmp_path_factory.mktemp("out"), pictures, seeds=1, stream_epochs=1)
        yield replace(made, images=ImageMode("convnet-gray", SIZE, freeze_blocks=2))


class Notices(Display):
    def __init__(self):
        self.texts = []

    def notice(self, text):
        self.texts.append(text)


@pytest.fixture(scope="module")
def measured(reproduction):
    """The numbers and the notices on the way."""
    with shown_on(notices := Notices()):
        numbers = czsl_images.measure_czsl_images(reproduction)
    return json.loads(json.dumps(numbers, allow_nan=False)), notices.texts


@pytest.fixture(scope="module")
def numbers(measured):
    return measured[0]


@pytest.mark.slow
def test_every_arm_has_its_scores_budgets_and_curves(numbers, measured):
    artifact = czsl_images.czsl_images(numbers)
    table, budgets, paper = artifact.tables
    assert [row[0].text for row in table.body] == [arm.label for arm in czsl_images.IMAGE_ARMS]
    assert "convnet-gray at 16 px, first 2 blocks frozen" in table.title
    assert any("%" in cell.text for cell in table.body[2])
    assert {"lr", "batch_norm"} <= set(table.body[2][-1].text.replace(",", "").split()), "all that was chosen"
    assert len(budgets.body) == 4 and len(paper.body) == 10
    assert len(artifact.verdicts) == 2 and len(artifact.plots) == 6
    assert "2 arms on images, about" in measured[1][0]


@pytest.mark.slow
def test_an_arm_that_is_known_is_not_run_again_and_one_that_is_not_has_dashes(
    numbers, reproduction, tmp_path, monkeypatch
):
    write_numbers(tmp_path, Numbers("czsl-images", "", numbers))
    known = known_streams(tmp_path)
    assert len(known) == 4
    kept = {key: entry for key, entry in known.items() if entry["arm"] != "Frozen encoder, Analytic"}
    monkeypatch.setattr(czsl_images, "_run", lambda *_: pytest.fail("run again"))
    late = replace(reproduction, known_streams=kept, until=0.0)
    again = czsl_images.measure_czsl_images(late)
    assert [run["arm"] for run in again["runs"]] == [entry["arm"] for entry in kept.values()]
    table = czsl_images.czsl_images(json.loads(json.dumps(again))).tables[0]
    assert [row[1].text == "–" for row in table.body] == [True, False, False, False]


def test_without_images_it_says_what_is_missing(reproduce, tiny, tmp_path):
    numbers = czsl_images.measure_czsl_images(reproduce(tmp_path, tiny, seeds=1))
    artifact = czsl_images.czsl_images(json.loads(json.dumps(numbers)))
    assert any("add `images=DIR`" in note for note in artifact.notes)
    assert len(artifact.tables) == 1  # the paper's


def test_arms_with_and_without_cn_differ_in_nothing_else(reproduction, pictures):
    made = reproduction
    arms = {arm.label: arm for arm in czsl_images.IMAGE_ARMS}
    [cn], [plain] = (
        czsl_images._experiments(made, pictures.dataset, arms[label]) for label in ("Sequential + CN", "Sequential")
    )
    assert cn.config.as_dict() | {"class_norm": False} == plain.config.as_dict()
    assert (cn.seed, cn.part, cn.images) == (plain.seed, plain.part, plain.images)
