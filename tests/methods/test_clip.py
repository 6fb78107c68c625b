"""`clip`: an image–text model's own zero-shot classification, on a tiny random model and on given vectors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from classnorm.cli import main
from classnorm.data import SyntheticConfig, load, synthetic
from classnorm.errors import ConfigError
from classnorm.methods import METHODS
from classnorm.scoring import Scorer, fit
from classnorm_lab.paper import leaderboard

pytestmark = pytest.mark.filterwarnings("ignore::classnorm.errors.ModelWarning")  # the models are random

WORDS = ["[PAD]", "[UNK]", "[EOS]", "a", "photo", "of", "red", "green", "blue", "bar", "disc", "box"]
COLOURS = {"red": (220, 30, 30), "green": (30, 180, 40), "blue": (40, 60, 220)}
CLIP_PROCESSOR = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 32},
    "crop_size": {"height": 32, "width": 32},
    "resample": 3,
}


@pytest.fixture(scope="module", autouse=True)
def transformers() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def pair(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a tiny random model of images and text with its processor and tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    def write(kind: str = "CLIP", seed: int = 0) -> Path:
        folder = tmp_path_factory.mktemp(kind.lower())
        torch.manual_seed(seed)
        small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        text = small | {"vocab_size": len(WORDS), "max_position_embeddings": 16, "eos_token_id": 2, "pad_token_id": 0}
        vision = small | {"image_size": 32, "patch_size": 8}
        sizes = {"projection_dim": 6} if kind == "CLIP" else {}
        config = getattr(transformers, f"{kind}Config")(text_config=text | sizes, vision_config=vision, **sizes)
        getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
        processor = CLIP_PROCESSOR
        if kind == "Siglip":
            side = {"height": 32, "width": 32}
            processor = {"image_processor_type": "SiglipImageProcessor", "size": side, "resample": 3}
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))
        tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[EOS]", "model_max_length": 12}
        names = ["input_ids", "attention_mask"] if kind == "CLIP" else ["input_ids"]
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=names, **special)
        fast.save_pretrained(folder)
        return folder

    return write


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for name, colour in COLOURS.items():
        for i in range(4):
            path = tmp_path / "photos" / f"{name}_bar" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.full((40, 36, 3), colour, dtype=np.uint8)
            pixels[i : i + 12, 4:20] = 255 - 20 * i
            Image.fromarray(pixels).save(path)
    return tmp_path / "photos"


def extracted(folder: Path, photos: Path, out: Path, *flags: str) -> Any:
    both = ["--encoder", f"hf:{folder}", "--text-encoder", f"hf:{folder}", "--template", "a photo of a {}"]
    main(["extract", str(photos), *both, "--hold-out", "0.34", "--out", str(out), "--device", "cpu", "--quiet", *flags])
    return load(out)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_scores_are_those_of_the_model_itself(
    transformers: Any, pair: Callable[..., Path], photos: Path, tmp_path: Path, kind: str
) -> None:
    folder = pair(kind)
    data = extracted(folder, photos, tmp_path / "x.npz")
    scores = fit(data, "clip").scores(data.features)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = [f"a photo of a {name.replace('_', ' ')}" for name in data.class_names]
    padding = {"padding": "max_length", "max_length": 12} if kind == "Siglip" else {"padding": True}
    tokens = tokenizer(texts, return_tensors="pt", **padding)
    with torch.inference_mode():
        for row, file in zip(scores, data.image_files, strict=True):
            pixels = processor(Image.open(photos / file), return_tensors="pt")["pixel_values"]
            expected = model(pixel_values=pixels, **tokens)["logits_per_image"][0].numpy()
            expected -= float(getattr(model, "logit_bias", 0.0))  # the same for all classes
            np.testing.assert_allclose(row, expected, rtol=1e-3, atol=2e-3 * np.abs(expected).max())


def test_a_saved_model_needs_no_transformers_and_takes_new_classes_and_examples(
    pair: Callable[..., Path], photos: Path, tmp_path: Path
) -> None:
    data = extracted(pair(), photos, tmp_path / "x.npz")
    scorer = fit(data, "clip")
    loaded = Scorer.load(scorer.save(tmp_path / "model"))
    np.testing.assert_allclose(loaded.scores(data.features), scorer.scores(data.features), rtol=1e-6)
    more = loaded.add_classes({"red disc": data.descriptors[0] + data.descriptors[1]})
    assert more.scores(data.features).shape == (12, 4)
    taught = more.add_examples(data.features[:4], ["red disc"] * 4)
    assert (taught.scores(data.features[:4]) - more.scores(data.features[:4]))[:, -1].min() > 0
    for explanation in more.explain(data.features[:2]):
        assert sum(e["contribution"] for e in explanation["attributes"]) == pytest.approx(explanation["difference"])


def test_the_command_line_trains_it_beside_other_methods(
    pair: Callable[..., Path], photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extracted(pair(), photos, tmp_path / "x.npz")
    capsys.readouterr()
    main(["train", str(tmp_path / "x.npz"), "--method", "clip", "--out", str(tmp_path / "runs"), "--json", "--quiet"])
    document = json.loads(capsys.readouterr().out)
    assert document["method"] == "clip" and document["runs"][0]["calibration"] == "none"
    assert document["runs"][0]["scores"]["zsl"] is not None


def test_vectors_of_an_image_text_model_may_be_given_as_they_are() -> None:
    data = synthetic(SyntheticConfig(classes=14, unseen=4, rows=140, features=8, attributes=8))
    features, descriptors = (table.astype(np.float64) for table in (data.features, data.descriptors))
    cosines = features @ descriptors.T
    cosines /= np.linalg.norm(features, axis=1)[:, None] * np.linalg.norm(descriptors, axis=1)
    np.testing.assert_allclose(fit(data, "clip").scores(data.features), 100 * cosines, rtol=1e-4, atol=1e-3)
    scorer = fit(data, "clip", calibration="validation:bias", validation_splits=1)
    assert scorer.calibration.kind in ("bias", "none")


def test_features_and_text_of_different_models_are_refused(
    pair: Callable[..., Path], photos: Path, tmp_path: Path
) -> None:
    attributes = synthetic(SyntheticConfig(classes=10, unseen=3, rows=100, features=16, attributes=8))
    with pytest.raises(ConfigError, match="features have 16 dimensions, descriptors 8; clip compares images and text"):
        fit(attributes, "clip")
    data = extracted(pair(), photos, tmp_path / "x.npz")
    other = replace(data, provenance=data.provenance | {"text_encoder": '{"name": "minilm"}'})
    with pytest.raises(ConfigError, match="not from one image–text model"):
        fit(other, "clip")
    for dataset, is_able in ((attributes, False), (other, False), (data, True)):
        assert (METHODS["clip"].unsupported(dataset) is None) is is_able
    assert any(entry.method == "clip" for entry in leaderboard.entries())


def test_changed_weights_of_the_model_are_noticed(
    transformers: Any, pair: Callable[..., Path], photos: Path, tmp_path: Path
) -> None:
    folder = pair()
    data = extracted(folder, photos, tmp_path / "x.npz")
    model = transformers.CLIPModel.from_pretrained(folder)
    with torch.no_grad():
        model.vision_model.post_layernorm.weight += 1.0
    model.save_pretrained(folder)
    with pytest.raises(Exception, match="other weights"):
        fit(data, "clip")
