"""Exported models in Hugging Face transformers: the same translations as ours."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.model_folders import JOB, VOCAB_SIZE, write_model
from support.models import make_translator
from support.random_weights import random_transformer

from transformer_mt import checkpoint as ckpt
from transformer_mt import export, model_folder, run_layout
from transformer_mt.config import DecodeConfig, ExportJob, SearchConfig
from transformer_mt.conversion.transformers_model import generation_settings
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.torch_engine import TorchEngine

FIXTURE = Path(__file__).parents[1] / "e2e/fixtures/run_2_3"


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers")


def exported(folder: Path, output: Path) -> Path:
    return export(ExportJob(model=str(folder), format="transformers", output=str(output)))


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
    config = replace(JOB.model, norm=norm, num_encoder_layers=2, num_decoder_layers=2)
    write_model(tmp_path / "model", replace(JOB, model=config))
    weights = ckpt.parameters(random_transformer(config, VOCAB_SIZE).float())
    ckpt.save_tensors(weights, tmp_path / "model" / run_layout.WEIGHTS)
    model, _, _ = model_folder.load_model(tmp_path / "model")
    rng = np.random.default_rng(1)
    sources = [rng.integers(4, 290, n).tolist() for n in rng.integers(1, 15, 60)]
    decode = DecodeConfig(
        beam_size=beam_size, length_penalty=0.0, max_length=limit, max_extra_tokens=limit
    )
    found = TorchEngine([model], decode).search(sources, 1)
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


def test_generation_settings() -> None:
    found = generation_settings(SearchConfig(length_penalty=0.5, max_source_tokens=100), 999)
    assert found["num_beams"] == 4
    assert found["length_penalty"] == pytest.approx(0.4)
    assert found["max_length"] == 152  # 100 + 50 and two symbols
    assert generation_settings(SearchConfig(), 64)["max_length"] == 65
    assert "length_penalty" not in generation_settings(SearchConfig(beam_size=1), 64)
