"""Initial embeddings from a parallel corpus: pieces that occur in the same sentence pairs are near.

A piece is described by the pieces that it shares pairs with, of both languages, as in Levy, Søgaard
and Goldberg 2017 (https://aclanthology.org/E17-1072): a translation has the same ones. To a smaller
part its neighbours describe it. The vectors are those of Levy, Goldberg and Dagan 2015
(https://aclanthology.org/Q15-1016): positive pointwise mutual information with smoothed contexts,
and its singular vectors.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_SMOOTHING = 0.75
"""Exponent of the frequencies of contexts: rare ones get less weight (Levy et al. 2015, §3.2)."""
_WINDOW = 2
"""Distance up to which pieces are neighbours."""
_NEIGHBOURS = 0.5
"""Weight of neighbours, which tell word classes apart, against the pieces of the same pairs."""


def embeddings(pairs: Sequence[npt.NDArray[np.int64]], num_ids: int, size: int) -> Tensor:
    """[num_ids, size] fp32 vectors of length 1; zeros for pieces that do not occur.

    A pair is the ids of both sides in one array. The vectors are the rows of U √Σ from the singular
    value decomposition U Σ Vᵀ of three matrices side by side: of pieces that occur in the same
    pairs, of those that follow a piece, and of those that precede it. A random rotation spreads
    them over all dimensions: the first singular vectors have the largest entries.
    """
    lengths = torch.tensor([len(pair) for pair in pairs])
    pair = torch.arange(len(pairs)).repeat_interleave(lengths)
    piece = torch.from_numpy(np.concatenate(pairs))
    # Chosen here: otherwise torch warns that it checks nothing (2.11 even if an argument says so).
    with torch.sparse.check_sparse_tensor_invariants(False):
        matrix = _contexts(pair, piece, num_ids)
    u, s, _ = torch.svd_lowrank(matrix, min(size, num_ids), niter=4)
    known = torch.bincount(piece, minlength=num_ids) > 0
    vectors = torch.nn.functional.normalize(u * s.sqrt()) * known[:, None]
    return vectors @ torch.nn.init.orthogonal_(torch.empty(len(s), size))


def _contexts(pair: Tensor, piece: Tensor, num_ids: int) -> Tensor:
    """[num_ids, 3 · num_ids] sparse: what describes each piece (see ``embeddings``), weighted."""
    bags = _counts(pair, piece, (int(pair[-1]) + 1, num_ids))
    bags.values().fill_(1)  # a piece counts once in a pair
    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # CSR tensors are in beta
        together = torch.sparse.mm(bags.t(), bags).coalesce()
    distances = range(1, _WINDOW + 1)
    inside = [pair[:-k] == pair[k:] for k in distances]
    left = torch.cat([piece[:-k][mask] for k, mask in zip(distances, inside, strict=True)])
    right = torch.cat([piece[k:][mask] for k, mask in zip(distances, inside, strict=True)])
    following = _counts(left, right, (num_ids, num_ids))
    neighbours = [_ppmi(counts) * _NEIGHBOURS for counts in (following, following.t().coalesce())]
    return torch.cat([_ppmi(together), *neighbours], 1)


def _counts(rows: Tensor, columns: Tensor, shape: tuple[int, int]) -> Tensor:
    """How often each row and column occur together, as a sparse matrix."""
    places, numbers = (rows * shape[1] + columns).unique(return_counts=True)
    indices = torch.stack((places // shape[1], places % shape[1]))
    return torch.sparse_coo_tensor(indices, numbers.float(), shape, is_coalesced=True)


def _ppmi(counts: Tensor) -> Tensor:
    """max(0, log(n_ij / (n_i p_j))), where n_i = Σ_j n_ij and p_j = n_j^0.75 / Σ_k n_k^0.75."""
    i, j = counts.indices()
    rows, columns = (torch.bincount(ids, counts.values(), len(counts)) for ids in (i, j))
    expected = rows[i] * columns[j] ** _SMOOTHING / (columns**_SMOOTHING).sum()
    values = (counts.values() / expected).log().clamp(min=0)
    return torch.sparse_coo_tensor(counts.indices(), values, counts.shape, is_coalesced=True)
