"""Runs with a vocabulary for each language, and runs that start from a MarianMT model."""

import logging
import shutil
from pathlib import Path

import pytest
import torch
from support import marian_models
from support.model_folders import load_folder
from support.training_runs import arguments, write_corpus

from transformer_mt import Translator, compose, export, model_folder, train
from transformer_mt.config import DataConfig, ExportJob, TrainJob
from transformer_mt.data.subwords.tokenizer import EOS
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.errors import InputError
from transformer_mt.model_folder import ModelFolder

LINES = ["a b c", "h g f e d", "c"]
SHORT = ("train.max_steps=6", "train.checkpoint_every=3", "train.validate_every=6")


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    greek = str.maketrans("abcdefgh", "αβγδεζηθ")
    write_corpus(tmp_path, translate=lambda line: line.translate(greek), pairs=60)
    return tmp_path


def run(corpus: Path, name: str, *more: str) -> Path:
    return train(compose(arguments(corpus, corpus / name, *SHORT, *more))).run_dir


def files(folder: Path, *names: str) -> list[bytes]:
    return [(folder / name).read_bytes() for name in names]


def test_a_vocabulary_for_each_language(corpus: Path) -> None:
    more = ["tokenizer.joint=false", "model.tied_embeddings=decoder", "tokenizer.vocab_size=286"]
    more.append("augment=standard")
    whole = run(corpus, "whole", *more)
    opened = ModelFolder(whole)
    tokenizer, job = opened.tokenizer, opened.trained
    assert not (whole / "tokenizer.model").exists()
    assert not tokenizer.is_joint
    assert "▁a" in tokenizer.vocabulary
    assert "▁α" in tokenizer.tgt.vocabulary
    assert "▁α" not in tokenizer.vocabulary
    model = opened.load_model()
    assert (model.vocab_size, model.src_vocab_size) == (286, 286)

    # A resumed run and one that starts from this model have the same vocabularies.
    first = run(corpus, "resumed", *more, "train.max_steps=3")
    assert run(corpus, "resumed", *more) == first
    vocabulary = ("source.spm", "target.spm")
    assert files(first, *vocabulary) == files(whole, *vocabulary)
    assert files(first, "model.safetensors") == files(whole, "model.safetensors")
    tuned = run(corpus, "tuned", f"train.init_from={whole}")
    assert model_folder.read_config(tuned, TrainJob).model == job.model
    assert files(tuned, *vocabulary) == files(whole, *vocabulary)

    translator = Translator.load(whole, engine="torch")
    translations = translator.translate(LINES)
    (best,) = translator.translate_nbest(LINES[:1], 1)[0]
    assert all(piece in tokenizer.tgt.vocabulary for piece in best.pieces)
    assert Translator.load(whole, engine="ctranslate2").translate(LINES) == translations

    output = corpus / "exported"
    export(ExportJob(model=str(whole), format="transformers", output=str(output)))
    again = Translator.load(
        output, engine="torch", beam_size=4, length_penalty=0.6, max_extra_tokens=5
    )
    assert again.translate(LINES) == translations
    import transformers

    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(output)
    their_tokenizer = transformers.AutoTokenizer.from_pretrained(output)
    greedy = Translator.load(whole, engine="torch", beam_size=1)
    for line, expected in zip(LINES, greedy.translate(LINES), strict=True):
        ids = their_tokenizer(line)["input_ids"]
        assert len(ids) == len(tokenizer.encode(line)) + 1
        longest = len(ids) - 1 + 5 + 1  # max_extra_tokens and the end symbol
        found = theirs.generate(torch.tensor([ids]), num_beams=1, max_new_tokens=longest)
        assert their_tokenizer.decode(found[0], skip_special_tokens=True) == expected


def test_one_matrix_needs_one_vocabulary(corpus: Path) -> None:
    with pytest.raises(InputError, match=r"set model\.tied_embeddings=decoder or none"):
        compose(arguments(corpus, corpus / "run", "tokenizer.joint=false"))


def test_fine_tuning_a_marian_model(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    opus = corpus / "opus"
    opus.mkdir()
    lines = [line.split("\t") for line in (corpus / "train.tsv").read_text().splitlines()]
    sides = [
        marian_models.train_side([row[i] for row in lines] * 5, opus / name, 40)
        for i, name in enumerate(("source.spm", "target.spm"))
    ]
    size = len(marian_models.write_vocabulary(opus, sides, [">>el<<"]))
    marian_models.write_tokenizer_config(opus, "en", "el")
    marian_models.random_model(size).save_pretrained(opus)
    argv = [word for word in arguments(corpus, corpus / "tuned", *SHORT) if "model" not in word]
    argv = [*argv, f"train.init_from={opus}", "schedule=linear", "schedule.peak_lr=1e-3"]
    with caplog.at_level(logging.INFO):
        train(compose([*argv, "train.max_steps=3"]))
    shutil.rmtree(opus)  # with the first checkpoint, the run has all it needs
    shutil.rmtree(corpus / "cache")
    run_dir = train(compose(argv)).run_dir
    names = {path.name for path in run_dir.iterdir()}
    assert {"config.yaml", "model.safetensors", "source.spm", "target.spm"} <= names
    assert not {"tokenizer.model", "vocab.json", "pytorch_model.bin"} & names
    model, tokenizer, job = load_folder(run_dir)
    assert (job.data.normalization, job.model.activation) == ("moses", "swish")
    assert model.vocab_size == size + 1
    assert model.output_bias is not None
    assert bool((model.output_bias[[0, 2]] < -90).all())
    ids = tokenizer.encode_source(
        ">>el<< a b", Normalizer(DataConfig(src_lang="en", tgt_lang="el"))
    )
    assert tokenizer.pieces(ids)[0] == ">>el<<"
    assert EOS not in ids
    output = corpus / "exported"
    export(ExportJob(model=str(run_dir), format="transformers", output=str(output)))
    expected = Translator.load(run_dir, engine="torch", beam_size=1).translate(LINES)
    again = Translator.load(output, engine="torch", beam_size=1, max_extra_tokens=5)
    assert again.translate(LINES) == expected
