"""Writes training text that passes the filters, without duplicates, as plain text.

    python scripts/recipes/clean_text.py mono.de --model MODEL cleaning=standard data=files \\
        data.src_lang=en data.tgt_lang=de 'data.train=[{src: news.de.zst, tgt: news.de.zst}]'
    python scripts/recipes/clean_text.py train.de --source train.en --model MODEL data=multi30k

OUTPUT receives the target side of data.train, by the filters that need one side: monolingual text
is given as both sides of a source. With --source the filters see pairs, and both sides are written.
Filters, languages, normalisation and held-out sets are those of the overrides of mt-train. Lengths
are counted in subwords of MODEL, which will translate the source or, without one, the target side,
and limited to what it translates whole.
"""

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from recipe import argument_parser, main, say, train_job

from transformer_mt import files, model_folder
from transformer_mt.config import DataConfig, TrainJob
from transformer_mt.data.cleaning.cleaner import CleanedPair, CleaningReport, report_table
from transformer_mt.data.cleaning.filters import SET_ASIDE, active_filters, overlaps
from transformer_mt.data.held_out import side_hashes
from transformer_mt.data.store.encode import Arrays, Chunk, EncodeChunk, KeptPair, encode_all
from transformer_mt.data.subwords.tokenizer import (
    EOS,
    Tokenizer,
    one_line,
    vocabulary_files,
)
from transformer_mt.data.text.normalization import normalize
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.data.text.tags import add_tag
from transformer_mt.jobs.line_processor import check_output
from transformer_mt.protocols import Pair


def clean_text() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("output", metavar="OUTPUT", help="file of the target side")
    parser.add_argument("--source", metavar="FILE", help="file of the source side, aligned with it")
    parser.add_argument("--model", required=True, help="model folder, or hf://ORG/NAME")
    options, overrides = parser.parse_known_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    job = train_job(overrides)
    outputs = [options.output] if options.source is None else [options.source, options.output]
    targets = [files.expand_user(output).resolve() for output in outputs]
    sources = (*job.data.train, *job.data.valid, *job.data.test)
    inputs = [("the data", path) for source in sources for path in source.paths.values()]
    check_output("OUTPUT", options.output, inputs)
    if options.source is not None:
        check_output("--source", options.source, [*inputs, ("OUTPUT", options.output)])
    folder = model_folder.locate(options.model, job.cache_dir)
    vocabulary = vocabulary_files(folder)
    limit = model_folder.read_config(folder, TrainJob).decode.max_source_tokens
    limit = min(limit, job.data.cleaning.max_tokens)
    cleaning = replace(job.data.cleaning, max_tokens=limit)
    report = write_clean_text(
        replace(job.data, cleaning=cleaning),
        targets,
        vocabulary[0] if len(vocabulary) == 1 else Path(folder),
    )
    say(report_table(cleaning, report.to_json()))


class CleanPairs(EncodeChunk):
    """Worker task: as ``EncodeChunk``, but with the text as it was read instead of tokens."""

    def content(self, source: int, kept: list[KeptPair]) -> Arrays:
        """The lines of each side."""
        lines = [Pair(add_tag(p.cleaned.tag, p.cleaned.line.src), p.cleaned.line.tgt) for p in kept]
        texts = {
            name: "".join(f"{one_line(getattr(pair, name))}\n" for pair in lines)
            for name in Pair._fields
        }
        return {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}


class CleanLines(CleanPairs):
    """``CleanPairs`` of monolingual text: the source side is ignored.

    The target side is the input of the vocabulary's model, which translates it back.
    """

    def kept_pairs(self, chunk: Chunk, report: CleaningReport) -> list[KeptPair]:
        """The lines that pass the filters of one side, as both sides of a pair."""
        source, kept = self.data.train[chunk.source], list[KeptPair]()
        languages, cleaning = self.data.languages(source), self.data.cleaning
        tests = [
            (f.name, f.side(cleaning, languages[1])) for f in active_filters(cleaning) if f.side
        ]
        tests.append((SET_ASIDE, lambda text: overlaps([text], self.held_out)))
        for row, line in enumerate(chunk.pairs, chunk.first_row):
            text = normalize(line.tgt, self.data.normalization, languages[1])
            pair, ids = Pair(text, text), list[int]()
            reason = next((name for name, drops in tests if drops(text)), None)
            if reason is None:
                ids = [*self.tokenizer.encode(text), EOS]
                reason = "length" if len(ids) > cleaning.max_tokens else None
            if reason is None:
                kept.append(KeptPair(row, CleanedPair("", line, pair, None), ids, ids))
            else:
                report.add(reason, f"{source.name}:{row}", "", text)
        return kept


def write_clean_text(data: DataConfig, outputs: Sequence[Path], vocabulary: Path) -> CleaningReport:
    """Writes the training text that ``data.cleaning`` keeps, as it was read, one line a sentence.

    Tabs and other line breaks become spaces. The first output appears last.

    Args:
        data: The configuration; ``data.train`` is the text.
        outputs: A file for each side of the pairs, or a single one: then only the target side is
            read, by the filters that need one side.
        vocabulary: A SentencePiece model, or a folder with those of both languages, by which
            lengths are limited; of a target side alone, of a model whose source it is.

    Raises:
        InputError: A source cannot be read, or nothing is left.
    """
    sources = (*data.valid, *data.test) if data.cleaning.drop_held_out else ()
    pairs = read_pairs(sources, *data.languages())
    held_out = side_hashes(pairs, data, Tokenizer(vocabulary).tags)
    clean = CleanLines if len(outputs) == 1 else CleanPairs
    with TemporaryDirectory(dir=outputs[0].parent, prefix=f"{outputs[0].name}.") as folder:
        chunks, report = encode_all(clean(data, vocabulary, held_out), Path(folder))
        kept = np.concatenate([mask for _, mask in chunks])
        with ExitStack() as stack:
            temporary = [stack.enter_context(files.atomic(path)) for path in outputs]
            for side, path in zip(reversed(Pair._fields), reversed(temporary), strict=False):
                with (Path(folder) / side).open("rb") as lines, path.open("wb") as file:
                    file.writelines(compress(lines, kept))
    return report


if __name__ == "__main__":
    main(clean_text)
