"""Faults that happen to training runs, a few of each kind: nothing is lost by them.

The moments are random: ``MT_FAULTS_SEED`` repeats their choice, or makes another one. With
``MT_FAULTS_TIMES=5`` there are five times as many, about as many as in scripts/bench/RESULTS.md.
"""

import os
import random
import shutil
from collections.abc import Iterator

import pytest
from faults import FAULTS
from lab import Lab
from volume import MountError

SEED = int(os.environ.get("MT_FAULTS_SEED", "1"))
TIMES = int(os.environ.get("MT_FAULTS_TIMES", "1"))
MISSES = 5
"""Runs in succession that finish before they can be hit, after which that is an error."""
SHORT = {
    "kill -9": 3,
    "disk full": 1,
    "double start": 1,
}
LONG = {
    "kill -9": 40,
    "SIGTERM, SIGINT": 4,
    "damaged checkpoint": 12,
    "lost launcher": 2,
    "lost rank": 2,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "hits"),
    [
        *SHORT.items(),
        *(pytest.param(*item, marks=pytest.mark.slow) for item in LONG.items()),
    ],
)
def test_runs_survive_faults(name: str, hits: int, lab: Lab) -> None:
    rng, left, misses, lost = random.Random(f"{SEED} {name}"), hits * TIMES, 0, list[str]()
    while left > 0 and misses < MISSES:
        try:
            attempt = FAULTS[name](lab, rng, left)
        except MountError as error:
            pytest.skip(str(error))
        left -= attempt.hits
        misses = 0 if attempt.hits else misses + 1
        if attempt.problems:
            lost += [f"{attempt.run_dir}:", *attempt.history, *attempt.problems]
        else:
            shutil.rmtree(attempt.run_dir, ignore_errors=True)
    assert not lost, "\n".join(lost)
    assert left <= 0, "the runs finish before they can be hit"
