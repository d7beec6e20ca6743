"""Exported models in Hugging Face transformers: the same translations as ours."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.model_folders import JOB, translate_lines, write_model
from support.models import model_that_ends, random_lines

from transformer_mt import checkpoint as ckpt
from transformer_mt import export, run_layout
from transformer_mt.config import ExportJob, SearchConfig
from transformer_mt.conversion.transformers_model import generation_settings
from transformer_mt.decode import translator
from transformer_mt.decode.engines import torch_engine

FIXTURE = Path(__file__).parents[1] / "e2e/fixtures/model"


@pytest.mark.parametrize(
    ("norm", "beam_size"),
    [("post", 1), ("post", 4), ("pre", 1)],  # MarianMT and Blenderbot
)
def test_translations_are_equal(
    norm: str, beam_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import transformers

    folder, output = FIXTURE, tmp_path / "exported"
    lines = ["a b c", "h g f e", "d d a", "c", "b a h e g c", "x ü", " a  b\tc </s> "]
    if norm == "pre":
        folder, lines = tmp_path / "model", random_lines(40, 9)
        peaked = model_that_ends(0.6, norm=norm)
        job = replace(JOB, model=peaked.config)
        write_model(folder, job, text=random_lines(200, 9), size=peaked.vocab_size)
        ckpt.save_tensors(peaked.state_dict(), folder / run_layout.WEIGHTS)
    monkeypatch.setattr(torch_engine, "max_output_tokens", lambda *_: 11)
    monkeypatch.setattr(translator, "usual_case", lambda text, *_: text)  # theirs reads text as is
    expected = translate_lines(folder, lines, beam_size=beam_size, length_penalty=0.0)

    export(ExportJob(model=str(folder), format="transformers", output=str(output)))
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(output)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    batch = their_tokenizer(lines, padding=True, return_tensors="pt")
    assert set(batch) == {"input_ids", "attention_mask"}
    limit = {"max_length": None, "max_new_tokens": 12}  # the end included
    found = theirs.generate(**batch, **limit, num_beams=beam_size, length_penalty=0.0)
    assert their_tokenizer.batch_decode(found, skip_special_tokens=True) == expected
    assert len(set(expected)) > len(lines) / 5


def test_generation_settings() -> None:
    found = generation_settings(SearchConfig(length_penalty=0.5, max_source_tokens=100), 999)
    assert found["num_beams"] == 4
    assert found["length_penalty"] == pytest.approx(0.4)
    assert found["max_length"] == 152  # 100 + 50 and two symbols
    assert generation_settings(SearchConfig(), 64)["max_length"] == 65
    assert "length_penalty" not in generation_settings(SearchConfig(beam_size=1), 64)
