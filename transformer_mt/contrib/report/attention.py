"""Shows the attention weights of a model for a sentence and its translation, as a page.

python -m transformer_mt.contrib.report.attention runs/mine "A sentence." attention.html
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

from transformer_mt import InputError, TorchEngine, Translator
from transformer_mt.console import exit_status
from transformer_mt.contrib.report.pages import render
from transformer_mt.files import output

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
    layers: list[list[list[int]]]
    """For each layer and head the weights of T queries and S keys in thousandths, row by row."""
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
        translator: ``Translator.load(FOLDER, engine="torch", split="none")``.
        sentence: May start with a tag.

    Raises:
        InputError: The sentence is empty, or too long for the model.
    """
    engine, tokenizer = translator.engine, translator.tokenizer
    assert isinstance(engine, TorchEngine)
    if not (src := translator.encode(sentence)):
        raise InputError("the sentence is empty")
    if len(src) > translator.max_source_tokens:  # it is translated in parts
        raise InputError("the sentence is too long for this model: use a shorter one")
    ((best,),) = translator.translate_nbest([sentence], 1)
    ids = {piece: i for i, piece in enumerate(tokenizer.tgt.vocabulary)}
    tgt = [ids[piece] for piece in best.pieces[:-1]]  # without the end symbol
    maps, read, written = engine.attention_maps(src, tgt, tokenizer)
    kinds = [
        # A row of the decoder is named after the piece that it predicts, not the one that it reads:
        # the weights of a word are then in its own row.
        Weights(
            name,
            axis,
            [(layer * 1000).round().int().flatten(1).tolist() for layer in maps[kind]],
            read if kind == "encoder" else written[1:],
            written[:-1] if kind == "decoder" else read,
        )
        for kind, (name, axis) in _KINDS.items()
    ]
    return Attention(sentence, best.text, kinds)


def page(attention: Attention) -> str:
    """The weights as an interactive HTML page."""
    return render("attention.html", "attention.js", title="Attention", **asdict(attention))


def main() -> None:
    """Writes the page, and prints the translation."""
    parser = argparse.ArgumentParser(
        prog="python -m transformer_mt.contrib.report.attention",
        description="Shows the attention weights of a model, as a page.",
    )
    parser.add_argument("model", help="model folder, or hf://ORG/NAME")
    parser.add_argument("sentence", help="sentence that is translated; may start with a tag")
    parser.add_argument("output", type=Path, help="page to write, such as attention.html")
    options = parser.parse_args()
    with exit_status("attention"):
        translator = Translator.load(options.model, engine="torch", split="none")
        attention = compute_attention(translator, options.sentence)
        with output(options.output) as place:
            place.write_text(page(attention), encoding="utf-8")
        print(attention.translation)


if __name__ == "__main__":
    main()
