"""Pictures of attention weights for trackers."""

from PIL import Image

from transformer_mt.model.attention_maps import KINDS, AttentionMaps, heat_map


def attention_pictures(attention: AttentionMaps) -> dict[str, Image.Image]:
    """A grey picture for each kind of attention, with a map for each layer and head."""
    return {kind: Image.fromarray(heat_map(attention.layers(kind)[0]).numpy()) for kind in KINDS}


def attention_caption(attention: AttentionMaps) -> str:
    """Caption: how to read the pictures, and the tokens of both sides; three paragraphs."""
    return "\n\n".join(
        [
            "One map for each layer (rows) and head (columns). In a map, a row is the attending "
            "token and a column the token attended to; black is 1, white is 0.",
            f"Source: {' '.join(attention.src)}",
            f"Target: {' '.join(attention.tgt_in)}",
        ]
    )
