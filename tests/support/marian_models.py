"""MarianMT folders as transformers itself writes them: random weights, two SentencePiece models."""

import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece as spm
import torch


def train_side(lines: Iterable[str], path: Path, vocab_size: int) -> list[str]:
    """Trains a SentencePiece model as OPUS-MT does, unigram without bytes; returns its pieces."""
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        model_type="unigram",
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


def random_model(
    vocab_size: int, *, seed: int = 1, scale: float = 1.0, end: float = 0.0, **settings: Any
) -> Any:
    """A MarianMT model with the settings of OPUS-MT, random biases and norms.

    Args:
        vocab_size: Number of pieces; the last one is ``<pad>``, unless the settings have another.
        seed: Seed of the weights.
        scale: Multiple of the initial weights of transformers; larger ones give peaked outputs.
        end: Bias of ``</s>``; a larger one gives shorter translations.
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
    torch.manual_seed(seed)
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
        model.final_logits_bias[0, 0] = end
        model.final_logits_bias[0, 1] = -30  # <unk>, as of a trained model
    generation = model.generation_config
    generation.num_beams, generation.max_length = 4, 512
    generation.bad_words_ids, generation.renormalize_logits = [[pad]], True
    return model


def generate(
    model: Any,
    sources: Sequence[Sequence[int]],
    beam_size: int,
    new_tokens: int,
    *,
    charge_end: bool = False,
) -> list[list[tuple[list[int], float]]]:
    """The translations of ``generate``, best first, without a length penalty.

    Args:
        model: A model of ``random_model``.
        sources: Token ids with the end symbol.
        beam_size: Beams, and translations of each source.
        new_tokens: Maximum number of tokens, end symbol included.
        charge_end: Whether the end symbol that is forced at the limit counts with its
            log-probability, as in our search. ``ForcedEOSTokenLogitsProcessor`` of transformers
            gives it 0.

    Returns:
        For each source, tokens without the end symbol and their summed log-probability, which
        greedy search does not have.
    """
    pad, config = model.config.pad_token_id, model.generation_config

    def end_charged(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.log_softmax(-1)  # renormalize_logits, before all but the end is ruled out
        if ids.shape[1] == new_tokens:
            ends = scores[:, :1]
            scores = torch.full_like(scores, -math.inf)
            scores[:, :1] = ends
        return scores

    before = config.forced_eos_token_id, config.renormalize_logits
    more: dict[str, Any] = {"length_penalty": 0.0, "early_stopping": True}
    if beam_size == 1:
        more = {}
    if charge_end:
        config.forced_eos_token_id, config.renormalize_logits = None, False
        more["logits_processor"] = [end_charged]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    results: dict[int, list[tuple[list[int], float]]] = {}
    for start in range(0, len(order), 16):
        batch = order[start : start + 16]
        longest = len(sources[batch[-1]])
        ids = torch.tensor([[*sources[i], *[pad] * (longest - len(sources[i]))] for i in batch])
        output = model.generate(
            ids,
            attention_mask=(ids != pad).long(),
            num_beams=beam_size,
            num_return_sequences=beam_size,
            max_new_tokens=new_tokens,
            return_dict_in_generate=True,
            output_scores=True,
            **more,
        )
        scores = [0.0] * len(output.sequences) if beam_size == 1 else output.sequences_scores
        found = [
            (row[: row.index(0)], float(score))
            for row, score in zip(output.sequences[:, 1:].tolist(), scores, strict=True)
        ]
        for n, i in enumerate(batch):
            results[i] = found[n * beam_size : (n + 1) * beam_size]
    config.forced_eos_token_id, config.renormalize_logits = before
    return [results[i] for i in range(len(sources))]
