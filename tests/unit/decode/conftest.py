"""Fixtures of the tests of translation."""

import pytest
from support.models import make_tokenizer

from transformer_mt.data.subwords.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return make_tokenizer(tmp_path_factory.mktemp("vocabulary"))
