"""A vocabulary of two SentencePiece models as a ``MarianTokenizer`` of transformers.

Marian's numbers are ``</s>``, ``<unk>``, the pieces, and last ``<pad>``, with which the decoder
starts: it is our ``<s>``. Our own ``<pad>``, which no batch contains, is left out. Two vocabularies
have ``<pad>`` third, because both sides must have it in the same place.

Shapes: V vocabulary.
"""

from typing import Any

from torch import Tensor

from transformer_mt import run_layout
from transformer_mt.config import DataConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, UNK, Tokenizer

Json = dict[str, Any]


def vocabulary_contents(tokenizer: Tokenizer) -> Json:
    """Content of ``vocab.json`` and, for two vocabularies, of ``target_vocab.json``."""
    sides = [tokenizer] if tokenizer.is_joint else [tokenizer, tokenizer.tgt]
    contents = {}
    for name, side in zip(run_layout.PIECES, sides, strict=False):
        names = ["<pad>" if i == BOS else side.vocabulary[i] for i in _order(tokenizer, side)]
        contents[name] = {piece: i for i, piece in enumerate(names)}
    return contents


def tokenizer_settings(tokenizer: Tokenizer, data: DataConfig, max_source_tokens: int) -> Json:
    """Content of ``tokenizer_config.json``."""
    return {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": data.src_lang,
        "target_lang": data.tgt_lang,
        "separate_vocabs": not tokenizer.is_joint,
        "model_max_length": max_source_tokens + 1,
        "clean_up_tokenization_spaces": False,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "normalization": data.normalization,  # read by our import only
    }


def token_settings(tokenizer: Tokenizer) -> tuple[Json, Json]:
    """What differs in ``config.json`` and in ``generation_config.json``."""
    order = _order(tokenizer, tokenizer.tgt)
    pad, unk, eos = (order.index(i) for i in (BOS, UNK, EOS))
    ids: Json = dict.fromkeys(("pad_token_id", "decoder_start_token_id"), pad)
    ids |= dict.fromkeys(("bos_token_id", "eos_token_id", "forced_eos_token_id"), eos)
    sizes = (len(_order(tokenizer, side)) for side in (tokenizer, tokenizer.tgt))
    config = dict(zip(("vocab_size", "decoder_vocab_size"), sizes, strict=True))
    return ids | config, ids | {"suppress_tokens": [unk, pad], "bad_words_ids": [[pad]]}


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
