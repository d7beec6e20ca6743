"""Attention weights of one sentence and its translation, as page data and as an image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluation.figures import attention_image
from transformer_mt.files import output
from transformer_mt.model.attention_maps import AttentionMaps, attention_maps
from transformer_mt.model.transformer import Transformer

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention to the source",
}
"""The paper's three uses of attention (§3.2.3), and their names on a page."""

MAX_PIECES = 200
"""Maximum number of pieces in a heat map."""


@dataclass(frozen=True)
class Attention:
    """A sentence, its translation and all attention weights."""

    sentence: str
    translation: str
    src: list[str]
    """The S pieces that the encoder reads, with the end symbol."""
    tgt_in: list[str]
    """The T pieces that the decoder reads, with the start symbol."""
    maps: AttentionMaps

    def sides(self, kind: str) -> tuple[list[str], list[str]]:
        """Query pieces and key pieces of a kind of attention."""
        queries = self.src if kind == "encoder" else self.tgt_in
        keys = self.tgt_in if kind == "decoder" else self.src
        return queries, keys


def compute_attention(
    sentence: str,
    model: Transformer,
    tokenizer: Tokenizer,
    translator: Translator,
    normalizer: Normalizer,
) -> Attention:
    """Translate a sentence and compute the attention weights.

    Raises:
        InputError: The sentence is too long for a heat map or for the model.
    """
    (src,) = tokenizer.encode([normalizer.src(sentence)])
    if len(src) > MAX_PIECES:
        raise InputError(
            f"attention: the sentence has {len(src)} pieces, but a heat map shows at most "
            f"{MAX_PIECES}: use a shorter sentence"
        )
    ((best,),) = translator.translate_nbest([sentence], 1)
    if translator.cut_lines:
        raise InputError("attention: the sentence is too long for this model: use a shorter one")
    ids = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
    src, tgt_in = [*src, EOS], [BOS, *(ids[piece] for piece in best.pieces[:-1])]
    return Attention(
        sentence=sentence,
        translation=best.text,
        src=tokenizer.pieces(src),
        tgt_in=tokenizer.pieces(tgt_in),
        maps=attention_maps(model, src, tgt_in),
    )


def to_data(attention: Attention) -> dict[str, Any]:
    """Data for the page's script: weights in thousandths, one flat list of rows per head."""

    def thousandths(layer: Tensor) -> list[list[int]]:
        rounded = (layer * 1000).round().int().flatten(1)
        heads: list[list[int]] = rounded.tolist()
        return heads

    kinds = []
    for kind, name in KINDS.items():
        queries, keys = attention.sides(kind)
        layers = [thousandths(layer) for layer in getattr(attention.maps, kind)]
        kinds.append({"name": name, "queries": queries, "keys": keys, "layers": layers})
    return {"kinds": kinds}


def write_image(attention: Attention, path: Path) -> None:
    """Write a PNG of every layer and head."""
    rows = [
        (f"{kind} layer {i}", layer.numpy(), *attention.sides(kind))
        for kind in KINDS
        for i, layer in enumerate(getattr(attention.maps, kind), 1)
    ]
    # Opened here: given a path, matplotlib seeks in the file, which fails for a pipe.
    with output(path) as place, place.open("wb") as file:
        attention_image(file, f"{attention.sentence} → {attention.translation}", rows)
