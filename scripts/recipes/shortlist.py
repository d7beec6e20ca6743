"""Writes a vocabulary shortlist into an exported folder: CTranslate2 then scores fewer pieces.

    python scripts/recipes/shortlist.py distilled.tsv exported/vmap.txt --model runs/fast/student

PAIRS are training pairs: source, tab, target. For each source piece the shortlist has the target
pieces that are most probable in IBM model 1 (Brown et al. 1993), and for every line those that are
most frequent. MODEL normalises and encodes the pairs; a program translates with use_vmap=True.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
from recipe import argument_parser, main, say

from transformer_mt import files, model_folder
from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.normalization import Normalizer
from transformer_mt.errors import InputError

Ints = npt.NDArray[np.int64]
ITERATIONS = 4
CHUNK_PAIRS = 20_000


def shortlist() -> None:
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("pairs", metavar="PAIRS", help="TSV file of training pairs")
    add("output", type=Path, metavar="FOLDER/vmap.txt", help="file to write")
    add("--model", required=True, help="model folder that was exported")
    add("--best", type=int, default=50, help="target pieces of a source piece (default: 50)")
    add("--frequent", type=int, default=100, help="target pieces of every line (default: 100)")
    add("--lines", type=int, default=200_000, help="pairs to read (default: 200000)")
    options = parser.parse_args()
    folder = model_folder.ModelFolder(options.model)
    tokenizer, trained = folder.tokenizer, folder.trained
    normalizer = Normalizer(trained.data)
    lines = islice(read_lines(options.pairs), options.lines)
    pairs = [encode(tokenizer, normalizer, line) for line in lines]
    if not pairs:
        raise InputError(f"{options.pairs} has no pairs")
    keys, probabilities = model1(pairs, tokenizer.tgt.vocab_size)
    frequent = np.bincount(np.concatenate([tgt for _, tgt in pairs]))
    always = np.argsort(-frequent, kind="stable")[: options.frequent]
    always = always[frequent[always] > 0]
    rows = {"": always}
    sources, targets = np.divmod(keys, tokenizer.tgt.vocab_size)
    bounds = np.searchsorted(sources, np.arange(tokenizer.vocab_size + 1))
    for source, piece in enumerate(tokenizer.vocabulary):
        own = slice(bounds[source], bounds[source + 1])
        best = np.argsort(-probabilities[own], kind="stable")[: options.best]
        rows[piece] = targets[own][best]
    text = "".join(
        f"{piece}\t{' '.join(tokenizer.tgt.pieces(ids.tolist()))}\n" for piece, ids in rows.items()
    )
    files.write_text(files.expand_user(options.output).resolve(), text)
    mean = np.mean([len(ids) for ids in rows.values()])
    say(f"{len(pairs):,} pairs; {mean:.0f} target pieces for each source piece on average")


def encode(tokenizer: Tokenizer, normalizer: Normalizer, line: str) -> tuple[Ints, Ints]:
    """Ids of the two sides of a pair, as in training."""
    source, _, target = line.partition("\t")
    ((src, tgt),) = tokenizer.encode_pairs([(source, target)], normalizer)
    return np.array(src, np.int64), np.array(tgt, np.int64)


def model1(pairs: list[tuple[Ints, Ints]], vocab_size: int) -> tuple[Ints, npt.NDArray[np.float32]]:
    """Translation probabilities of IBM model 1, without an empty source word.

    Returns:
        Sorted keys, source id · vocab_size + target id, and for each p(target | source).
    """
    own_keys, chunks = [np.array([], np.int64)], []
    for links, lengths in _links(pairs, vocab_size):
        own, inverse = np.unique(links, return_inverse=True)
        own_keys.append(own)
        chunks.append((inverse.astype(np.int32), lengths))
    keys = np.unique(np.concatenate(own_keys))
    places = [np.searchsorted(keys, own) for own in own_keys[1:]]
    sources = keys // vocab_size
    probabilities = np.ones(len(keys), np.float32)
    for _ in range(ITERATIONS):
        counts = np.zeros(len(keys))
        for place, (which, lengths) in zip(places, chunks, strict=True):
            values = probabilities[place][which]
            totals = np.add.reduceat(values, np.cumsum(lengths) - lengths)
            share = values / np.repeat(totals, lengths)
            counts[place] += np.bincount(which, share, len(place))
        total = np.bincount(sources, counts)
        probabilities = (counts / total[sources]).astype(np.float32)
    return keys, probabilities


def _links(pairs: list[tuple[Ints, Ints]], vocab_size: int) -> Iterator[tuple[Ints, Ints]]:
    """Chunks of links: their keys by target token, and the number of links of each of these."""
    pairs = [(src, tgt) for src, tgt in pairs if len(src) and len(tgt)]
    for start in range(0, len(pairs), CHUNK_PAIRS):
        chunk = pairs[start : start + CHUNK_PAIRS]
        links = [(src[None, :] * vocab_size + tgt[:, None]).ravel() for src, tgt in chunk]
        lengths = [np.full(len(tgt), len(src)) for src, tgt in chunk]
        yield np.concatenate(links), np.concatenate(lengths)


if __name__ == "__main__":
    main(shortlist)
