"""Multi30k as published scores prepare it: lower-case Moses tokens, and BLEU on them.

    python scripts/recipes/multi30k_tokens.py FOLDER [data.mirror=/data/hub]

FOLDER receives train, valid and test, a text file for each language, such as train.en. The text is
that of data=multi30k, prepared as by the authors' task1-tokenize.sh: in lower case, with Moses'
punctuation and tokens. The case of letters is lost.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from recipe import argument_parser, main, train_job
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from transformer_mt import files
from transformer_mt.data.text.sources import read_pairs


def tokenizer(language: str) -> Callable[[str], str]:
    """Lower case, Moses' punctuation and Moses' tokens of a line."""
    normalize = MosesPunctNormalizer(language).normalize
    # Unescaped: the vocabulary has &, not &amp;. The tokens are the same.
    tokenize = partial(MosesTokenizer(language).tokenize, return_str=True, escape=False)
    return lambda line: tokenize(normalize(line.lower()))


def write_tokens() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="receives the text")
    options, overrides = parser.parse_known_args()
    job = train_job(["data=multi30k", *overrides])
    data, languages = job.data, job.data.languages()
    options.folder.mkdir(parents=True, exist_ok=True)
    prepare = [tokenizer(language) for language in languages]
    for name, sources in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        sides = zip(*read_pairs(sources, *languages), strict=True)
        for language, tokenize, lines in zip(languages, prepare, sides, strict=True):
            text = "".join(f"{tokenize(line)}\n" for line in lines)
            files.write_text(options.folder / f"{name}.{language}", text)


if __name__ == "__main__":
    main(write_tokens)
