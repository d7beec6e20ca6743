"""The faults of ``bench_faults.py``, a few of each: nothing is lost, and what is refused says why.

``python scripts/bench_faults.py`` has the same faults in the numbers that the README reports.
"""

import importlib
import random
import sys
from collections.abc import Iterator

import pytest
from support.paths import ROOT

sys.path.append(str(ROOT / "scripts"))
bench_faults = importlib.import_module("bench_faults")
lab_module = importlib.import_module("bench_faults_lab")

SHORT = {
    "kill -9": 6,
    "SIGTERM, SIGINT": 3,
    "damaged checkpoint": 3,
    "all damaged": 1,
    "machine off": 1,
    "files cut short": 2,
    "disk full": 1,
    "file size limit": 1,
    "read-only folder": 2,
    "double start": 1,
}
LONG = {
    "kill -9": 40,
    "two signals": 4,
    "damaged checkpoint": 12,
    "double start": 3,
    "lost launcher": 2,
    "lost rank": 2,
    "other ranks": 1,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        made = lab_module.Lab(tmp_path_factory.mktemp("faults"))
        yield made
        made.close()


@pytest.mark.parametrize(
    ("name", "tries"),
    [
        *(pytest.param(*item, id=item[0]) for item in SHORT.items()),
        *(
            pytest.param(*item, id=f"{item[0]}, more", marks=pytest.mark.slow)
            for item in LONG.items()
        ),
    ],
)
def test_nothing_is_lost_by(name: str, tries: int, lab: object) -> None:
    row = bench_faults.suffer(lab, name, tries, seed=random.randrange(10**6))
    if row.skipped:
        pytest.skip(row.skipped)
    # What was done, and the seed, are on standard error, which pytest shows.
    assert row.problems == []
    assert row.hits.total() >= tries
