"""Validation by translating: metrics, samples, attention maps."""

from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import pytest
import sacrebleu
import torch
from sacrebleu.metrics.chrf import CHRF
from support.models import make_translator
from support.scoring import score
from support.tokenizers import small_tokenizer

from transformer_mt.config import (
    DataConfig,
    ModelConfig,
    SearchConfig,
    SourceConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.sources import Pair
from transformer_mt.distributed.world import World
from transformer_mt.jobs import validator as validator_module
from transformer_mt.jobs.validator import TranslationValidator
from transformer_mt.model.transformer import Transformer
from transformer_mt.registries import VALIDATION_METRICS

CPU = torch.device("cpu")
PAIRS = [Pair(f"a dog sees {'the house ' * n}", f"ein Hund sieht {n}") for n in range(1, 12)]
SOURCES = [pair.src for pair in PAIRS]


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
        model=ModelConfig(**{**sizes, **layers, **model}),
        decode=SearchConfig(max_extra_tokens=4),
    )


def model_of(config: ModelConfig) -> Transformer:
    torch.manual_seed(1)
    return Transformer(config, 290).eval()


def translations(tokenizer: Tokenizer, job: TrainJob) -> list[str]:
    translator = make_translator(model_of(job.model), tokenizer, job.decode)
    return translator.translate(SOURCES)


def expected_metrics(hypotheses: list[str]) -> dict[str, Any]:
    references = [[pair.tgt for pair in PAIRS]]
    bleu = sacrebleu.corpus_bleu(hypotheses, references).score
    chrf = sacrebleu.corpus_chrf(hypotheses, references).score
    return {"bleu": pytest.approx(bleu), "chrf": pytest.approx(chrf)}


def test_lower_case_models_are_scored_in_lower_case(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower = replace(job(), data=replace(job().data, normalization="moses_lowercase"))
    hypotheses = [pair.tgt.lower()[: 10 + i] for i, pair in enumerate(PAIRS)]
    monkeypatch.setattr(validator_module, "translate_sharded", lambda *_: hypotheses)
    model = model_of(lower.model)
    references = [[pair.tgt for pair in PAIRS]]
    (bleu,) = score(hypotheses, references, tgt_lang="de", metrics=["lowercase_tokens"])
    metrics = TranslationValidator(lower, tokenizer, PAIRS, World(CPU))(model).metrics
    assert metrics["bleu"] == bleu.score > 50
    assert TranslationValidator(job(), tokenizer, PAIRS, World(CPU))(model).metrics["bleu"] < 50


def test_the_score_is_sacrebleus_and_the_samples_are_always_the_same(tokenizer: Tokenizer) -> None:
    validation = TranslationValidator(job(), tokenizer, PAIRS, World(CPU))
    model = model_of(job().model)
    result = validation(model)
    hypotheses = translations(tokenizer, job())
    assert result.metrics == expected_metrics(hypotheses)
    lines = [0, 2, 5, 7, 10]  # five of eleven, from the first to the last
    assert result.samples == [(*PAIRS[i], hypotheses[i]) for i in lines]
    with torch.no_grad():
        model.embedding.weight.mul_(-1)
    later = validation(model)
    assert [sample[:2] for sample in later.samples] == [sample[:2] for sample in result.samples]
    assert [s[2] for s in later.samples] != [s[2] for s in result.samples]


def test_attention_of_a_line_and_its_translation(tokenizer: Tokenizer) -> None:
    result = TranslationValidator(job(), tokenizer, PAIRS, World(CPU))(model_of(job().model))
    attention = result.attention
    assert attention is not None
    S, T = len(attention.src), len(attention.tgt) - 1
    assert max(S, T) <= 48
    for maps, shape in (("encoder", (S, S)), ("decoder", (T, T)), ("cross", (T, S))):
        layers = 2 if maps == "encoder" else 1
        assert [tuple(w.shape) for w in getattr(attention, maps)] == [(2, *shape)] * layers
    *words, end = attention.src
    assert (attention.tgt[0], end) == ("<s>", "</s>")
    source = "".join(words).replace("▁", " ").strip()
    assert source in [sample[0].strip() for sample in result.samples]


def test_lines_longer_than_the_learned_positions_have_no_attention_map(
    tokenizer: Tokenizer,
) -> None:
    learned = job(positions="learned", max_positions=256)
    model = model_of(replace(learned.model, max_positions=12))
    long = [Pair("a dog sees the house " * 9, "ein Hund")] * 3
    result = TranslationValidator(learned, tokenizer, long, World(CPU))(model)
    assert result.attention is None
    assert len(result.samples) == 3
    short = [Pair("a dog", "ein Hund")]
    result = TranslationValidator(learned, tokenizer, short, World(CPU))(model)
    assert len(result.samples) == 1
    assert result.attention is not None
    assert len(result.attention.layers("decoder")[2]) <= 12


def chrf1(language: str) -> CHRF:
    assert language == "de"
    return CHRF(char_order=1)


def test_a_registered_metric_is_computed(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        validator_module, "translate_sharded", lambda _, lines, __: ["ein Hund"] * len(lines)
    )
    monkeypatch.setitem(VALIDATION_METRICS, "chrf1", f"{__name__}:chrf1")
    validation = TranslationValidator(job(), tokenizer, PAIRS, World(CPU))
    references = [pair.tgt for pair in PAIRS]
    expected = CHRF(char_order=1).corpus_score(["ein Hund"] * len(PAIRS), [references]).score
    assert validation(model_of(job().model)).metrics["chrf1"] == expected > 0
    assert TrainConfig(best_by="chrf1").best_by == "chrf1"


MANY = [Pair(f"a dog sees {n} houses", f"ein Hund sieht {n}") for n in range(250)]


def validate(tokenizer: Tokenizer, config: TrainJob | None = None, pairs: Any = MANY) -> Any:
    config = config or job()
    return TranslationValidator(config, tokenizer, pairs, World(CPU))(model_of(config.model))


def test_every_line_of_a_language_without_spaces_is_translated(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its BLEU is 0, however good the model is."""
    monkeypatch.setattr(validator_module, "translate_sharded", lambda _, lines, __: lines)
    thai = replace(job(), data=replace(job().data, tgt_lang="th"))
    pairs = [Pair(source, "หมาเห็นบ้านหลังใหญ่") for source, _ in MANY]
    result = validate(tokenizer, thai, pairs)
    assert "lines" not in result.metrics
    assert len(result.samples) == 5


def test_a_usable_model_translates_every_line_once(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []
    references = dict(MANY)

    def translate(_: Any, lines: list[str], __: World) -> list[str]:
        calls.append(lines)
        return [references[line] for line in lines]

    monkeypatch.setattr(validator_module, "translate_sharded", translate)
    result = validate(tokenizer)
    assert [len(call) for call in calls] == [100, 150]
    assert sorted(chain(*calls)) == sorted(pair.src for pair in MANY)
    assert "lines" not in result.metrics
    assert result.metrics["bleu"] == pytest.approx(100)  # of lines and references in one order
    assert len(result.samples) == 5
    for source, reference, translation in result.samples:
        assert references[source] == reference == translation
    assert result.samples == sorted(result.samples, key=lambda s: MANY.index(Pair(*s[:2])))
    monkeypatch.setattr(validator_module, "_USABLE_BLEU", 101)  # of some lines, too
    few = validate(tokenizer).metrics
    assert (few["lines"], few["bleu"]) == (100, pytest.approx(100))


def test_a_model_that_cannot_translate_translates_a_hundred_lines(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    translated: list[list[str]] = []

    def translate(_: Any, lines: list[str], __: World) -> list[str]:
        translated.append(lines)
        return [",,,"] * len(lines)

    monkeypatch.setattr(validator_module, "translate_sharded", translate)
    result = validate(tokenizer)
    (lines,) = translated
    places = [int(line.split()[3]) for line in lines]
    assert (len(lines), places[0], places[-1]) == (100, 0, 249)
    assert max(b - a for a, b in pairwise(places)) == 3
    assert result.metrics["lines"] == 100
    assert len(result.samples) == 5
    translated.clear()
    monkeypatch.setattr(validator_module, "_USABLE_BLEU", 0.0)
    assert "lines" not in validate(tokenizer).metrics
    assert sum(map(len, translated)) == 250


def test_the_ranks_share_the_work_and_the_main_one_returns_samples(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hypotheses = translations(tokenizer, job())
    shares = [hypotheses[0::2], hypotheses[1::2]]

    for rank in (0, 1):

        def gather(_: World, mine: Any, rank: int = rank) -> list[Any]:
            assert mine == shares[rank]  # only its own lines
            return shares

        monkeypatch.setattr(World, "gather", gather)
        world = World(CPU, rank, 2)
        result = TranslationValidator(job(), tokenizer, PAIRS, world)(model_of(job().model))
        assert result.metrics == expected_metrics(hypotheses)
        assert bool(result.samples) == (result.attention is not None) == (rank == 0)
