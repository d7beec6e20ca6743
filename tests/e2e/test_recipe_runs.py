"""The recipes on tiny corpora: their results, also after a kill."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT
from support.polling import wait_until
from support.training_runs import MODEL, RECIPE, TIMEOUT, arguments, write_corpus

from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.lines import read_lines
from transformer_mt.decode.translator import Translator

SAMPLED = ["translate:sampling=true", "translate:max_extra_tokens=2"]
"""The best translation by a model this weak is empty."""
Command = Callable[[Path], list[str]]
"""The command of a recipe that works in a folder."""


@pytest.fixture(scope="module")
def back_translation(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Back-translation of upper-case lines, with some that must be dropped."""
    corpus = tmp_path_factory.mktemp("corpus")
    write_corpus(corpus, pairs=60)
    rng = random.Random(1)
    mono = [" ".join(rng.choices("ABCDEFGH", k=rng.randint(2, 6))) for _ in range(300)]
    held_out = next(read_lines(corpus / "valid.tsv")).split("\t")[1]
    mono += ["", "A " * 200, mono[0], held_out]
    (corpus / "mono.de").write_text("".join(f"{line}\n" for line in mono))
    data = [f"data.{part}=[{{tsv: {corpus}/{part}.tsv}}]" for part in ("train", "valid", "test")]
    data += ["data=files", "data.src_lang=en", "data.tgt_lang=de"]

    def command(folder: Path) -> list[str]:
        script = [sys.executable, str(ROOT / "scripts/recipes/back_translate.py"), str(folder)]
        script += ["--mono", f"{corpus}/mono.de", "--weight", "0.5"]
        more = ["clean:data.cleaning.drop_odd_words=false", *SAMPLED]  # one letter is a short word
        more.append(f"forward:tokenizer.path={folder}/reverse/tokenizer.model")
        return [*script, f"cache_dir={folder}/cache", *data, *MODEL, *RECIPE, *more]

    return command


def start(command: list[str]) -> subprocess.Popen[str]:
    """Starts a recipe beside its folder, whose path it is given relative to its own."""
    folder = Path(command[2])
    return subprocess.Popen(
        [*command[:2], folder.name, *command[3:]],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(command: list[str]) -> tuple[str, str]:
    process = start(command)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    return out, err


BACK_TRANSLATED = ["mono.de", "back_translated.en", "back_translated.tsv"]


@pytest.mark.slow
def test_back_translation_is_killed_and_resumes(back_translation: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(back_translation(folder))
    wait_until(lambda: (folder / "mono.de").exists() or process.poll() is not None, TIMEOUT)
    process.kill()
    process.communicate(timeout=TIMEOUT)
    out, err = finished(back_translation(folder))
    assert "reverse: done\n" in err
    assert "BLEU" in out  # the scores of the forward model
    mono, back, pairs = (list(read_lines(folder / name)) for name in BACK_TRANSLATED)
    assert len(mono) == len(back) == len(set(mono)) <= 300
    expected = [(source, target) for source, target in zip(back, mono, strict=True) if source]
    assert [tuple(line.split("\t")) for line in pairs] == expected
    assert Tokenizer(folder / "forward/tokenizer.model").tags.keys() == {"<bt>"}
    assert len(Translator.load(folder / "forward").translate(["a b", "", "c"])) == 3


@pytest.fixture(scope="module")
def distillation(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Distillation of a tiny teacher, with the nearest of two translations to the reference."""
    corpus = tmp_path_factory.mktemp("teacher")
    write_corpus(corpus, pairs=60)
    teacher = corpus / "model"
    train = [sys.executable, "-m", "transformer_mt.cli", "train"]
    finished([*train, *arguments(corpus, teacher, "tokenizer.vocab_size=290")])

    def command(folder: Path) -> list[str]:
        script = [sys.executable, str(ROOT / "scripts/recipes/distill.py"), str(folder)]
        script += ["--teacher", str(teacher), "--nbest", "2", "--keep", "0.9", "--originals"]
        small = [*MODEL, *RECIPE[2:], "model.d_model=8"]
        return [*script, f"cache_dir={folder}/cache", *small, *SAMPLED]

    return command


@pytest.mark.slow
def test_distillation(distillation: Command, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    out, _ = finished(distillation(folder))
    names = ("train.en", "train.de", "translations.jsonl", "distilled.tsv")
    sources, references, translations, pairs = (list(read_lines(folder / n)) for n in names)
    assert len(sources) == len(set(sources)) == len(references) == len(translations)
    assert all(src.upper() == tgt for src, tgt in zip(sources, references, strict=True))
    records = [json.loads(line) for line in translations]
    texts = {r["source"]: [each["text"] for each in r["translations"]] for r in records}
    assert list(texts) == sources
    assert sources != [*dict(row.split("\t") for row in pairs)]  # some were dropped
    assert all(target in texts[source] for source, target in (row.split("\t") for row in pairs))

    table = [row.split("|")[1:-1] for row in out.splitlines() if row.startswith("|")]
    models = ["", "student_int8, shortlist", "student_int8", "teacher_int8"]
    assert [cell.strip() for cell in table[0]] == models
    sizes = [float(cell) for cell in table[2][1:]]
    assert 0 < sizes[1] <= min(sizes[0], sizes[2])
    picture = [sys.executable, str(ROOT / "scripts/recipes/speed_picture.py")]
    finished([*picture, str(tmp_path / "speed.png"), str(folder / "report.json")])
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
