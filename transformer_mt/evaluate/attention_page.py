"""Where a model looks in a sentence, as an interactive page and as an image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_mt.data.subwords.tokenizer import BOS, EOS, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.evaluate.figures import attention_image
from transformer_mt.files import output
from transformer_mt.model.attention_maps import AttentionMaps, attention_maps
from transformer_mt.model.transformer import Transformer

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "decoder attention to the source",
}
"""The paper's three uses of attention (§3.2.3), and what a page calls them."""

MAX_PIECES = 200
"""More than this no heat map shows."""


@dataclass(frozen=True)
class Attention:
    """One sentence, its translation, and every weight in between."""

    sentence: str
    translation: str
    src: list[str]
    """The S pieces that the encoder reads, the end symbol last."""
    tgt_in: list[str]
    """The T pieces that the decoder reads, the begin symbol first."""
    maps: AttentionMaps

    def sides(self, kind: str) -> tuple[list[str], list[str]]:
        """The pieces that look and those looked at, of a kind of attention."""
        return self.src if kind == "encoder" else self.tgt_in, (
            self.tgt_in if kind == "decoder" else self.src
        )


def attention_of(
    sentence: str,
    model: Transformer,
    tokenizer: Tokenizer,
    translator: Translator,
    normalizer: Normalizer,
) -> Attention:
    """What the model attends to as it reads a sentence and writes its translation.

    Raises:
        InputError: The sentence is too long for a heat map, or for the model.
    """
    (src,) = tokenizer.encode([normalizer.src(sentence)])
    if len(src) > MAX_PIECES:
        raise InputError(
            f"attention: the sentence has {len(src)} pieces, but a heat map shows {MAX_PIECES} at "
            "most: take a shorter one"
        )
    ((best,),) = translator.translate_nbest([sentence], 1)
    if translator.cut_lines:
        raise InputError("attention: the sentence is longer than this model reads in one piece")
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
    """For the page's script: weights in thousandths, every head's rows one after the other."""

    def thousandths(layer: Tensor) -> list[list[int]]:
        rounded = (layer * 1000).round().int().flatten(1)
        heads: list[list[int]] = rounded.tolist()
        return heads

    return {
        "kinds": [
            {
                "name": name,
                "queries": attention.sides(kind)[0],
                "keys": attention.sides(kind)[1],
                "layers": [thousandths(layer) for layer in getattr(attention.maps, kind)],
            }
            for kind, name in KINDS.items()
        ],
    }


def write_image(attention: Attention, path: Path) -> None:
    """Writes a PNG of every layer and head."""
    rows = [
        (f"{kind} layer {i}", layer.numpy(), *attention.sides(kind))
        for kind in KINDS
        for i, layer in enumerate(getattr(attention.maps, kind), 1)
    ]
    # Opened here: given a name, matplotlib wants a file that it can seek in, which no pipe is.
    with output(path) as place, place.open("wb") as file:
        attention_image(file, f"{attention.sentence} → {attention.translation}", rows)
