"""Faults that happen to training runs, a few of each kind: nothing is lost by them.

``python tests/robustness/faults.py`` repeats them as often as scripts/bench/RESULTS.md reports.
"""

import os
from collections.abc import Iterator

import faults
import pytest
from lab import Lab

SHORT = {
    "kill -9": 3,
    "damaged checkpoint": 1,
    "all damaged": 1,
    "machine off": 1,
    "files cut short": 2,
    "disk full": 1,
    "file size limit": 1,
    "read-only folder": 1,
    "double start": 1,
}
LONG = {
    "kill -9": 40,
    "SIGTERM, SIGINT": 4,
    "two signals": 4,
    "damaged checkpoint": 12,
    "read-only folder": 2,
    "double start": 3,
    "lost launcher": 2,
    "lost rank": 2,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "tries"),
    [
        *SHORT.items(),
        *(pytest.param(*item, marks=pytest.mark.slow) for item in LONG.items()),
    ],
)
def test_runs_survive_faults(name: str, tries: int, lab: Lab) -> None:
    seed = int(os.environ.get("MT_FAULTS_SEED", "1"))
    row = faults.run_fault(lab, name, tries, seed)
    if row.skipped:
        pytest.skip(row.skipped)
    # On failure pytest shows stderr, which has the history and the seed.
    assert row.problems == []
    assert row.hits.total() >= tries
