"""Attention weights of one sentence and its translation, as page data and as an image."""

import io
import warnings
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from torch import Tensor

from transformer_mt import Evaluator, InputError

MAX_PIECES = 200
"""Maximum number of pieces in a heat map."""
_SIDE, _GAP = 8, 2
"""Pixels of a weight's square in an image, and between two heat maps."""
_FONTS = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans"]
"""Fonts tried in turn for each character of an image, if installed."""
_NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention to the source",
}
"""The paper's three uses of attention (§3.2.3), in the order in which they are shown."""


@dataclass(frozen=True)
class Weights:
    """Attention weights of all layers, of one kind."""

    name: str
    layers: list[Tensor]
    """[H, T, S] for each layer: heads, queries, keys; each row sums to 1."""
    queries: list[str]
    """The T pieces of text that attend."""
    keys: list[str]
    """The S pieces of text that are attended to."""


@dataclass(frozen=True)
class Attention:
    """A sentence, its translation and the attention weights of all layers."""

    sentence: str
    translation: str
    kinds: list[Weights]


def compute_attention(evaluator: Evaluator) -> Attention:
    """The translation of the job's sentence, with the attention weights of the model.

    Raises:
        InputError: The sentence is too long for a heat map or for the model.
    """
    job, translator = evaluator.job, evaluator.translator
    assert translator is not None
    assert job.attention is not None
    (sentence,) = translator.with_tag([job.attention], job.tag)
    (src,) = translator.tokenizer.encode_sources([sentence], translator.normalizer)
    if len(src) > MAX_PIECES:
        raise InputError(
            f"attention: the sentence has {len(src)} pieces, but a heat map shows at most "
            f"{MAX_PIECES}: use a shorter sentence"
        )
    ((best,),) = translator.translate_nbest([sentence], 1)
    if translator.cut_lines:
        raise InputError("attention: the sentence is too long for this model: use a shorter one")
    maps = evaluator.attention_maps(src, best)
    kinds = [Weights(name, *maps.layers(kind)) for kind, name in _NAMES.items()]
    return Attention(sentence, best.text, kinds)


def to_data(attention: Attention) -> dict[str, Any]:
    """Data for the page's script: weights in thousandths, one flat list of rows per head."""

    def thousandths(layer: Tensor) -> list[list[int]]:
        rounded = (layer * 1000).round().int().flatten(1)
        heads: list[list[int]] = rounded.tolist()
        return heads

    kinds = [
        {
            "name": kind.name,
            "queries": kind.queries,
            "keys": kind.keys,
            "layers": [thousandths(layer) for layer in kind.layers],
        }
        for kind in attention.kinds
    ]
    return {"kinds": kinds}


def image(attention: Attention) -> bytes:
    """A PNG of all weights: a panel for each kind, a map for each layer and head."""
    kinds = attention.kinds
    pictures = [heat_map(kind.layers) for kind in kinds]
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
    content = io.BytesIO()
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(f"{attention.sentence} → {attention.translation}", fontsize=10)
        grid = figure.subplots(len(kinds), 1, height_ratios=heights, squeeze=False)
        for axes, picture, kind in zip(grid[:, 0], pictures, kinds, strict=True):
            axes.imshow(picture, vmin=0, vmax=255, cmap="gray", aspect="auto")
            layers, heads = len(kind.layers), len(kind.layers[0])
            axes.set_title(f"{kind.name}: layers 1–{layers} downwards, heads 1–{heads} across")
            axes.set_xticks(*_ticks(kind.keys, heads), rotation=90)
            axes.set_yticks(*_ticks(kind.queries, layers))
        with warnings.catch_warnings():
            # A character that no font has is drawn as a box, which is enough of a warning.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def heat_map(layers: list[Tensor]) -> npt.NDArray[np.uint8]:
    """Grey picture of attention weights: a map for each layer (rows) and head (columns).

    Returns:
        [height, width]; weight 1 is black, 0 is white, and below and right of a map it is grey.
    """
    maps = np.stack([layer.numpy() for layer in layers])
    pixels = ((1 - maps) * 255).round().astype(np.uint8)
    pixels = pixels.repeat(_SIDE, -2).repeat(_SIDE, -1)
    padding = ((0, 0), (0, 0), (0, _GAP), (0, _GAP))
    return np.block([list(heads) for heads in np.pad(pixels, padding, constant_values=128)])


def _ticks(pieces: list[str], maps: int) -> tuple[list[float], list[str]]:
    """Places and labels along a row or column of maps: one label for each square."""
    size, middle = len(pieces) * _SIDE + _GAP, _SIDE / 2 - 0.5
    starts = [j * size + i * _SIDE for j in range(maps) for i in range(len(pieces))]
    return [start + middle for start in starts], pieces * maps
