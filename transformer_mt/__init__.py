"""The Transformer of "Attention Is All You Need", from raw text to BLEU."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_mt.decode.translator import Translator
    from transformer_mt.model.transformer import Transformer

__all__ = ["Transformer", "Translator", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # On demand: PyTorch takes seconds to import, and `mt-train --help` does without.
    if name == "Translator":
        from transformer_mt.decode.translator import Translator

        return Translator
    if name == "Transformer":
        from transformer_mt.model.transformer import Transformer

        return Transformer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
