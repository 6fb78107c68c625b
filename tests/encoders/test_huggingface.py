"""Backbones of the transformers library, tiny and random, from folders and without a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from classnorm.encoders import load_encoder
from classnorm.errors import ModelError

RESNET = {  # as published with microsoft/resnet-18, smaller
    "feature_extractor_type": "ConvNextFeatureExtractor",
    "crop_pct": 0.875,
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "resample": 3,
    "size": 56,
}
VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "resample": 2}
CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 40},
    "crop_size": {"height": 32, "width": 32},
    "resample": 3,
}


@pytest.fixture(scope="module", autouse=True)
def transformers() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def resnet(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    return save(transformers.ResNetModel(config), RESNET, tmp_path_factory.mktemp("resnet"))


def vit_config(transformers: Any) -> Any:
    return transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )


def save(model: Any, processor: dict[str, Any], folder: Path) -> Path:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def picture() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    "processor", [RESNET, RESNET | {"size": 384}, VIT, CLIP], ids=["crop", "squash", "vit", "clip"]
)
def test_pictures_are_prepared_as_the_models_own_processor_does(
    transformers: Any, resnet: Path, tmp_path: Path, processor: dict[str, Any]
) -> None:
    save(transformers.AutoModel.from_pretrained(resnet), processor, tmp_path)
    expected = transformers.AutoImageProcessor.from_pretrained(tmp_path)(picture(), return_tensors="pt")["pixel_values"]
    own = load_encoder(f"hf:{tmp_path}").preprocess([picture()])
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-4)


def test_a_resnet_gives_its_pooled_output(transformers: Any, resnet: Path) -> None:
    encoder = load_encoder(f"hf:{resnet}")
    images = torch.randn(2, 3, 56, 56)
    with torch.inference_mode():
        last = transformers.AutoModel.from_pretrained(resnet).eval()(images).last_hidden_state
        torch.testing.assert_close(encoder.module(images), last.mean(dim=(2, 3)))
    assert (encoder.d_z, encoder.size) == (16, 56)


def test_a_resnet_has_maps_and_a_transformer_says_that_it_has_none(
    transformers: Any, resnet: Path, tmp_path: Path
) -> None:
    encoder = load_encoder(f"hf:{resnet}").with_maps()
    images = torch.randn(2, 3, 56, 56)
    with torch.inference_mode():
        last = transformers.AutoModel.from_pretrained(resnet).eval()(images).last_hidden_state
        torch.testing.assert_close(encoder.encode(images), last.permute(0, 2, 3, 1).flatten(1))
    save(transformers.ViTModel(vit_config(transformers)), VIT, tmp_path)
    with pytest.raises(ModelError, match="tokens instead of feature maps"):
        load_encoder(f"hf:{tmp_path}").with_maps()


def test_resnet18_takes_its_weights_from_a_folder(resnet: Path) -> None:
    assert load_encoder("resnet18", weights=resnet).checksum == load_encoder(f"hf:{resnet}").checksum


def test_a_classifiers_checkpoint_gives_the_mean_of_tokens_not_an_untrained_pooler(
    transformers: Any, tmp_path: Path
) -> None:
    classifier = transformers.ViTForImageClassification(vit_config(transformers)).eval()
    encoder = load_encoder(f"hf:{save(classifier, VIT, tmp_path)}")
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        tokens = classifier.vit(images).last_hidden_state
        torch.testing.assert_close(encoder.module(images), tokens.mean(dim=1))


def test_a_transformer_with_a_trained_pooler_uses_it_at_any_size(transformers: Any, tmp_path: Path) -> None:
    model = transformers.ViTModel(vit_config(transformers)).eval()
    save(model, VIT, tmp_path)
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        own = load_encoder(f"hf:{tmp_path}").module(images)
        torch.testing.assert_close(own, model(images).pooler_output)
    larger = load_encoder(f"hf:{tmp_path}", size=48)
    assert larger.module(larger.preprocess([picture()])).shape == (1, 16)


def test_a_checkpoint_that_lacks_tensors_is_refused(transformers: Any, resnet: Path, tmp_path: Path) -> None:
    import safetensors.torch

    save(transformers.AutoModel.from_pretrained(resnet), RESNET, tmp_path)
    state = safetensors.torch.load_file(tmp_path / "model.safetensors")
    state.pop(min(state))
    safetensors.torch.save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="the weights lack 1 tensors"):
        load_encoder(f"hf:{tmp_path}")


def test_pictures_that_are_not_square_are_refused(transformers: Any, resnet: Path, tmp_path: Path) -> None:
    model = transformers.AutoModel.from_pretrained(resnet)
    folder = save(model, VIT | {"size": {"height": 32, "width": 64}}, tmp_path)
    with pytest.raises(ModelError, match="not square"):
        load_encoder(f"hf:{folder}")


@pytest.mark.parametrize("source", ["nobody/nothing-of-this-name", "{empty}"])
def test_what_cannot_be_loaded_is_one_line(source: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        load_encoder("hf:" + source.format(empty=tmp_path))
    assert "\n" not in str(caught.value)


def test_code_in_a_model_folder_is_never_run_nor_asked_for(
    transformers: Any, resnet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(transformers.AutoModel.from_pretrained(resnet), RESNET, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    questions: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question="": questions.append(question) or "y")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_encoder(f"hf:{folder}")
    assert not questions and not (tmp_path / "ran").exists()
