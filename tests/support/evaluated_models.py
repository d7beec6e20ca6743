"""An untrained model with a test set, for tests of mt-eval, and sacreBLEU's own scores."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from support import model_folders
from support.model_folders import JOB, convert
from support.tokenizers import small_tokenizer
from transformer_mt import run_layout
from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob, SearchConfig, SourceConfig

SOURCE = ["Two men are outside.", "The e-mail was sent.", "It is 3.5 km.", "Bern"]
REFERENCE = [
    "Zwei Männer sind im Freien, nicht wahr?",
    "Die E-Mail wurde gestern schon verschickt.",
    "Es sind 3,5 km bis nach\u2028Hause.",
    "Bern",
]
TEXT, VOCAB_SIZE = (*SOURCE, *REFERENCE) * 3, 320
"""Of its vocabulary."""


Json = Callable[..., Any]
"""Runs a job by its settings; returns the JSON that it prints, and its messages."""


def write_lines(path: Path, lines: list[str]) -> str:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def write_model(folder: Path) -> Path:
    """An untrained model in a folder; its test set is SOURCE and REFERENCE, beside the folder."""
    source = write_lines(folder.parent / "src", SOURCE)
    reference = write_lines(folder.parent / "ref", REFERENCE)
    test = [SourceConfig(src=source, tgt=reference)]
    decode = SearchConfig(beam_size=3, length_penalty=1.0, max_extra_tokens=5)
    job = replace(JOB, data=replace(JOB.data, test=test), decode=decode)
    model_folders.write_model(folder, job, text=TEXT, size=VOCAB_SIZE)
    convert(folder)
    return folder


def reserve_tag(model: Path, tag: str) -> None:
    """Gives a model a vocabulary that has the tag."""
    small_tokenizer(model / run_layout.TOKENIZER, TEXT, [tag], vocab_size=VOCAB_SIZE)


def scores_and_messages(capsys: pytest.CaptureFixture[str], **settings: Any) -> tuple[Any, str]:
    """The JSON that a job prints, and its messages."""
    commands.evaluate(EvaluateJob(format="json", device="cpu", **settings))
    out, err = capsys.readouterr()
    return json.loads(out), err


def by_hand(hypotheses: list[str], *references: list[str]) -> list[float]:
    """sacreBLEU's own scores."""
    bleu = sacrebleu.corpus_bleu(hypotheses, references)
    chrf = sacrebleu.corpus_chrf(hypotheses, references)
    ter = sacrebleu.corpus_ter(hypotheses, references)
    return [round(metric.score, 4) for metric in (bleu, chrf, ter)]
