"""Tokenizers of both types."""

import pytest
from support.tokenizers import small_tokenizer

from transformer_mt.data.subwords.tokenizer import Tokenizer


@pytest.fixture(scope="session", params=["bpe", "unigram"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    return small_tokenizer(tmp_path_factory.mktemp("vocabulary") / "m", type=request.param)
