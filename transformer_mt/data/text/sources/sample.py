"""The built-in English–German sample, so that everything runs offline.

It ships as compressed text, which the grammar in ``scripts/sample`` generated.
"""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources.files import Pair
from transformer_mt.errors import InputError

VERSION = 1
"""Version of the text, part of the sample's fingerprint."""

_FOLDER = Path(__file__).with_name("sample_corpus")


def read_sample(source: SourceConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Streams a split of the sample, in either direction."""
    assert source.sample is not None
    if {src_lang, tgt_lang} != {"en", "de"}:
        raise InputError(
            f"the built-in sample is in en and de; it has no {src_lang}-{tgt_lang}: "
            "set data.src_lang and data.tgt_lang"
        )
    for pair in sample_pairs(source.sample):
        yield pair if src_lang == "en" else Pair(pair.tgt, pair.src)


def sample_pairs(split: str) -> list[Pair]:
    """English–German pairs of a split: 40,000 in ``train``, 500 in ``valid``, 1,000 in ``test``."""
    return [Pair(*line.split("\t")) for line in read_lines(_FOLDER / f"{split}.tsv.zst")]
