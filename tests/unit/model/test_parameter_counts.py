"""Number of trainable parameters, against a formula and against Table 3 of the paper.

The paper rounds to millions and does not say how large the vocabulary of these models was ("about
37000 tokens", §5.1). Each of its counts, less the parameters of the layers, divided by d_model,
therefore gives an interval for the size V of the vocabulary. All ten counts of models that differ
from base in one respect leave one common interval 200 wide, 41,003 ≤ V ≤ 41,208, so one vocabulary
explains them all; the big model's count, 213, implies about 35,900.
"""

from functools import cache

import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from transformer_mt.config import ModelConfig, config_dir, register_schema
from transformer_mt.model.transformer import Transformer

PAPER_MILLIONS = {
    "base": 65,
    "B_dk_16": 58,
    "B_dk_32": 60,
    "C_layers_2": 36,
    "C_layers_4": 50,
    "C_layers_8": 80,
    "C_dmodel_256": 28,
    "C_dmodel_1024": 168,
    "C_dff_1024": 53,
    "C_dff_4096": 90,
}
"""Table 3: every row but big that has a count."""
VOCABULARY = 41_100
"""In the interval common to all ten."""

ROWS = sorted(path.stem for path in (config_dir() / "experiment/table3").glob("*.yaml"))


@cache
def row(name: str) -> ModelConfig:
    register_schema("train")
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        config = OmegaConf.to_object(compose("train", [f"experiment=table3/{name}"]).model)
    assert isinstance(config, ModelConfig)
    return config


def count(config: ModelConfig, vocab_size: int) -> int:
    """Parameters of the model as it is built, without allocating memory."""
    with torch.device("meta"):
        model = Transformer(config, vocab_size)
    assert all(parameter.requires_grad for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters())


def by_hand(c: ModelConfig, vocab_size: int) -> int:
    """§3, term by term: no bias in attention (§3.2.2), two in each feed-forward (equation 2)."""
    attention = (
        c.d_model * c.num_heads * c.key_size * 2  # W^Q, W^K
        + c.d_model * c.num_heads * c.value_size  # W^V
        + c.num_heads * c.value_size * c.d_model  # W^O
    )
    feed_forward = c.d_model * c.d_ff + c.d_ff + c.d_ff * c.d_model + c.d_model
    norm = 2 * c.d_model
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    embedding = vocab_size * c.d_model  # source, target and output are one (§3.4)
    learned = c.max_positions * c.d_model if c.positions == "learned" else 0
    final_norms = 2 * norm if c.norm == "pre" else 0
    layers = c.num_encoder_layers * encoder_layer + c.num_decoder_layers * decoder_layer
    return embedding + learned + layers + final_norms


def test_each_row_of_table_3_matches_the_formula() -> None:
    unusual = ModelConfig(
        d_model=10, d_ff=7, num_heads=3, num_encoder_layers=2, num_decoder_layers=4, d_k=5, d_v=11,
        norm="pre", positions="learned", max_positions=9,
    )  # fmt: skip
    for config in (unusual, *map(row, ROWS)):
        assert count(config, 37_000) == by_hand(config, 37_000)


def test_one_vocabulary_explains_every_count_of_table_3() -> None:
    counts = {name: round(count(row(name), VOCABULARY) / 1e6) for name in PAPER_MILLIONS}
    assert counts == PAPER_MILLIONS
