"""What TensorBoard shows of a run beside its curves: translations, attention, final scores."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from transformer_mt import run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.model.attention_maps import AttentionMaps

_MAP_SIZE = 120
"""Pixels, about, of the longer side of one head's map."""
_GAP = 4


def show_samples(board: SummaryWriter, step: int, samples: Sequence[tuple[str, str, str]]) -> None:
    """A table of sources, references and translations."""
    lines = ["| source | reference | translation |", "| --- | --- | --- |"]
    lines += [f"| {' | '.join(map(_escape, sample))} |" for sample in samples]
    board.add_text("valid/translations", "\n".join(lines), step)


def show_attention(
    board: SummaryWriter,
    step: int,
    maps: AttentionMaps,
    src_pieces: Sequence[str],
    tgt_pieces: Sequence[str],
) -> None:
    """One image for each kind of attention, and what its rows and columns stand for."""
    kinds = {"encoder": maps.encoder, "decoder": maps.decoder, "cross": maps.cross}
    for kind, layers in kinds.items():
        board.add_image(f"valid/attention_{kind}", heat_map(layers), step)
    caption = [
        "One map a layer (downwards) and head (across); in a map a row is the token that looks, a "
        "column the token looked at; black is 1, white is 0.",
        f"Source: {_escape(' '.join(src_pieces))}",
        f"Target: {_escape(' '.join(tgt_pieces))}",
    ]
    board.add_text("valid/attention", "\n\n".join(caption), step)


def heat_map(layers: Sequence[Tensor]) -> Tensor:
    """Attention weights as a grey image, 1 black, 0 white; each weight is a square of pixels.

    Args:
        layers: [H, T, S] for each layer, weights in [0, 1].

    Returns:
        [1, height, width] uint8.
    """
    maps = torch.stack(list(layers))
    side = max(1, _MAP_SIZE // max(maps.shape[-2:]))
    pixels = ((1 - maps) * 255).round().to(torch.uint8)
    pixels = pixels.repeat_interleave(side, -2).repeat_interleave(side, -1)
    pixels = torch.nn.functional.pad(pixels, (0, _GAP, 0, _GAP), value=128)
    return torch.cat([torch.cat(list(heads), dim=1) for heads in pixels])[None]


def record_scores(run_dir: Path, job: TrainJob, scores: dict[str, float], step: int) -> None:
    """Sets the final scores beside the hyper-parameters, for TensorBoard to compare runs by.

    Args:
        run_dir: Folder of the run.
        job: Its configuration.
        scores: Of the test set, by metric.
        step: Updates done.
    """
    metrics = {f"test/{name}": score for name, score in scores.items()}
    # SummaryWriter.add_hparams would open a folder of its own, which TensorBoard takes for a run.
    with SummaryWriter(str(run_dir / run_layout.TENSORBOARD)) as board:
        settings = {
            key: value if type(value) in (int, float) else str(value)
            for key, value in dotted(asdict(job)).items()
        }
        for summary in hparams(settings, metrics):
            board.file_writer.add_summary(summary)
        for name, score in metrics.items():
            board.add_scalar(name, score, step)


def _escape(text: str) -> str:
    """The text for Markdown that is to show it as it is, in a cell of a table too."""
    return re.sub(r"[!-/:-@[-`{-~]", lambda sign: f"&#{ord(sign[0])};", text)
