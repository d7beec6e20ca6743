"""Forced decoding: the log-probabilities that a model assigns to given translations."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_mt.batch import Packed
from transformer_mt.data.subwords.tokenizer import BOS, EOS
from transformer_mt.decode.search.sentence_batches import map_batches
from transformer_mt.decode.search.step_function import NAN_MESSAGE, log_mean_exp
from transformer_mt.errors import InputError
from transformer_mt.model.transformer import Transformer

_LOGIT_ROWS = 1024
"""Rows of logits held at a time."""


@torch.inference_mode()
def score_targets(
    models: Sequence[Transformer],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch_tokens: int,
) -> list[list[float]]:
    """The log-probability of each token of each target, given its source and the tokens before.

    Several models are an ensemble. Token ids are without special symbols. Either side of a batch
    has at most ``batch_tokens`` tokens, padding included.

    Returns:
        For each pair, one value for each token of the target and one for the end symbol.

    Raises:
        InputError: The model's output is not a number.
    """
    device = models[0].embedding.weight.device
    sizes = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]

    def score(batch: list[int]) -> list[list[float]]:
        src = Packed.from_sequences([[*sources[i], EOS] for i in batch]).to(device)
        tgt_in = Packed.from_sequences([[BOS, *targets[i]] for i in batch]).to(device)
        tgt_out = torch.tensor([token for i in batch for token in (*targets[i], EOS)])
        log_probs = _log_probs(models, src, tgt_in, tgt_out.to(device))
        if log_probs.isnan().any():
            raise InputError(NAN_MESSAGE)
        return [values.tolist() for values in log_probs.split([len(targets[i]) + 1 for i in batch])]

    return map_batches(score, sizes, batch_tokens)


def _log_probs(
    models: Sequence[Transformer], src: Packed, tgt_in: Packed, tgt_out: Tensor
) -> Tensor:
    """[N] log-probabilities of the packed target tokens of a batch."""
    members = []
    for model in models:
        hidden = model.decode(tgt_in, model.encode(src), src)
        parts = [
            model.logits(rows).float().log_softmax(-1).gather(1, tokens[:, None])[:, 0]
            for rows, tokens in zip(
                hidden.split(_LOGIT_ROWS), tgt_out.split(_LOGIT_ROWS), strict=True
            )
        ]
        members.append(torch.cat(parts))
    return log_mean_exp(members)
