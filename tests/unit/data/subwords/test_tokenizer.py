"""The tokenizer: special symbols, round trips, and models that are refused."""

import io
import re
from pathlib import Path
from unicodedata import category

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from support.errors import input_error
from support.tokenizers import random_lines, small_tokenizer

from transformer_mt.config import DataConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.data.text.lines import is_blank
from transformer_mt.data.text.normalization import Normalizer

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>", "<0x0A>", "<mask>"]


def test_special_symbols_and_bytes_have_fixed_ids(tokenizer: Tokenizer) -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert tokenizer.pieces(range(4, 260)) == [f"<0x{byte:02X}>" for byte in range(256)]
    assert tokenizer.vocab_size == 290
    ids = tokenizer.encode("ein Hund")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "ein Hund"
    assert (tokenizer.decode([EOS]), tokenizer.decode([])) == ("", "")
    for text in SPECIAL:  # they are plain text
        ids = tokenizer.encode(text)
        assert not {PAD, UNK, BOS, EOS, 4 + 0x0A}.intersection(ids)
        assert tokenizer.decode(ids) == text
    broken = tokenizer.decode([4 + 0xF0, 4 + 0x9F])  # the first half of an emoji
    assert set(broken) == {"\ufffd"}


@given(st.text() | st.text(st.sampled_from("ab Hund ä\0\t\r\u2028é😀ﬁ½\ufeff")))
def test_round_trip(tokenizer: Tokenizer, text: str) -> None:
    """Exceptions: line breaks, tabs and ▁ become spaces, runs of spaces become one space, and blank
    lines become empty."""
    ids = tokenizer.encode(text)
    assert not {PAD, UNK, BOS, EOS}.intersection(ids)
    back = tokenizer.decode(ids)
    spaced = re.sub("[▁\t-\r\x1c-\x1e\x85\u2028\u2029]", " ", text)
    expected = re.sub(" +", " ", spaced).strip(" ")
    kinds = {category(c) for c in text} - {"Zs", "Zl", "Zp", "Cc"}
    if kinds == {"Cf"}:  # some of these are seen, as signs of Arabic numbers
        assert back in ("", expected)
    else:
        assert back == (expected if kinds else "")


def test_characters_beyond_the_coverage_are_bytes(tmp_path: Path) -> None:
    text = random_lines() * 5 + ["Ω"]
    for coverage, expected in ((1.0, ["Ω"]), (0.99, ["<0xCE>", "<0xA9>"])):
        tokenizer = small_tokenizer(tmp_path / "m", text, character_coverage=coverage)
        assert tokenizer.pieces(tokenizer.encode("Ω"))[1:] == expected


PLAIN = Normalizer(DataConfig(src_lang="en", tgt_lang="de"))
MARKS = [c for c in map(chr, range(33, 0xFF00)) if category(c) in ("Cf", "Zs") and is_blank(c)]


@pytest.mark.parametrize("tags", [(), (">>de<<",)])
def test_marks_that_the_training_text_lacked_are_left_out_of_sources(
    tags: tuple[str, ...], tmp_path: Path
) -> None:
    """Byte order marks, soft hyphens, joiners, direction marks; spaces are read as plain ones."""
    assert set("\xa0\u2009\u3000\ufeff\xad\u200b\u200d\u200e\u202e\u2066") <= set(MARKS)
    lines = [line.replace("Hunde", "Hunde\u200c") for line in random_lines()]
    tokenizer = small_tokenizer(tmp_path / "m", lines, tags, vocab_size=300)
    tag = "".join(f"{tag} " for tag in tags)
    plain = tokenizer.encode_source(f"{tag}rotes Haus", PLAIN)
    for mark in MARKS:
        word, gap = ("rotes", mark) if mark.isspace() else (f"ro{mark}tes", f" {mark} ")
        line = f"{tag}{mark}{word}{gap}Haus{mark}"
        is_known = mark == "\u200c"
        assert (tokenizer.encode_source(line, PLAIN) == plain) != is_known, ascii(mark)
        expected = line.removeprefix(tag) if is_known else " rotes Haus"
        assert tokenizer.normalize(line.removeprefix(tag)).split() == expected.split()
    quoted = tokenizer.encode_source(f"{tag}„rotes“ – Haus…", PLAIN)
    assert quoted == tokenizer.encode_source(f'{tag}"rotes" - Haus...', PLAIN)
    accents = [tokenizer.encode_source(f"{tag}{word}", PLAIN) for word in ("Über", "U\u0308ber")]
    assert accents[0] == accents[1]
    ((src, tgt),) = tokenizer.encode_pairs([(f"{tag}\ufeffHaus", "\ufeffHaus")], PLAIN)
    assert src == tokenizer.encode_source(f"{tag}Haus", PLAIN)
    assert tgt == tokenizer.encode("\ufeffHaus") != tokenizer.encode("Haus")


def refusal(path: Path) -> str:
    with input_error(re.escape(str(path))) as caught:
        Tokenizer(path)
    return str(caught.value)


def test_other_special_ids_are_rejected_and_the_advised_ones_accepted(tmp_path: Path) -> None:
    """E.g. SentencePiece's defaults: unk 0, bos 1, eos 2, no padding."""

    def write(**ids: int) -> Path:
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(random_lines()), model_writer=model, vocab_size=35,
            minloglevel=2, **ids,
        )  # fmt: skip
        (tmp_path / "m").write_bytes(model.getvalue())
        return tmp_path / "m"

    message = refusal(write())
    assert "(-1, 0, 1, 2)" in message
    assert "--pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3" in message
    assert Tokenizer(write(pad_id=0, unk_id=1, bos_id=2, eos_id=3)).vocab_size == 35


def test_invalid_model_files(tmp_path: Path) -> None:
    path = tmp_path / "m"
    assert refusal(path).endswith("No such file or directory")
    small_tokenizer(path)
    whole = path.read_bytes()
    for data in (b"garbage\n", b"\0" * 100, whole[: len(whole) // 2]):
        path.write_bytes(data)
        assert refusal(path).endswith("; copy it again, or name a SentencePiece model")
    path.write_bytes(b"")
    assert "is damaged: the file is empty" in refusal(path)
