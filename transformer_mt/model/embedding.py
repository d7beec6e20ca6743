"""Token embeddings (§3.4) and positional encodings (§3.5).

Shapes: N packed tokens; D model; V vocabulary.
"""

import math

import torch
from torch import Tensor, nn

from transformer_mt.config import ModelConfig

_MIN_POSITIONS = 1024
"""Minimum size of a table of sinusoids; longer sequences extend it."""


def sinusoids(num_positions: int, d_model: int) -> Tensor:
    """Sinusoidal positional encoding (§3.5): sine in even dimensions, cosine in odd ones.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)),
    PE(pos, 2i + 1) = cos(pos / 10000^(2i / d_model)).

    Returns:
        [num_positions, d_model] float32.
    """
    # In float64: at position 1000 a float32 angle changes the fourth digit of its sine.
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000 ** (two_i / d_model)
    encoding = torch.stack((angle.sin(), angle.cos()), dim=-1)
    return encoding.reshape(num_positions, d_model).float()


class Embedding(nn.Module):
    """Token embeddings scaled by √d_model, plus positional encodings."""

    sinusoids: Tensor
    """[positions, D], extended when needed; empty if positions are learned."""

    def __init__(self, vocab_size: int, config: ModelConfig):
        super().__init__()
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.weight = nn.Parameter(torch.empty(vocab_size, config.d_model))
        self.learned_positions = config.positions == "learned"
        if self.learned_positions:
            self.positions = nn.Parameter(torch.empty(config.max_positions, config.d_model))
        self.register_buffer("sinusoids", torch.empty(0, config.d_model), persistent=False)
        if not self.weight.is_meta:  # PyTorch takes a second to prepare for these on meta tensors
            self.reserve(1)  # now: a compiled step cannot replace the table
            for parameter in self.parameters():  # scaled, they have unit variance
                nn.init.normal_(parameter, std=config.d_model**-0.5)

    def forward(self, tokens: Tensor, positions: Tensor, max_length: int) -> Tensor:
        """Embeds tokens at positions below ``max_length``: [N] and [N] int64 → [N, D]."""
        self.reserve(max_length)
        table = self.positions if self.learned_positions else self.sinusoids
        return nn.functional.embedding(tokens, self.weight) * self.scale + table[positions]

    def reserve(self, length: int) -> bool:
        """Extends the table of positions to ``length``; returns whether the table was replaced."""
        if self.learned_positions or len(self.sinusoids) >= length:
            return False
        number = max(_MIN_POSITIONS, 2 * length)  # doubled, so that decoding rarely extends it
        with torch.inference_mode(mode=False):  # training may use it later
            self.sinusoids = sinusoids(number, self.weight.shape[1]).to(self.weight)
        return True
