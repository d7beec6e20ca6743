"""Options of mt-translate: each gives what the Python API gives."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.evaluated_models import write_lines
from support.model_folders import JOB, TEXT, VOCAB_SIZE, error_of, write_model
from support.models import make_translator

from transformer_mt import Translator, model_folder, run_layout
from transformer_mt import checkpoint as ckpt
from transformer_mt.cli import main as commands
from transformer_mt.config import SourceConfig, TokenizerConfig, TranslateJob
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer
from transformer_mt.errors import InputError
from transformer_mt.jobs import translate_file as file_job
from transformer_mt.jobs.line_processor import LineProcessor
from transformer_mt.model.transformer import Transformer

LINES = [*TEXT[:3], "", "a fox"]
Run = Callable[..., str]


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "second"
    write_model(folder, seed=2)
    return folder


@pytest.fixture(scope="module")
def tagged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of which every line has a tag."""
    folder = tmp_path_factory.mktemp("models") / "tagged"
    data = replace(JOB.data, train=[SourceConfig(tsv="never_read.tsv", tag="<2de>")])
    write_model(folder, replace(JOB, data=data))
    tokenizer = train_tokenizer(TEXT, TokenizerConfig(vocab_size=VOCAB_SIZE), ["<2de>"])
    (folder / run_layout.TOKENIZER).write_bytes(tokenizer)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(write_lines(tmp_path / "in", LINES))


@pytest.fixture
def run(
    untrained: Path,
    source: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Output for ``LINES``; a stream gets the same as a file job of several chunks."""
    monkeypatch.setitem(file_job.CHUNK_LINES, "cpu", 2)

    def translated(**settings: Any) -> str:
        own = {"model": str(untrained), "input": str(source), "engine": "torch", "device": "cpu"}
        settings = {**own, **settings}
        commands.translate(TranslateJob(**settings))
        out, err = capfd.readouterr()
        assert err == ""
        target = source.with_name("out")
        commands.translate(TranslateJob(**settings, output=str(target)))
        assert capfd.readouterr() == ("", "")
        for one, other in zip(target.read_text().split("\n"), out.split("\n"), strict=True):
            assert one == other or alike(json.loads(one), json.loads(other))
        return out

    return translated


def alike(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same but for rounding: batches are of other sizes."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == pytest.approx(other, rel=1e-3) if isinstance(one, float) else one == other)


def opened(folder: Path, *others: Path, **settings: Any) -> Translator:
    network, tokenizer, job = model_folder.load_model(folder)
    more = [model_folder.load_model(other)[0] for other in others]
    return make_translator(network, tokenizer, job.decode.with_settings(settings), ensemble=more)


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    "settings",
    [
        {"min_length": 12},
        {"max_length": 2},
        {"no_repeat_ngram": 1},
        {"sampling": True, "seed": 2},
        {"sampling": True, "temperature": 0.1},
        {"sampling": True, "top_k": 1},
        {"sampling": True, "top_p": 0.01},
    ],
)
def test_decoding_keys(untrained: Path, run: Run, settings: dict[str, Any]) -> None:
    found = run(**settings)
    assert found == text_of(opened(untrained, **settings).translate(LINES))
    plain = {"sampling": True} if len(settings) > 1 else {}
    assert found != run(**plain)


def test_decoding_settings_of_the_folder_are_the_defaults(tmp_path: Path, run: Run) -> None:
    folder, usual = tmp_path / "short", run()
    write_model(folder, replace(JOB, decode=replace(JOB.decode, max_extra_tokens=0)))
    short = run(model=str(folder))
    assert short == run(max_extra_tokens=0) != usual
    assert run(model=str(folder), max_extra_tokens=JOB.decode.max_extra_tokens) == usual


def test_text_that_may_be_missing_is_reported(
    untrained: Path, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source.write_text(f"{' '.join(TEXT * 5)}\n")
    settings = {"engine": "torch", "max_length": 2, "max_source_tokens": 100}
    commands.translate(TranslateJob(model=str(untrained), input=str(source), **settings))
    cut, short = capfd.readouterr().err.splitlines()
    assert cut.startswith("mt-translate: 1 line(s) were longer than max_source_tokens=100 and")
    assert "quarter" in short
    assert "split=sentences" in short


@pytest.fixture
def with_steps(tmp_path: Path) -> Path:
    folder = tmp_path / "trained"
    write_model(folder)
    for step in (5, 20):
        torch.manual_seed(step)
        tensors = ckpt.snapshot(Transformer(JOB.model, VOCAB_SIZE), {"moment": torch.zeros(1)})
        ckpt.save_checkpoint(folder, {"step": step}, tensors)
    return folder


def test_weights_of_a_step(with_steps: Path, run: Run, capfd: Any, tmp_path: Path) -> None:
    found = {step: run(model=str(with_steps), step=step) for step in (5, 20, None)}
    assert len(set(found.values())) == 3
    assert found[None] == run()
    alone = tmp_path / "alone"
    write_model(alone, seed=20)  # the same weights as an average
    assert found[20] == run(model=str(alone))
    assert found[20] == text_of(Translator.load(with_steps, device="cpu", step=20).translate(LINES))
    settings: dict[str, Any] = {"model": str(with_steps), "input": str(tmp_path / "in")}
    assert "it has: 5, 20" in error_of(capfd, step=6, **settings)


@pytest.mark.parametrize("key", ["step", "prefix", "score"])
def test_settings_that_need_torch(
    with_steps: Path, source: Path, capfd: pytest.CaptureFixture[str], key: str
) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (the extra 'fast')")
    path = str(source)
    value = 5 if key == "step" else path
    settings = {"model": str(with_steps), "input": path, "format": "jsonl", key: value}
    message = error_of(capfd, engine="ctranslate2", **settings)
    assert message == f"engine=ctranslate2 does not support {key}: set engine=torch"
    message = error_of(capfd, compute_type="int8", **settings)
    assert message.startswith("compute_type=int8 needs engine=ctranslate2, which does not support ")
    assert key in message
    commands.translate(TranslateJob(device="cpu", **settings))
    out, err = capfd.readouterr()
    assert (len(out.splitlines()), err) == (len(LINES), "")
    assert not (with_steps / "ctranslate2").exists()  # engine=auto did not take it


def test_ensemble(untrained: Path, second: Path, run: Run) -> None:
    found = run(ensemble=[str(second)])
    assert found == text_of(opened(untrained, second).translate(LINES))
    loaded = Translator.load(untrained, device="cpu", ensemble=[second])
    assert found == text_of(loaded.translate(LINES))
    assert found not in (run(), run(model=str(second)))
    assert run(ensemble=[str(untrained)]) == run()


def test_an_ensemble_has_one_vocabulary(
    untrained: Path, source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    write_model(other, size=VOCAB_SIZE - 1)
    message = error_of(capfd, model=str(untrained), input=str(source), ensemble=[str(other)])
    assert message.startswith(f"{untrained} and {other} have different vocabularies")


def test_prefixes_and_scores(untrained: Path, second: Path, run: Run, tmp_path: Path) -> None:
    targets = ["the fox", "", "lazy", "something", "barn ö"]
    path = write_lines(tmp_path / "targets", targets)
    found = opened(untrained).translate_nbest(LINES, 1, prefixes=targets)
    assert run(prefix=path) == text_of([best.text for (best,) in found])
    for others in ([], [second]):
        expected = opened(untrained, *others).score(LINES, targets)
        ensemble = [str(folder) for folder in others]
        values = [float(line) for line in run(score=path, ensemble=ensemble).splitlines()]
        assert values == pytest.approx([t.score for t in expected], abs=2e-5)
        lines = run(score=path, ensemble=ensemble, format="jsonl").splitlines()
        rows = list(map(json.loads, lines))
        scored = [translation for row in rows for translation in row["translations"]]
        assert [row["source"] for row in rows] == LINES
        assert [t["text"] for t in scored] == targets
        assert [t["score"] for t in scored] == pytest.approx(values, abs=2e-5)
        for t in scored:
            assert math.fsum(t["piece_log_probs"]) == pytest.approx(t["log_prob"])


MARKED = ["the <b>red</b> dog", "{who} saw <br/> it", "a fox", "", "<p>a fox</p>. The {dog}."]
MARKUP = re.compile(r"<[^<>]*>|\{\w+\}")


@pytest.mark.parametrize("split", ["none", "sentences"])
def test_markup_is_kept(second: Path, source: Path, run: Run, split: str) -> None:
    if split == "sentences":
        pytest.importorskip("sentencex", reason="sentencex is not installed")
    write_lines(source, MARKED)
    plain = run(model=str(second), split=split).splitlines()
    kept = run(model=str(second), split=split, markup="keep").splitlines()
    assert kept[2:4] == plain[2:4]
    for line, found in zip(MARKED, kept, strict=True):
        assert sorted(MARKUP.findall(found)) == sorted(MARKUP.findall(line))


def test_alignment(untrained: Path, run: Run) -> None:
    rows = [json.loads(row) for row in run(alignment=True, format="jsonl", nbest=2).splitlines()]
    expected = opened(untrained).translate_nbest(LINES, 2, align=True)
    for row, found in zip(rows, expected, strict=True):
        links = [[list(link) for link in t.alignment or []] for t in found]
        assert [t["alignment"] for t in row["translations"]] == links
    assert any(row["translations"][0]["alignment"] for row in rows)


def test_a_stream_that_ends_before_its_aligned_file(untrained: Path, source: Path) -> None:
    path = write_lines(source.with_name("aligned"), ["a"] * 6)
    job = TranslateJob(model=str(untrained), input=str(source), prefix=path, device="cpu")
    with pytest.raises(InputError, match=r"has 6 line\(s\), but the input has 5: "):
        commands.translate(job)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alignment": True}, "alignment=true needs format=jsonl"),
        ({"sampling": True, "beam_size": 8}, "beam_size applies to beam search"),
        ({"score": "x", "prefix": "y"}, "prefix cannot be used with score"),
        ({"score": "x", "nbest": 2}, "nbest cannot be used with score"),
        ({"split": "sentences", "score": "x"}, "score applies to whole lines"),
        ({"split": "sentences", "alignment": True}, "alignment applies to whole lines"),
        ({"markup": "keep", "alignment": True}, "cannot be used with markup=keep"),
        ({"markup": "html"}, "markup='html' is not one of"),
    ],
)
def test_conflicting_settings(settings: dict[str, Any], message: str) -> None:
    form: dict[str, Any] = {} if message.endswith("jsonl") else {"format": "jsonl"}
    with pytest.raises(InputError, match=message):
        TranslateJob(model="m", **form, **settings)


def test_lines_without_a_tag_are_reported(
    tagged: Path, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"model": str(tagged), "input": str(source), "engine": "torch", "device": "cpu"}
    commands.translate(TranslateJob(**settings))
    assert capfd.readouterr().err.startswith(
        "mt-translate: 4 line(s) have no tag, "
    )  # one is blank
    commands.translate(TranslateJob(**settings, tag="<2de>"))
    assert capfd.readouterr().err == ""


def test_settings_that_change_the_output_make_a_different_job(
    tagged: Path, second: Path, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "aligned", ["a"] * 5)

    def output_settings(**settings: Any) -> Any:
        own = {"model": str(tagged), "device": "cpu", "engine": "torch", **settings}
        found = LineProcessor(TranslateJob(**own)).output_settings()
        assert json.loads(json.dumps(found)) == found  # as job.json has them
        return found

    usual = output_settings()
    assert output_settings(batch_tokens=99) == usual
    for settings in (
        {"beam_size": 1},
        {"tag": "<2de>"},
        {"model": str(second)},
        {"compute_type": "bfloat16"},
        {"score": path},
        {"format": "jsonl"},
        {"markup": "keep"},
    ):
        assert output_settings(**settings) != usual, settings
    for one, other in (
        ({"model": str(second)}, {"model": str(second), "ensemble": [str(second)]}),
        ({"sampling": True}, {"sampling": True, "seed": 2}),
        ({"format": "jsonl"}, {"format": "jsonl", "alignment": True}),
    ):
        assert output_settings(**one) != output_settings(**other)
    before = output_settings(prefix=path)
    write_lines(tmp_path / "aligned", ["b"] * 5)
    assert before != output_settings(prefix=path) != usual
