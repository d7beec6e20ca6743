"""Fixtures of the tests of translation."""

from collections.abc import Callable

import pytest
from support.models import make_tokenizer, make_translator, random_model

from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.translator import Translator
from transformer_mt.model.transformer import Transformer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return make_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture
def make(tokenizer: Tokenizer) -> Callable[..., Translator]:
    """Makes a translator with a model, by default a random one, and search settings."""
    usual = random_model()

    def translator(model: Transformer = usual, **settings: object) -> Translator:
        config = DecodeConfig(**{"max_extra_tokens": 6, **settings})  # type: ignore[arg-type]
        return make_translator(model, tokenizer, config)

    return translator
