"""Initial embeddings against the formula, translations of the sample, and what a model gets."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from support.model_folders import load_folder, write_model
from support.models import tiny_config
from support.sample import sample_pairs
from support.stores import store_of

from transformer_mt.config import TrainConfig, TrainJob
from transformer_mt.contrib.embeddings.cooccurrence import embeddings
from transformer_mt.training import setup
from transformer_mt.training.setup import initial_model

PAIRS = store_of([([4, 5, 3], [6, 7, 3]), ([4, 3], [6, 3]), ([8, 3], [9, 7, 3])])


def ppmi(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rows, columns = counts.sum(1, keepdims=True), counts.sum(0) ** 0.75
    expected = rows * columns / columns.sum()
    expected[expected == 0] = 1  # the last piece does not occur
    with np.errstate(divide="ignore"):
        return np.maximum(0, np.log(counts / expected))


def test_angles_are_those_of_the_decomposition_of_positive_mutual_information() -> None:
    size, rng = 12, np.random.default_rng(1)
    pairs = [rng.integers(0, size - 1, rng.integers(1, 9)) for _ in range(40)]
    together, following = np.zeros((2, size, size))
    for pair in pairs:
        for one, other in product(set(pair.tolist()), repeat=2):
            together[one, other] += 1
        for i, piece in enumerate(pair.tolist()):
            for other in pair[i + 1 : i + 3].tolist():
                following[piece, other] += 1
    matrix = np.hstack([ppmi(together), ppmi(following) / 2, ppmi(following.T) / 2])
    u, s, _ = np.linalg.svd(matrix, full_matrices=False)
    vectors = (u * np.sqrt(s))[: size - 1]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    result = embeddings(pairs, size, size).double().numpy()
    assert not result[-1].any()
    np.testing.assert_allclose(result[:-1] @ result[:-1].T, vectors @ vectors.T, atol=1e-5)


def test_translations_are_near() -> None:
    pairs = [
        [*pair.src.strip(".?!").split(), *pair.tgt.strip(".?!").split()]
        for pair in sample_pairs("train")[:4000]
    ]
    words = sorted({word for pair in pairs for word in pair})
    ids = {word: number for number, word in enumerate(words)}
    result = embeddings([np.array([ids[word] for word in pair]) for pair in pairs], len(ids), 64)
    for english, german in (("book", "Buch"), ("garden", "Garten"), ("yesterday", "gestern")):
        nearest = (result @ result[ids[english]]).topk(4).indices.tolist()
        assert german in [words[i] for i in nearest]
    share = result.square().mean(0)  # rotated: no dimension has a large part of the length
    assert share.max() < 3 * share.mean()


@pytest.mark.parametrize(
    ("tied", "is_joint"), [("all", True), ("none", True), ("decoder", False), ("none", False)]
)
def test_pieces_of_the_training_pairs_get_them(tied: str, is_joint: bool) -> None:
    sizes = (20, 20) if is_joint else (12, 20)
    tokenizer: Any = SimpleNamespace(
        is_joint=is_joint, vocab_size=sizes[0], tgt=SimpleNamespace(vocab_size=sizes[1])
    )
    random, computed, replaced = (
        initial_model(
            TrainJob(
                model=tiny_config(tied_embeddings=tied),
                train=TrainConfig(initial_embeddings=kind),
            ),
            *(tokenizer, PAIRS, torch.device("cpu")),
            replaced=replaced,
        )
        for kind, replaced in (
            ("random", False),
            ("cooccurrence", False),
            ("cooccurrence", True),
        )
    )
    for name, weight in random.state_dict().items():
        assert torch.equal(replaced.state_dict()[name], weight)

    source, target = {3, 4, 5, 8}, {3, 6, 7, 9}
    if is_joint:
        source = target = source | target

    def changed(table: str) -> set[int]:
        before, after = (getattr(model, table) for model in (random, computed))
        if isinstance(before, torch.nn.Module):
            before, after = before.weight, after.weight
        return set((before != after).any(1).nonzero().flatten().tolist())

    assert changed("source_embedding") == source
    assert changed("embedding") == changed("output_weight") == target
    near, far = (
        torch.cosine_similarity(
            computed.source_embedding.weight[4], computed.embedding.weight[i], 0
        )
        for i in (6, 9)
    )
    assert near > far
    others = [name for name, _ in random.named_parameters() if "embedding" not in name]
    for name in set(others) - {"untied_source.weight", "untied_output"}:
        assert torch.equal(random.get_parameter(name), computed.get_parameter(name))


def test_a_sample_of_a_large_corpus_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_COOCCURRENCES", 60)  # squares of 6, 4 and 5 pieces are 77
    sample = list[npt.NDArray[np.int64]]()

    def vectors(pairs: list[npt.NDArray[np.int64]], num_ids: int, size: int) -> torch.Tensor:
        sample.extend(pairs)
        return torch.zeros(num_ids, size)

    monkeypatch.setattr(setup, "resolve_name", lambda _: vectors)
    tokenizer: Any = SimpleNamespace(
        is_joint=True, vocab_size=20, tgt=SimpleNamespace(vocab_size=20)
    )
    train = TrainConfig(initial_embeddings="cooccurrence")
    job = TrainJob(model=tiny_config(), train=train)
    initial_model(job, tokenizer, PAIRS, torch.device("cpu"), replaced=False)
    assert len(sample) == 2


def test_a_model_that_is_fine_tuned_keeps_its_embeddings(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    model, tokenizer, job = load_folder(tmp_path / "model")
    train = TrainConfig(init_from=str(tmp_path / "model"), initial_embeddings="cooccurrence")
    tuned = initial_model(
        replace(job, train=train), tokenizer, PAIRS, torch.device("cpu"), replaced=False
    )
    for name, weight in model.state_dict().items():
        assert torch.equal(tuned.state_dict()[name], weight)
