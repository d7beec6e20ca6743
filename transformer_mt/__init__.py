"""The Transformer of "Attention Is All You Need", from raw text to BLEU.

The commands as functions::

    from transformer_mt import Translator, compose, train

    result = train(compose(["experiment=quickstart"]))
    print(Translator.load(result.run_dir).translate(["The bag is big."]))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_mt.cli.compose import compose as compose
    from transformer_mt.decode.engines.torch_engine import TorchEngine as TorchEngine
    from transformer_mt.decode.translator import Translator as Translator
    from transformer_mt.errors import InputError as InputError
    from transformer_mt.evaluation.comparison import Evaluation as Evaluation
    from transformer_mt.evaluation.scores import Score as Score
    from transformer_mt.jobs.evaluate import evaluate as evaluate
    from transformer_mt.jobs.export import LoadedFolder as LoadedFolder
    from transformer_mt.jobs.export import export as export
    from transformer_mt.jobs.train import train as train
    from transformer_mt.jobs.translate import translate as translate
    from transformer_mt.model.transformer import Transformer as Transformer

__version__ = "0.1.0"

_MODULES = {
    "Evaluation": "evaluation.comparison",
    "InputError": "errors",
    "LoadedFolder": "jobs.export",
    "Score": "evaluation.scores",
    "TorchEngine": "decode.engines.torch_engine",
    "Transformer": "model.transformer",
    "Translator": "decode.translator",
    "compose": "cli.compose",
    "evaluate": "jobs.evaluate",
    "export": "jobs.export",
    "train": "jobs.train",
    "translate": "jobs.translate",
}
__all__ = ["__version__", *_MODULES]
__dir__ = __all__.copy  # interpreters complete names that are not loaded yet


def __getattr__(name: str) -> Any:
    # Loaded on first use, because PyTorch takes seconds to import and `mt-train --help` needs none.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
