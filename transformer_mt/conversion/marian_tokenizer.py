"""A vocabulary of two SentencePiece models as a ``MarianTokenizer`` of transformers."""

from typing import Any

from transformer_mt import run_layout
from transformer_mt.config import TrainJob
from transformer_mt.conversion.transformers_tokenizer import languages
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.errors import InputError

Json = dict[str, Any]


def tokenizer_files(tokenizer: Tokenizer, trained: TrainJob) -> Json:
    """The files of the tokenizer of a model, by name, besides its SentencePiece models.

    Raises:
        InputError: The vocabulary has a tag that ``MarianTokenizer`` would take for text.
    """
    if texts := [tag for tag in tokenizer.tags if not tag.startswith(">>")]:
        raise InputError(
            f"format=transformers: MarianTokenizer takes the tag {texts[0]} for text, unlike one "
            "written as >>fra<<; set format=ctranslate2"
        )
    sides = [tokenizer] if tokenizer.is_joint else [tokenizer, tokenizer.tgt]
    contents: Json = {
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "separate_vocabs": not tokenizer.is_joint,
            "model_max_length": trained.decode.max_source_tokens + 1,
            "clean_up_tokenization_spaces": False,
            "unk_token": "<unk>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            **languages(trained.data),
        }
    }
    for name, side in zip(run_layout.PIECES, sides, strict=False):
        contents[name] = {piece: i for i, piece in enumerate(side.vocabulary)}
    return contents


def normalization_gap(normalization: str) -> str | None:
    """The part of ``data.normalization`` that ``MarianTokenizer`` omits; None if it has all."""
    if normalization == "none":
        return None
    by_hand = "has tokenizer.normalize for it, which must be called for each line"
    return f"MarianTokenizer {by_hand if normalization == 'moses' else 'does not have it'}"
