"""mt-eval: sacreBLEU's own numbers for files, and for what a model makes of its test set."""

import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from support import scoring
from support.models import make_translator
from torch.nn import functional as F

from transformer_mt import checkpoint as ckpt
from transformer_mt import model_folder, run_layout
from transformer_mt.batch import Packed
from transformer_mt.cli import entry_points
from transformer_mt.cli import main as commands
from transformer_mt.config import (
    DataConfig,
    DecodeConfig,
    EvaluateJob,
    ModelConfig,
    SourceConfig,
    TokenizerConfig,
    TrainJob,
    TranslateJob,
)
from transformer_mt.data.subwords.tokenizer import BOS, EOS, train_tokenizer
from transformer_mt.data.text.noise import NOISES
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode import translator as translator_module
from transformer_mt.decode.engines.converted_models import find_or_convert
from transformer_mt.decode.engines.engine import Engine
from transformer_mt.decode.engines.request import EngineRequest
from transformer_mt.decode.engines.selection import open_engine
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation import comparison, metrics
from transformer_mt.evaluation.comparison import Settings, TestSet
from transformer_mt.evaluation.scores import to_json
from transformer_mt.jobs import evaluate as evaluate_job
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
    """The JSON that a job prints, and its messages."""

    def run(**settings: Any) -> tuple[Any, str]:
        commands.evaluate(EvaluateJob(format="json", device="cpu", **settings))
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


NO_RESAMPLES = {"bootstrap": 0, "randomization": 0}


def test_several_systems(files: Files, scores: Json) -> None:
    good, bad, reference = files(good=GOOD, bad=BAD, ref=REFERENCE)
    rows, _ = scores(hypotheses=[bad, good], references=[reference], **NO_RESAMPLES)
    assert [row["system"] for row in rows] == ["bad", "good"]
    for row, lines in zip(rows, (BAD, GOOD), strict=True):
        assert set(row) == {"system", "scores"}
        assert [score["score"] for score in row["scores"]] == by_hand(lines, REFERENCE)
    assert rows[1]["scores"] == scores(hypotheses=[good], references=[reference])[0]


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


def test_other_metrics_and_protocols(files: Files, scores: Json) -> None:
    good, reference = files(good=GOOD, ref=REFERENCE)
    job = {"hypotheses": [good], "references": [reference], "metrics": ["chrf++"]}
    rows, _ = scores(**job, tgt_lang="de", protocols=["lowercase_tokens"])
    assert [row["name"] for row in rows] == ["chrF2++", "BLEU (lower-case tokens)"]
    (expected,) = scoring.score(GOOD, [REFERENCE], tgt_lang="de", metrics=["lowercase_tokens"])
    assert rows[1]["score"] == round(expected.score, 4)
    rows, _ = scores(**job, tgt_lang="de", protocols=[])
    assert [row["name"] for row in rows] == ["chrF2++"]


def test_missing_comet_is_reported_before_the_work(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    (source,) = files(src=SOURCE)
    job = {"hypotheses": ["not there"], "references": ["nor this"], "source": source}
    assert "pipx install unbabel-comet" in error_of(capsys, **job, metrics=["comet"])


@pytest.mark.parametrize("more", [{}, {"metrics": ["chrf"], "report": "report.html"}])
def test_missing_tokeniser_is_reported_before_the_work(
    model: Path,
    more: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "sacrebleu.tokenizers.tokenizer_ko_mecab", raising=False)
    monkeypatch.setitem(sys.modules, "mecab_ko", None)  # as if it were not installed
    monkeypatch.setattr(Translator, "translate", lambda *_: pytest.fail("it is translated"))
    message = error_of(capsys, model=str(model), tgt_lang="kor", **more)
    assert message.endswith(" pip install 'sacrebleu[ko]'")


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
        ({"model": "x", "hypotheses": [], "references": [], "attention": " "}, "empty sentence"),
        ({"model": "x", "hypotheses": [], "references": [], "attention": "x"}, "needs an output"),
    ],
)
def test_conflicting_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"{re.escape(message)}[^\n]*$"):
        EvaluateJob(**{"hypotheses": ["a"], "references": ["b"], **settings})


def test_target_language_adds_the_paper_protocol(files: Files, scores: Json) -> None:
    hypotheses, reference = files(good=GOOD, ref=REFERENCE)
    rows, _ = scores(hypotheses=[hypotheses], references=[reference], tgt_lang="de")
    assert [row["name"] for row in rows] == ["BLEU", "chrF2", "TER", "BLEU (paper protocol)"]
    assert [row["score"] for row in rows[:3]] == by_hand(GOOD, REFERENCE)
    (expected,) = scoring.score(GOOD, [REFERENCE], tgt_lang="de", metrics=["paper"])
    assert rows[3]["score"] == round(expected.score, 4)


def test_suspicious_lines_are_reported(files: Files, scores: Json) -> None:
    bad, good, reference, source = files(bad=BAD, good=GOOD, ref=REFERENCE, src=SOURCE)
    job = {"hypotheses": [bad, good], "references": [reference], "source": source}
    rows, err = scores(**job, **NO_RESAMPLES)
    assert err.splitlines() == [
        "mt-eval: bad: 2 of 4 lines are identical to their source",
        "mt-eval: bad: 1 of 4 lines are empty",
        "mt-eval: good: 1 of 4 lines are identical to their source",
    ]
    assert [row["score"] for row in rows[0]["scores"]] == by_hand(BAD, REFERENCE)


def test_empty_translation_of_an_empty_line_is_only_empty(files: Files, scores: Json) -> None:
    hypotheses, reference, source = files(hyp=["", "Bern"], ref=["", "Zug"], src=[" ", "Berne"])
    _, err = scores(hypotheses=[hypotheses], references=[reference], source=source)
    assert err == "mt-eval: hyp: 1 of 2 lines are empty\n"


def test_text_format(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, reference = files(good=GOOD, bad=BAD, ref=REFERENCE)
    commands.evaluate(EvaluateJob(hypotheses=[good], references=[reference]))
    alone = capsys.readouterr().out
    for value in by_hand(GOOD, REFERENCE):
        assert f" {value:.2f}  4 segments" in alone
    commands.evaluate(EvaluateJob(hypotheses=[good, bad], references=[reference], **NO_RESAMPLES))
    together = capsys.readouterr().out
    assert "\n4 segments, 1 reference\n" in together
    for value in [*by_hand(GOOD, REFERENCE), *by_hand(BAD, REFERENCE)]:
        assert f"│ {value:.2f} " in together
    commands.evaluate(
        EvaluateJob(hypotheses=[good, bad], references=[reference], randomization=100)
    )
    compared = capsys.readouterr().out
    assert "│ good (baseline) │" in compared
    assert compared.count("p(ar) ") == 3
    assert max(map(len, compared.splitlines())) <= 80


def error_of(capsys: pytest.CaptureFixture[str], **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        commands.evaluate(EvaluateJob(device="cpu", **settings))
    assert capsys.readouterr().out == ""
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unwritable_outputs_are_reported_before_the_work(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, reference = files(good=GOOD, ref=REFERENCE)
    for place, message in (
        (tmp_path, "is a folder: name a file"),
        ("no/x", "cannot write to"),
    ):
        text = error_of(capsys, hypotheses=[good], references=[reference], report=str(place))
        assert message in text


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that root cannot write to")
def test_an_unwritable_folder_is_reported_before_the_work(
    files: Files, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, reference = files(good=GOOD, ref=REFERENCE)
    monkeypatch.setattr(evaluate_job, "evaluate_systems", lambda *_: pytest.fail("it is scored"))
    text = error_of(capsys, hypotheses=[good], references=[reference], report="/proc/x.html")
    assert text.startswith("report=/proc/x.html: cannot write to the folder /proc: ")


def test_empty_references_are_reported(files: Files, scores: Json) -> None:
    hypotheses, reference = files(good=GOOD, ref=[*REFERENCE[:2], "", " "])
    _, err = scores(hypotheses=[hypotheses], references=[reference])
    assert "2 of 4 lines of a reference are empty" in err


@pytest.mark.parametrize("code", ["german", "d e", "", "1"])
def test_invalid_language_code(code: str) -> None:
    with pytest.raises(InputError, match="is not a language code, such as de, pt-BR or zh_Hans"):
        EvaluateJob(hypotheses=["x"], references=["y"], tgt_lang=code)


def test_files_of_different_lengths_are_named(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, short, reference, empty = files(good=GOOD, short=GOOD[:3], ref=REFERENCE, empty=[])
    message = error_of(capsys, hypotheses=[good, short], references=[reference])
    assert message.startswith(f"3 lines in {short} but 4 in {reference}")
    message = error_of(capsys, hypotheses=[good], references=[reference, short])
    assert message.startswith(f"4 lines in {reference} but 3 in {short}")
    message = error_of(capsys, hypotheses=[good], references=[reference], source=short)
    assert message.startswith(f"3 lines in {short} but 4 in {reference}")
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
    model_folder.write_config(folder, job)
    config = TokenizerConfig(vocab_size=320)
    vocabulary = train_tokenizer([*SOURCE, *REFERENCE] * 3, config)
    (folder / run_layout.TOKENIZER).write_bytes(vocabulary)
    torch.manual_seed(1)
    ckpt.save_tensors(
        ckpt.parameters(Transformer(job.model, config.vocab_size)), folder / run_layout.WEIGHTS
    )
    if find_spec("ctranslate2") is not None:  # otherwise the first use converts, with a message
        find_or_convert(EngineRequest.open(folder, device="cpu"), "float32")
    return folder


def reserve_tag(model: Path, tag: str) -> None:
    """Gives a model a vocabulary that has the tag."""
    vocabulary = train_tokenizer([*SOURCE, *REFERENCE], TokenizerConfig(vocab_size=320), [tag])
    (model / run_layout.TOKENIZER).write_bytes(vocabulary)


def test_a_model_is_scored_on_its_own_test_set(model: Path, scores: Json) -> None:
    network, tokenizer, job = model_folder.load_model(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    hypotheses = translator.translate(SOURCE)
    assert any(hypotheses)
    rows, err = scores(model=str(model))
    names = [*metrics.DEFAULT, "paper"]
    expected = scoring.score(hypotheses, [REFERENCE], tgt_lang="de", metrics=names)
    assert rows == json.loads(to_json(expected))
    assert [row["score"] for row in rows[:3]] == by_hand(hypotheses, REFERENCE)
    assert err == ""


@pytest.mark.parametrize(
    "settings",
    [{}, {"engine": "torch"}, {"compute_type": "bfloat16"}, {"compute_type": "int8"}],
    ids=str,
)
def test_the_score_is_that_of_what_mt_translate_prints(
    model: Path, tmp_path: Path, scores: Json, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.get("compute_type") == "int8":
        pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (extra 'fast')")
    opened = []

    def record(name: str, request: EngineRequest) -> Engine:
        opened.append(open_engine(name, request))
        return opened[-1]

    monkeypatch.setattr(translator_module, "open_engine", record)
    source, output = str(tmp_path / "src"), tmp_path / "out"
    commands.translate(
        TranslateJob(model=str(model), input=source, output=str(output), device="cpu", **settings)
    )
    printed = output.read_text().split("\n")[:-1]
    rows, _ = scores(model=str(model), **settings)
    assert [row["score"] for row in rows[:3]] == by_hand(printed, REFERENCE)
    one, other = ((engine.name, engine.compute_type) for engine in opened)
    assert one == other
    assert {*settings.values()} <= {*one}


@torch.no_grad()
def test_perplexity_is_that_of_the_model_s_own_probabilities(model: Path, scores: Json) -> None:
    network, tokenizer, _ = model_folder.load_model(model)
    nll = count = 0.0
    for src, tgt in zip(tokenizer.encode(SOURCE), tokenizer.encode(REFERENCE), strict=True):
        packed = Packed.from_sequences([[*src, EOS]])
        hidden = network.decode(
            Packed.from_sequences([[BOS, *tgt]]), network.encode(packed), packed
        )
        targets = torch.tensor([*tgt, EOS])
        nll += float(F.cross_entropy(network.logits(hidden), targets, reduction="sum"))
        count += len(targets)
    rows, _ = scores(model=str(model), metrics=["bleu", "ppl"], protocols=[])
    assert [row["name"] for row in rows] == ["BLEU", "PPL"]
    assert rows[1]["score"] == pytest.approx(math.exp(nll / count), rel=1e-4)
    assert rows[1]["verbose_score"] == f"{count:,.0f} subwords"
    assert rows[1]["segments"] == len(REFERENCE)


def test_robustness_is_the_score_of_each_noisy_source(model: Path, scores: Json) -> None:
    network, tokenizer, job = model_folder.load_model(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    found, err = scores(model=str(model), robustness=True)
    assert [row["noise"] for row in found] == ["clean", *NOISES]
    clean = by_hand(translator.translate(SOURCE), REFERENCE)
    assert err == ""
    for row in found:
        source = SOURCE
        if noise := NOISES.get(row["noise"]):
            source = [noise(line, np.random.default_rng([6, i])) for i, line in enumerate(SOURCE)]
        assert row["changed"] == sum(a != b for a, b in zip(source, SOURCE, strict=True))
        bleu, chrf = row["scores"]
        assert (bleu["name"], chrf["name"]) == ("BLEU", "chrF2")
        expected = by_hand(translator.translate(source), REFERENCE)
        for score, own, before in zip((bleu, chrf), expected, clean, strict=False):
            assert score["score"] == own
            assert score["segments"] == len(SOURCE)
            assert score["signature"].startswith("nrefs:1|")
            if noise:
                assert score["difference"] == pytest.approx(own - before, abs=2e-4)
            else:
                assert "difference" not in score
    differences = [row["scores"][1].get("difference") for row in found]
    assert differences[1] != 0  # else this shows nothing
    assert found == scores(model=str(model), robustness=True)[0]
    found, _ = scores(model=str(model), robustness=True, metrics=["ter"])
    assert {tuple(score["name"] for score in row["scores"]) for row in found} == {("TER",)}


def test_robustness_is_one_table(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = evaluate_job.evaluate_robustness(EvaluateJob(model=str(model), robustness=True))
    commands.evaluate(EvaluateJob(model=str(model), robustness=True, device="cpu"))
    with pytest.raises(InputError, match="call evaluate_robustness instead of evaluate"):
        evaluate_job.evaluate(EvaluateJob(model=str(model), robustness=True))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert cells[1] == ["", "changed", "", ""]
    for row, (name, changed, bleu, chrf) in zip(rows, cells[2:], strict=True):
        assert (name, changed) == (row.noise, str(row.changed))
        for cell, score in ((bleu, row.scores[0]), (chrf, row.scores[1])):
            number, _, difference = cell.partition(" ")
            assert number == f"{score.score:.2f}"
            shown = "" if score.difference is None else f"({score.difference:+.2f})"
            assert difference == shown
    assert "4 segments" in lines
    assert lines.count(f"  {rows[0].scores[0].signature}") == 1


def test_robustness_is_not_of_hypotheses() -> None:
    with pytest.raises(InputError, match="set model=FOLDER, not hypotheses"):
        evaluate_job.evaluate_robustness(EvaluateJob(hypotheses=["a"], references=["b"]))


def test_robustness_counts_the_lines_of_each_tag(model: Path, files: Files, scores: Json) -> None:
    reserve_tag(model, "<2en>")
    lines = ["<2en> It is 3.5 km.", "Bern", "<2en> Bern", "<2en> BERN"]
    source, reference = files(tagged=lines, ref=REFERENCE)
    found, _ = scores(model=str(model), robustness=True, source=source, references=[reference])
    assert [row["noise"] for row in found] == ["clean", *NOISES] * 2
    counts = {
        row["scores"][0].get("tag", ""): (row["changed"], row["scores"][0]["segments"])
        for row in found
        if row["noise"] == "upper_case"
    }
    assert counts == {"<2en>": (2, 3), "": (1, 1)}
    assert all("difference" in score for row in found[1:7] for score in row["scores"])


def test_a_model_without_a_test_set(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    network, tokenizer, _ = model_folder.load_model(model)
    found = []
    for asked in ({}, {"beam_size": 1}):
        rows, _ = scores(model=str(model), subset="valid", **asked)
        decode = replace(job.decode, **asked)
        translator = make_translator(network, tokenizer, decode, Normalizer.of(job.data))
        found.append(translator.translate(OTHER))
        assert [row["score"] for row in rows[:3]] == by_hand(found[-1], REFERENCE)
    assert found[0] != found[1]  # else this shows nothing
    both = EvaluateJob(model=str(model), beam_size=2, length_penalty=0.0)
    expected = replace(job.decode, beam_size=2, length_penalty=0.0)
    assert job.decode.with_settings(both) == expected
    message = error_of(capsys, model=str(model), step=7)
    assert message.startswith(f"{model} has no checkpoint of step 7")


def test_missing_test_set_of_a_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "ref").unlink()
    assert str(model.parent / "ref") in error_of(capsys, model=str(model))


def test_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"no model folder {tmp_path / 'x'};" in error_of(capsys, model=str(tmp_path / "x"))


def test_a_model_on_another_test_set(model: Path, files: Files, scores: Json) -> None:
    source, reference, short = files(src2=SOURCE[:2], ref2=OTHER[:2], short=OTHER[:1])
    rows, _ = scores(model=str(model), source=source, references=[reference])
    network, tokenizer, job = model_folder.load_model(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    assert [row["score"] for row in rows[:3]] == by_hand(
        translator.translate(SOURCE[:2]), OTHER[:2]
    )
    with pytest.raises(InputError, match=r"^2 lines in .*src2 but 1 in .*short"):
        scores(model=str(model), source=source, references=[short])


def test_a_test_set_of_sacrebleu_for_a_model(
    model: Path, scores: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, langs: str) -> TestSet:
        assert (name, langs) == ("wmt14/full", "en-de")  # the model's own languages
        return TestSet(references={"ref": OTHER[1:3]}, source=SOURCE[1:3])

    monkeypatch.setattr(evaluate_job, "load_testset", load)
    rows, _ = scores(model=str(model), testset="wmt14/full")
    network, tokenizer, job = model_folder.load_model(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    expected = by_hand(translator.translate(SOURCE[1:3]), OTHER[1:3])
    assert [row["score"] for row in rows[:3]] == expected
    assert rows[0]["segments"] == 2


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


def test_a_test_set_of_sacrebleu_for_files(
    files: Files, scores: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        evaluate_job,
        "load_testset",
        lambda *_: TestSet(references={"ref": REFERENCE}, source=SOURCE),
    )
    (bad,) = files(bad=BAD)
    rows, err = scores(hypotheses=[bad], testset="wmt14/full", langs="en-de")
    assert [row["score"] for row in rows[:3]] == by_hand(BAD, REFERENCE)
    assert rows[3]["name"] == "BLEU (paper protocol)"  # the language is known
    assert "identical to their source" in err


def test_a_report_of_a_model(model: Path, tmp_path: Path, scores: Json) -> None:
    records = [{"step": 10 * i, "split": "train", "loss": 1.0 / i} for i in (1, 2)]
    (model / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records))
    path = tmp_path / "report.html"
    rows, _ = scores(model=str(model), report=str(path), attention="It is <b>.", bootstrap=20)
    html = path.read_text(encoding="utf-8")
    for row in rows:
        assert f"<b>{row['score']:.2f}</b>" in html
        assert f"{row['confidence_mean']:.2f} ± {row['confidence_var']:.2f}" in html
    assert "<figcaption>Loss</figcaption>" in html
    assert "It is &lt;b&gt;." in html


def test_attention_without_report_scores_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, image = tmp_path / "a.html", tmp_path / "a.png"
    commands.evaluate(
        EvaluateJob(
            model=str(model),
            attention="It's 3.5 km.",
            attention_html=str(page),
            attention_png=str(image),
            device="cpu",
        )
    )
    network, tokenizer, job = model_folder.load_model(model)
    translator = make_translator(network, tokenizer, job.decode, Normalizer.of(job.data))
    assert capsys.readouterr() == (translator.translate(["It's 3.5 km."])[0] + "\n", "")
    assert "It&#39;s 3.5 km." in page.read_text(encoding="utf-8")
    assert image.read_bytes().startswith(b"\x89PNG")


def test_attention_of_a_sentence_with_a_tag(model: Path, tmp_path: Path) -> None:
    reserve_tag(model, "<2de>")
    settings = {"model": str(model), "device": "cpu", "attention_html": str(tmp_path / "a.html")}
    given = evaluate_job.write_attention(EvaluateJob(attention="Bern", tag="<2de>", **settings))
    written = evaluate_job.write_attention(EvaluateJob(attention="<2de> Bern", **settings))
    assert given.maps.layers("encoder")[1][0] == "<2de>"
    assert (given.sentence, given.translation) == (written.sentence, written.translation)


@pytest.mark.parametrize("key", ["report", "attention_html", "attention_png"])
def test_missing_output_folder_is_reported_first(
    key: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "none" / "x")
    settings = {"model": str(model), "attention": "x", key: path}
    message = error_of(capsys, **settings)
    assert message.startswith(f"{key}={path}: cannot write to the folder {tmp_path / 'none'}: ")


@pytest.mark.parametrize("name", ["src", "ref", "model/config.yaml", "model/model.safetensors"])
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
        "null and void",
        "3",
        "a",
    ],
)
def test_attention_sentence_needs_no_quoting(
    sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jobs: list[EvaluateJob] = []
    monkeypatch.setitem(commands._RUN, "evaluate", jobs.append)
    for argument in (f"attention={sentence}", "attention='It\\'s quoted, for Hydra'"):
        arguments = ["model=x", argument, f"attention_png={tmp_path}/a.png"]
        monkeypatch.setattr(sys, "argv", ["mt-eval", *arguments])
        entry_points.evaluate()
    assert [job.attention for job in jobs] == [sentence, "It's quoted, for Hydra"]
