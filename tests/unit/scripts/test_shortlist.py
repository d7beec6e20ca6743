"""Lexical shortlists: IBM Model 1."""

import itertools
import random

import numpy as np
import pytest
import shortlist


def test_model1_against_its_definition() -> None:
    rng = random.Random(1)
    pairs = [
        (rng.choices(range(5), k=rng.randint(0, 4)), rng.choices(range(4), k=rng.randint(0, 4)))
        for _ in range(30)
    ]
    keys, probabilities = shortlist.model1(
        [(np.array(src, np.int64), np.array(tgt, np.int64)) for src, tgt in pairs], 4
    )
    # Brown et al. 1993, section 4.1, from uniform probabilities, word by word.
    table = {(s, t): 1.0 for src, tgt in pairs for s, t in itertools.product(src, tgt)}
    for _ in range(shortlist.ITERATIONS):
        counts = dict.fromkeys(table, 0.0)
        for src, tgt in pairs:
            for t in tgt:
                total = sum(table[s, t] for s in src)
                for s in src:
                    counts[s, t] += table[s, t] / total
        sums = {s: sum(c for (other, _), c in counts.items() if other == s) for s, _ in table}
        table = {(s, t): count / sums[s] for (s, t), count in counts.items()}
    assert [divmod(int(key), 4) for key in keys] == sorted(table)
    assert probabilities == pytest.approx([table[key] for key in sorted(table)], rel=1e-4)
