"""Initial embeddings from a parallel corpus: pieces that occur in the same sentence pairs are near.

A piece is described by the pieces that it shares pairs with, of both languages, as in Levy, Søgaard
and Goldberg 2017 (https://aclanthology.org/E17-1072): a translation has the same ones. The vectors
are those of Levy, Goldberg and Dagan 2015 (https://aclanthology.org/Q15-1016): positive pointwise
mutual information with smoothed contexts, and its singular vectors.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_SMOOTHING = 0.75
"""Exponent of the frequencies of contexts: rare ones get less weight (Levy et al. 2015, §3.2)."""


def embeddings(pairs: Sequence[npt.NDArray[np.int64]], num_ids: int, size: int) -> Tensor:
    """Vectors of length 1 (``protocols.InitialEmbeddings``).

    They are the rows of U √Σ from the singular value decomposition U Σ Vᵀ of

        PPMI_ij = max(0, log(n_ij / (n_i p_j))), p_j = n_j^0.75 / Σ_k n_k^0.75, n_i = Σ_j n_ij,

    where n_ij is the number of pairs with both pieces; turned, so that no dimension has more of
    them than another.
    """
    lengths = torch.tensor([len(pair) for pair in pairs])
    pair = torch.arange(len(pairs)).repeat_interleave(lengths)
    piece = torch.from_numpy(np.concatenate(pairs))
    places = (pair * num_ids + piece).unique()  # a piece counts once in a pair
    bags = torch.sparse_coo_tensor(
        torch.stack((places // num_ids, places % num_ids)),
        torch.ones(len(places)),
        (len(pairs), num_ids),
        is_coalesced=True,
        check_invariants=False,
    )
    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # CSR tensors are in beta
        counts = torch.sparse.mm(bags.t(), bags).coalesce()

    i, j = counts.indices()
    total = torch.bincount(i, counts.values(), num_ids)  # n_i
    context = total**_SMOOTHING / (total**_SMOOTHING).sum()
    ppmi = (counts.values() / (total[i] * context[j])).log().clamp(min=0)
    matrix = torch.sparse_coo_tensor(
        counts.indices(), ppmi, counts.shape, is_coalesced=True, check_invariants=False
    )
    u, s, _ = torch.svd_lowrank(matrix, min(size, num_ids), niter=4)
    vectors = torch.nn.functional.normalize(u * s.sqrt()) * (total > 0)[:, None]
    return vectors @ torch.nn.init.orthogonal_(torch.empty(len(s), size))
