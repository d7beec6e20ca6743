"""Shows the attention weights of a model for a sentence and its translation, as a page or an image.

python -m transformer_mt.contrib.report.attention runs/mine "A sentence." attention.html
"""

import argparse
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from transformer_mt import InputError, TorchEngine, Translator
from transformer_mt.cli.exit_status import exit_status
from transformer_mt.contrib.report.pages import render
from transformer_mt.files import output

MAX_PIECES = 200
"""Maximum number of pieces in a heat map."""
_FONTS = ["DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans"]
"""Fonts tried in turn for each character of an image, if installed."""
COLOURS = LinearSegmentedColormap.from_list("weights", ["#f5f6f8", "#0d3b8c"])
"""Colour map of weights from 0 to 1, from ``--card`` to ``--weight`` of ``page.css``."""
_KINDS = {
    "cross": ("cross-attention to the source", "attending (predicted) token"),
    "decoder": ("decoder self-attention", "attending (predicted) token"),
    "encoder": ("encoder self-attention", "attending token"),
}
"""The paper's three uses of attention (§3.2.3), in the order in which they are shown: names of the
weights and of their rows."""


@dataclass(frozen=True)
class Weights:
    """Attention weights of all layers, of one kind."""

    name: str
    axis: str
    """Title of the rows."""
    layers: list[Tensor]
    """[H, T, S] for each layer: heads, queries, keys; each row sums to 1."""
    queries: list[str]
    """Pieces of text that attend; in the decoder, the T pieces that are predicted."""
    keys: list[str]
    """The S pieces of text that are attended to."""


@dataclass(frozen=True)
class Attention:
    """A sentence, its translation and the attention weights of all layers."""

    sentence: str
    translation: str
    kinds: list[Weights]


def compute_attention(translator: Translator, sentence: str) -> Attention:
    """The best translation of a sentence, with the attention weights of the model.

    Args:
        translator: Of the PyTorch engine: ``Translator.load(FOLDER, engine="torch")``.
        sentence: May start with a tag.

    Raises:
        InputError: The sentence is empty, or too long for a heat map or for the model.
    """
    engine, tokenizer = translator.engine, translator.tokenizer
    assert isinstance(engine, TorchEngine)
    (src,) = tokenizer.encode_sources([sentence], translator.normalizer)
    if not src:
        raise InputError("the sentence is empty")
    if len(src) > MAX_PIECES:
        raise InputError(
            f"the sentence has {len(src)} pieces, but a heat map shows at most {MAX_PIECES}: use a "
            "shorter sentence"
        )
    ((best,),) = translator.translate_nbest([sentence], 1)
    if translator.cut_lines:
        raise InputError("the sentence is too long for this model: use a shorter one")
    ids = {piece: i for i, piece in enumerate(tokenizer.tgt.vocabulary)}
    tgt = [ids[piece] for piece in best.pieces[:-1]]  # without the end symbol
    maps, read, written = engine.attention_maps(src, tgt, tokenizer)
    kinds = [
        # A row of the decoder is named after the piece that it predicts, not the one that it reads:
        # the weights of a word are then in its own row.
        Weights(
            name,
            axis,
            maps[kind],
            read if kind == "encoder" else written[1:],
            written[:-1] if kind == "decoder" else read,
        )
        for kind, (name, axis) in _KINDS.items()
    ]
    return Attention(sentence, best.text, kinds)


def page(attention: Attention) -> str:
    """The weights as an interactive HTML page."""
    values = {"title": "Attention", "attention": attention, "weights": to_data(attention)}
    return render("attention.html", "attention.js", **values)


def to_data(attention: Attention) -> dict[str, Any]:
    """Data for the page's script: weights in thousandths, one flat list of rows per head."""

    def thousandths(layer: Tensor) -> list[list[int]]:
        rounded = (layer * 1000).round().int().flatten(1)
        heads: list[list[int]] = rounded.tolist()
        return heads

    kinds = [
        {
            "name": kind.name,
            "axis": kind.axis,
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
    pictures = [tiles(kind.layers) for kind in kinds]
    heights = [len(picture) for picture in pictures]
    inches = 0.13  # of a weight's square, which has a line of text beside it
    width = 2 + inches * max(picture.shape[1] for picture in pictures)
    height = 0.5 + inches * sum(heights) + len(heights)
    fonts = mpl.font_manager.get_font_names()
    style: Any = {
        "text.parse_math": False,
        "font.size": 7,
        "axes.titlesize": 9,
        "axes.labelsize": 8,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "font.family": [font for font in _FONTS if font in fonts],
    }
    content = io.BytesIO()
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        figure.suptitle(f"{attention.sentence}\n→ {attention.translation}", fontsize=10)
        grid = figure.subplots(len(kinds), 1, height_ratios=heights, squeeze=False)[:, 0]
        for axes, picture, kind in zip(grid, pictures, kinds, strict=True):
            drawn = axes.imshow(picture, vmin=0, vmax=1, cmap=COLOURS)
            layers, heads = len(kind.layers), len(kind.layers[0])
            axes.set_title(f"{kind.name}: layers 1–{layers} downwards, heads 1–{heads} across")
            axes.set_xticks(*_ticks(kind.keys, heads), rotation=90)
            axes.set_yticks(*_ticks(kind.queries, layers))
            axes.set(xlabel="attended token", ylabel=kind.axis, frame_on=False)
        figure.colorbar(drawn, ax=list(grid), label="attention weight", shrink=0.3, anchor=(0, 1))
        with warnings.catch_warnings():
            # A character that no font has is drawn as a box, which is enough of a warning.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def tiles(layers: list[Tensor]) -> npt.NDArray[np.float32]:
    """Maps side by side: [layers · (T + 1), heads · (S + 1)], with NaN below and right of each."""
    maps = np.stack([layer.numpy() for layer in layers])
    padding = ((0, 0), (0, 0), (0, 1), (0, 1))
    return np.block([list(heads) for heads in np.pad(maps, padding, constant_values=np.nan)])


def _ticks(pieces: list[str], maps: int) -> tuple[list[int], list[str]]:
    """Places and labels along a row or column of maps: one label for each square."""
    places = [j * (len(pieces) + 1) + i for j in range(maps) for i in range(len(pieces))]
    return places, [label(piece) for piece in pieces] * maps


def label(piece: str) -> str:
    """A piece without the mark of a word's beginning, which would look like a line of the axis."""
    return piece.replace("▁", " ").strip() or "␣"


def main() -> None:
    """Writes the page or the image, and prints the translation."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_mt.contrib.report.attention",
        description="Shows the attention weights of a model, as a page or an image.",
    )
    parser.add_argument("model", help="model folder, or hf://ORG/NAME")
    parser.add_argument("sentence", help="sentence that is translated")
    parser.add_argument("output", type=Path, help="a page (.html) or an image (.png) to write")
    parser.add_argument("--tag", help="tag of the sentence, such as <2de>")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    options = parser.parse_args()
    if options.output.suffix not in (".html", ".png"):
        parser.error(f"{options.output} must end in .html, for a page, or .png, for an image")
    with exit_status("attention"):
        translator = Translator.load(options.model, engine="torch", device=options.device)
        (sentence,) = translator.with_tag([options.sentence], options.tag)
        attention = compute_attention(translator, sentence)
        is_page = options.output.suffix == ".html"
        with output(options.output) as place:
            place.write_bytes(page(attention).encode() if is_page else image(attention))
        print(attention.translation)


if __name__ == "__main__":
    main()
