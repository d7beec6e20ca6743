"""Our vocabulary as a ``MarianTokenizer`` of transformers, which splits text by SentencePiece.

The only differences are within a line: here, tabs and line breaks of other scripts are spaces, and
marks of no width that the training text lacked are left out.

One SentencePiece model for both languages keeps our ids. Two get Marian's: ``</s>``, ``<unk>``, the
pieces, and last ``<pad>``, with which the decoder starts: it is our ``<s>``. Our own ``<pad>``,
which no batch contains, is left out. Separate vocabularies have ``<pad>`` third, because both sides
must have it in the same place.

Shapes: V vocabulary.
"""

from typing import Any

from torch import Tensor

from transformer_mt.config import TrainJob
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.hub_models import MARIAN_IDS

Json = dict[str, Any]


def tokenizer_files(tokenizer: Tokenizer, trained: TrainJob) -> Json:
    """The files of the tokenizer of a model, by name, besides its SentencePiece models."""
    tags = [tag for tag in tokenizer.tags if not tag.startswith(">>")]  # besides Marian's own
    if tags and not has_our_ids(tokenizer):
        raise InputError(
            f"format=transformers: MarianTokenizer takes the tag {tags[0]} for text, unlike one "
            "written as >>fra<<; set format=ctranslate2"
        )
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not tokenizer.is_joint,
        "model_max_length": trained.decode.max_source_tokens + 1,
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
        pieces = list(side.vocabulary)
        if not has_our_ids(tokenizer):
            pieces[BOS] = pieces[PAD]
            pieces = [pieces[i] for i in _order(tokenizer, side)]
        contents[name] = {piece: i for i, piece in enumerate(pieces)}
    return contents


def has_our_ids(tokenizer: Tokenizer) -> bool:
    """Whether the pieces keep their ids: whether both languages share a SentencePiece model."""
    return tokenizer.tgt is tokenizer


def normalization_gap(normalization: str) -> str | None:
    """A sentence on what ``MarianTokenizer`` lacks of ``data.normalization``; None for ``none``."""
    if normalization == "none":
        return None
    by_hand = "has tokenizer.normalize for it, which must be called for each line"
    return f"MarianTokenizer {by_hand if normalization == 'moses' else 'does not have it'}"


def token_settings(tokenizer: Tokenizer) -> Json:
    """Settings that replace those of ``transformers_model.model_settings`` in ``config.json``."""
    sizes = (len(_order(tokenizer, side)) for side in (tokenizer, tokenizer.tgt))
    return _special(tokenizer) | dict(zip(("vocab_size", "decoder_vocab_size"), sizes, strict=True))


def generation_settings(tokenizer: Tokenizer) -> Json:
    """Settings that are added to ``generation_config.json``."""
    ids = _special(tokenizer)
    unk = _order(tokenizer, tokenizer.tgt).index(UNK)
    return ids | {"suppress_tokens": [unk, ids["pad_token_id"]]}


def _special(tokenizer: Tokenizer) -> Json:
    order = _order(tokenizer, tokenizer.tgt)
    pad, eos = order.index(BOS), order.index(EOS)
    return {
        **dict.fromkeys(("pad_token_id", "decoder_start_token_id"), pad),
        **dict.fromkeys(("bos_token_id", "eos_token_id", "forced_eos_token_id"), eos),
    }


def renumbered(weights: dict[str, Tensor], tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The weights of a MarianMT model, by their names there, with its rows in Marian's order."""
    source, target = _order(tokenizer, tokenizer), _order(tokenizer, tokenizer.tgt)
    names = ("model.shared.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    orders = {"model.encoder.embed_tokens.weight": source, **dict.fromkeys(names, target)}
    result = weights | {name: weights[name][orders[name]] for name in orders if name in weights}
    return result | {"final_logits_bias": weights["final_logits_bias"][:, target]}


def _order(tokenizer: Tokenizer, side: Tokenizer) -> list[int]:
    """Our ids, by Marian's, of one of the sides of a vocabulary."""
    pieces = range(EOS + 1, side.vocab_size)
    return [EOS, UNK, *pieces, BOS] if tokenizer.is_joint else [EOS, UNK, BOS, *pieces]
