"""Cleaning of training text, pairs or monolingual, for recipes: lines in, lines out.

The text is cleaned as a corpus that is encoded is, by the same workers.
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from glob import escape
from pathlib import Path

from transformer_mt import files
from transformer_mt.config import DataConfig
from transformer_mt.data.cleaning.cleaner import CleaningReport
from transformer_mt.data.store import cache
from transformer_mt.data.store.encode import EncodeChunk, encode_all, held_out_hashes
from transformer_mt.data.subwords.tokenizer import vocabulary_checksum
from transformer_mt.data.text.sources import Pair, fingerprint, read_pairs


def write_clean_text(data: DataConfig, outputs: Sequence[Path], vocabulary: Path) -> CleaningReport:
    """Writes the training text that ``data.cleaning`` keeps, as it was read, one line a sentence.

    Tabs and other line breaks become spaces. The first output appears last; an interrupted call
    resumes from ``OUTPUT.*.parts``.

    Args:
        data: The configuration; ``data.train`` is the text.
        outputs: A file for each side of the pairs, or a single one: then only the target side is
            read, by the filters that need one side.
        vocabulary: A SentencePiece model, or a folder with those of both languages, by which
            lengths are limited; of a target side alone, of a model whose source it is.

    Raises:
        InputError: A source cannot be read, or nothing is left.
    """
    target_only, output = len(outputs) == 1, outputs[0]
    sources = (*data.valid, *data.test) if data.cleaning.drop_held_out else ()
    pairs = read_pairs(sources, src_lang=data.src_lang, tgt_lang=data.tgt_lang)
    held_out = held_out_hashes(pairs, data, data.tags)
    identities = [fingerprint(source) for source in data.train]
    languages = [data.src_lang, data.tgt_lang, data.normalization, target_only]
    settings = [asdict(data.cleaning), vocabulary_checksum(vocabulary), sorted(held_out)]
    key = cache.key(identities, languages, settings)
    folder = output.with_name(f"{output.name}.{key}.parts")
    task = EncodeChunk(data, vocabulary, folder, held_out, target_only, as_text=True)
    chunks, masks, report = encode_all(task)
    with ExitStack() as stack:
        temporary = [stack.enter_context(files.atomic(path)) for path in outputs]
        opened = [stack.enter_context(path.open("wb")) for path in temporary]
        for chunk, mask in zip(chunks, masks, strict=True):
            for side, file in zip(reversed(Pair._fields), reversed(opened), strict=False):
                file.writelines(line + b"\n" for line in chunk.read_text(side, mask))
    for parts in output.parent.glob(f"{escape(output.name)}.{'?' * len(key)}.parts"):
        shutil.rmtree(parts)  # also those of earlier settings
    return report
