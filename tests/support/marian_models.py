"""MarianMT folders as transformers itself writes them: random weights, two SentencePiece models."""

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece as spm
import torch


def train_side(
    lines: Iterable[str], path: Path, vocab_size: int, model_type: str = "unigram"
) -> list[str]:
    """Trains a SentencePiece model as OPUS-MT does, without bytes; returns its pieces."""
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        model_type=model_type,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    processor = spm.SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(i) for i in range(len(processor))]


def write_vocabulary(
    folder: Path,
    pieces: Sequence[Sequence[str]],
    tags: Sequence[str] = (),
    *,
    name: str = "vocab.json",
    pad_first: bool = False,
) -> dict[str, int]:
    """Writes a vocabulary in Marian's order: ``</s>``, ``<unk>``, pieces, ``<pad>``.

    Of two vocabularies, each has ``<pad>`` at the beginning.
    """
    text = (piece for side in pieces for piece in side if piece not in ("<s>", "</s>", "<unk>"))
    pad = ["<pad>"] * pad_first
    names = dict.fromkeys(["</s>", "<unk>", *pad, *tags, *text, "<pad>"])
    ids = {piece: i for i, piece in enumerate(names)}
    (folder / name).write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
    return ids


def write_tokenizer_config(folder: Path, source: str, target: str, **settings: Any) -> None:
    content = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": source,
        "target_lang": target,
        "model_max_length": 512,
        "separate_vocabs": False,
        **settings,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")


def random_model(vocab_size: int, *, scale: float = 1.0, **settings: Any) -> Any:
    """A MarianMT model with the settings of OPUS-MT, random biases and norms.

    Args:
        vocab_size: Number of pieces; the last one is ``<pad>``, unless the settings have another.
        scale: Multiple of the initial weights of transformers; larger ones give peaked outputs.
        settings: Of ``MarianConfig``.
    """
    from transformers import MarianConfig, MarianMTModel

    pad = settings.get("pad_token_id", vocab_size - 1)
    stack = {"layers": 2, "ffn_dim": 32, "attention_heads": 2}
    defaults = {
        **{f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in stack.items()},
        **dict.fromkeys(("vocab_size", "decoder_vocab_size"), vocab_size),
        **dict.fromkeys(("pad_token_id", "decoder_start_token_id"), pad),
        **dict.fromkeys(("eos_token_id", "forced_eos_token_id", "bos_token_id"), 0),
        "d_model": 16,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 512,
        "dropout": 0.1,
    }
    torch.manual_seed(1)
    model = MarianMTModel(MarianConfig(**{**defaults, **settings})).eval()
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" in name:
                continue
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
            elif "norm" in name:
                parameter.normal_(1, 0.1)
            else:
                parameter.mul_(scale)
        for embedding in (model.get_encoder().embed_tokens, model.get_decoder().embed_tokens):
            embedding.weight[pad] = torch.randn(model.config.d_model) * 0.02
        model.final_logits_bias[0, 0] = 0
        model.final_logits_bias[0, 1] = -30  # <unk>, as of a trained model
    generation = model.generation_config
    generation.num_beams, generation.max_length = 4, 512
    generation.bad_words_ids, generation.renormalize_logits = [[pad]], True
    return model


def generate(
    model: Any, sources: Sequence[Sequence[int]], beam_size: int, new_tokens: int
) -> list[list[int]]:
    """The translations of ``generate`` without a length penalty, less the end symbol.

    Sources have the end symbol, which also counts as one of the new tokens.
    """
    pad, longest = model.config.pad_token_id, max(map(len, sources))
    ids = torch.tensor([[*source, *[pad] * (longest - len(source))] for source in sources])
    more = {"length_penalty": 0.0, "early_stopping": True} if beam_size > 1 else {}
    found = model.generate(
        ids,
        attention_mask=(ids != pad).long(),
        num_beams=beam_size,
        max_new_tokens=new_tokens,
        **more,
    )
    return [row[: row.index(0)] for row in found[:, 1:].tolist()]
