"""The job as a run records it: what a given vocabulary or an initial model decides."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.model_folders import JOB, write_model

from transformer_mt import compose, run_layout
from transformer_mt.config import TokenizerConfig
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer
from transformer_mt.errors import InputError
from transformer_mt.jobs.resolved_job import resolved

MODEL = Path(__file__).parents[2] / "e2e/fixtures/model"
TEXT = ["a few words to learn from", "some more words"]
OTHER = TokenizerConfig(type="unigram", vocab_size=276, character_coverage=0.99)


def test_settings_of_a_given_vocabulary_are_recorded(tmp_path: Path) -> None:
    """Whatever was typed: config.yaml says what is used."""
    path = tmp_path / "given.model"
    path.write_bytes(train_tokenizer(TEXT, OTHER))
    job = replace(JOB, tokenizer=TokenizerConfig(path=str(path), vocab_size=999))
    recorded = resolved(job).tokenizer
    assert recorded == replace(OTHER, path=str(path))
    two = tmp_path / "two"
    two.mkdir()
    for name, text in zip(run_layout.SIDE_TOKENIZERS, (TEXT, [x[::-1] for x in TEXT]), strict=True):
        (two / name).write_bytes(train_tokenizer(text, OTHER))
    untied = replace(JOB.model, tied_embeddings="none")
    job = replace(JOB, tokenizer=TokenizerConfig(path=str(two)), model=untied)
    assert resolved(job).tokenizer == replace(OTHER, path=str(two), joint=False)


def test_settings_of_the_vocabulary_of_an_initial_model_are_recorded() -> None:
    train = replace(JOB.train, init_from=str(MODEL))
    model = replace(JOB.model, d_model=512, d_ff=2048, num_heads=8)
    recorded = resolved(replace(JOB, tokenizer=OTHER, train=train, model=model))
    expected = TokenizerConfig(vocab_size=290, path=str(MODEL / "tokenizer.model"))
    assert recorded.tokenizer == expected
    assert recorded.model.d_model == 16


ARGV = [
    *(f"train.init_from={MODEL}", "data=files", "data.src_lang=en", "data.tgt_lang=de"),
    *("data.train=[{tsv: a.tsv}]", "data.valid=[{tsv: a.tsv}]", "model=base"),
]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["model.d_ff=64", "model.norm=pre"], r"model\.d_ff=64 .*, model\.norm=pre"),
        (["data.normalization=nfc"], r"leave out data\.normalization=nfc"),
        (["tokenizer.path=a.model"], r"leave tokenizer\.path out"),
        ([f"train.init_from={MODEL.parent}"], " is not a model folder"),
        (["experiment=multi30k"], r"leave out .*layers=4 \(default 6\).* Leave out an experiment"),
    ],
)
def test_an_incompatible_initial_model_is_refused(more: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolved(compose([*ARGV, *more]))


def test_an_experiment_for_a_corpus_starts_from_a_model_of_another_size() -> None:
    assert resolved(compose([*ARGV, "experiment=pairs_10k"])).model.d_model == 16


def test_a_model_may_have_fewer_layers_than_its_parent(tmp_path: Path) -> None:
    parent = replace(JOB.model, num_decoder_layers=3)
    write_model(tmp_path / "parent", replace(JOB, model=parent))
    train = replace(JOB.train, init_from=str(tmp_path / "parent"))
    for layers in (2, 3):
        model = replace(parent, num_decoder_layers=layers)
        assert resolved(replace(JOB, train=train, model=model)).model == model
