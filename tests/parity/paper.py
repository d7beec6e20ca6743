"""The Transformer of the paper in NumPy, equation by equation, as a reference for tests.

One sentence pair, one head and one position at a time, in float64, without dropout, and without
any optimisation. Sections and equations are those of "Attention Is All You Need". Arrays: x is
[positions, d_model].
"""

import math

import numpy as np
import numpy.typing as npt

from transformer_mt.config import ModelConfig

Array = npt.NDArray[np.float64]


def softmax(scores: list[float]) -> list[float]:
    total = sum(math.exp(s) for s in scores)
    return [math.exp(s) / total for s in scores]


def attention(query: Array, keys: Array, values: Array) -> Array:
    """Equation (1) for one query: softmax(q Kᵀ / √d_k) V."""
    weights = softmax([float(query @ key) / math.sqrt(len(query)) for key in keys])
    return sum((w * v for w, v in zip(weights, values, strict=True)), np.zeros(values.shape[1]))


class Paper:
    """The Transformer of the paper for one sentence pair.

    ``w`` has our parameters' names, and ``kv_proj`` for each layer's rows of ``source_projection``.
    """

    def __init__(self, config: ModelConfig, w: dict[str, Array]):
        self.c, self.w = config, w

    def multi_head(self, x: Array, memory: Array, name: str, causal: bool) -> Array:
        """§3.2.2: Concat(head_1, …, head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)."""
        h, d_k, d_v = self.c.num_heads, self.c.key_size, self.c.value_size
        if "self" in name:
            matrix = self.w[f"{name}.qkv_proj.weight"].T
        else:
            q, kv = self.w[f"{name}.q_proj.weight"].T, self.w[f"{name}.kv_proj.weight"].T
            matrix = np.concatenate([q, kv], axis=1)
        assert matrix.shape == (self.c.d_model, 2 * h * d_k + h * d_v)
        out = np.zeros((len(x), h * d_v))
        for i in range(h):
            w_q = matrix[:, i * d_k : (i + 1) * d_k]
            w_k = matrix[:, (h + i) * d_k : (h + i + 1) * d_k]
            w_v = matrix[:, 2 * h * d_k + i * d_v : 2 * h * d_k + (i + 1) * d_v]
            for t in range(len(x)):
                seen = memory[: t + 1] if causal else memory
                out[t, i * d_v : (i + 1) * d_v] = attention(x[t] @ w_q, seen @ w_k, seen @ w_v)
        return out @ self.w[f"{name}.out_proj.weight"].T

    def feed_forward(self, x: Array, name: str) -> Array:
        """Equation (2): max(0, x W₁ + b₁) W₂ + b₂."""
        w1, b1 = self.w[f"{name}.linear1.weight"].T, self.w[f"{name}.linear1.bias"]
        w2, b2 = self.w[f"{name}.linear2.weight"].T, self.w[f"{name}.linear2.bias"]
        return np.maximum(0, x @ w1 + b1) @ w2 + b2

    def norm(self, x: Array, name: str) -> Array:
        """Layer normalisation: every position to mean 0 and variance 1, then a gain and a bias."""
        rows = [(row - row.mean()) / math.sqrt(row.var() + 1e-6) for row in x]
        return np.stack(rows) * self.w[f"{name}.norm.weight"] + self.w[f"{name}.norm.bias"]

    def embed(self, tokens: list[int]) -> Array:
        """§3.4: times √d_model; §3.5: plus PE, which our model stores in single precision."""
        d = self.c.d_model
        x = np.empty((len(tokens), d))
        for pos, token in enumerate(tokens):
            for i in range(d // 2):
                angle = pos / 10000 ** (2 * i / d)
                for j, pe in ((2 * i, math.sin(angle)), (2 * i + 1, math.cos(angle))):
                    x[pos, j] = self.w["embedding.weight"][token, j] * math.sqrt(d) + np.float32(pe)
        return x

    def logits(self, src: list[int], tgt: list[int]) -> Array:
        """§3.1: encoder and decoder; §3.4: the output layer, before its softmax."""
        memory = self.embed(src)
        for i in range(self.c.num_encoder_layers):
            name, x = f"encoder.{i}", memory
            x = self.norm(
                x + self.multi_head(x, x, f"{name}.self_attention", False), f"{name}.residual1"
            )
            memory = self.norm(
                x + self.feed_forward(x, f"{name}.feed_forward"), f"{name}.residual2"
            )
        x = self.embed(tgt)
        for i in range(self.c.num_decoder_layers):
            name = f"decoder.{i}"
            x = self.norm(
                x + self.multi_head(x, x, f"{name}.self_attention", True), f"{name}.residual1"
            )
            y = self.multi_head(x, memory, f"{name}.cross_attention", False)
            x = self.norm(x + y, f"{name}.residual2")
            x = self.norm(x + self.feed_forward(x, f"{name}.feed_forward"), f"{name}.residual3")
        return x @ self.w["embedding.weight"].T
