"""mt-eval of models: the scores of what mt-translate prints; settings that conflict."""

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support import scoring
from support.evaluated_models import (
    REFERENCE,
    SOURCE,
    Json,
    by_hand,
    error_of,
    reserve_tag,
    scores_and_messages,
    write_lines,
    write_model,
)
from support.model_folders import translate_lines
from torch.nn import functional as F

from transformer_mt import model_folder
from transformer_mt.batch import Packed
from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob, SourceConfig, TranslateJob
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.decode.translator import Translator
from transformer_mt.evaluation import metrics
from transformer_mt.evaluation.comparison import TestSet
from transformer_mt.evaluation.scores import to_json
from transformer_mt.jobs import evaluate as evaluate_job
from transformer_mt.jobs.evaluate import Evaluator

OTHER = ["Zwei Herren sind draußen.", "Man hat die E-Mail gesendet.", "Es sind 3,5 km.", "Bern"]


@pytest.fixture
def scores(capsys: pytest.CaptureFixture[str]) -> Json:
    """The JSON that a job prints, and its messages."""
    return partial(scores_and_messages, capsys)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that no test changes, with its test set beside it."""
    return write_model(tmp_path_factory.mktemp("shared") / "model")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def change_data(model: Path, **settings: Any) -> None:
    """Changes settings of the data that the model was trained on."""
    job = model_folder.read_config(model)
    model_folder.write_config(model, replace(job, data=replace(job.data, **settings)))


def test_missing_tokeniser_is_reported_before_the_work(
    shared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ko_mecab", raising=False)
    monkeypatch.setitem(sys.modules, "mecab_ko", None)  # as if it were not installed
    monkeypatch.setattr(Translator, "translate", lambda *_: pytest.fail("it is translated"))
    for more in ({}, {"metrics": ["chrf"], "report": "report.html"}):
        message = error_of(capsys, model=str(shared), tgt_lang="kor", **more)
        assert message.startswith("BLEU for ko ")
        assert message.endswith(" pip install 'sacrebleu[ko]'")


@pytest.mark.parametrize(
    "settings",
    [{}, {"engine": "torch"}, {"compute_type": "bfloat16"}, {"compute_type": "int8"}],
    ids=str,
)
def test_the_score_is_that_of_what_mt_translate_prints(
    shared: Path, tmp_path: Path, scores: Json, settings: Any
) -> None:
    if settings.get("compute_type") == "int8":
        pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra 'fast')")
    job: dict[str, Any] = {"model": str(shared), "device": "cpu", **settings}
    output = tmp_path / "out"
    commands.translate(TranslateJob(input=str(shared.parent / "src"), output=str(output), **job))
    printed = output.read_text().split("\n")[:-1]
    assert any(printed)
    rows, err = scores(model=str(shared), **settings)
    names = [*metrics.DEFAULT, "paper"]
    expected = scoring.score(printed, [REFERENCE], tgt_lang="de", metrics=names)
    assert rows == json.loads(to_json(expected))
    assert [row["score"] for row in rows[:3]] == by_hand(printed, REFERENCE)
    engine = Evaluator(EvaluateJob(**job)).facts["engine"]  # which gave the scores
    assert {*settings.values()} <= {*engine.split(", ")}
    if settings in ({}, {"engine": "torch"}):
        assert printed == translate_lines(shared, SOURCE)
        assert err == ""


@torch.no_grad()
def test_perplexity_is_that_of_the_model_s_own_probabilities(shared: Path, scores: Json) -> None:
    network, tokenizer, _ = model_folder.load_model(shared)
    nll = count = 0.0
    for src, tgt in zip(tokenizer.encode(SOURCE), tokenizer.encode(REFERENCE), strict=True):
        packed = Packed.from_sequences([[*src, EOS]])
        hidden = network.decode(
            Packed.from_sequences([[BOS, *tgt]]), network.encode(packed), packed
        )
        targets = torch.tensor([*tgt, EOS])
        nll += float(F.cross_entropy(network.logits(hidden), targets, reduction="sum"))
        count += len(targets)
    rows, _ = scores(model=str(shared), metrics=["bleu", "ppl"], protocols=[])
    assert [row["name"] for row in rows] == ["BLEU", "PPL"]
    assert rows[1]["score"] == pytest.approx(math.exp(nll / count), rel=1e-4)
    assert rows[1]["verbose_score"] == f"{count:,.0f} subwords"
    assert rows[1]["segments"] == len(REFERENCE)


def test_a_model_without_a_test_set(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "ref").unlink()
    assert str(model.parent / "ref") in error_of(capsys, model=str(model))
    change_data(model, test=[])
    message = error_of(capsys, model=str(model))
    assert message.startswith(f"{model} has no test set, or no longer its files: set testset=NAME")


def test_settings_are_chosen_on_the_validation_set(
    model: Path, tmp_path: Path, scores: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "valid", OTHER)
    change_data(model, valid=[SourceConfig(src=source, tgt=str(tmp_path / "ref"))])
    found = []
    for asked in ({}, {"beam_size": 1}):
        rows, _ = scores(model=str(model), subset="valid", **asked)
        found.append(translate_lines(model, OTHER, **asked))
        assert [row["score"] for row in rows[:3]] == by_hand(found[-1], REFERENCE)
    assert found[0] != found[1]  # else this shows nothing
    message = error_of(capsys, model=str(model), step=7)
    assert message.startswith(f"{model} has no checkpoint of step 7")


def test_a_model_on_another_test_set(
    shared: Path, tmp_path: Path, scores: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_lines(tmp_path / "source", SOURCE[:2])
    reference = write_lines(tmp_path / "reference", OTHER[:2])
    job = {"model": str(shared), "source": source, "references": [reference]}
    rows, _ = scores(**job)
    expected = by_hand(translate_lines(shared, SOURCE[:2]), OTHER[:2])
    assert [row["score"] for row in rows[:3]] == expected
    write_lines(tmp_path / "reference", OTHER[:1])
    assert error_of(capsys, **job).startswith(f"2 lines in {source} but 1 in {reference}")


def test_a_test_set_of_sacrebleu_has_the_languages_of_the_tag(
    model: Path, scores: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve_tag(model, "<2en>")
    back = SourceConfig(tsv="never_read.tsv", tag="<2en>", src_lang="de", tgt_lang="en")
    change_data(model, train=[SourceConfig(tsv="nor_this.tsv"), back])

    def load(_: str, langs: str) -> TestSet:
        assert langs == "de-en"
        return TestSet(references={"ref": SOURCE}, source=REFERENCE)

    monkeypatch.setattr(evaluate_job, "load_testset", load)
    rows, _ = scores(model=str(model), testset="wmt19", tag="<2en>", metrics=["chrf"])
    assert {row["tag"] for row in rows} == {"<2en>"}


def test_files_of_the_model_are_not_overwritten(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called = {"src": "data.test", "ref": "data.test", "model/config.yaml": "the model"}
    for name, owner in called.items():
        path = shared.parent / name
        before = path.read_bytes()
        message = error_of(capsys, model=str(shared), report=str(path))
        assert message == f"report={path} would overwrite the file of {owner}: choose another file"
        assert path.read_bytes() == before
