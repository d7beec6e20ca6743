"""Errors that end training: out of memory, and numbers that are not finite."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformer_mt import run_layout
from transformer_mt.batch import Batch
from transformer_mt.errors import InputError
from transformer_mt.files import write_text

_ADVICE = (
    "lower the learning rate or lengthen the warm-up (schedule), clip the gradient "
    "(train.clip_norm), or delete the latest checkpoints to resume from an earlier one"
)


def out_of_memory_error(
    micro_batches: Sequence[Batch], max_tokens: int, max_length: int
) -> InputError:
    """The error, with advice, for a device that is out of memory.

    Args:
        micro_batches: The batches at work.
        max_tokens: ``train.max_tokens_per_device``.
        max_length: ``data.cleaning.max_tokens``, a lower bound of ``max_tokens``.
    """
    targets = max(len(batch.tgt_out) for batch in micro_batches)
    advice = "lower data.cleaning.max_tokens, or use a smaller model"
    if max_length < max_tokens:
        less = max(max_length, min(max_tokens, targets) // 2)
        advice = f"set train.max_tokens_per_device={less}; the updates stay the same"
    return InputError(f"out of memory on a batch of {targets:,} target tokens: {advice}")


def not_finite_error(subject: str, step: int) -> InputError:
    """The error for weights or a loss with NaN or infinity; ``subject`` ends in a verb."""
    return InputError(f"{subject} not finite after update {step:,}: {_ADVICE}")


def too_many_skipped_error(
    run_dir: Path, steps: range, lines: Mapping[int, list[str]]
) -> InputError:
    """The error for too many consecutive updates whose gradient is not finite.

    Args:
        run_dir: Run folder, where ``not_finite.json`` is written.
        steps: The skipped updates.
        lines: File and line of each training pair in each of them; empty on ranks that do not
            write the file.
    """
    path = run_dir / run_layout.NOT_FINITE_LINES
    if lines:
        write_text(path, json.dumps(lines, indent=1, ensure_ascii=False))
    return InputError(
        f"the gradient was not finite in {len(steps)} updates in a row, {steps[0]:,} to "
        f"{steps[-1]:,}, which were skipped; their training pairs are listed in {path}: {_ADVICE}"
    )
