"""CTranslate2 and PyTorch give the same translations and scores, in batches of any size."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from support.models import PLAIN, constant_model, make_translator, model_that_ends, random_lines

from transformer_mt.config import DecodeConfig
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.decode.engines import ctranslate2_conversion as conversion
from transformer_mt.decode.engines import ctranslate2_engine as ctranslate2_engine_module
from transformer_mt.decode.engines.ctranslate2_engine import CTranslate2Engine, check_available
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

ctranslate2 = pytest.importorskip(
    "ctranslate2", reason="CTranslate2 is not installed (the extra 'fast')"
)


class FallbackEngine(TorchEngine):
    """The PyTorch engine of a CTranslate2 engine; it records the lengths of its sentences."""

    lengths: ClassVar[list[int]] = []

    def search(self, sources: Sequence[list[int]], *arguments: Any, **more: Any) -> Any:
        self.lengths.extend(map(len, sources))
        return super().search(sources, *arguments, **more)


Converted = Callable[..., CTranslate2Engine]


@pytest.fixture
def converted(tmp_path: Path, tokenizer: Tokenizer) -> Converted:
    """Returns the engine of a model, which it converts the first time."""
    FallbackEngine.lengths.clear()
    folders: dict[tuple[Transformer, str], Path] = {}

    def engine(
        model: Transformer,
        config: DecodeConfig,
        compute_type: str = "float32",
        needs_torch: bool = True,
    ) -> CTranslate2Engine:
        folder = folders.setdefault((model, compute_type), tmp_path / f"{len(folders)}")
        if not folder.exists():
            spec = conversion.specification(model, tokenizer)
            spec.validate()
            spec.optimize(quantization=compute_type)
            folder.mkdir()
            spec.save(str(folder))

        def fallback() -> FallbackEngine:
            assert needs_torch, "PyTorch was loaded"
            return FallbackEngine([model], config)

        return CTranslate2Engine(
            folder, tokenizer, model.config, config, fallback=fallback, compute_type=compute_type
        )

    return engine


def with_biases(model: Transformer) -> Transformer:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


MODELS = {
    "post": lambda: model_that_ends(4.0, 1.5),
    "pre": lambda: model_that_ends(2.5, norm="pre"),
    "learned": lambda: model_that_ends(2.5, positions="learned", max_positions=40),
    "biases": lambda: with_biases(
        model_that_ends(
            4.0, 1.5, attention_bias=True, output_bias=True, activation="swish", layer_norm_eps=1e-5
        )
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_translations_equal_pytorch(converted: Converted, tokenizer: Tokenizer, name: str) -> None:
    model = MODELS[name]()
    sources = tokenizer.encode(random_lines(25, 9))
    for beam_size, alpha, most in [(1, 0.6, 40), (4, 0, 20), (4, 1, 8), (8, 2, None)]:
        config = DecodeConfig(
            beam_size=beam_size, length_penalty=alpha, max_extra_tokens=20, max_length=most
        )
        expected = TorchEngine([model], config).search(sources, beam_size)
        found = converted(model, config).search(sources, beam_size)
        for mine, other in zip(expected, found, strict=True):
            assert other[0].tokens == mine[0].tokens
            assert len(other) == len(mine) == beam_size
            assert sorted(other, key=lambda h: -h.score) == other
            scores = {tuple(h.tokens): (h.score, h.token_log_probs) for h in mine}
            both = [h for h in other if tuple(h.tokens) in scores]
            assert len(both) >= beam_size / 2
            for h in both:
                assert h.score == pytest.approx(scores[tuple(h.tokens)][0], abs=1e-4)
                assert h.token_log_probs == pytest.approx(scores[tuple(h.tokens)][1], abs=1e-4)
    # CTranslate2 did the work, though these models end late, or never.
    assert len(FallbackEngine.lengths) <= 0.02 * 4 * len(sources)


def test_batches_and_workers_never_change_a_translation(
    converted: Converted, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS["learned"]()
    lines = [*random_lines(30, 12), "", " \t"]
    expected = make_translator(model, tokenizer, DecodeConfig()).translate(lines)
    for workers, batch_tokens in [(1, 1), (3, 300), (2, 10**6)]:
        monkeypatch.setattr(torch, "get_num_threads", lambda n=workers: n)
        monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
        order = random.Random(batch_tokens).sample(range(len(lines)), len(lines))
        config = DecodeConfig(batch_tokens=batch_tokens)
        translator = Translator(converted(model, config), tokenizer, PLAIN, config)
        found = translator.translate([lines[i] for i in order])
        assert found == [expected[i] for i in order]
    assert len(FallbackEngine.lengths) < 3 * 30


@pytest.mark.parametrize(("max_extra_tokens", "max_length"), [(0, None), (4, 9)])
def test_maximum_length_is_per_sentence(
    converted: Converted, tokenizer: Tokenizer, max_extra_tokens: int, max_length: int | None
) -> None:
    """Also in a batch with longer ones; translations end at it and are not cut off."""
    model = model_that_ends(2.0)
    config = DecodeConfig(
        beam_size=3, length_penalty=2.0, max_extra_tokens=max_extra_tokens, max_length=max_length
    )
    lines = random_lines(30, 12)
    theirs, ours = (
        Translator(engine, tokenizer, PLAIN, config).translate_nbest(lines, 1, align=True)
        for engine in (converted(model, config), TorchEngine([model], config))
    )
    assert [t.text for (t,) in theirs] == [t.text for (t,) in ours]
    assert [t.score for (t,) in theirs] == pytest.approx([t.score for (t,) in ours], abs=1e-4)
    assert [t.alignment for (t,) in theirs] == [t.alignment for (t,) in ours]
    assert max_length is None or max(t.tokens for (t,) in ours) == max_length
    assert len(FallbackEngine.lengths) <= 1


def test_sentences_longer_than_the_converted_model_takes(
    converted: Converted, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (conversion, ctranslate2_engine_module):
        monkeypatch.setattr(module, "SINUSOIDS", 20)
    model = MODELS["post"]()
    config = DecodeConfig(beam_size=4)
    sources = tokenizer.encode(random_lines(30, 12))
    found = converted(model, config).search(sources, 1)
    expected = TorchEngine([model], config).search(sources, 1)
    assert [best.tokens for (best,) in found] == [best.tokens for (best,) in expected]
    assert max(FallbackEngine.lengths) >= 20
    assert len(FallbackEngine.lengths) < 30


@pytest.mark.parametrize(("beam_size", "alpha"), [(4, 0.6), (8, 4), (4, 0)])
def test_pytorch_is_not_needed_for_another_length_penalty(
    converted: Converted, tokenizer: Tokenizer, beam_size: int, alpha: float
) -> None:
    """Though CTranslate2 ranks by its own, and drops hypotheses, the best by ours is among them."""
    config = DecodeConfig(beam_size=beam_size, length_penalty=alpha)
    sources = tokenizer.encode(random_lines(60, 9))
    for model in (model_that_ends(5.0, 1.5), model_that_ends(5.0, norm="pre")):
        engine = converted(model, config, needs_torch=False)
        found = engine.search(sources, 1, token_scores=False)
        expected = TorchEngine([model], config).search(sources, 1)
        assert [best.tokens for (best,) in found] == [best.tokens for (best,) in expected]


@pytest.mark.parametrize("name", MODELS)
def test_int8_never_needs_pytorch(
    converted: Converted, tokenizer: Tokenizer, tmp_path: Path, name: str
) -> None:
    """Nor where a translation does not end by itself; CTranslate2 itself scores them alike."""
    model = MODELS[name]()
    sources = tokenizer.encode(random_lines(25, 9))
    names = tokenizer.vocabulary
    for beam_size, nbest, alpha, most in [(1, 1, 0.6, 40), (4, 1, 0.6, None), (4, 4, 1, 8)]:
        config = DecodeConfig(
            beam_size=beam_size, length_penalty=alpha, max_extra_tokens=9, max_length=most
        )
        found = converted(model, config, "int8", needs_torch=False).search(sources, nbest)
        library = ctranslate2.Translator(str(tmp_path / "0"), compute_type="int8")
        assert [len(best) for best in found] == [nbest] * len(sources)
        for source, best in zip(sources, found, strict=True):
            assert best == sorted(best, key=lambda h: -h.score)
            for h in best:
                assert len(h.tokens) <= min(len(source) + 9, most or 99)
                pieces = [[names[i] for i in tokens] for tokens in (source, h.tokens)]
                (scored,) = library.score_batch(pieces[:1], pieces[1:])
                assert h.log_prob == pytest.approx(sum(scored.log_probs), abs=1e-3)
                penalty = ((6 + len(h.tokens)) / 6) ** alpha
                assert h.score == pytest.approx(h.log_prob / penalty)


def test_what_is_not_available_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA failed with error no CUDA-capable device is detected")

    check_available("float32", "cpu")
    with pytest.raises(InputError, match=r"compute_type=float15 .* choose from float32"):
        check_available("float15", "cpu")
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", fail)
    with pytest.raises(InputError, match=r"no CUDA-capable .*: set engine=torch or device=cpu"):
        check_available("float32", "cuda:0")


@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_special_symbols_are_never_generated(
    converted: Converted, tokenizer: Tokenizer, compute_type: str
) -> None:
    logits = {"<pad>": 2.0, "<unk>": 3.0, "<s>": 2.0, "x": 1.0, "</s>": 0.0}
    model = constant_model(tokenizer, logits)
    config, exact = DecodeConfig(beam_size=2, max_extra_tokens=3), compute_type == "float32"
    engine = converted(model, config, compute_type, needs_torch=exact)
    for (best,) in engine.search(tokenizer.encode(["x", "a"]), 1):
        assert {*best.tokens} <= {tokenizer.vocabulary.index("x")}
    assert len(FallbackEngine.lengths) == (2 if exact else 0)
