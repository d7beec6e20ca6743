"""What may end a training before its time, in words that say what to do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from transformer_mt.batch import Batch
from transformer_mt.errors import InputError, is_out_of_memory
from transformer_mt.files import write_text

_ADVICE = (
    "lower the learning rate or lengthen the warm-up (schedule), clip the gradient "
    "(train.clip_norm), or delete the latest checkpoints and go on from an earlier one"
)


@contextmanager
def memory_explained(parts: Sequence[Batch], limit: int, longest: int) -> Iterator[None]:
    """Around the work on some batches.

    Args:
        parts: The batches.
        limit: ``train.max_tokens_per_device``.
        longest: ``data.cleaning.max_tokens``, which that may not be below.

    Raises:
        InputError: Memory does not suffice.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        targets = max(len(part.tgt_out) for part in parts)
        advice = "lower data.cleaning.max_tokens, or take a smaller model"
        if longest < limit:
            less = max(longest, min(limit, targets) // 2)
            advice = f"say train.max_tokens_per_device={less}; the updates stay the same"
        raise InputError(
            f"out of memory on a batch of {targets:,} target tokens: {advice}"
        ) from None


def not_finite(what: str, step: int) -> InputError:
    """The error for numbers that are none after an update."""
    return InputError(f"{what} not finite after update {step:,}: {_ADVICE}")


def too_many_skipped(run_dir: Path, steps: range, lines: Mapping[int, list[str]]) -> InputError:
    """The error for updates that were skipped one after the other.

    Args:
        run_dir: Where ``not_finite.json`` is written.
        steps: The updates.
        lines: File and line of each pair in each of them; empty where another rank writes it.
    """
    path = run_dir / "not_finite.json"
    if lines:
        write_text(path, json.dumps(lines, indent=1, ensure_ascii=False))
    return InputError(
        f"the gradient was not finite in {len(steps)} updates in a row, {steps[0]:,} to "
        f"{steps[-1]:,}, which were skipped; the lines in them are in {path}: {_ADVICE}"
    )
