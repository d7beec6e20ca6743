"""Choice of experiment by corpus size (``model=auto``), and a warning about oversized models."""

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice

import torch
from omegaconf import OmegaConf

from transformer_mt.config import CONFIG_DIR, TrainJob
from transformer_mt.data.subwords.vocabulary_training import fit_to_characters
from transformer_mt.data.text.sources import read_pairs
from transformer_mt.distributed import current_rank
from transformer_mt.errors import UsageError

EXPERIMENTS = {20_000: "10k", 60_000: "30k", 180_000: "100k", math.inf: "300k"}
"""Experiments ``pairs_…`` for corpora of fewer pairs than this: limits between the sizes that were
measured."""
_DATA_SETTING = re.compile(r"[+~]*(data|cache_dir|hydra\.searchpath)\b")
"""Overrides that decide what is read; others may be swept."""
_COUNTED_PAIRS = 100_000
"""Maximum number of pairs whose characters are counted."""
MANY_PAIRS = 1_000_000
"""Minimum number of pairs for which ``model=auto`` means the paper's base model, on a GPU."""
MAX_PARAMETERS_PER_PAIR = 1500
"""Parameters per pair above which a model is far too large for its corpus: four times the largest
ratio of the experiments. The paper's is 14."""


def choose_experiment(
    overrides: Sequence[str], compose: Callable[[Sequence[str]], TrainJob]
) -> list[str]:
    """Chooses an experiment for the number of training pairs, and says which on standard error.

    Args:
        overrides: Arguments of ``mt-train`` without ``model=auto``.
        compose: Composes them.

    Returns:
        Overrides: the experiment, or the paper's base model; for text of very many characters, also
        size and character coverage of its vocabulary.

    Raises:
        UsageError: An experiment or ``train.init_from`` is set, too.
    """
    if any(override.startswith("experiment=") for override in overrides):
        raise UsageError("model=auto chooses an experiment: remove one of the two settings")
    if any(override.startswith("train.init_from=") for override in overrides):
        raise UsageError(
            "model=auto is for training from scratch, and train.init_from names the model: remove "
            "model=auto, and set a low learning rate (schedule=linear schedule.peak_lr=1e-4)"
        )
    job = compose(list(filter(_DATA_SETTING.match, overrides)))
    pairs = read_pairs(job.data.train, *job.data.languages())
    number, characters = 0, Counter[str]()
    for number, pair in enumerate(islice(pairs, MANY_PAIRS), 1):
        if number <= _COUNTED_PAIRS:
            characters.update(pair.src + pair.tgt)
    if number == MANY_PAIRS and torch.cuda.is_available():
        chosen = ["model=base"]
    else:
        name = "pairs_" + next(size for limit, size in EXPERIMENTS.items() if number < limit)
        chosen = [f"experiment={name}"]
        if not any(override.startswith("tokenizer.path=") for override in overrides):
            usual = OmegaConf.load(CONFIG_DIR / f"experiment/{name}.yaml").tokenizer.vocab_size
            vocab_size, coverage = fit_to_characters(characters, usual)
            if (vocab_size, coverage) != (usual, 1.0):
                chosen.append(f"tokenizer.vocab_size={vocab_size}")
                chosen.append(f"tokenizer.character_coverage={coverage}")
    if current_rank() == 0:
        found = f"{number:,}{' or more' * (number == MANY_PAIRS)} training pairs"
        text = f"{found}: {' '.join(chosen)}; your own settings override these"
        print(f"mt-train: model=auto: {text}", file=sys.stderr)
    return chosen


def size_warning(pairs: int, parameters: int) -> str | None:
    """A warning about a model with far more parameters than its corpus can determine."""
    if parameters <= MAX_PARAMETERS_PER_PAIR * pairs:
        return None
    return (
        f"{parameters / 1e6:.0f} million parameters are many for {pairs:,} pairs: fine-tune a "
        "published model (train.init_from), or train a smaller one (model=auto chooses it)"
    )
