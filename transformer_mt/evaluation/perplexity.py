"""Perplexity of reference translations under a model, as in the paper's Table 3."""

import math
from collections.abc import Sequence

from transformer_mt import __version__
from transformer_mt.decode.translator import Translator
from transformer_mt.evaluation.scores import Score


def perplexity(
    translator: Translator, source: Sequence[str], reference: Sequence[str], vocab_size: int
) -> Score:
    """Perplexity per subword: exp of the mean negative log-likelihood of the references' subwords.

    End symbols count as subwords. As in the paper, models with different vocabularies cannot be
    compared: the signature includes the size of the vocabulary.

    Raises:
        InputError: A line is longer than the model's position embeddings allow.
    """
    scored = translator.score(source, reference)
    subwords = sum(len(translation.pieces) for translation in scored)
    nll = -sum(translation.log_prob for translation in scored) / subwords
    return Score(
        name="PPL",
        score=math.exp(min(nll, 700)),  # exp overflows above 709
        signature=f"nrefs:1|tok:subwords-{vocab_size}|version:{__version__}",
        segments=len(reference),
        verbose=f"{subwords:,} subwords",
    )
