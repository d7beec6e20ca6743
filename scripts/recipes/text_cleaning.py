"""Cleaning of training text, pairs or monolingual, for recipes: lines in, lines out.

Worker processes clean chunks, each into a file, so that an interrupted run resumes from the files
it finds. Duplicates are found over all of them, as in a corpus that is encoded. This is a module of
its own because worker processes do not import the main program.
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt import files
from transformer_mt.config import DataConfig
from transformer_mt.data.cleaning.cleaner import Cleaner, CleaningReport, cleaners
from transformer_mt.data.store import cache
from transformer_mt.data.store.encode import (
    Chunk,
    EncodeChunk,
    EncodedChunk,
    deduplicate,
    duplicate_hashes,
    held_out_hashes,
    read_chunks,
)
from transformer_mt.data.store.workers import map_ordered, num_workers
from transformer_mt.data.subwords.tokenizer import one_line, vocabulary_checksum
from transformer_mt.data.text.sources import Pair, fingerprint, read_pairs
from transformer_mt.data.text.tags import add_tag, split_tag
from transformer_mt.errors import InputError
from transformer_mt.progress_reporter import ProgressReporter


@dataclass(frozen=True)
class CleanChunk(EncodeChunk):
    """Worker task: writes the lines of a chunk that pass the filters, unless the file exists.

    See ``EncodeChunk`` for the other arguments.
    """

    target_only: bool = False
    """Whether the chunk is text of the target language, and the source side is ignored."""

    def _encode(self, chunk: Chunk, report: CleaningReport) -> dict[str, Any]:
        """The lines as bytes, one array for each side, and the hashes of ``DUPLICATE_KEYS``."""
        report.total += len(chunk.pairs)
        name, cleaner = self.data.train[chunk.source].name, self._cleaners[chunk.source]
        kept, lines = list[Pair](), list[Pair]()
        for row, line in enumerate(chunk.pairs, chunk.first_row):
            source = "" if self.target_only else line.src
            tag, text = split_tag(source, self.data.tags)
            pair = cleaner.normalize(Pair(text, line.tgt))
            reason = cleaner.check_text(*pair) or self._check_lengths(cleaner, pair, bool(tag))
            reason = reason or self._held_out(pair)
            if reason is not None:
                report.add(reason, f"{name}:{row}", *pair)
                continue
            kept.append(Pair(add_tag(tag, pair.src), pair.tgt))
            lines.append(Pair(one_line(source), one_line(line.tgt)))
        arrays = duplicate_hashes(kept, report)
        for side in Pair._fields:
            text = "".join(f"{getattr(line, side)}\n" for line in lines)
            arrays[side] = np.frombuffer(text.encode(), np.uint8)
        return arrays

    def _check_lengths(self, cleaner: Cleaner, pair: Pair, has_tag: bool) -> str | None:
        tokenizer = self._tokenizer
        if self.target_only:  # the input of a model that translates it back
            length = len(tokenizer.encode([pair.tgt])[0]) + 1
            return cleaner.check_lengths(length, length)
        (src,), (tgt,) = tokenizer.encode([pair.src]), tokenizer.tgt.encode([pair.tgt])
        return cleaner.check_lengths(len(src) + 1 + has_tag, len(tgt) + 1)

    @cached_property
    def _cleaners(self) -> list[Cleaner]:
        return cleaners(self.data, target_only=self.target_only)


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
    checksum = vocabulary_checksum(vocabulary)
    languages = [data.src_lang, data.tgt_lang, data.normalization, target_only]
    key = cache.key(identities, asdict(data.cleaning), languages, checksum, sorted(held_out))
    folder = output.with_name(f"{output.name}.{key}.parts")
    folder.mkdir(exist_ok=True)
    task = CleanChunk(data, vocabulary, folder, held_out, target_only)
    chunks, report = list[EncodedChunk](), CleaningReport(data.cleaning)
    with (
        closing(map_ordered(task, read_chunks(data), num_workers(data.workers))) as cleaned,
        ProgressReporter("lines", "cleaned") as progress,
    ):
        for chunk, part in cleaned:
            chunks.append(chunk)
            report.merge(part)
            progress.update(report.total)
    if not report.kept:
        shutil.rmtree(folder)
        raise InputError(f"nothing is left after cleaning:\n{report.to_table()}")
    masks = deduplicate(chunks, report)
    with ExitStack() as stack:
        temporary = [stack.enter_context(files.atomic(path)) for path in outputs]
        opened = [stack.enter_context(path.open("wb")) for path in temporary]
        for chunk, mask in zip(chunks, masks, strict=True):
            with np.load(chunk.path) as arrays:
                for side, file in zip(reversed(Pair._fields), reversed(opened), strict=False):
                    lines = arrays[side].tobytes().split(b"\n")
                    file.writelines(lines[i] + b"\n" for i in np.flatnonzero(mask))
    for parts in output.parent.glob(f"{escape(output.name)}.{'?' * len(key)}.parts"):
        shutil.rmtree(parts)  # also those of earlier settings
    return report
