"""Models whose parameters are all random: initial norms and biases would hide mistakes."""

import torch

from transformer_mt.config import ModelConfig
from transformer_mt.model.transformer import Transformer


def random_transformer(config: ModelConfig, vocab_size: int, seed: int = 1) -> Transformer:
    """A float64 model in training mode with normally distributed parameters."""
    model = Transformer(config, vocab_size).double()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = mean + 0.4 * noise
    return model
