"""The recipes on tiny corpora: their results, also after a kill."""

import json
import os
import random
import subprocess
import sys
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
def test_back_translation_is_killed_and_resumes(tmp_path: Path) -> None:
    """Of upper-case lines, with some that must be dropped."""
    corpus, folder = tmp_path, tmp_path / "run"
    write_corpus(corpus, pairs=60)
    rng = random.Random(1)
    lines = [" ".join(rng.choices("ABCDEFGH", k=rng.randint(2, 6))) for _ in range(300)]
    held_out = next(read_lines(corpus / "valid.tsv")).split("\t")[1]
    lines += ["", "A " * 200, lines[0], held_out]
    (corpus / "mono.de").write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, str(ROOT / "scripts/recipes/back_translate.py"), str(folder)]
    command += ["--mono", f"{corpus}/mono.de", "--weight", "0.5"]
    command += [*arguments(corpus, folder)[1:], f"cache_dir={folder}/cache", *SAMPLED]
    command.append("clean:data.cleaning.drop_odd_words=false")  # one letter is a short word
    command.append(f"forward:tokenizer.path={folder}/reverse/tokenizer.model")
    process = start(command)
    wait_until(lambda: (folder / "mono.de").exists() or process.poll() is not None, TIMEOUT)
    process.kill()
    process.communicate(timeout=TIMEOUT)
    out, err = finished(command)
    assert "reverse: done\n" in err
    assert "BLEU" in out  # the scores of the forward model
    mono, back, pairs = (list(read_lines(folder / name)) for name in BACK_TRANSLATED)
    assert len(mono) == len(back) == len(set(mono)) <= 300
    expected = [(source, target) for source, target in zip(back, mono, strict=True) if source]
    assert [tuple(line.split("\t")) for line in pairs] == expected
    assert Tokenizer(folder / "forward/tokenizer.model").tags.keys() == {"<bt>"}
    assert len(Translator.load(folder / "forward").translate(["a b", "", "c"])) == 3


@pytest.mark.slow
def test_distillation(tmp_path: Path) -> None:
    """Of a tiny teacher, with the nearest of two translations to the reference."""
    teacher, folder = tmp_path / "model", tmp_path / "run"
    write_corpus(tmp_path, pairs=60)
    train = [sys.executable, "-m", "transformer_mt.cli", "train"]
    finished([*train, *arguments(tmp_path, teacher)])
    command = [sys.executable, str(ROOT / "scripts/recipes/distill.py"), str(folder)]
    command += ["--teacher", str(teacher), "--nbest", "2", "--keep", "0.9", "--originals"]
    command += [f"cache_dir={folder}/cache", *MODEL, *RECIPE[2:], "model.d_model=8", *SAMPLED]
    out, _ = finished(command)
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
