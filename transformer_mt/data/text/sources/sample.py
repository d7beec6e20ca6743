"""The built-in English–German sample, so that everything runs offline.

It ships as compressed text, which the grammar in ``scripts/sample`` generated.
"""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources.registry import Pair, reader
from transformer_mt.errors import InputError

VERSION = 1
"""Version of the text, part of the sample's fingerprint."""
SPLITS = ("train", "valid", "test")

_FOLDER = Path(__file__).with_name("sample_corpus")


@reader("sample")
def _read_sample(source: SourceConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    assert source.sample is not None
    if {src_lang, tgt_lang} != {"en", "de"}:
        raise InputError(
            f"the built-in sample is in en and de; it has no {src_lang}-{tgt_lang}: "
            "set data.src_lang and data.tgt_lang"
        )
    for en, de in sample_pairs(source.sample):
        yield Pair(en, de) if src_lang == "en" else Pair(de, en)


def sample_pairs(split: str) -> list[tuple[str, str]]:
    """Pairs (English, German) of a split: 40,000 in ``train``, 500 in ``valid``, 1,000 in ``test``.

    Raises:
        ValueError: There is no such split.
    """
    if split not in SPLITS:
        raise ValueError(f"the built-in sample has no split {split!r}: use train, valid or test")
    pairs = []
    for line in read_lines(_FOLDER / f"{split}.tsv.zst"):
        english, german = line.split("\t")
        pairs.append((english, german))
    return pairs
