"""Options of mt-translate: each gives what the Python API gives."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from support.evaluated_models import write_lines
from support.model_folders import (
    JOB,
    TEXT,
    VOCAB_SIZE,
    error_of,
    open_translator,
    save_step,
    write_model,
)
from support.tokenizers import small_tokenizer

from transformer_mt import Translator, run_layout
from transformer_mt.cli import main as commands
from transformer_mt.config import SourceConfig, TranslateJob
from transformer_mt.decode.engines import torch_engine
from transformer_mt.errors import InputError
from transformer_mt.jobs.line_processor import LineProcessor
from transformer_mt.model.transformer import Transformer
from transformer_mt.protocols import Translation

LINES = [*TEXT[:3], "", "a fox"]
Translated = Callable[..., tuple[str, str]]
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
    small_tokenizer(folder / run_layout.TOKENIZER, TEXT, ["<2de>"])
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(write_lines(tmp_path / "in", LINES))


@pytest.fixture
def run(translated: Translated) -> Run:
    """Output for lines, without messages."""

    def output(lines: Sequence[str] = LINES, **settings: Any) -> str:
        out, err = translated(text_of(lines).encode(), **{"engine": "torch", **settings})
        assert unexpected(err) == []
        return out

    return output


def unexpected(messages: str) -> list[str]:
    """Messages other than that of empty translations, which untrained models give."""
    return [line for line in messages.splitlines() if "have an empty translation" not in line]


def text_of(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def assert_json_lines(out: str, lines: list[str], expected: list[list[Translation]]) -> None:
    """The output must have every value of the translations, numbers up to rounding."""

    def near(number: str) -> Any:
        return pytest.approx(float(number), abs=1e-4)

    for row, line, best in zip(out.split("\n")[:-1], lines, expected, strict=True):
        wanted = {"source": line, "translations": list(map(asdict, best))}
        assert json.loads(row, parse_float=near) == json.loads(json.dumps(wanted))


def test_decoding_settings_of_the_folder_are_the_defaults(
    untrained: Path, tmp_path: Path, run: Run
) -> None:
    folder, usual = tmp_path / "short", text_of(open_translator(untrained).translate(LINES))
    write_model(folder, replace(JOB, decode=replace(JOB.decode, max_extra_tokens=0)))
    short = text_of(open_translator(untrained, max_extra_tokens=0).translate(LINES))
    assert run(model=str(folder)) == short != usual
    assert run(model=str(folder), max_extra_tokens=JOB.decode.max_extra_tokens) == usual


def test_text_that_may_be_missing_is_reported(
    translated: Translated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_engine, "max_output_tokens", lambda *_: 2)
    line = f"{' '.join(TEXT * 5)}\n".encode()
    _, err = translated(line, engine="torch", max_source_tokens=100)
    cut, short = err.splitlines()
    assert "1 line(s) have sentences of more than max_source_tokens=100 tokens" in cut
    assert "less than half of the tokens" in short


def test_empty_translations_of_text_are_reported(
    translated: Translated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the number of the first one; those of blank lines are no surprise."""

    def translate(_: Translator, lines: list[str], *__: Any, **___: Any) -> Any:
        texts = ["" if "dog" in line else line.strip() for line in lines]
        ends = [["</s>"] if line.strip() else [] for line in lines]  # none if blank
        pairs = zip(texts, ends, strict=True)
        return [[Translation(text, 0.0, 0, pieces=pieces)] for text, pieces in pairs]

    monkeypatch.setattr(Translator, "translate_nbest", translate)
    out, err = translated(b"a fox\n \nthe dog\na dog\n", engine="torch")
    assert out == "a fox\n\n\n\n"
    assert err.startswith("mt-translate: 2 line(s) with text have an empty translation (the first:")
    assert "line 3)" in err


def test_weights_of_a_step(run: Run, tmp_path: Path) -> None:
    folder, alone = tmp_path / "trained", tmp_path / "alone"
    write_model(folder)
    write_model(alone, seed=20)
    for step in (5, 20):
        torch.manual_seed(step)
        save_step(folder, step, Transformer(JOB.model, VOCAB_SIZE))
    found = run(model=str(folder), step=20)
    assert found == text_of(open_translator(alone).translate(LINES))
    assert found == text_of(Translator.load(folder, device="cpu", step=20).translate(LINES))


def test_ensemble(
    untrained: Path,
    second: Path,
    source: Path,
    run: Run,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = run(ensemble=[str(second)])
    assert found == text_of(open_translator(untrained, second).translate(LINES))
    loaded = Translator.load(untrained, device="cpu", ensemble=[second])
    assert found == text_of(loaded.translate(LINES))
    assert found not in [
        text_of(open_translator(one).translate(LINES)) for one in (untrained, second)
    ]
    other = tmp_path / "other"
    write_model(other, size=VOCAB_SIZE - 1)
    message = error_of(capfd, model=str(untrained), input=str(source), ensemble=[str(other)])
    assert message.startswith(f"{untrained} and {other} have different vocabularies")


def test_prefixes_and_scores(untrained: Path, second: Path, run: Run, tmp_path: Path) -> None:
    targets = ["the fox", "", "lazy", "something", "barn ö"]
    path = write_lines(tmp_path / "targets", targets)
    found = open_translator(untrained).translate_nbest(LINES, 1, prefixes=targets)
    assert run(prefix=path) == text_of([best.text for (best,) in found])
    expected = open_translator(untrained).score(LINES, targets)
    values = [float(line) for line in run(score=path).splitlines()]
    assert values == pytest.approx([t.score for t in expected], abs=2e-5)
    expected = open_translator(untrained, second).score(LINES, targets)
    assert [t.text for t in expected] == targets
    out = run(score=path, ensemble=[str(second)], format="jsonl")
    assert_json_lines(out, LINES, [[translation] for translation in expected])


@pytest.mark.parametrize("alignment", [False, True])
def test_json_lines(untrained: Path, run: Run, alignment: bool) -> None:
    lines = ["the dog", "", 'a "fox"\tö\u2028', " \\ "]
    settings = {"nbest": 3, "beam_size": 4, "alignment": alignment}
    out = run(lines, engine="auto", format="jsonl", **settings)
    assert "ö\u2028" in out
    expected = open_translator(untrained, beam_size=4).translate_nbest(lines, 3, align=alignment)
    assert list(map(len, expected)) == [3] * 4
    assert all(bool(best[0].alignment) == (alignment and best[0].text != "") for best in expected)
    assert_json_lines(out, lines, expected)


def test_a_stream_that_ends_before_its_aligned_file(untrained: Path, source: Path) -> None:
    path = write_lines(source.with_name("aligned"), ["a"] * 6)
    job = TranslateJob(model=str(untrained), input=str(source), prefix=path, device="cpu")
    with pytest.raises(InputError, match=r"has 6 line\(s\), but the input has 5: "):
        commands.translate(job)


def test_lines_without_a_tag_are_reported(tagged: Path, translated: Translated, run: Run) -> None:
    _, err = translated(text_of(LINES).encode(), model=str(tagged), engine="torch")
    assert err.startswith("mt-translate: 4 line(s) have no tag, ")  # one is blank
    run(model=str(tagged), tag="<2de>")  # without messages


def test_settings_that_change_the_output_make_a_different_job(
    tagged: Path, second: Path, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "aligned", ["a"] * 5)

    def output_settings(**settings: Any) -> Any:
        own = {"model": str(tagged), "device": "cpu", "engine": "torch", **settings}
        found = LineProcessor(TranslateJob(**own)).output_settings()
        assert json.loads(json.dumps(found)) == found  # as job.json has them
        return found

    variants: list[dict[str, Any]] = [
        {},
        {"beam_size": 1},
        {"tag": "<2de>"},
        {"compute_type": "bfloat16"},
        {"model": str(second)},
        {"model": str(second), "ensemble": [str(second)]},
        {"sampling": True},
        {"sampling": True, "seed": 2},
        {"markup": "keep"},
        {"format": "jsonl"},
        {"format": "jsonl", "alignment": True},
        {"score": path},
        {"prefix": path},
    ]
    found = [output_settings(**settings) for settings in variants]
    assert output_settings(batch_tokens=99) == found[0]
    write_lines(tmp_path / "aligned", ["b"] * 5)
    found.append(output_settings(prefix=path))
    assert all(one != other for one, other in combinations(found, 2))
