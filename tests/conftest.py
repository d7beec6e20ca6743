"""Settings and fixtures of all tests."""

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Before PyTorch is imported: results do not depend on a measurement of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with SIGINT ignored, nohup its command with SIGHUP, and the
# processes that tests interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# No deadline for an example: other processes share the cores.
# The quick examples are the same in each run, so that no change is blamed for what chance found.
settings.register_profile("quick", deadline=None, max_examples=20, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=200)  # every week, at random
settings.load_profile("quick")

LONG = (
    "contrib/argos",
    "contrib/browser",
    "contrib/report/test_attention_page.py",
    "contrib/report/test_report.py",
    "contrib/robustness/test_noise_scores.py",
    "contrib/trackers/test_tracked_runs.py",
    "distributed",
    "e2e",
    "gpu",
    "parity/test_model_options.py",
    "parity/test_transformers_export.py",
    "robustness",
    "slurm",
    "unit/cli",
    "unit/conversion",
    "unit/evaluation/test_comparison.py",
    "unit/jobs",
    "unit/scripts",
    "unit/test_configs.py",
    "unit/data/test_pipeline.py",
    "unit/data/test_prepare.py",
    "unit/data/batching/test_static_batches.py",
    "unit/decode/engines/test_ctranslate2_engine.py",
    "unit/training/test_compiled.py",
    "unit/training/test_trainer.py",
    "unit/training/test_trainer_resuming.py",
)
"""Whole commands and training runs, compilation, every configuration, pictures, other libraries:
``--fast`` skips them, and other runs start with them."""


def _is_long(path: Path) -> bool:
    return any(path.is_relative_to(Path(__file__).parent / name) for name in LONG)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not even import the files in ``LONG`` if they are not to run."""
    return True if "not long" in config.option.markexpr and _is_long(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests in ``LONG``, and puts them first, so that parallel processes end together."""
    for item in items:
        if _is_long(item.path):
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus of tiny training runs, in a folder for the runs of a file."""
    from support.training_runs import write_corpus  # not for tests that do not train

    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Undoes the logging set-up of commands: pytest closes the streams that they log to."""
    loggers = [logging.getLogger(name) for name in (None, "transformer_mt")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
