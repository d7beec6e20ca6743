"""The built-in sample for tests."""

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import Pair, read_pairs


def sample_pairs(split: str) -> list[Pair]:
    """English–German pairs of a split."""
    return list(read_pairs([SourceConfig(sample=split)], src_lang="en", tgt_lang="de"))
