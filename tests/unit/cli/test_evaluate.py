"""mt-eval: sacreBLEU's own numbers for files, and for what a model makes of its test set."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from transformer_mt import checkpoint as ckpt
from transformer_mt.cli import evaluate
from transformer_mt.config import (
    DataConfig,
    DecodeConfig,
    EvaluateJob,
    ModelConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
)
from transformer_mt.data.normalization import Normalizer
from transformer_mt.data.tokenizer import train_tokenizer
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluate import metrics
from transformer_mt.model.transformer import Transformer

SOURCE = ["Two men are outside.", "The e-mail was sent.", "It is 3.5 km.", "Bern"]
REFERENCE = [
    "Zwei Männer sind im Freien, nicht wahr?",
    "Die E-Mail wurde gestern schon verschickt.",
    "Es sind 3,5 km bis nach\u2028Hause.",
    "Bern",
]
OTHER = ["Zwei Herren sind draußen.", "Man hat die E-Mail gesendet.", "Es sind 3,5 km.", "Bern"]
GOOD = [
    "Zwei Männer sind im Freien, oder?",
    "Die E-Mail wurde gestern verschickt.",
    "Es sind 3,5 km bis nach Hause.",
    "Bern",
]
BAD = ["Two men are outside.", "", "Es ist 3.5 km nach Hause weit.", "Bern"]

Files = Callable[..., list[str]]
Json = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    def write(**texts: list[str]) -> list[str]:
        for name, lines in texts.items():
            (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        return [str(tmp_path / name) for name in texts]

    return write


@pytest.fixture
def scores(capsys: pytest.CaptureFixture[str]) -> Json:
    """What a job prints as JSON, and what it says beside it."""

    def run(**settings: Any) -> tuple[Any, str]:
        evaluate.run(EvaluateJob(format="json", device="cpu", **settings))
        out, err = capsys.readouterr()
        return json.loads(out), err

    return run


def by_hand(hypotheses: list[str], *references: list[str]) -> list[float]:
    bleu = sacrebleu.corpus_bleu(hypotheses, references)
    chrf = sacrebleu.corpus_chrf(hypotheses, references)
    ter = sacrebleu.corpus_ter(hypotheses, references)
    return [round(metric.score, 4) for metric in (bleu, chrf, ter)]


def test_one_system(files: Files, scores: Json) -> None:
    hypotheses, reference = files(good=GOOD, ref=REFERENCE)
    rows, err = scores(hypotheses=[hypotheses], references=[reference])
    assert [row["name"] for row in rows] == ["BLEU", "chrF2", "TER"]
    assert [row["score"] for row in rows] == by_hand(GOOD, REFERENCE)
    assert {row["segments"] for row in rows} == {4}
    assert all(row["signature"].startswith("nrefs:1|") for row in rows)
    assert err == ""


def test_several_references(files: Files, scores: Json) -> None:
    hypotheses, *references = files(good=GOOD, ref=REFERENCE, other=OTHER)
    rows, _ = scores(hypotheses=[hypotheses], references=references)
    assert [row["score"] for row in rows] == by_hand(GOOD, REFERENCE, OTHER)
    assert by_hand(GOOD, REFERENCE, OTHER) != by_hand(GOOD, REFERENCE)


def test_several_systems(files: Files, scores: Json) -> None:
    good, bad, reference = files(good=GOOD, bad=BAD, ref=REFERENCE)
    rows, _ = scores(hypotheses=[bad, good], references=[reference])
    assert [row["system"] for row in rows] == [bad, good]
    for row, lines in zip(rows, (BAD, GOOD), strict=True):
        assert set(row) == {"system", "scores"}
        assert [score["score"] for score in row["scores"]] == by_hand(lines, REFERENCE)
    assert rows[1]["scores"] == scores(hypotheses=[good], references=[reference])[0]


def test_the_target_language_adds_the_paper_s_protocol(files: Files, scores: Json) -> None:
    hypotheses, reference = files(good=GOOD, ref=REFERENCE)
    rows, _ = scores(hypotheses=[hypotheses], references=[reference], tgt_lang="de")
    assert [row["name"] for row in rows] == ["BLEU", "chrF2", "TER", "BLEU (paper protocol)"]
    assert [row["score"] for row in rows[:3]] == by_hand(GOOD, REFERENCE)
    assert rows[3]["score"] == round(metrics.paper_bleu(GOOD, [REFERENCE]).score, 4)


def test_suspicious_lines_are_pointed_out(files: Files, scores: Json) -> None:
    bad, good, reference, source = files(bad=BAD, good=GOOD, ref=REFERENCE, src=SOURCE)
    rows, err = scores(hypotheses=[bad, good], references=[reference], source=source)
    assert err.splitlines() == [
        f"mt-eval: {bad}: 2 of 4 lines are equal to their source",
        f"mt-eval: {bad}: 1 of 4 lines are empty",
        f"mt-eval: {good}: 1 of 4 lines are equal to their source",
    ]
    assert [row["score"] for row in rows[0]["scores"]] == by_hand(BAD, REFERENCE)


def test_nothing_said_of_nothing_is_only_empty(files: Files, scores: Json) -> None:
    hypotheses, reference, source = files(hyp=["", "Bern"], ref=["", "Bern"], src=[" ", "Berne"])
    _, err = scores(hypotheses=[hypotheses], references=[reference], source=source)
    assert err == f"mt-eval: {hypotheses}: 1 of 2 lines are empty\n"


def test_text_for_a_person(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, reference = files(good=GOOD, bad=BAD, ref=REFERENCE)
    evaluate.run(EvaluateJob(hypotheses=[good], references=[reference]))
    alone = capsys.readouterr().out
    for value in by_hand(GOOD, REFERENCE):
        assert f" {value:.2f}  4 segments" in alone
    evaluate.run(EvaluateJob(hypotheses=[good, bad], references=[reference]))
    together = capsys.readouterr().out
    assert together.startswith(f"{good}:\n{alone}{bad}:\n")
    for value in by_hand(BAD, REFERENCE):
        assert f" {value:.2f}  4 segments" in together


def error_of(capsys: pytest.CaptureFixture[str], **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        evaluate.run(EvaluateJob(device="cpu", **settings))
    assert capsys.readouterr().out == ""
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_files_that_do_not_fit_are_named(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, short, reference, empty = files(good=GOOD, short=GOOD[:3], ref=REFERENCE, empty=[])
    message = error_of(capsys, hypotheses=[good, short], references=[reference])
    assert message.startswith(f"3 lines in {short} but 4 in {reference}")
    message = error_of(capsys, hypotheses=[good], references=[reference, short])
    assert message.startswith(f"4 lines in {good} but 3 in {short}")
    message = error_of(capsys, hypotheses=[good], references=[reference], source=short)
    assert message.startswith(f"4 lines in {good} but 3 in {short}")
    assert empty in error_of(capsys, hypotheses=[empty], references=[empty])
    missing = str(tmp_path / "missing")
    for names in ([missing], [reference]), ([good], [missing]):
        message = error_of(capsys, hypotheses=names[0], references=names[1])
        assert message == f"cannot read {missing}: No such file or directory"
    (tmp_path / "latin1").write_bytes("Männer\n".encode("latin1"))
    message = error_of(capsys, hypotheses=[str(tmp_path / "latin1")], references=[reference])
    assert f"{tmp_path / 'latin1'}, line 1: not valid UTF-8" in message


@pytest.fixture
def model(tmp_path: Path, files: Files) -> Path:
    """An untrained model whose test set is SOURCE and REFERENCE."""
    source, reference = files(src=SOURCE, ref=REFERENCE)
    never = [SourceConfig(tsv="never_read.tsv")]
    test = [SourceConfig(src=source, tgt=reference)]
    job = TrainJob(
        data=DataConfig(src_lang="en", tgt_lang="de", train=never, valid=never, test=test),
        model=ModelConfig(
            d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
        ),
        decode=DecodeConfig(beam_size=3, length_penalty=1.0, max_extra_tokens=5),
    )
    folder = tmp_path / "model"
    folder.mkdir()
    ckpt.write_config(folder, job)
    config = TokenizerConfig(vocab_size=320)
    vocabulary = train_tokenizer([*SOURCE, *REFERENCE] * 3, config, seed=1)
    (folder / ckpt.TOKENIZER).write_bytes(vocabulary)
    torch.manual_seed(1)
    ckpt.save_weights(Transformer(job.model, config.vocab_size), folder / ckpt.WEIGHTS)
    return folder


def test_a_model_is_scored_on_its_own_test_set(model: Path, scores: Json) -> None:
    network, tokenizer, job = ckpt.load_model(model)
    translator = Translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    hypotheses = translator.translate(SOURCE)
    assert any(hypotheses)
    rows, err = scores(model=str(model))
    expected = metrics.score_all(hypotheses, [REFERENCE], tgt_lang="de")
    assert rows == json.loads(metrics.to_json(expected))
    assert [row["score"] for row in rows[:3]] == by_hand(hypotheses, REFERENCE)
    assert err == ""


def test_a_model_without_a_test_set(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = ckpt.read_config(model)
    ckpt.write_config(model, replace(job, data=replace(job.data, test=[])))
    message = error_of(capsys, model=str(model))
    assert message == f"{model} was trained without a test set (data.test)"


def test_a_model_whose_test_set_has_gone(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "ref").unlink()
    assert str(model.parent / "ref") in error_of(capsys, model=str(model))


def test_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(capsys, model=str(tmp_path / "x")) == f"no model folder {tmp_path / 'x'}"
