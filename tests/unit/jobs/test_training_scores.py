"""Validation by translating: metrics and samples."""

from types import SimpleNamespace
from typing import Any

import pytest
import sacrebleu
import torch
from support.models import make_translator, tiny_config
from support.tokenizers import small_tokenizer

from transformer_mt.config import DataConfig, SearchConfig, SourceConfig, TrainJob
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.distributed.world import World
from transformer_mt.jobs import training_scores
from transformer_mt.model.transformer import Transformer
from transformer_mt.protocols import Pair
from transformer_mt.registries import METRICS, VALIDATION_METRICS
from transformer_mt.training.validation import ValidationResult

PAIRS = [Pair(f"a dog sees {'the house ' * n}", f"ein Hund sieht {n}") for n in range(1, 12)]
REFERENCES = [pair.tgt for pair in PAIRS]
CPU = World(torch.device("cpu"))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    text = [line for pair in PAIRS for line in pair]
    return small_tokenizer(tmp_path_factory.mktemp("vocabulary") / "m", text)


SOURCE = SourceConfig(sample="valid")
JOB = TrainJob(
    data=DataConfig(src_lang="en", tgt_lang="de", train=[SOURCE], valid=[SOURCE]),
    model=tiny_config(d_model=16, d_ff=32, num_encoder_layers=2),
    decode=SearchConfig(max_extra_tokens=4),
)


def random_model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(JOB.model, 290).eval()


def translations(tokenizer: Tokenizer) -> list[str]:
    translator = make_translator(random_model(), tokenizer, JOB.decode)
    return translator.translate([pair.src for pair in PAIRS])


def validate(
    tokenizer: Tokenizer, world: World = CPU, model: Transformer | None = None
) -> ValidationResult:
    data: Any = SimpleNamespace(tokenizer=tokenizer, valid=PAIRS)
    return training_scores.validate(JOB, data, world, model or random_model())


def expected_metrics(hypotheses: list[str]) -> dict[str, Any]:
    bleu = sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    chrf = sacrebleu.corpus_chrf(hypotheses, [REFERENCES]).score
    return {"bleu": pytest.approx(bleu), "chrf": pytest.approx(chrf)}


def test_the_score_is_sacrebleus_and_the_samples_are_always_the_same(tokenizer: Tokenizer) -> None:
    model = random_model()
    result = validate(tokenizer, model=model)
    hypotheses = translations(tokenizer)
    assert result.metrics == expected_metrics(hypotheses)
    lines = [0, 2, 5, 7, 10]  # five of eleven, from the first to the last
    assert result.samples == [(*PAIRS[i], hypotheses[i]) for i in lines]
    with torch.no_grad():
        model.embedding.weight.mul_(-1)
    later = validate(tokenizer, model=model)
    assert [sample[:2] for sample in later.samples] == [sample[:2] for sample in result.samples]
    assert [s[2] for s in later.samples] != [s[2] for s in result.samples]


def test_each_line_is_compared_with_its_reference_by_every_registered_metric(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translate(_: object, lines: list[str], __: World) -> list[str]:
        return [dict(PAIRS)[line] for line in lines]

    monkeypatch.setattr(training_scores, "translate_sharded", translate)
    monkeypatch.setitem(VALIDATION_METRICS, "chrf++", METRICS["chrf++"])
    result = validate(tokenizer)
    assert result.metrics == dict.fromkeys(("bleu", "chrf", "chrf++"), pytest.approx(100))
    assert [sample[1] == sample[2] for sample in result.samples] == [True] * 5


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
