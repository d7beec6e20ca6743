"""The preparation of published Multi30k scores."""

import gzip
import importlib

import pytest
from support.paths import MULTI30K

multi30k_tokens = importlib.import_module("multi30k_tokens")


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs ../shared/data/multi30k")
def test_tokens_are_those_of_the_published_reference() -> None:
    text = gzip.decompress((MULTI30K / "test_2016_flickr.de.gz").read_bytes()).decode()
    tokenize = multi30k_tokens.tokenizer("de")
    tokens = [tokenize(line) for line in text.removesuffix("\n").split("\n")]
    # 12,103 German tokens: the reference of Wu et al. 2021, "Good for Misconceived Reasons".
    assert sum(len(line.split()) for line in tokens) == 12_103
    assert tokenize("Ein Tor (z.B. 3,5 m) — „Rot & Blau“!") == (
        'ein tor ( z.b. 3,5 m ) - " rot & blau " !'
    )
