"""``mt-export format=browser``: what optimum converts to ONNX for transformers.js.

The folder of ``format=transformers``, with the vocabulary as a ``tokenizer.json``: transformers.js
does not read SentencePiece models.
"""

import json
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor

from transformer_mt import InputError, LoadedFolder


def write_folder(source: LoadedFolder, folder: Path, _: str | None) -> str:
    """Writes a folder for ``optimum-cli export onnx``: an ``ExportFormat``."""
    trained, normalization = source.trained, source.trained.data.normalization
    kind = source.write("transformers", folder, None)
    pieces = SentencePieceProcessor(model_file=str(folder / "source.spm"))
    needs = [f"tags such as {tag}" for tag in source.tokenizer.tags][:1]
    needs += ["tokenizer.joint=false"] * (not source.tokenizer.is_joint)
    needs += [f"data.normalization={normalization}"] * (normalization != "none")
    needs += ["the normalisation of its vocabulary"] * ("ﬁ" not in pieces.normalize("ﬁ"))
    if needs:
        raise InputError(
            f"format=browser: this model needs {needs[0]}, which tokenizer.json does not have; set "
            "format=transformers, for Python"
        )
    for name in ("source.spm", "target.spm", "vocab.json"):
        (folder / name).unlink()
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    contents = {path.name: settings, "tokenizer.json": _tokenizer(pieces, trained.tokenizer.type)}
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return f"{kind} with tokenizer.json"


def _tokenizer(pieces: SentencePieceProcessor, kind: str) -> dict[str, Any]:
    """The content of ``tokenizer.json``, with the ids of the SentencePiece model."""
    ids = {pieces.id_to_piece(i): i for i in range(len(pieces))}
    end = pieces.id_to_piece(pieces.eos_id())
    special = [
        {"id": i, "content": piece, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for piece, i in ids.items()
        if pieces.is_control(i) or pieces.is_unknown(i)
    ]
    # As SentencePiece: spaces are merged and marked, also before the first word.
    normalizers = [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in (("^[ \\t]+", ""), ("[ \\t]+", "▁"), ("▁+$", ""))
    ]
    normalizers.append({"type": "Prepend", "prepend": "▁"})
    decoders = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]
    template = [
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": end, "type_id": 0}},
    ]
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template,
            "pair": template,
            "special_tokens": {end: {"id": end, "ids": [ids[end]], "tokens": [end]}},
        },
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _model(pieces, ids, kind),
    }


def _model(pieces: SentencePieceProcessor, ids: dict[str, int], kind: str) -> dict[str, Any]:
    """The pieces as a model of ``kind``, ``bpe`` or ``unigram``.

    BPE joins the two pieces that make the piece with the highest score, here the earliest merge.
    """
    scores = {piece: pieces.get_score(i) for piece, i in ids.items()}
    if kind == "unigram":
        unk, vocab = pieces.unk_id(), [*scores.items()]
        return {"type": "Unigram", "unk_id": unk, "byte_fallback": True, "vocab": vocab}
    merges = [
        [piece[:i], piece[i:]]
        for piece in sorted(ids, key=lambda piece: -scores[piece])
        for i in range(1, len(piece))
        if piece[:i] in ids and piece[i:] in ids
    ]
    return {
        "type": "BPE",
        "unk_token": pieces.id_to_piece(pieces.unk_id()),
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": ids,
        "merges": merges,
    }
