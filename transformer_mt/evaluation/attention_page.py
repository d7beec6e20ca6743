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
from transformer_mt.model.attention_maps import KINDS, AttentionMaps, attention_maps
from transformer_mt.model.transformer import Transformer

MAX_PIECES = 200
"""Maximum number of pieces in a heat map."""


@dataclass(frozen=True)
class Attention:
    """A sentence, its translation and the attention weights of all layers."""

    sentence: str
    translation: str
    maps: AttentionMaps


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
        maps=attention_maps(model, src, tgt_in, tokenizer.pieces),
    )


def to_data(attention: Attention) -> dict[str, Any]:
    """Data for the page's script: weights in thousandths, one flat list of rows per head."""

    def thousandths(layer: Tensor) -> list[list[int]]:
        rounded = (layer * 1000).round().int().flatten(1)
        heads: list[list[int]] = rounded.tolist()
        return heads

    kinds = []
    for kind, name in KINDS.items():
        layers, queries, keys = attention.maps.layers(kind)
        weights = [thousandths(layer) for layer in layers]
        kinds.append({"name": name, "queries": queries, "keys": keys, "layers": weights})
    return {"kinds": kinds}


def write_image(attention: Attention, path: Path) -> None:
    """Writes a PNG with a heat map of every layer (rows) and head (columns), for each kind."""
    panels = [(name, *attention.maps.layers(kind)) for kind, name in KINDS.items()]
    # Opened here: given a path, matplotlib seeks in the file, which fails for a pipe.
    with output(path) as place, place.open("wb") as file:
        attention_image(file, f"{attention.sentence} → {attention.translation}", panels)
