"""Validation by translating: metrics and samples."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sacrebleu
import torch
from support.models import make_translator
from support.scoring import score
from support.tokenizers import small_tokenizer

from transformer_mt.config import DataConfig, ModelConfig, SearchConfig, SourceConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.sources import Pair
from transformer_mt.distributed.world import World
from transformer_mt.jobs import validator as validator_module
from transformer_mt.jobs.validator import TranslationValidator
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import METRICS, VALIDATION_METRICS
from transformer_mt.training.validation import ValidationResult

PAIRS = [Pair(f"a dog sees {'the house ' * n}", f"ein Hund sieht {n}") for n in range(1, 12)]
REFERENCES = [pair.tgt for pair in PAIRS]
MANY = [Pair(f"a dog sees {n} houses", f"ein Hund sieht {n}") for n in range(250)]
CPU = World(torch.device("cpu"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    text = [line for pair in PAIRS for line in pair]
    return small_tokenizer(tmp_path_factory.mktemp("vocabulary") / "m", text)


def job(**model: Any) -> TrainJob:
    valid = [SourceConfig(sample="valid")]
    sizes = {"d_model": 16, "d_ff": 32, "num_heads": 2}
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 1}
    return TrainJob(
        data=DataConfig(src_lang="en", tgt_lang="de", train=valid, valid=valid),
        model=ModelConfig(**sizes, **layers, **model),
        decode=SearchConfig(max_extra_tokens=4),
    )


def model_of(config: ModelConfig) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config, 290).eval()


def translations(tokenizer: Tokenizer) -> list[str]:
    translator = make_translator(model_of(job().model), tokenizer, job().decode)
    return translator.translate([pair.src for pair in PAIRS])


def validate(
    tokenizer: Tokenizer,
    pairs: Sequence[Pair] = PAIRS,
    config: TrainJob | None = None,
    world: World = CPU,
) -> ValidationResult:
    config = config or job()
    return TranslationValidator(config, tokenizer, pairs, world)(model_of(config.model))


def expected_metrics(hypotheses: list[str]) -> dict[str, Any]:
    bleu = sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    chrf = sacrebleu.corpus_chrf(hypotheses, [REFERENCES]).score
    return {"bleu": pytest.approx(bleu), "chrf": pytest.approx(chrf)}


@pytest.fixture
def translate_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[str]]]:
    """Has a function translate each line; returns the lines of every call, as they come."""

    def replace_model(translation: Callable[[str], str]) -> list[list[str]]:
        calls: list[list[str]] = []

        def translate(_: object, lines: list[str], __: World) -> list[str]:
            calls.append(lines)
            return list(map(translation, lines))

        monkeypatch.setattr(validator_module, "translate_sharded", translate)
        return calls

    return replace_model


def test_the_score_is_sacrebleus_and_the_samples_are_always_the_same(tokenizer: Tokenizer) -> None:
    validation = TranslationValidator(job(), tokenizer, PAIRS, CPU)
    model = model_of(job().model)
    result = validation(model)
    hypotheses = translations(tokenizer)
    assert result.metrics == expected_metrics(hypotheses)
    lines = [0, 2, 5, 7, 10]  # five of eleven, from the first to the last
    assert result.samples == [(*PAIRS[i], hypotheses[i]) for i in lines]
    with torch.no_grad():
        model.embedding.weight.mul_(-1)
    later = validation(model)
    assert [sample[:2] for sample in later.samples] == [sample[:2] for sample in result.samples]
    assert [s[2] for s in later.samples] != [s[2] for s in result.samples]


def test_a_registered_metric_is_computed(
    tokenizer: Tokenizer, translate_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    translate_by(lambda _: "ein Hund")
    monkeypatch.setitem(VALIDATION_METRICS, "chrf++", METRICS["chrf++"])
    (expected,) = score(["ein Hund"] * len(PAIRS), [REFERENCES], metrics=["chrf++"])
    assert validate(tokenizer).metrics["chrf++"] == expected.score > 0


def test_each_line_is_compared_with_its_reference(tokenizer: Tokenizer, translate_by: Any) -> None:
    references = dict(MANY)
    (calls, result) = translate_by(references.__getitem__), validate(tokenizer, MANY)
    assert calls == [[*references]]
    assert result.metrics["bleu"] == pytest.approx(100)
    assert len(result.samples) == 5
    for source, reference, translation in result.samples:
        assert references[source] == reference == translation


def test_the_ranks_share_the_work_and_the_main_one_returns_samples(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hypotheses = translations(tokenizer)
    shares = [hypotheses[0::2], hypotheses[1::2]]

    for rank in (0, 1):

        def gather(_: World, mine: Any, rank: int = rank) -> list[Any]:
            assert mine == shares[rank]  # only its own lines
            return shares

        monkeypatch.setattr(World, "gather", gather)
        result = validate(tokenizer, world=World(CPU.device, rank, 2))
        assert result.metrics == expected_metrics(hypotheses)
        assert bool(result.samples) == (rank == 0)
