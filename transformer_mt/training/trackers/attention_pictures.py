"""Pictures of attention weights for trackers."""

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from transformer_mt.training.validation import AttentionSample

_MAP_SIZE = 120
"""Approximate size of the longer side of one head's attention map, in pixels."""
_GAP = 4
"""Pixels between two maps."""


def attention_pictures(attention: AttentionSample) -> dict[str, Image.Image]:
    """A grey picture for each kind of attention, with a map for each layer and head."""
    maps = attention.maps
    kinds = {"encoder": maps.encoder, "decoder": maps.decoder, "cross": maps.cross}
    return {kind: Image.fromarray(heat_map(layers).numpy()) for kind, layers in kinds.items()}


def attention_caption(attention: AttentionSample) -> str:
    """Caption: how to read the pictures, and the tokens of both sides; three paragraphs."""
    return "\n\n".join(
        [
            "One map for each layer (rows) and head (columns). In a map, a row is the attending "
            "token and a column the token attended to; black is 1, white is 0.",
            f"Source: {' '.join(attention.src_pieces)}",
            f"Target: {' '.join(attention.tgt_pieces)}",
        ]
    )


def heat_map(layers: Sequence[Tensor]) -> Tensor:
    """Attention weights as a grey image; each weight is a square of pixels, 1 black, 0 white.

    Args:
        layers: [H, T, S] for each layer, weights in [0, 1].

    Returns:
        [height, width] uint8.
    """
    maps = torch.stack(list(layers))
    side = max(1, _MAP_SIZE // max(maps.shape[-2:]))
    pixels = ((1 - maps) * 255).round().to(torch.uint8)
    pixels = pixels.repeat_interleave(side, -2).repeat_interleave(side, -1)
    pixels = torch.nn.functional.pad(pixels, (0, _GAP, 0, _GAP), value=128)
    return torch.cat([torch.cat(list(heads), dim=1) for heads in pixels])
