"""mt-eval: sacreBLEU's own numbers for files, and for what a model makes of its test set."""

import json
import math
import re
import sys
from collections.abc import Callable
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
from support.models import make_translator
from torch.nn import functional as F

from transformer_mt import model_folder
from transformer_mt.batch import Packed
from transformer_mt.cli import entry_points
from transformer_mt.cli import main as commands
from transformer_mt.config import (
    EvaluateJob,
    SourceConfig,
    TranslateJob,
)
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode import translator as translator_module
from transformer_mt.decode.engines.engine import Engine
from transformer_mt.decode.engines.request import EngineRequest, open_engine
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation import comparison, metrics
from transformer_mt.evaluation.comparison import Settings, TestSet
from transformer_mt.evaluation.scores import to_json
from transformer_mt.jobs import evaluate as evaluate_job

OTHER = ["Zwei Herren sind draußen.", "Man hat die E-Mail gesendet.", "Es sind 3,5 km.", "Bern"]
GOOD = [
    "Zwei Männer sind im Freien, oder?",
    "Die E-Mail wurde gestern verschickt.",
    "Es sind 3,5 km bis nach Hause.",
    "Bern",
]
BAD = ["Two men are outside.", "", "Es ist 3.5 km nach Hause weit.", "Bern"]

Files = Callable[..., list[str]]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    def write(**texts: list[str]) -> list[str]:
        return [write_lines(tmp_path / name, lines) for name, lines in texts.items()]

    return write


@pytest.fixture
def scores(capsys: pytest.CaptureFixture[str]) -> Json:
    """The JSON that a job prints, and its messages."""
    return partial(scores_and_messages, capsys)


@pytest.mark.parametrize("others", [{}, {"other": OTHER}])
def test_one_system(files: Files, scores: Json, others: dict[str, list[str]]) -> None:
    hypotheses, *references = files(good=GOOD, ref=REFERENCE, **others)
    rows, err = scores(hypotheses=[hypotheses], references=references)
    assert [row["name"] for row in rows] == ["BLEU", "chrF2", "TER"]
    assert [row["score"] for row in rows] == by_hand(GOOD, REFERENCE, *others.values())
    assert {row["segments"] for row in rows} == {4}
    assert all(row["signature"].startswith(f"nrefs:{len(references)}|") for row in rows)
    assert err == ""


def test_several_systems_are_compared_with_the_first(files: Files, scores: Json) -> None:
    good, bad, reference = files(good=GOOD, bad=BAD, ref=REFERENCE)
    rows, _ = scores(hypotheses=[bad, good], references=[reference], randomization=200)
    baseline, other = (row["scores"] for row in rows)
    test = TestSet(references={reference: REFERENCE})
    settings = Settings(bootstrap=1000, randomization=200)
    expected = comparison.evaluate_systems({bad: BAD, good: GOOD}, test, settings)
    for score, item in zip(other, expected.systems[1].scores, strict=True):
        assert score["name"] == item.name
        assert score["baseline"] == "bad"
        assert score["paired_bs_p_value"] == item.p_bootstrap
        assert score["paired_ar_p_value"] == item.p_randomization
    assert all("baseline" not in score for score in baseline)
    assert {score["bs"] for score in baseline + other} == {"1000"}
    assert all(score["confidence_var"] > 0 for score in baseline)


def test_missing_comet_is_reported_before_the_work(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    (source,) = files(src=SOURCE)
    job = {"hypotheses": ["not there"], "references": ["nor this"], "source": source}
    assert "pipx install unbabel-comet" in error_of(capsys, **job, metrics=["comet"])


@pytest.mark.parametrize(
    ("code", "extra", "more"),
    [
        ("kor", "ko", {}),
        ("kor", "ko", {"metrics": ["chrf"], "report": "report.html"}),
        ("jpn_Jpan", "ja", {}),
    ],
)
def test_missing_tokeniser_is_reported_before_the_work(
    shared: Path,
    code: str,
    extra: str,
    more: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = f"sacrebleu.tokenizers.tokenizer_{extra}_mecab"
    monkeypatch.delitem(sys.modules, module, raising=False)
    for package in ("MeCab", "mecab_ko"):  # as if they were not installed
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(Translator, "translate", lambda *_: pytest.fail("it is translated"))
    message = error_of(capsys, model=str(shared), tgt_lang=code, **more)
    assert message.startswith(f"BLEU for {extra} ")
    assert message.endswith(f" pip install 'sacrebleu[{extra}]'")


MODEL: dict[str, Any] = {"model": "x", "hypotheses": [], "references": []}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": ["meteor"]}, "metrics='meteor' is not one of: bleu, chrf"),
        ({"metrics": []}, "metrics is empty"),
        ({"protocols": ["atat"], "tgt_lang": "de"}, "protocols='atat' is not one of: paper"),
        ({"protocols": ["paper"]}, "protocols depend on the language"),
        ({"metrics": ["ppl"]}, "metrics: ppl is the perplexity of a model: set model=FOLDER"),
        ({"metrics": ["comet"]}, "metrics: comet also reads the source"),
        ({"bootstrap": -1}, "bootstrap=-1 must be ≥ 0"),
        ({"testset": "wmt14"}, "testset includes source and references"),
        ({"langs": "en-de"}, "langs needs testset=NAME"),
        ({"references": []}, "hypotheses need references"),
        ({"references": [], "testset": "wmt14"}, "testset=wmt14 exists for several language pairs"),
        ({"hypotheses": ["a", "a"]}, "hypotheses lists a file twice"),
        ({"beam_size": 2}, "beam_size needs model=FOLDER"),
        ({"subset": "valid"}, "subset needs model=FOLDER"),
        ({"engine": "torch"}, "engine needs model=FOLDER"),
        ({"compute_type": "int8"}, "compute_type needs model=FOLDER"),
        ({"model": "x", "hypotheses": [], "subset": "train"}, "subset='train' is not one of: test"),
        ({"model": "x", "hypotheses": [], "source": "y", "subset": "test"}, "subset=test is one"),
        ({"robustness": True}, "robustness=true translates: set model=FOLDER, not hypotheses"),
        ({"robustness": True, **MODEL, "report": "x"}, "report cannot be used with robustness"),
        ({"robustness": True, **MODEL, "bootstrap": 9}, "bootstrap cannot be used with robustness"),
        ({"robustness": True, **MODEL, "metrics": ["ppl"]}, "metrics: ppl cannot be used with rob"),
        ({"attention": "x", "report": "x.html"}, "attention needs a model"),
        ({"attention_png": "x"}, "attention_html and attention_png need a sentence"),
        ({"model": "x"}, "set either model=FOLDER"),
        ({"model": "x", "hypotheses": []}, "a model's test set needs both source=FILE"),
        ({**MODEL, "attention": " "}, "empty sentence"),
        ({**MODEL, "attention": "x"}, "needs an output"),
    ],
)
def test_conflicting_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"{re.escape(message)}[^\n]*$"):
        EvaluateJob(**{"hypotheses": ["a"], "references": ["b"], **settings})


def test_metrics_and_protocols(files: Files, scores: Json) -> None:
    good, reference = files(good=GOOD, ref=REFERENCE)
    job = {"hypotheses": [good], "references": [reference], "tgt_lang": "de"}
    for settings, names in (
        ({}, [*metrics.DEFAULT, "paper"]),
        ({"metrics": ["chrf++"], "protocols": []}, ["chrf++"]),
        ({"metrics": ["ter"], "protocols": ["lowercase_tokens"]}, ["ter", "lowercase_tokens"]),
    ):
        rows, _ = scores(**job, **settings)
        expected = scoring.score(GOOD, [REFERENCE], tgt_lang="de", metrics=names)
        assert [(row["name"], row["score"]) for row in rows] == [
            (score.name, round(score.score, 4)) for score in expected
        ]


def test_suspicious_lines_are_reported(files: Files, scores: Json) -> None:
    bad, good, reference, source = files(bad=BAD, good=GOOD, ref=REFERENCE, src=SOURCE)
    job = {"hypotheses": [bad, good], "references": [reference], "source": source}
    rows, err = scores(**job, bootstrap=0, randomization=0)
    assert err.splitlines() == [
        "mt-eval: bad: 2 of 4 lines are identical to their source",
        "mt-eval: bad: 1 of 4 lines are empty",
        "mt-eval: good: 1 of 4 lines are identical to their source",
    ]
    assert [row["score"] for row in rows[0]["scores"]] == by_hand(BAD, REFERENCE)


def test_text_format(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, reference = files(good=GOOD, bad=BAD, ref=REFERENCE)
    job = EvaluateJob(hypotheses=[good], references=[reference], randomization=100)
    commands.evaluate(job)
    alone = capsys.readouterr().out
    for value in by_hand(GOOD, REFERENCE):
        assert f" {value:.2f}  4 segments" in alone
    commands.evaluate(replace(job, hypotheses=[good, bad]))
    together = capsys.readouterr().out
    assert "│ good (baseline) │" in together
    for value in [*by_hand(GOOD, REFERENCE), *by_hand(BAD, REFERENCE)]:
        assert f"│ {value:.2f} " in together


def test_files_that_do_not_fit_are_named(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, short, reference, empty = files(good=GOOD, short=GOOD[:3], ref=REFERENCE, empty=[])
    missing, latin = str(tmp_path / "missing"), tmp_path / "latin1"
    latin.write_bytes("Männer\n".encode("latin1"))
    for settings, message in (
        ({"hypotheses": [good, short]}, f"3 lines in {short} but 4 in {reference}"),
        ({"references": [reference, short]}, f"4 lines in {reference} but 3 in {short}"),
        ({"source": short}, f"3 lines in {short} but 4 in {reference}"),
        ({"hypotheses": [empty], "references": [empty]}, f"no lines in {empty}"),
        ({"references": [missing]}, f"cannot read {missing}: No such file or directory"),
        ({"hypotheses": [str(latin)]}, f"{latin}, line 1: not valid UTF-8"),
    ):
        job = {"hypotheses": [good], "references": [reference], **settings}
        assert error_of(capsys, **job).startswith(message)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that no test changes, with its test set beside it."""
    return write_model(tmp_path_factory.mktemp("shared") / "model")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def translations(model: Path, lines: list[str], **settings: Any) -> list[str]:
    """PyTorch's, of the Python API."""
    network, tokenizer, job = model_folder.load_model(model)
    decode = replace(job.decode, **settings)
    return make_translator(network, tokenizer, decode, Normalizer.of(job.data)).translate(lines)


@pytest.mark.parametrize(
    "settings",
    [{}, {"engine": "torch"}, {"compute_type": "bfloat16"}, {"compute_type": "int8"}],
    ids=str,
)
def test_the_score_is_that_of_what_mt_translate_prints(
    shared: Path, tmp_path: Path, scores: Json, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.get("compute_type") == "int8":
        pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra 'fast')")
    opened = []

    def record(name: str, request: EngineRequest) -> Engine:
        opened.append(open_engine(name, request))
        return opened[-1]

    monkeypatch.setattr(translator_module, "open_engine", record)
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
    one, other = ((engine.name, engine.compute_type) for engine in opened)
    assert one == other
    assert {*settings.values()} <= {*one}
    if settings in ({}, {"engine": "torch"}):
        assert printed == translations(shared, SOURCE)
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
    job = model_folder.read_config(model)
    model_folder.write_config(model, replace(job, data=replace(job.data, test=[])))
    message = error_of(capsys, model=str(model))
    assert message.startswith(f"{model} has no test set (data.test): set testset=NAME")


def test_settings_are_chosen_on_the_validation_set(
    model: Path, files: Files, scores: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference = files(valid_src=OTHER, valid_ref=REFERENCE)
    job = model_folder.read_config(model)
    valid = [SourceConfig(src=source, tgt=reference)]
    model_folder.write_config(model, replace(job, data=replace(job.data, valid=valid)))
    found = []
    for asked in ({}, {"beam_size": 1}):
        rows, _ = scores(model=str(model), subset="valid", **asked)
        found.append(translations(model, OTHER, **asked))
        assert [row["score"] for row in rows[:3]] == by_hand(found[-1], REFERENCE)
    assert found[0] != found[1]  # else this shows nothing
    message = error_of(capsys, model=str(model), step=7)
    assert message.startswith(f"{model} has no checkpoint of step 7")


def test_a_model_on_another_test_set(shared: Path, files: Files, scores: Json) -> None:
    source, reference, short = files(src2=SOURCE[:2], ref2=OTHER[:2], short=OTHER[:1])
    rows, _ = scores(model=str(shared), source=source, references=[reference])
    expected = by_hand(translations(shared, SOURCE[:2]), OTHER[:2])
    assert [row["score"] for row in rows[:3]] == expected
    with pytest.raises(InputError, match=r"^2 lines in .*src2 but 1 in .*short"):
        scores(model=str(shared), source=source, references=[short])


def test_a_test_set_of_sacrebleu_has_the_languages_of_the_tag(
    model: Path, scores: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve_tag(model, "<2en>")
    job = model_folder.read_config(model)
    back = SourceConfig(tsv="never_read.tsv", tag="<2en>", src_lang="de", tgt_lang="en")
    data = replace(job.data, train=[*job.data.train, back])
    model_folder.write_config(model, replace(job, data=data))

    def load(_: str, langs: str) -> TestSet:
        assert langs == "de-en"
        return TestSet(references={"ref": SOURCE}, source=REFERENCE)

    monkeypatch.setattr(evaluate_job, "load_testset", load)
    rows, _ = scores(model=str(model), testset="wmt19", tag="<2en>", metrics=["chrf"])
    assert {row["tag"] for row in rows} == {"<2en>"}


def test_scores_are_passed_on_before_the_report_is_written(files: Files, tmp_path: Path) -> None:
    good, reference = files(good=GOOD, ref=REFERENCE)
    page, seen = tmp_path / "page", []
    job = EvaluateJob(hypotheses=[good], references=[reference], report=str(page))
    result = evaluate_job.evaluate(job, lambda found: seen.append((found, page.exists())))
    assert seen == [(result, False)]
    assert page.exists()


@pytest.mark.parametrize("name", ["src", "ref", "model/config.yaml"])
def test_files_of_the_model_are_not_overwritten(
    name: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model.parent / name
    before = path.read_bytes()
    message = error_of(capsys, model=str(model), report=str(path))
    word = "the model" if "/" in name else "data.test"
    assert message == f"report={path} would overwrite the file of {word}: choose another file"
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "sentence",
    [
        "The animal didn't cross the street because it was too tired .",
        'Commas, "quotes" and {braces: [1, 2]} # 5 € = \\',
        *("null and void", "3"),
    ],
)
def test_attention_sentence_needs_no_quoting(
    sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs: list[EvaluateJob] = []
    monkeypatch.setitem(commands._RUN, "evaluate", jobs.append)
    for argument in (f"attention={sentence}", "attention='It\\'s quoted, for Hydra'"):
        argv = ["mt-eval", "model=x", argument, f"attention_png={tmp_path}/a.png"]
        monkeypatch.setattr(sys, "argv", argv)
        entry_points.evaluate()
    assert [job.attention for job in jobs] == [sentence, "It's quoted, for Hydra"]
