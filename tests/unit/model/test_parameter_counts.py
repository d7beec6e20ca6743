"""Number of trainable parameters, against Table 3 of the paper.

The paper rounds to millions and does not say how large the vocabulary of these models was ("about
37000 tokens", §5.1). Each of its counts, less the parameters of the layers, divided by d_model,
therefore gives an interval for the size V of the vocabulary. All ten counts of models that differ
from base in one respect leave one common interval 200 wide, 41,004 ≤ V ≤ 41,208, so one vocabulary
explains them all; the big model's count, 213, implies about 35,900.
"""

import re

import pytest
import torch
from support.paths import ROOT

from transformer_mt import compose
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


def count(name: str, vocabulary: int = VOCABULARY) -> int:
    """Parameters of the model of a row as it is built, without allocating memory."""
    config = compose([f"experiment=table3/{name}"]).model
    with torch.device("meta"):
        model = Transformer(config, vocabulary)
    assert all(parameter.requires_grad for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters())


def test_one_vocabulary_explains_every_count_of_table_3() -> None:
    assert {name: round(count(name) / 1e6) for name in PAPER_MILLIONS} == PAPER_MILLIONS


@pytest.mark.parametrize("name", ["base", "big"])
def test_the_training_cost_of_an_update(name: str) -> None:
    """6 FLOP per weight and token: Table 2 as ``reproduce_wmt14`` estimates it.

    Every weight but the norms' meets 25,000 tokens, of the source or of the target;
    attention adds less than 3%.
    """
    script = (ROOT / "scripts/reproduce_wmt14").read_text()
    (stated,) = re.findall(rf"{name}\) updates=\d+ tflop=([\d.]+)", script)
    products = 6 * 25_000 * count(name, 37_000) / 1e12
    assert 0.97 * float(stated) < products < float(stated)
