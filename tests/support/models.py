"""Small random models, a vocabulary and text for tests of translation."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from support.search_tables import LogProbs, Prefix
from support.tokenizers import small_tokenizer
from transformer_mt.batch import Packed
from transformer_mt.config import DataConfig, ModelConfig, SearchConfig
from transformer_mt.data.subwords.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.decode.engines.torch_engine import TorchEngine
from transformer_mt.decode.translator import Translator
from transformer_mt.model.transformer import Transformer

WORDS = ["the", "a", "dog", "fox", "barn", "house", "jumps", "sleeps", "over", "under", "lazily"]
WORDS += ["quick", "brown", "red", "Übermut", "3,5"]
PLAIN = Normalizer(DataConfig(src_lang="en", tgt_lang="de"))


def random_lines(number: int, longest: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=draw.randint(1, longest))).capitalize()
        for _ in range(number)
    ]


def make_tokenizer(folder: Path, **config: Any) -> Tokenizer:
    return small_tokenizer(folder / "m", random_lines(200, 9), **{"vocab_size": 330, **config})


def tiny_config(**changes: Any) -> ModelConfig:
    """One layer on each side, of eight dimensions."""
    sizes: dict[str, Any] = {"d_model": 8, "d_ff": 16, "num_heads": 2}
    return ModelConfig(**{**sizes, "num_encoder_layers": 1, "num_decoder_layers": 1, **changes})


def random_model(**config: Any) -> Transformer:
    """An untrained model with a peaked distribution: its few hundred scores are far apart."""
    torch.manual_seed(2)
    sizes: dict[str, Any] = {"d_model": 16, "d_ff": 32, "num_heads": 2}
    layers: dict[str, Any] = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    model = Transformer(ModelConfig(**sizes, **layers, **config), 330)
    with torch.no_grad():
        for layer in model.decoder:
            layer.residual3.norm.weight.mul_(2)  # type: ignore[union-attr, operator]
        if model.config.norm == "pre":  # its small initial weights would repeat the input
            for name, weight in model.named_parameters():
                if name.endswith(("out_proj.weight", "linear2.weight")):
                    weight.mul_(2)
    return model.eval()


def random_transformer(config: ModelConfig, vocab_size: int, seed: int = 1) -> Transformer:
    """A float64 model in training mode whose parameters are all normally distributed.

    Initial norms and biases would hide mistakes.
    """
    model = Transformer(config, vocab_size).double()
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        mean = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data = mean + 0.4 * noise
    return model


def constant_model(tokenizer: Tokenizer, logits: dict[str, float]) -> Transformer:
    """A model whose next token always has the same distribution; other pieces are ruled out."""
    model = random_model()
    ids = {tokenizer.pieces([i])[0]: i for i in range(tokenizer.vocab_size)}
    with torch.no_grad():
        norm = model.decoder[-1].residual3.norm
        norm.weight.zero_()  # type: ignore[union-attr, operator]
        norm.bias.copy_(torch.eye(16)[0])  # type: ignore[union-attr, operator]
        model.embedding.weight[:, 0] = -1e6
        for piece, logit in logits.items():
            model.embedding.weight[ids[piece], 0] = logit
    return model


def model_that_ends(logit: float, scale: float = 1.0, **config: Any) -> Transformer:
    """A random model that, like a trained one, ends sentences and never generates special symbols.

    The first dimension of its last hidden state is 1, and only these symbols have weights for it.
    """
    model = random_model(**config)
    last = model.decoder_norm if model.config.norm == "pre" else model.decoder[-1].residual3.norm
    with torch.no_grad():
        last.weight.fill_(scale)  # type: ignore[union-attr, operator]
        last.weight[0], last.bias[0] = 0, 1  # type: ignore[union-attr, operator]
        weights = model.output_weight
        weights[:, 0] = 0
        weights[[PAD, UNK, BOS], 0] = -30
        weights[EOS] = logit * torch.eye(model.config.d_model)[0]
    return model


def make_translator(
    model: Transformer,
    tokenizer: Tokenizer,
    config: SearchConfig,
    normalizer: Normalizer = PLAIN,
    ensemble: Sequence[Transformer] = (),
) -> Translator:
    """A translator with the PyTorch engine."""
    decode = config.for_job()
    return Translator(TorchEngine([model, *ensemble], decode), tokenizer, normalizer, decode)


def uncached(model: Transformer, source: list[int]) -> LogProbs:
    """The next token's log-probabilities, computed from the whole prefix each time."""
    src = Packed.from_sequences([[*source, EOS]])
    memory = model.encode(src)

    def log_probs(prefix: Prefix) -> list[float]:
        tgt_in = Packed.from_sequences([[BOS, *prefix]])
        logits = model.logits(model.decode(tgt_in, memory, src)[-1])
        row = logits.float().log_softmax(-1)
        row[[PAD, UNK, BOS]] = -torch.inf
        return row.tolist()

    return log_probs
