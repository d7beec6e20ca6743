"""Unusual input for mt-translate, of any size: one line out for each line in, and status 0."""

import random
from pathlib import Path

import pytest
from support.paths import ROOT
from support.training_runs import Running

MODEL = ROOT / "tests/e2e/fixtures/model"
LETTERS = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=100_000))
INPUTS = {
    "all 256 bytes, eight times": bytes(range(256)) * 8 + b"\n",
    "characters not in the training data": "🦊 ꙮ ᚠᛇᚻ 漢字 \U0010fffd e\u0301\u0323\n".encode(),
    "a letter with 10,000 accents": ("a" + "\u0301" * 10_000 + "\n").encode(),
    "right to left, with overrides": "שלום \u202eabc\u202c العالم\n".encode(),
    "a word of 100,000 equal letters": b"a" * 100_000 + b"\n",
    "a word of 100,000 letters": f"{LETTERS}\n".encode(),
    '"the dog " 12,500 times': b"the dog " * 12_500 + b"\n",
    "100,000 digits": b"7" * 100_000 + b"\n",
    "special symbols of the vocabulary": b"<s> </s> <unk> <pad> <0x41> \xe2\x96\x81\n",
    "20,000 empty lines, one with text": b"\n" * 10_000 + b"A dog.\n" + b"\n" * 10_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_output_has_as_many_lines_as_the_input(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(INPUTS[name])
    argv = [f"model={MODEL}", "engine=torch", "beam_size=1"]
    out, err = Running("translate", argv, tmp_path / "out", stdin=tmp_path / "in").done()
    assert out.count("\n") == INPUTS[name].count(b"\n")
    assert "Traceback" not in err
