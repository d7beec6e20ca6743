"""Prefixes: the text that a translation starts with, as tokens."""

from collections import defaultdict
from functools import cached_property

from transformer_mt.data.subwords.tokenizer import EOS, UNK, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.hypothesis import Prefix
from transformer_mt.decode.lines.alignment import WORD_START
from transformer_mt.errors import InputError

_MAX_WORD = 24
"""Maximum number of characters of a word that may be unfinished; a longer one counts as whole."""


class PrefixEncoder:
    """Converts prefixes to tokens.

    The last word may be unfinished: the pieces of ``Hu`` are not those with which a model writes
    ``Hund``. So this word is given as characters, which any pieces may spell, the last of them with
    more characters. After a space the word is whole.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    @cached_property
    def _text_pieces(self) -> dict[str, dict[int, str]]:
        """Pieces of text, without byte pieces, by their first character and by id."""
        pieces: dict[str, dict[int, str]] = defaultdict(dict)
        for i in self._tokenizer.scores():
            piece = self._tokenizer.vocabulary[i]
            pieces[piece[0]][i] = piece
        return pieces

    @cached_property
    def _next_word(self) -> dict[int, int]:
        """``Prefix.word`` after a whole word: what starts a word, or the end."""
        return self._spellings(WORD_START)[0] | {EOS: 1}

    def encode(self, text: str, normalizer: Normalizer, max_tokens: int) -> Prefix:
        """The tokens of a prefix.

        Args:
            text: The prefix.
            normalizer: Normalisation of the model's training text.
            max_tokens: Maximum number of tokens of a translation.

        Raises:
            InputError: It has characters outside the vocabulary, or too many tokens.
        """
        is_whole = text != text.rstrip()
        (ids,) = self._tokenizer.encode([normalizer.tgt(text)])
        if UNK in ids:
            raise InputError(
                "a prefix has characters that are not in this model's vocabulary: "
                f"{self._tokenizer.decode([ids])[0]!r}"
            )
        if len(ids) > max_tokens:
            raise InputError(
                f"a prefix of {len(ids)} tokens exceeds the {max_tokens} positions of this model: "
                f"{text[:40]!r}…"
            )
        pieces = self._tokenizer.pieces(ids)
        starts = [i for i, piece in enumerate(pieces) if piece.startswith(WORD_START)]
        start = starts[-1] if starts else 0
        word = "".join(pieces[start:])
        too_long = start + len(word) > max_tokens
        has_bytes = any(
            i not in self._text_pieces[self._tokenizer.vocabulary[i][0]] for i in ids[start:]
        )
        if is_whole and ids and len(ids) < max_tokens:  # a new word follows, or the end
            return Prefix(ids, [self._next_word])
        if too_long or has_bytes or not 0 < len(word) <= _MAX_WORD:
            return Prefix(ids)
        return Prefix(ids[:start], self._spellings(word))

    def _spellings(self, word: str) -> list[dict[int, int]]:
        """``Prefix.word``."""
        spellings: list[dict[int, int]] = [{} for _ in word]
        for i in reversed(range(len(word))):
            rest = word[i:]
            for token, piece in self._text_pieces[rest[0]].items():
                if piece.startswith(rest):
                    spellings[i][token] = len(word)
                elif rest.startswith(piece) and spellings[i + len(piece)]:  # no dead end
                    spellings[i][token] = i + len(piece)
        return spellings
