"""Attention weights of one sentence and its translation, as page data and as an image."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from torch import Tensor

from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.files import output
from transformer_mt.model.attention_maps import KINDS, AttentionMaps, attention_maps, heat_map
from transformer_mt.model.transformer import Transformer

MAX_PIECES = 200
"""Maximum number of pieces in a heat map."""
_SIDE, _GAP = 8, 2
"""Pixels of a weight's square in an image, and between two heat maps."""
_FONTS = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans"]
"""Fonts tried in turn for each character of an image, if installed."""


@dataclass(frozen=True)
class Attention:
    """A sentence, its translation and the attention weights of all layers."""

    sentence: str
    translation: str
    maps: AttentionMaps


def compute_attention(sentence: str, model: Transformer, translator: Translator) -> Attention:
    """The translation of a sentence, with the attention weights of the translator's model.

    Raises:
        InputError: The sentence is too long for a heat map or for the model.
    """
    tokenizer = translator.tokenizer
    (src,) = tokenizer.encode([translator.normalizer.src(sentence)])
    if len(src) > MAX_PIECES:
        raise InputError(
            f"attention: the sentence has {len(src)} pieces, but a heat map shows at most "
            f"{MAX_PIECES}: use a shorter sentence"
        )
    ((best,),) = translator.translate_nbest([sentence], 1)
    if translator.cut_lines:
        raise InputError("attention: the sentence is too long for this model: use a shorter one")
    ids = {piece: i for i, piece in enumerate(tokenizer.tgt.vocabulary)}
    src, tgt_in = [*src, EOS], [BOS, *(ids[piece] for piece in best.pieces[:-1])]
    return Attention(
        sentence=sentence,
        translation=best.text,
        maps=attention_maps(
            model, src, tgt_in, tokenizer.pieces(src), tokenizer.tgt.pieces(tgt_in)
        ),
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
    """Writes a PNG of all weights: a panel for each kind, a map for each layer and head."""
    panels = [(name, *attention.maps.layers(kind)) for kind, name in KINDS.items()]
    pictures = [heat_map(layers, side=_SIDE, gap=_GAP).numpy() for _, layers, _, _ in panels]
    heights = [len(picture) for picture in pictures]
    inches = 0.13 / _SIDE  # of a pixel; each weight's square has a line of text beside it
    width = 1 + inches * max(picture.shape[1] for picture in pictures)
    height = 1 + inches * sum(heights) + len(heights)
    fonts = mpl.font_manager.get_font_names()
    style: Any = {
        "text.parse_math": False,
        "font.size": 7,
        "axes.titlesize": 8,
        "font.family": [font for font in _FONTS if font in fonts],
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(f"{attention.sentence} → {attention.translation}", fontsize=10)
        grid = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)
        for axes, picture, panel in zip(grid[:, 0], pictures, panels, strict=True):
            name, layers, queries, keys = panel
            axes.imshow(picture, vmin=0, vmax=255, cmap="gray", aspect="auto")
            heads = len(layers[0])
            axes.set_title(f"{name}: layers 1–{len(layers)} downwards, heads 1–{heads} across")
            axes.set_xticks(*_ticks(keys, heads), rotation=90)
            axes.set_yticks(*_ticks(queries, len(layers)))
        # Opened here: given a path, matplotlib seeks in the file, which fails for a pipe.
        with output(path) as place, place.open("wb") as file, warnings.catch_warnings():
            # A character that no font has is drawn as a box, which is enough of a warning.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(file, format="png", dpi=110)


def _ticks(pieces: list[str], maps: int) -> tuple[list[float], list[str]]:
    """Places and labels along a row or column of maps: one label for each square."""
    size, middle = len(pieces) * _SIDE + _GAP, _SIDE / 2 - 0.5
    starts = [j * size + i * _SIDE for j in range(maps) for i in range(len(pieces))]
    return [start + middle for start in starts], pieces * maps
