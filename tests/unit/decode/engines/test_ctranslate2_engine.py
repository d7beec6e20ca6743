"""CTranslate2's search: how far it agrees with PyTorch's, its scores, its limits."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.models import PLAIN, constant_model, model_that_ends, random_lines

from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.engines import ctranslate2_conversion as conversion
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

Converted = Callable[..., CTranslate2Engine]


@pytest.fixture
def converted(tmp_path: Path, tokenizer: Tokenizer) -> Converted:
    """Returns the engine of a model, which it converts the first time."""
    folders: dict[tuple[Transformer, str], Path] = {}

    def engine(
        model: Transformer, config: DecodeConfig, compute_type: str = "float32"
    ) -> CTranslate2Engine:
        folder = folders.setdefault((model, compute_type), tmp_path / f"{len(folders)}")
        if not folder.exists():
            spec = conversion.specification(model, tokenizer)
            spec.validate()
            spec.optimize(quantization=compute_type)
            folder.mkdir()
            spec.save(str(folder))
        return CTranslate2Engine(folder, tokenizer, model.config, config, compute_type=compute_type)

    return engine


MODELS = {
    "post": lambda: model_that_ends(4.0, 1.5),
    "pre": lambda: model_that_ends(5.0, norm="pre"),
    "learned": lambda: model_that_ends(5.0, positions="learned", max_positions=60),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("beam_size", "alpha"), [(1, 0.6), (4, 0.0), (4, 0.6), (8, 2.0)])
def test_translations_that_end_equal_pytorch_s(
    converted: Converted, tokenizer: Tokenizer, name: str, beam_size: int, alpha: float
) -> None:
    model = MODELS[name]()
    sources = list(map(tokenizer.encode, random_lines(40, 9)))
    config = DecodeConfig(beam_size=beam_size, length_penalty=alpha)
    expected = TorchEngine([model], config).search(sources, beam_size)
    found = converted(model, config).search(sources, beam_size)
    ended = 0
    for source, mine, other in zip(sources, expected, found, strict=True):
        assert len(other) == beam_size
        if any(len(h.tokens) >= len(source) + 50 for h in (*mine, *other)):
            continue
        ended += 1
        assert other[0].tokens == mine[0].tokens
        assert sorted(other, key=lambda h: -h.score) == other
        scores = {tuple(h.tokens): (h.log_prob, h.score) for h in mine}
        both = [h for h in other if tuple(h.tokens) in scores]
        assert len(both) >= beam_size / 2
        for h in both:
            expected_scores = pytest.approx(scores[tuple(h.tokens)], abs=1e-3)
            assert (h.log_prob, h.score) == expected_scores
    assert ended > 30 or beam_size == 1


def test_pytorch_keeps_its_threads(converted: Converted) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        converted(MODELS["post"](), DecodeConfig())
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_batches_and_workers_never_change_a_translation(
    converted: Converted, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do other sentences, also where translations reach their maximum length."""
    model, alone = model_that_ends(2.0), DecodeConfig(batch_tokens=1)
    lines = [*random_lines(40, 12), "", " \t"]
    translator = Translator(converted(model, alone), tokenizer, PLAIN, alone)
    expected = [translator.translate([line])[0] for line in lines]
    for workers, batch_tokens in [(1, 1), (3, 300), (2, 10**6)]:
        monkeypatch.setenv("OMP_NUM_THREADS", str(workers))
        order = random.Random(batch_tokens).sample(range(len(lines)), len(lines))
        config = DecodeConfig(batch_tokens=batch_tokens)
        translator = Translator(converted(model, config), tokenizer, PLAIN, config)
        found = translator.translate([lines[i] for i in order])
        assert found == [expected[i] for i in order]


@pytest.mark.parametrize("max_extra_tokens", [0, 4])
def test_maximum_length_is_per_sentence(
    converted: Converted, tokenizer: Tokenizer, max_extra_tokens: int
) -> None:
    """Also in a batch with longer ones."""
    config = DecodeConfig(max_extra_tokens=max_extra_tokens)
    sources = list(map(tokenizer.encode, random_lines(30, 12)))
    found = converted(model_that_ends(1.0), config).search(sources, 1)
    limits = [len(source) + max_extra_tokens for source in sources]
    reached = [len(best.tokens) == limit for (best,), limit in zip(found, limits, strict=True)]
    assert sum(reached) > 15
    assert all(len(best.tokens) <= limit for (best,), limit in zip(found, limits, strict=True))


def test_lines_beyond_the_converted_positions_are_split(
    converted: Converted, tokenizer: Tokenizer
) -> None:
    config = DecodeConfig(beam_size=1, max_extra_tokens=0)
    model = model_that_ends(5.0, positions="learned", max_positions=20)
    engine = converted(model, config)
    assert engine.max_tokens == 19
    translator = Translator(engine, tokenizer, PLAIN, config)
    assert len(translator.translate([" ".join(random_lines(1, 12) * 5)])) == 1
    assert translator.cut_lines == 1


def test_what_is_not_available_is_refused(
    converted: Converted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA failed with error no CUDA-capable device is detected")

    check_available("float32", "cpu")
    with pytest.raises(InputError, match=r"compute_type=float15 .* choose from float32"):
        check_available("float15", "cpu")
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", fail)
    with pytest.raises(InputError, match=r"no CUDA-capable .* set engine=torch or device=cpu"):
        check_available("float32", "cuda")
    engine = converted(model_that_ends(5.0), DecodeConfig())
    for use in (
        lambda: engine.search([[5]], 1, prefixes=[[6]]),
        lambda: engine.score([[5]], [[6]]),
        lambda: engine.align([([5], [6])]),
    ):
        with pytest.raises(InputError, match=r"does not support .*: set engine=torch"):
            use()


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_special_symbols_are_never_generated(
    converted: Converted, tokenizer: Tokenizer, compute_type: str
) -> None:
    logits = {"<pad>": 2.0, "<unk>": 3.0, "<s>": 2.0, "x": 1.0, "</s>": -3.0}
    config = DecodeConfig(beam_size=2, max_extra_tokens=3)
    engine = converted(constant_model(tokenizer, logits), config, compute_type)
    for (best,) in engine.search(list(map(tokenizer.encode, "xa")), 1):
        assert {*best.tokens} == {tokenizer.vocabulary.index("x")}
