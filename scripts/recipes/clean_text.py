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
import sys
from dataclasses import replace
from pathlib import Path

from recipe import argument_parser, main, say, train_job
from text_cleaning import write_clean_text

from transformer_mt import files, model_folder
from transformer_mt.data.prepare import local_sources
from transformer_mt.data.subwords.tokenizer import vocabulary_files
from transformer_mt.errors import InputError


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
    for target in targets:
        if not target.parent.is_dir():
            raise InputError(f"there is no folder {target.parent}; create it first")
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


if __name__ == "__main__":
    main(clean_text)
