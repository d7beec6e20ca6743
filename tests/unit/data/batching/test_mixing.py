"""Weights of sources against the definition of the temperature."""

import pytest

from transformer_mt.config import DataConfig, SourceConfig
from transformer_mt.data.batching.mixing import epoch_weights
from transformer_mt.errors import InputError

SIZES = [1000, 200, 50]


def config(**settings: object) -> DataConfig:
    sources = [SourceConfig(sample="train") for _ in SIZES]
    return DataConfig(
        src_lang="en", tgt_lang="de", train=sources, valid=sources[:1],
        **settings,  # type: ignore[arg-type]
    )  # fmt: skip


def test_every_pair_occurs_once_by_default() -> None:
    assert epoch_weights(config(), SIZES) == [1, 1, 1]


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_temperature_flattens_the_shares_of_the_sources(temperature: float) -> None:
    weights = epoch_weights(config(temperature=temperature), SIZES)
    assert weights[0] == 1
    drawn = [w * n for w, n in zip(weights, SIZES, strict=True)]
    tempered = [(n / sum(SIZES)) ** (1 / temperature) for n in SIZES]
    for mine, theirs in zip(drawn, tempered, strict=True):
        assert mine / sum(drawn) == pytest.approx(theirs / sum(tempered))


def test_given_weights_are_used_unchanged() -> None:
    assert epoch_weights(config(weights=[1, 0.5, 4]), SIZES) == [1, 0.5, 4]
    assert epoch_weights(config(weights=[1, 0.5, 4]), [10, 0, 5]) == [1, 0.0, 4]


def test_weights_of_a_huge_epoch_are_rejected() -> None:
    with pytest.raises(InputError, match=r"make an epoch of 10,000,100,000 pairs from 1,250: "):
        epoch_weights(config(weights=[1e7, 500, 1e-9]), SIZES)
    assert epoch_weights(config(weights=[1, 1, 1000]), SIZES) == [1, 1, 1000]
