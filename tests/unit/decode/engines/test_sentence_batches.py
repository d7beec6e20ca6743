"""Batches of sentences: by length, within a limit, halved when memory runs out."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.config import ModelConfig
from transformer_mt.decode.engines.torch_engine import gpu_batch_tokens, map_batches
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

SIZES = st.lists(st.integers(1, 50), max_size=40)


@given(SIZES, st.integers(1, 200), st.integers(50, 400))
def test_every_item_is_processed_once_within_limit_and_memory(
    sizes: list[int], tokens: int, memory: int
) -> None:
    done: list[list[int]] = []

    def work(batch: list[int]) -> list[int]:
        longest = max(sizes[i] for i in batch)
        assert len(batch) == 1 or longest * len(batch) <= tokens
        assert longest == sizes[batch[0]]
        if longest * len(batch) > memory:
            raise torch.OutOfMemoryError
        done.append(batch)
        return [10 * i for i in batch]

    assert map_batches(work, sizes, tokens) == [10 * i for i in range(len(sizes))]
    flat = [i for batch in done for i in batch]
    assert sorted(flat) == list(range(len(sizes)))
    assert [sizes[i] for i in flat] == sorted(sizes, reverse=True)


def test_single_sentence_that_does_not_fit() -> None:
    def work(batch: list[int]) -> list[int]:
        if 0 in batch:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return batch

    with pytest.raises(InputError, match="a single sentence of 9 tokens"):
        map_batches(work, [9, 3, 3], 1000)


def on_a_gpu(config: ModelConfig, vocab_size: int) -> Transformer:
    weight = SimpleNamespace(device=torch.device("cuda", 0))
    embedding = SimpleNamespace(weight=weight)
    model = SimpleNamespace(config=config, vocab_size=vocab_size, embedding=embedding)
    return cast(Transformer, model)


def test_a_gpus_memory_bounds_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    base = on_a_gpu(ModelConfig(), 37000)
    found = {}
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 2**30)
    for gib in (0.001, 4, 24, 140, 1000):
        half = int(gib * 2**29)  # of what is free, torch holds the other half
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, half=half: (half, 0))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _, half=half: 2**30 + half)
        found[gib] = [gpu_batch_tokens(models, 2) for models in ([base], [base] * 3)]
    assert [alone for alone, _ in found.values()] == sorted(alone for alone, _ in found.values())
    assert found[1000][0] == 524288
    assert found[0.001] == [3, 1]
    # By hand, of half of 4 GiB: 6 layers · (512 + 512) · 2 bytes, thrice; and 3 bytes a piece.
    alone, three = found[4]
    assert alone == 2**31 // (3 * 6 * 1024 * 2 + 111000)
    assert three == pytest.approx(alone / 3, abs=1)
