"""Writes training text that passes the filters, without duplicates, as plain text.

    python scripts/recipes/clean_text.py mono.de --model MODEL cleaning=standard data=files \\
        data.src_lang=en data.tgt_lang=de 'data.train=[{src: news.de.zst, tgt: news.de.zst}]'
    python scripts/recipes/clean_text.py train.de --source train.en --model MODEL data=multi30k

OUTPUT receives the target side of data.train, by the filters that need one side: monolingual text
is given as both sides of a source. With --source the filters see pairs, and both sides are written.
Filters, languages, normalisation and held-out sets are those of the overrides of mt-train. Lengths
are counted in subwords of MODEL, which will translate the source or, without one, the target side,
and limited to what it translates whole. An interrupted run resumes.
"""

import logging
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from glob import escape
from pathlib import Path

from recipe import argument_parser, main, say, train_job

from transformer_mt import files, model_folder
from transformer_mt.config import DataConfig
from transformer_mt.data.cleaning.cleaner import CleaningReport
from transformer_mt.data.prepare import local_sources
from transformer_mt.data.store import cache
from transformer_mt.data.store.encode import EncodeChunk, encode_all, held_out_hashes
from transformer_mt.data.subwords.tokenizer import (
    Tokenizer,
    vocabulary_checksum,
    vocabulary_files,
)
from transformer_mt.data.text.sources import Pair, fingerprint, read_pairs
from transformer_mt.jobs.line_processor import check_outputs


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
    check_outputs(
        {"OUTPUT": options.output, "--source": options.source},
        [("the data", path) for source in sources for path in source.paths.values()],
    )
    folder = model_folder.locate(options.model, job.cache_dir)
    vocabulary = vocabulary_files(folder)
    cache_dir = files.cache_path(job.cache_dir).resolve()
    train, valid, test = (
        local_sources(sources, job.data, cache_dir)
        for sources in (job.data.train, job.data.valid, job.data.test)
    )
    limit = model_folder.read_config(folder).decode.max_source_tokens
    limit = min(limit, job.data.cleaning.max_tokens)
    cleaning = replace(job.data.cleaning, max_tokens=limit)
    report = write_clean_text(
        replace(job.data, train=train, valid=valid, test=test, cleaning=cleaning),
        targets,
        vocabulary[0] if len(vocabulary) == 1 else Path(folder),
    )
    say(report.to_table())


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
    held_out = held_out_hashes(pairs, data, Tokenizer.load(vocabulary).tags)
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


if __name__ == "__main__":
    main(clean_text)
