"""Exported models in Hugging Face transformers: the same logits and translations as ours."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.model_folders import JOB, write_model
from support.models import make_translator
from support.random_weights import random_transformer

from transformer_mt import checkpoint as ckpt
from transformer_mt import export, model_folder, run_layout
from transformer_mt.batch import Packed
from transformer_mt.config import DecodeConfig, ExportJob, ModelConfig, SearchConfig
from transformer_mt.conversion.transformers_model import (
    check_shape,
    convert_weights,
    generation_settings,
    model_settings,
)
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

FIXTURE = Path(__file__).parents[1] / "e2e/fixtures/run_2_3"

PRE = "PegasusForConditionalGeneration"
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "small heads": ("MarianMTModel", {"d_k": 3, "d_v": 5, "num_encoder_layers": 1}),
    "small heads, pre": (PRE, {"d_k": 8, "d_v": 2, "norm": "pre", "num_encoder_layers": 3}),
    "learned": (PRE, {"norm": "pre", "positions": "learned", "max_positions": 300}),
    "pre, other options": (
        PRE,
        {"attention_bias": True, "output_bias": True, "norm": "pre", "d_k": 5, "activation": "gelu",
         "layer_norm_eps": 1e-4, "scale_embeddings": False},
    ),
}  # fmt: skip

SOURCES = [[5, 9, 200, 17, 4, EOS], [30, 31, EOS], [288, EOS]]
TARGETS = [[BOS, 7, 7, 100], [BOS, 250], [BOS, 9, 11, 13, 15, 17]]


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers")


def write_random(folder: Path, shape: dict[str, Any]) -> Any:
    """A model folder with random norms and biases too, and its model."""
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    config = ModelConfig(**{"d_model": 16, "d_ff": 32, "num_heads": 2, **layers, **shape})
    write_model(folder, replace(JOB, model=config))
    weights = ckpt.parameters(random_transformer(config, 290).float())
    ckpt.save_tensors(weights, folder / run_layout.WEIGHTS)
    return model_folder.load_model(folder)[0]


def exported(folder: Path, output: Path) -> Path:
    return export(ExportJob(model=str(folder), format="transformers", output=str(output)))


@torch.inference_mode()
def our_logits(model: Any) -> list[torch.Tensor]:
    logits = []
    for source, target in zip(SOURCES, TARGETS, strict=True):
        src = Packed.from_sequences([source])
        hidden = model.decode(Packed.from_sequences([target]), model.encode(src), src)
        logits.append(model.logits(hidden))
    return logits


@torch.inference_mode()
def their_logits(model: Any) -> list[torch.Tensor]:
    """Of one batch with padding."""
    src, tgt = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, PAD)
        for rows in (SOURCES, TARGETS)
    )
    found = model(input_ids=src, attention_mask=(src != PAD).long(), decoder_input_ids=tgt).logits
    return [logits[: len(target)] for logits, target in zip(found, TARGETS, strict=True)]


@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_equal(transformers: Any, tmp_path: Path, name: str) -> None:
    class_name, shape = SHAPES[name]
    ours = write_random(tmp_path / "model", shape)
    theirs, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        exported(tmp_path / "model", tmp_path / "exported"), output_loading_info=True
    )
    assert type(theirs).__name__ == class_name
    assert not any(report.values())  # neither missing nor unexpected weights
    expected, found = our_logits(ours), their_logits(theirs.eval())
    largest = max(float(logits.abs().max()) for logits in expected)
    for a, b in zip(expected, found, strict=True):
        # With the other library's ε in the norms, they differ by 1e-5 of the largest and more.
        torch.testing.assert_close(b, a, rtol=0, atol=3e-6 * largest)

    theirs.save_pretrained(tmp_path / "again")  # as after fine-tuning
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").eval()
    for a, b in zip(found, their_logits(again), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("tied", ["decoder", "none"])
def test_vocabularies_of_different_sizes(transformers: Any, tied: str) -> None:
    layers: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    config = ModelConfig(d_model=16, d_ff=32, num_heads=2, tied_embeddings=tied, **layers)
    torch.manual_seed(1)
    ours = Transformer(config, 290, src_vocab_size=310).eval()
    settings = transformers.MarianConfig(**model_settings(ours, 50))
    theirs = transformers.MarianMTModel(settings).eval()
    missing, unexpected = theirs.load_state_dict(convert_weights(ours, 50), strict=False)
    assert not unexpected
    assert {name.split(".")[-2] for name in missing} <= {"embed_positions", "lm_head"}
    theirs.tie_weights()
    assert (ours.src_vocab_size, ours.vocab_size) == (310, 290)
    for a, b in zip(our_logits(ours), their_logits(theirs), strict=True):
        torch.testing.assert_close(b, a, rtol=0, atol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_are_equal(transformers: Any, beam_size: int, tmp_path: Path) -> None:
    model, tokenizer, job = model_folder.load_model(FIXTURE)
    output = exported(FIXTURE, tmp_path / "exported")
    lines = ["a b c", "h g f e", "d d a", "c", "b a h e g c", "x ü", " a  b\tc </s> "]
    config = SearchConfig(beam_size=beam_size, length_penalty=0.0)
    expected = make_translator(model, tokenizer, config, Normalizer.of(job.data)).translate(lines)

    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(output)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    batch = their_tokenizer(lines, padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    found = theirs.generate(**batch, num_beams=beam_size, length_penalty=0.0)
    assert their_tokenizer.batch_decode(found, skip_special_tokens=True) == expected


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_searches_of_random_models_are_equal(
    transformers: Any, norm: str, beam_size: int, tmp_path: Path
) -> None:
    limit = 12
    model = write_random(tmp_path / "model", {"norm": norm})
    rng = np.random.default_rng(1)
    sources = [rng.integers(4, 290, n).tolist() for n in rng.integers(1, 15, 60)]
    config = DecodeConfig(
        beam_size=beam_size, length_penalty=0.0, max_length=limit, max_extra_tokens=limit
    )
    found = TorchEngine([model], config).search(sources, 1)
    expected = [best.tokens for (best,) in found]

    def end_at_limit(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Only the end may follow at the limit, with its score, as in our search."""
        if tokens.shape[1] <= limit:  # the start symbol included
            return scores
        ends = torch.full_like(scores, -torch.inf)
        ends[:, EOS] = scores[:, EOS]
        return ends

    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        exported(tmp_path / "model", tmp_path / "exported")
    ).eval()
    theirs.generation_config.forced_eos_token_id = None
    rows = [torch.tensor([*source, EOS]) for source in sources]
    src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    output = theirs.generate(
        src,
        attention_mask=(src != PAD).long(),
        logits_processor=transformers.LogitsProcessorList([end_at_limit]),
        max_length=None,
        max_new_tokens=limit + 1,
        num_beams=beam_size,
        length_penalty=0.0,
    )
    translations = [[i for i in row if i not in (BOS, EOS, PAD)] for row in output.tolist()]
    assert [(a, b) for a, b in zip(translations, expected, strict=True) if a != b] == []
    assert len({tuple(tokens) for tokens in expected}) > 10


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"positions": "learned"}, r"positions=learned with model\.norm=post: .*ctranslate2"),
        ({"num_heads": 3, "d_k": 4, "d_v": 4}, r"num_heads=3, .* divide model\.d_model=16"),
        ({"d_k": 9}, r"model\.d_k=9, .* larger than d_model / num_heads = 16 / 2"),
        ({"d_v": 16}, r"model\.d_v=16, .* larger than"),
        (
            {"norm": "pre", "tied_embeddings": "none"},
            r"tied_embeddings=none with model\.norm=pre: .*ctranslate2",
        ),
    ],
)
def test_shapes_without_a_class_are_refused(shape: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        check_shape(ModelConfig(**{"d_model": 16, "num_heads": 2, **shape}))


def test_generation_settings() -> None:
    found = generation_settings(SearchConfig(length_penalty=0.5, max_source_tokens=100), 999)
    assert found["num_beams"] == 4
    assert found["length_penalty"] == pytest.approx(0.4)
    assert found["max_length"] == 152  # 100 + 50 and two symbols
    assert generation_settings(SearchConfig(), 64)["max_length"] == 65
    assert "length_penalty" not in generation_settings(SearchConfig(beam_size=1), 64)
