"""Long lines: parts are sentences; of a long sentence they end between words."""

import random
from itertools import chain
from pathlib import Path
from string import ascii_lowercase

import pytest

from transformer_mt.config import TokenizerConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.subwords.vocabulary_training import train_tokenizer
from transformer_mt.decode.lines.long_lines import split_long


def parts_of(tokenizer: Tokenizer, line: str, max_tokens: int) -> list[str]:
    ids = tokenizer.encode(line)
    parts = split_long(ids, max_tokens, tokenizer)
    assert [*chain(*parts)] == ids
    assert all(0 < len(part) <= max_tokens for part in parts)
    return list(map(tokenizer.decode, parts))


@pytest.mark.parametrize(
    "sentences",
    [
        ["The dog sleeps.", "A fox jumps!", "Over the barn?", "Yes."] * 9,
        ['He said: "The dog sleeps."', "(A fox jumps.)", "Übermut …", "Red."] * 9,
        ["Dr. Fox sleeps.", "The house of J. Dog is 3.5 barns wide.", "Etc. over."] * 9,
        ["The e.g. lazily etc. quick dog sleeps.", "A fox."] * 9,
    ],
)
def test_each_sentence_is_a_part(tokenizer: Tokenizer, sentences: list[str]) -> None:
    assert parts_of(tokenizer, " ".join(sentences), 60) == sentences


def test_sentences_without_spaces_between_them(tmp_path: Path) -> None:
    sentences = ["犬が寝る。", "狐が跳ぶ！", "「はい。」"] * 5
    config = TokenizerConfig(vocab_size=275, type="unigram")
    (tmp_path / "m").write_bytes(train_tokenizer(sentences, config))
    tokenizer = Tokenizer(tmp_path / "m")
    assert parts_of(tokenizer, "".join(sentences), 20) == sentences


def test_a_long_sentence_is_cut_between_words(tokenizer: Tokenizer) -> None:
    long = " ".join(["quick brown fox jumps"] * 9).capitalize() + "."
    first, *parts, last = parts_of(tokenizer, f"Red. {long} Red.", 20)
    assert (first, last) == ("Red.", "Red.")
    assert " ".join(parts) == long
    assert all(set(part.split()) <= set(long.split()) for part in parts)


def test_a_word_of_100_000_letters_is_cut_anywhere(tokenizer: Tokenizer) -> None:
    word = "".join(random.Random(1).choices(ascii_lowercase, k=100_000))
    assert "".join(parts_of(tokenizer, word, 60)) == word
