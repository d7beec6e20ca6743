"""mt-eval of models and of files: the scores, one-line errors, and no input is overwritten."""

import gzip
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import scoring
from support.errors import input_error
from support.evaluated_models import (
    REFERENCE,
    SOURCE,
    Json,
    by_hand,
    reserve_tag,
    scores_and_messages,
    write_lines,
    write_model,
)
from support.model_folders import translate_lines

from transformer_mt import model_folder
from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob, SourceConfig, TrainJob, TranslateJob
from transformer_mt.decode.translator import Translator
from transformer_mt.evaluation import comparison, metrics
from transformer_mt.evaluation.comparison import ScoreSettings, TestSet
from transformer_mt.evaluation.scores import to_json
from transformer_mt.jobs import evaluate as evaluate_job

GOOD = [
    "Zwei Männer sind im Freien, oder?",
    "Die E-Mail wurde gestern verschickt.",
    "Es sind 3,5 km bis nach Hause.",
    "Bern",
]
BAD = ["Two men are outside.", "", "Es ist 3.5 km nach Hause weit.", "Bern"]
OTHER = ["Zwei Herren sind draußen.", "Man hat die E-Mail gesendet.", "Es sind 3,5 km.", "Bern"]
TEXTS = {"good": GOOD, "bad": BAD, "src": SOURCE, "ref": REFERENCE, "other": OTHER}
ONE: dict[str, Any] = {"hypotheses": ["good"], "references": ["ref"]}
TWO: dict[str, Any] = {"hypotheses": ["./bad", "./good"], "references": ["ref"]}


Error = Callable[..., str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home and working folder, with the texts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, lines in TEXTS.items():
        write_lines(tmp_path / name, lines)
    return tmp_path


@pytest.fixture
def scores(capsys: pytest.CaptureFixture[str]) -> Json:
    """The JSON that a job prints, and its messages."""
    return partial(scores_and_messages, capsys)


@pytest.fixture
def error(capsys: pytest.CaptureFixture[str]) -> Error:
    """The one-line error of a job that prints nothing."""

    def error_of(**settings: Any) -> str:
        with input_error() as caught:
            commands.evaluate(EvaluateJob(device="cpu", **settings))
        assert capsys.readouterr().out == ""
        return str(caught.value)

    return error_of


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that no test changes, with its test set beside it."""
    return write_model(tmp_path_factory.mktemp("shared") / "model")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def change_data(model: Path, **settings: Any) -> None:
    """Changes settings of the data that the model was trained on."""
    job = model_folder.read_config(model, TrainJob)
    model_folder.write_config(model, replace(job, data=replace(job.data, **settings)))


def test_missing_tokeniser_is_reported_before_the_work(
    shared: Path, error: Error, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ko_mecab", raising=False)
    monkeypatch.setitem(sys.modules, "mecab_ko", None)  # as if it were not installed
    monkeypatch.setattr(Translator, "translate", lambda *_: pytest.fail("it is translated"))
    for more in ({}, {"metrics": ["chrf"], "report": "report.html"}):
        message = error(model=str(shared), tgt_lang="kor", **more)
        assert message.startswith("BLEU for ko ")
        assert message.endswith(" pip install 'sacrebleu[ko]'")
    tagged = TestSet(
        references={"r": REFERENCE},
        source=[f"<2ko> {line}" for line in SOURCE],
        tags=["<2ko>"],
        languages={"<2ko>": ("en", "ko"), "<2zh>": ("en", "zh")},
    )
    with input_error("BLEU for ko .*pip install"):
        evaluate_job.evaluate(EvaluateJob(model=str(shared), device="cpu"), tagged)


@pytest.mark.parametrize(
    "settings",
    [{}, {"engine": "torch"}, {"compute_type": "bfloat16"}, {"compute_type": "int8"}],
    ids=str,
)
def test_the_score_is_that_of_what_mt_translate_prints(
    shared: Path, tmp_path: Path, scores: Json, settings: Any
) -> None:
    job: dict[str, Any] = {"model": str(shared), "device": "cpu", **settings}
    output = tmp_path / "out"
    commands.translate(TranslateJob(input=str(shared.parent / "src"), output=str(output), **job))
    printed = output.read_text().split("\n")[:-1]
    assert any(printed)
    rows, err = scores(model=str(shared), **settings)
    names = metrics.default("de")
    expected = scoring.score(printed, [REFERENCE], tgt_lang="de", metrics=names)
    assert rows == json.loads(to_json(expected))
    assert [row["score"] for row in rows[:3]] == by_hand(printed, REFERENCE)
    page = tmp_path / "page.html"  # says which engine gave the scores
    evaluate_job.evaluate(EvaluateJob(**job, metrics=["bleu"], bootstrap=0, report=str(page)))
    assert all(value in page.read_text() for value in settings.values())
    if settings in ({}, {"engine": "torch"}):
        assert settings == {} or printed == translate_lines(shared, SOURCE)
        assert err == ""


def test_perplexity_is_that_of_the_log_probabilities_of_the_references(
    shared: Path, scores: Json
) -> None:
    scored = Translator.load(shared, device="cpu", engine="torch").score(SOURCE, REFERENCE)
    nll, count = -sum(t.log_prob for t in scored), sum(t.tokens + 1 for t in scored)
    rows, _ = scores(model=str(shared), metrics=["bleu", "ppl"])
    assert [row["name"] for row in rows] == ["BLEU", "PPL"]
    assert rows[1]["score"] == pytest.approx(math.exp(nll / count), rel=1e-4)
    assert rows[1]["verbose_score"] == f"{count:,.0f} subwords"
    assert rows[1]["segments"] == len(REFERENCE)
    assert scores(model=str(shared), metrics=["ppl"])[0] == rows[1:]


def test_a_model_without_a_test_set(model: Path, folder: Path, error: Error) -> None:
    (folder / "ref").unlink()
    assert str(folder / "ref") in error(model=str(model))
    change_data(model, test=[])
    message = error(model=str(model))
    assert message.startswith(f"{model} has no test set, or its files are gone: set testset=NAME")
    assert message.endswith("(data.test_pairs=1000)")


def test_settings_are_chosen_on_the_validation_set(
    model: Path, folder: Path, scores: Json, error: Error
) -> None:
    change_data(model, valid=[SourceConfig(src=str(folder / "other"), tgt=str(folder / "ref"))])
    found = []
    for asked in ({}, {"beam_size": 1}):
        rows, _ = scores(model=str(model), testset="valid", **asked)
        found.append(translate_lines(model, OTHER, **asked))
        assert [row["score"] for row in rows[:3]] == by_hand(found[-1], REFERENCE)
    assert found[0] != found[1]  # else this shows nothing
    message = error(model=str(model), step=7)
    assert message.startswith(f"{model} has no checkpoint of step 7")


def test_lines_without_a_tag_are_reported(model: Path, scores: Json) -> None:
    """As by mt-translate."""
    change_data(model, train=[])  # as of a converted model, which may have no tags
    _, err = scores(model=str(model), metrics=["chrf"], engine="torch")
    assert "no tag" not in err
    reserve_tag(model, "<2de>")
    change_data(model, train=[SourceConfig(tsv="never_read.tsv", tag="<2de>")])
    _, err = scores(model=str(model), metrics=["chrf"], engine="torch")
    line = "4 line(s) have no tag, but this model is trained with tags: set tag (<2de>)"
    assert err.splitlines()[0] == f"mt-eval: {line}"
    _, err = scores(model=str(model), metrics=["chrf"], engine="torch", tag="<2de>")
    assert "no tag" not in err


def test_a_test_set_of_sacrebleu_has_the_languages_of_the_tag(
    model: Path, folder: Path, scores: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all of its references."""
    reserve_tag(model, "<2en>")
    back = SourceConfig(tsv="never_read.tsv", tag="<2en>", src_lang="de", tgt_lang="en")
    change_data(model, train=[SourceConfig(tsv="nor_this.tsv"), back])

    def files(_: str, langs: str) -> tuple[Path, list[Path]]:
        assert langs == "de-en"
        return folder / "ref", [folder / "src", folder / "bad"]

    monkeypatch.setattr(evaluate_job, "testset_files", files)
    (row,), _ = scores(model=str(model), testset="wmt19", tag="<2en>", metrics=["chrf"])
    assert (row["tag"], row["nrefs"]) == ("<2en>", "2")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, metrics.default(None)),
        ({"tgt_lang": "de"}, metrics.default("de")),
        ({"tgt_lang": "de", "metrics": ["ter"]}, ["ter"]),
    ],
)
def test_one_system(settings: dict[str, Any], names: list[str], scores: Json) -> None:
    job = {"hypotheses": ["good"], "references": ["ref", "other"], **settings}
    rows, err = scores(**job)
    expected = scoring.score(GOOD, [REFERENCE, OTHER], tgt_lang="de", metrics=names)
    assert rows == json.loads(to_json(expected))
    assert err == ""


def test_the_best_translations_of_json_lines_are_scored(folder: Path, scores: Json) -> None:
    rows = [{"translations": [{"text": text}, {"text": "other"}]} for text in GOOD]
    (folder / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    found, text = (scores(**{**ONE, "hypotheses": [name]})[0] for name in ("a.jsonl.gz", "good"))
    assert found == text


def test_several_systems_are_compared_with_the_first(scores: Json) -> None:
    rows, _ = scores(**TWO)
    assert [row["system"] for row in rows] == ["./bad", "./good"]
    baseline, other = (row["scores"] for row in rows)
    test = TestSet(references={"ref": REFERENCE})
    settings = ScoreSettings(bootstrap=1000)
    expected = comparison.evaluate_systems({"bad": BAD, "good": GOOD}, test, settings)
    for score, item in zip(other, expected.systems[1].scores, strict=True):
        assert (score["name"], score["baseline"]) == (item.name, "./bad")
        assert score["paired_bs_p_value"] == item.p_bootstrap
    assert all("baseline" not in score for score in baseline)
    assert {score["bs"] for score in baseline + other} == {"1000"}
    assert all(score["confidence_var"] > 0 for score in baseline)


def test_lengths_are_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    commands.evaluate(EvaluateJob(**ONE, metrics=["chrf"], by_length=True))
    assert "│ 4–9 words" in capsys.readouterr().out  # of the references


def test_suspicious_lines_are_reported(folder: Path, scores: Json) -> None:
    source = write_lines(folder / "source", [f" {BAD[0]} ", "", "It is 3.5 km.", "Bern"])
    _, err = scores(**TWO, source=source, bootstrap=0)
    assert err.splitlines() == [
        "mt-eval: ./bad: 2 of 4 lines are identical to their source",
        "mt-eval: ./bad: 1 of 4 lines are empty",
        "mt-eval: ./good: 1 of 4 lines are identical to their source",
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hypotheses": ["good", "./short"]}, "3 lines in ./short but 4 in ref"),
        ({"source": "./short"}, "3 lines in ./short but 4 in ref"),
        ({"hypotheses": ["empty"], "references": ["empty"]}, "no lines in empty"),
        ({"hypotheses": ["latin"]}, "latin, line 1 is not valid UTF-8"),
        ({"hypotheses": ["text.jsonl"]}, "text.jsonl, line 1 is damaged: Expecting value"),
        ({"hypotheses": ["3.jsonl"]}, "3.jsonl, line 1 is damaged: 'int' object is not"),
    ],
)
def test_files_that_do_not_fit_are_named(
    settings: dict[str, Any], message: str, folder: Path, error: Error
) -> None:
    for name, lines in (
        ("short", GOOD[:3]),
        ("empty", []),
        ("text.jsonl", GOOD),
        ("3.jsonl", ["3"]),
    ):
        write_lines(folder / name, lines)
    (folder / "latin").write_bytes("Männer\n".encode("latin1"))
    assert error(**{**ONE, **settings}).startswith(message)


def test_tilde_is_expanded_in_every_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands.evaluate(EvaluateJob(**ONE))
    expected = capsys.readouterr().out
    paths = {"hypotheses": ["~/good"], "references": ["~/ref"], "source": "~/src"}
    commands.evaluate(EvaluateJob(**paths, report="~/page.html", bootstrap=0))
    assert capsys.readouterr().out == expected
    assert (folder / "page.html").is_file()


def test_what_is_read_is_not_overwritten(folder: Path, error: Error) -> None:
    (folder / "link").symlink_to("bad")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    files = {"hypotheses": ["~/good", "bad"], "references": ["ref"], "source": "src"}
    called = dict.fromkeys(["good", "./good", "link"], "hypotheses")
    for report, key in {**called, "~/ref": "references", "src": "source"}.items():
        message = f"report={report} would overwrite the file of {key}: choose another file"
        assert error(**files, report=report) == message
    assert {path: path.read_bytes() for path in before} == before
