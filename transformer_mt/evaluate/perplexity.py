"""Perplexity of reference translations under a model, as in the paper's Table 3."""

import math
from collections.abc import Sequence

from transformer_mt import __version__
from transformer_mt.decode.translator import Translator
from transformer_mt.evaluate.scores import Score


def perplexity(
    translator: Translator, source: Sequence[str], reference: Sequence[str], vocab_size: int
) -> Score:
    """E to the power of the mean negative log-likelihood of a subword of the references.

    End symbols count, as subwords. Like the paper's it is per subword of the model's vocabulary:
    only models of one vocabulary compare.

    Args:
        translator: The model.
        source: The sentences.
        reference: A translation of each.
        vocab_size: Of the model's vocabulary, for the signature.

    Raises:
        InputError: A line is longer than the model's positions.
    """
    found = translator.score(source, reference)
    subwords = sum(len(each.pieces) for each in found)
    nll = -sum(each.log_prob for each in found) / subwords
    return Score(
        name="PPL",
        score=math.exp(min(nll, 700)),  # beyond lies infinity
        signature=f"nrefs:1|tok:subwords-{vocab_size}|version:{__version__}",
        segments=len(reference),
        verbose=f"{subwords:,} subwords",
    )
