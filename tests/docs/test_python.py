"""The Python blocks of every page run one after another, as they are printed."""

from __future__ import annotations

import numpy as np
import pytest

from classnorm import Scorer, fit
from classnorm.data import SyntheticConfig, load, synthetic

pytestmark = pytest.mark.slow

HERE = [f"docs/{name}.md" for name in ("start", "own-data", "explain", "few-shot", "suggest", "unknown")]
ELSEWHERE = {
    "docs/methods.md": "test_examples.py, test_plugins.py",
    "docs/continual.md": "test_examples.py",
    "docs/export.md": "test_examples.py, test_commands.py",
    "docs/plugins.md": "test_plugins.py",
    "docs/scikit-learn.md": "test_scikit_learn.py",
    "docs/serving.md": "tests/serve/test_documents.py",
}


def test_every_page_with_python_is_executed(pages, blocks):
    assert {page for page in pages if blocks(page)} == {"README.md", *HERE, *ELSEWHERE}


@pytest.fixture(scope="module")
def data():
    return synthetic(SyntheticConfig(classes=30, unseen=6, rows=1200, features=32, attributes=12))


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    """A folder with the model runs/mine/seed-0."""
    folder = tmp_path_factory.mktemp("saved")
    fit(data, method="kernel").save(folder / "runs" / "mine" / "seed-0")
    return folder


@pytest.fixture
def run(blocks, saved, monkeypatch):
    """Execute the blocks of a page in the folder of the model; returns the names that they leave."""
    monkeypatch.chdir(saved)

    def execute(page, **names):
        exec(compile("\n".join(blocks(page)), page, "exec"), names)
        return names

    return execute


def test_the_readme(run, capsys):
    names = run("README.md")
    assert "harmonic" in capsys.readouterr().out
    assert names["more"].class_names == (*names["known"].class_names, "é")
    found = Scorer.load("my-model").predict(names["data"].features[names["data"].labels == names["letter"]])
    assert np.mean([name == "é" for name in found]) > 0.3  # of 341 classes; chance 0.003


def test_the_first_steps(run, saved, capsys):
    fit(load("glyphs-light"), method="kernel").save(saved / "runs" / "letters" / "seed-0")
    names = run("docs/start.md")
    assert "latin small letter e with acute" in capsys.readouterr().out
    assert len(names["more"].class_names) == 427


def test_the_bundle_of_ones_own_features(run, data):
    parts = {"train": data.split.train, "test_seen": data.split.test_seen, "test_unseen": data.split.test_unseen}
    arrays = {"features": data.features, "labels": data.labels, "descriptors": data.descriptors}
    run("docs/own-data.md", **arrays, **parts, class_names=np.array(data.class_names))
    bundle = load("mine.npz")
    assert bundle.seen.tolist() == data.seen.tolist()
    assert bundle.features.tolist() == data.features.tolist()


def test_explanations(run, data, capsys):
    run("docs/explain.md", scorer=Scorer.load("runs/mine/seed-0"), features=data.features[:2])
    assert "attribute" in capsys.readouterr().out


def test_a_few_pictures(run, data):
    scorer = Scorer.load("runs/mine/seed-0")
    given = {"features": data.features[:3], "labels": ["okapi"] * 3, "vector": data.descriptors[0]}
    names = run("docs/few-shot.md", scorer=scorer, **given)
    assert names["more"].class_names == names["alone"].class_names == (*scorer.class_names, "okapi")
    assert Scorer.load("models/mine-2").class_names == names["few"].class_names


def test_what_to_label(run, data):
    features = data.features[data.test_rows]
    names = run("docs/suggest.md", features=features, labels=[data.class_names[0]] * 20)
    assert len(set(names["chosen"])) == 20


def test_unknown_images(run, data):
    scorer = run("docs/unknown.md", features=data.features[:9])["scorer"]
    assert scorer.novelty(data.features[:9]).shape == scorer.known(data.features[:9], reject=0.05).shape == (9,)
