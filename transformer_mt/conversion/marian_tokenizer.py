"""Our vocabulary as a ``MarianTokenizer`` of transformers, which splits text by SentencePiece.

The only differences are within a line: here, tabs and line breaks of other scripts are spaces, and
so are no-break spaces that the training text lacked; such marks of no width are left out, and such
quotes, dashes and ellipses are read as those of ASCII.

The pieces keep their ids. The special symbols have the same ids in both languages, as transformers
wants them.
"""

from typing import Any

from transformer_mt.data.subwords.tokenizer import EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.hub_models import MARIAN_IDS
from transformer_mt.model_folder import ModelSettings

Json = dict[str, Any]


def tokenizer_files(tokenizer: Tokenizer, trained: ModelSettings, num_positions: int) -> Json:
    """The files of the tokenizer of a model, by name, besides its SentencePiece models."""
    tags = [tag for tag in tokenizer.tags if not tag.startswith(">>")]  # besides Marian's own
    if tags and not tokenizer.is_joint:  # an added token has one id for both languages
        raise InputError(
            f"format=transformers: MarianTokenizer takes the tag {tags[0]} for text, unlike one "
            "written as >>fra<<; set format=ctranslate2"
        )
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not tokenizer.is_joint,
        "model_max_length": min(trained.decode.max_source_tokens + 1, num_positions),
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": not tags,  # "</s>" in a text is not the end symbol
        "unk_token": tokenizer.vocabulary[UNK],
        "eos_token": tokenizer.vocabulary[EOS],
        "pad_token": tokenizer.vocabulary[PAD],
        "source_lang": trained.data.src_lang,
        "target_lang": trained.data.tgt_lang,
        "normalization": trained.data.normalization,  # for our own import
    }
    if tags:
        added = {tokenizer.tags[tag]: {"content": tag, "special": False} for tag in tags}
        settings["added_tokens_decoder"] = added
    contents: Json = {"tokenizer_config.json": settings}
    sides = [tokenizer] if tokenizer.is_joint else [tokenizer, tokenizer.tgt]
    for name, side in zip(MARIAN_IDS, sides, strict=False):
        contents[name] = {piece: i for i, piece in enumerate(side.vocabulary)}
    return contents
