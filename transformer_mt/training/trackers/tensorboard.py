"""TensorBoard: curves, sample translations, attention maps, and final scores of a run."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from transformer_mt import run_layout
from transformer_mt.config import TrainJob, dotted
from transformer_mt.training.validation import AttentionSample, TranslationSample

_MAP_SIZE = 120
"""Approximate size of the longer side of one head's attention map, in pixels."""
_GAP = 4
"""Pixels between two maps."""


class TensorBoardTracker:
    """Writes TensorBoard event files.

    Args:
        run_dir: Run folder; the files are in ``tensorboard/``.
        last_step: Updates done so far; events of later steps are purged. None purges nothing.
    """

    def __init__(self, run_dir: Path, last_step: int | None):
        purge_step = None if last_step is None else last_step + 1
        self._writer = SummaryWriter(str(run_dir / run_layout.TENSORBOARD), purge_step=purge_step)

    def log_scalars(self, split: str, step: int, values: Mapping[str, float]) -> None:
        """Adds points to the curves ``<split>/<name>``."""
        for name, value in values.items():
            self._writer.add_scalar(f"{split}/{name}", value, step)
        # Not by SummaryWriter's timer: a killed run resumes from a checkpoint and never logs the
        # steps before it again.
        self._writer.flush()

    def log_samples(self, step: int, samples: Sequence[TranslationSample]) -> None:
        """Adds a table of sources, references and translations."""
        lines = ["| source | reference | translation |", "| --- | --- | --- |"]
        lines += [f"| {' | '.join(map(_escape, sample))} |" for sample in samples]
        self._writer.add_text("valid/translations", "\n".join(lines), step)
        self._writer.flush()

    def log_attention(self, step: int, attention: AttentionSample) -> None:
        """Adds one image for each kind of attention, and a caption with the tokens."""
        maps = attention.maps
        kinds = {"encoder": maps.encoder, "decoder": maps.decoder, "cross": maps.cross}
        for kind, layers in kinds.items():
            self._writer.add_image(f"valid/attention_{kind}", heat_map(layers), step)
        caption = [
            "One map for each layer (rows) and head (columns). In a map, a row is the attending "
            "token and a column the token attended to; black is 1, white is 0.",
            f"Source: {_escape(' '.join(attention.src_pieces))}",
            f"Target: {_escape(' '.join(attention.tgt_pieces))}",
        ]
        self._writer.add_text("valid/attention", "\n\n".join(caption), step)
        self._writer.flush()

    def log_final_scores(self, step: int, scores: Mapping[str, float], job: TrainJob) -> None:
        """Adds ``test/<metric>`` and the hyper-parameters, for the HPARAMS tab to compare runs."""
        metrics = {f"test/{name}": score for name, score in scores.items()}
        settings = {
            key: value if type(value) in (int, float) else str(value)
            for key, value in dotted(asdict(job)).items()
        }
        # SummaryWriter.add_hparams would create a subfolder that TensorBoard shows as another run.
        for summary in hparams(settings, metrics):
            # torch's types know it as None only
            self._writer.file_writer.add_summary(summary)  # type: ignore[attr-defined]
        for name, score in metrics.items():
            self._writer.add_scalar(name, score, step)

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()


def heat_map(layers: Sequence[Tensor]) -> Tensor:
    """Attention weights as a grey image; each weight is a square of pixels, 1 black, 0 white.

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


def _escape(text: str) -> str:
    """Escapes all punctuation, so that Markdown renders the text literally, also in a table."""
    return re.sub(r"[!-/:-@[-`{-~]", lambda sign: f"&#{ord(sign[0])};", text)
