"""The Transformer of "Attention Is All You Need", from raw text to BLEU."""

__version__ = "0.1.0"
