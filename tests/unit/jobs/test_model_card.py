"""The model card, as the parser of huggingface_hub reads it."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from support.model_folders import JOB

from transformer_mt.config import CardConfig, DataConfig, SourceConfig, TrainJob
from transformer_mt.errors import InputError
from transformer_mt.evaluation.scores import Score
from transformer_mt.jobs.model_card import MARKER, write_model_card

SCORES = [
    Score(name="BLEU", score=38.394, signature="nrefs:1|tok:13a", segments=1000, verbose=""),
    Score(name="chrF2", score=62.1, signature="nrefs:1|nc:6", segments=1000, verbose=""),
    Score(name="TER", score=44.0, signature="nrefs:1|tok:tercom", segments=1000, verbose=""),
    Score(name="BLEU (paper protocol)", score=40, signature="other", segments=1000, verbose=""),
]
START: dict[str, Any] = {
    "version": "0.1.0",
    "revision": "45f6153-dirty",
    "command": "/home/me/bin/mt-train run_dir=runs/x 'data.train=[{tsv: a b}]'",
    "parameters": 1234567,
    "devices": [{"host": "a", "device": "H100"}, {"host": "b", "device": "H100"}],
    "cuda": "12.8",
    "threads": 8,
    "step": 0,
}
END = {
    "time": "2026-11-26T15:05:00+00:00",
    "step": 1000,
    "seconds": 4000.0,
    "averaged_updates": [5, 1000],
}
DATA = DataConfig(
    src_lang="en",
    tgt_lang="pt_BR",
    train=[
        SourceConfig(hub="org/corpus", split="train"),
        SourceConfig(src="/secret/a|b.en", tgt="/secret/a|b.pt"),
    ],
    valid=[SourceConfig(tsv="/secret/dev.tsv"), SourceConfig(testset="wmt14/full", langs="en-pt")],
    test=[SourceConfig(hub="org/test-set", config="en-pt", split="test", revision="abc")],
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "en-pt.small"
    folder.mkdir()
    return folder


def write(folder: Path, scores: Sequence[Score] = SCORES, **settings: Any) -> ModelCard:
    """Writes the card of a run, whose model was made again later on another machine."""
    job = TrainJob(**{"run_dir": str(folder), "data": DATA, **settings})
    cleaning = {"total": 2000, "kept": 1990}
    later = {**START, "step": 1000, "devices": [{"host": "c", "device": "laptop"}]}
    write_model_card(job, cleaning, [START, later], END, scores)
    return ModelCard.load(folder / "README.md")


def test_metadata_and_the_facts_of_the_run(folder: Path) -> None:
    records = [
        {"step": step, "split": split, "loss": 9 / step, "bleu": step}
        for step in (5, 10, 15, 20)
        for split in ("train", "valid")
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records))
    card = write(folder, card=CardConfig(license="cc-by-4.0"))
    data = card.data
    assert data.language == ["en", "pt"]
    assert (data.license, data.pipeline_tag) == ("cc-by-4.0", "translation")
    assert data.datasets == ["org/corpus", "org/test-set"]
    assert data.metrics == ["bleu", "chrf", "ter"]
    values = [("bleu", 38.39), ("chrf", 62.1), ("ter", 44.0)]
    assert [(r.metric_type, r.metric_value) for r in data.eval_results] == values
    for result, score in zip(data.eval_results, SCORES[:3], strict=True):
        assert result.metric_args["signature"] == score.signature
        assert (result.dataset_type, result.dataset_config) == ("org/test-set", "en-pt")
        assert (result.dataset_split, result.dataset_revision) == ("test", "abc")
    for fact in (
        "English (`en`) to Portuguese (BR) (`pt_BR`), trained with",
        "transformer_mt 0.1.0 (commit 45f6153-dirty) on 2026-11-26.",
        "beam search with 4 beams, length penalty 0.6:",
        "| BLEU | 38.39 | `nrefs:1\\|tok:13a` |",
        "org/test-set (test), 1,000 segments",
        "| parameters | 1,234,567 |",
        "| pairs | 1,990 of 2,000 after cleaning |",
        "| time | 67 min |",
        "| hardware | 2 × H100 |",
        "| updates | 1,000, of ",
        "| final weights | average of the last 2 checkpoints, of updates 5, 1,000 |",
        "a\\|b.en",
        "dev.tsv, wmt14/full (en-pt)",
        *("](curves.png)", "output=for_ctranslate2`", "output=for_transformers`"),
    ):
        assert fact in card.text, fact
    assert "/secret" not in card.text
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    blocks = card.text.split("```python\n")[1:]
    assert len(blocks) == 4
    for block in blocks:
        compile(block.split("```")[0], "card", "exec")


def test_tags_are_explained_and_scored_apart(folder: Path) -> None:
    french = SourceConfig(tsv="b.tsv", tag="<2fr>", tgt_lang="fr")
    train = [SourceConfig(tsv="a.tsv", tag="<2pt>"), french]
    scores = [replace(SCORES[0], tag=tag) for tag in ("<2pt>", "<2fr>")]
    card = write(folder, scores, data=replace(DATA, train=train, test=train))
    assert card.data.language == ["en", "pt", "fr"]
    assert [result.metric_name for result in card.data.eval_results] == ["BLEU <2pt>", "BLEU <2fr>"]
    for fact in (
        *("| BLEU `<2fr>` | 38.39 |", "2,000 segments", "`<2fr>` (en → fr)."),
        *("'tag=\"<2pt>\"' < in.en", 'translate(["<2pt> A sentence in English."])'),
    ):
        assert fact in card.text, fact
    optional = write(folder, data=replace(DATA, train=[*train, SourceConfig(tsv="c.tsv")]))
    assert "A source line may start with a tag:\n`<2pt>` (" in optional.text
    assert "'tag=" not in optional.text


def test_settings_that_the_paper_does_not_have_are_named(folder: Path) -> None:
    plain = write(folder).text
    assert not [word for word in ("initial embeddings", "decay", "d_k") if word in plain]
    model = replace(
        JOB.model, d_k=16, d_v=64, dropout=0.25, attention_dropout=0.5, activation_dropout=0.75
    )
    card = write(
        folder,
        model=model,
        data=replace(DATA, augment="standard", phrase_pairs=0.5),
        optimizer=replace(JOB.optimizer, weight_decay=0.25),
        train=replace(JOB.train, initial_embeddings="cooccurrence"),
    )
    for fact in (
        " heads (d_k 16, d_v 64), post-norm,",
        ", dropout 0.25, of attention weights 0.5, of activations 0.75 |",
        "| noise in training | standard |\n",
        "| pairs of phrases | from the training pairs, 0.5 of the target tokens |\n",
        "| optimizer | adam with weight decay 0.25, ",
        "| initial embeddings | cooccurrence, from the training pairs |",
    ):
        assert fact in card.text, fact


def test_base_model_is_that_of_the_hub(folder: Path) -> None:
    for base, shown in ((f"hf://org/base@{'0' * 40}", "org/base"), ("/home/me/base", None)):
        card = write(folder, train=replace(JOB.train, init_from=base))
        assert card.data.base_model == shown
        assert "/home/me" not in card.text.split("```")[-1]


def test_a_run_without_a_test_set_has_no_scores(folder: Path) -> None:
    card = write(folder, [])
    assert card.data.eval_results is None
    assert "## Scores" not in card.text


def test_an_edited_card_is_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="transformer_mt")
    path, written = folder / "README.md", str(write(folder))
    edited = written.replace("# en-pt.small", "# Other")
    path.write_text(edited)
    assert str(write(folder)) == written  # the line says so
    path.write_text(edited.replace(MARKER, ""))
    assert str(write(folder)) == edited.replace(MARKER, "")
    assert "has been edited and is kept" in caplog.text


@pytest.mark.parametrize("wrong", ["", "a/b/c", "a b", "org/", "<b>", "a\nb"])
def test_invalid_names_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"card\.name"):
        CardConfig(name=wrong)
