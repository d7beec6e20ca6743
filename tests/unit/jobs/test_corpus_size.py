"""``model=auto``: the experiment for the size of a corpus; the warning about too large a model."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from transformer_mt import compose
from transformer_mt.cli.main import main
from transformer_mt.data.subwords.vocabulary_training import fit_to_characters
from transformer_mt.errors import UsageError
from transformer_mt.jobs import corpus_size
from transformer_mt.jobs.corpus_size import choose_experiment, size_warning


def overrides(folder: Path, pairs: int) -> list[str]:
    (folder / "a.tsv").write_text("a b\tc d\n" * pairs)
    source = f"[{{tsv: {folder / 'a.tsv'}}}]"
    data = [f"data.{split}={source}" for split in ("train", "valid")]
    return ["data=files", "data.src_lang=en", "data.tgt_lang=de", "data.test=[]", *data]


@pytest.mark.parametrize(
    ("pairs", "name"),
    [(3, "10k"), (19_999, "10k"), (20_000, "30k"), (60_000, "100k"), (180_000, "300k")],
)
def test_the_number_of_pairs_chooses_the_experiment(
    pairs: int, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = overrides(tmp_path, pairs)
    assert choose_experiment(given, compose) == [f"experiment=pairs_{name}"]
    (line,) = capsys.readouterr().err.splitlines()
    assert f" {pairs:,} training pairs: experiment=pairs_{name}; " in line


@pytest.mark.parametrize(
    ("number", "vocab_size", "expected"),
    [
        (100, 2000, (2000, 1.0)),
        (1000, 2000, (2000, 1.0)),
        (1001, 2000, (2000, 0.9995)),
        (1300, 2000, (4000, 0.9995)),  # with 260 symbols, less than a quarter would be free
        (6000, 2000, (16000, 0.9995)),
        (6000, 37000, (37000, 1.0)),
    ],
)
def test_vocabulary_sizes_for_characters(
    number: int, vocab_size: int, expected: tuple[int, float]
) -> None:
    characters = Counter({chr(0x4E00 + i): 5 for i in range(number)})
    assert fit_to_characters(characters, vocab_size) == expected


def test_text_of_many_characters_gets_a_vocabulary_that_has_room_for_them(tmp_path: Path) -> None:
    given = overrides(tmp_path, 0)
    chinese = "".join(chr(0x4E00 + i) for i in range(1300))
    (tmp_path / "a.tsv").write_text(f"a b\t{chinese}\n" * 5, "utf-8")
    sizes = ["tokenizer.vocab_size=4000", "tokenizer.character_coverage=0.9995"]
    assert choose_experiment(given, compose) == ["experiment=pairs_10k", *sizes]
    existing = [*given, "tokenizer.path=vocabulary"]
    assert choose_experiment(existing, compose) == ["experiment=pairs_10k"]


def test_a_gpu_trains_the_base_model_on_many_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_size, "MANY_PAIRS", 3)
    given = overrides(tmp_path, 3)
    assert compose(["model=auto", *given]) == compose(["experiment=pairs_10k", *given])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert compose(["model=auto", *given]) == compose(given)


def test_settings_of_the_user_take_precedence(tmp_path: Path) -> None:
    job = compose([*overrides(tmp_path, 3), "model=auto", "train.max_steps=7", "model.dropout=0.5"])
    assert (job.train.max_steps, job.model.dropout, job.tokenizer.vocab_size) == (7, 0.5, 2000)


def test_another_experiment_and_fine_tuning_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="remove one of the two"):
        compose(["experiment=quickstart", "model=auto"])
    with pytest.raises(UsageError, match=r"from scratch, .*: remove model=auto"):
        compose(["train.init_from=runs/parent", "model=auto"])
    argv = ["mt-train", "model=auto", "--config-dir", "runs/mine", "--config-name", "config"]
    monkeypatch.setattr(sys, "argv", argv)  # the configuration of a run has its settings
    with pytest.raises(SystemExit) as stop:
        main("train")
    assert stop.value.code == 2
    assert "model=auto chooses an experiment" in capsys.readouterr().err


def test_a_model_far_too_large_for_its_corpus_is_reported() -> None:
    assert "48 million parameters are many for 10,000 pairs" in str(
        size_warning(10_000, 48_000_000)
    )
    assert size_warning(4_508_785, 63_000_000) is None  # the paper
    assert size_warning(10_000, 3_400_000) is None  # experiment=pairs_10k
