"""Lines that are longer than the model's input, translated in parts."""

from collections.abc import Sequence

from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.lines.alignment import WORD_START
from transformer_mt.decode.translation import Hypothesis


def split_long(ids: list[int], max_tokens: int, tokenizer: Tokenizer) -> list[list[int]]:
    """Splits a line into parts of at most ``max_tokens``, between words if possible.

    An empty line has no parts.
    """
    parts = []
    while len(ids) > max_tokens:
        pieces = tokenizer.pieces(ids[: max_tokens + 1])
        starts = [i for i, piece in enumerate(pieces) if i and piece.startswith(WORD_START)]
        end = starts[-1] if starts else max_tokens
        parts.append(ids[:end])
        ids = ids[end:]
    return [*parts, ids] if ids else parts


def join_parts(hypotheses: Sequence[list[Hypothesis]]) -> list[Sequence[Hypothesis]]:
    """The translations of a line, best first, each as the hypotheses of its parts.

    ``hypotheses`` are the n best of each part.

    A line of several parts has one translation, joined from the best of each; an empty line has an
    empty one.
    """
    if len(hypotheses) == 1:
        return [[hypothesis] for hypothesis in hypotheses[0]]
    return [[best[0] for best in hypotheses]]
