"""Model folders: the configuration, vocabulary and weights that translation needs.

Loading an untrusted folder is safe: nothing is unpickled, nothing in it can name code to run,
only regular files are opened, and no more memory is asked for than its files justify.
"""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from transformer_mt import run_layout
from transformer_mt.config import DataConfig, TrainJob
from transformer_mt.config.checks import schema
from transformer_mt.data.store import cache
from transformer_mt.data.subwords.tokenizer import Tokenizer, vocabulary_checksum, vocabulary_files
from transformer_mt.errors import InputError, printable
from transformer_mt.files import cache_path, expand_user, read_regular, write_text
from transformer_mt.hub_models import FILES, PICKLE, PREFIX, is_marian, resolve
from transformer_mt.registries import MARIAN_IMPORT

if TYPE_CHECKING:  # loads PyTorch, which a translation by CTranslate2 does not need
    from transformer_mt.model.transformer import Transformer

FORMAT = 2
"""Version of the model folder's format; changes that break loading increase it."""

_IMPORT_VERSION = 3
"""Version of the conversion of other libraries' models; if it changes, they are converted again."""
_CHECKSUM = "tokenizer_sha256"
_MAX_CONFIG_BYTES = 2**20
"""Maximum size of ``config.yaml``: room for a thousand data sources."""
_MAX_CONFIG_DEPTH = 20
"""Maximum nesting of ``config.yaml``; ours is four levels deep."""
NON_SETTINGS = ("format", _CHECKSUM)
"""Keys of ``config.yaml`` that are not settings."""
_REMOVED: dict[str, list[object]] = {
    "data.cleaning.ratio_slack": [],
    "data.part": [],
    "data.temperature": [],
    "decode.batch_tokens": [],
    "decode.max_length": [None, 510],  # of models of MarianMT
    "decode.min_length": [0],
    "decode.no_repeat_ngram": [0],
    "decode.sampling": [False],
    "decode.seed": [],
    "decode.temperature": [1],
    "decode.top_k": [0],
    "decode.top_p": [1],
    "distributed.compression": [],
    "distributed.restarts": [],
    "optimizer.momentum": [],
    "optimizer.name": [],
    "tokenizer.max_sentences": [],
    "tokenizer.seed": [],
    "train.best_by": ["comet"],
    "train.comet_model": [],
    "train.ema_decay": [],
    "train.final": ["ema"],
    "train.full_validation_bleu": [],
    "train.max_skipped": [],
}
"""Settings of earlier versions that are dropped on reading, since the model does not depend on
them: with any value, or, if values are listed, with one of these only."""


def write_config(folder: Path, job: TrainJob, vocabulary: Path | None = None) -> None:
    """Writes the resolved configuration of a run and the checksum of its vocabulary."""
    values: dict[str, Any] = asdict(job)
    if vocabulary is not None:
        values[_CHECKSUM] = vocabulary_checksum(vocabulary)
    values["format"] = FORMAT  # the last key: a truncated file has none
    # PyYAML takes U+0085 for a line break, which is read as a space unless it is escaped.
    readable = r"\x85" not in repr(values)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=readable, width=1000)
    write_text(folder / run_layout.CONFIG, text)


def read_config(folder: Path) -> TrainJob:
    """Reads the configuration of a model folder; ``InputError`` if it is missing or damaged."""
    return _read_config(folder)[0]


def _read_config(folder: Path) -> tuple[TrainJob, object]:
    """The configuration and the vocabulary's checksum, which older folders do not have."""
    path = folder / run_layout.CONFIG
    try:
        text = read_regular(path, _MAX_CONFIG_BYTES).decode()
    except OSError as error:
        raise InputError(
            f"{folder} is not a model folder: cannot read {path.name} ({error.strerror})"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: not valid UTF-8 ({error.reason})") from None
    try:
        values = _parse_yaml(text)
    except (yaml.YAMLError, ValueError) as error:  # also for YAML of other programs
        raise InputError(f"{path} is damaged: {_excerpt(error)}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} is damaged: it has no settings")
    found, checksum = values.pop("format", None), values.pop(_CHECKSUM, None)
    if found is None:
        raise InputError(f"{path} has no format: it is truncated, or was not written by mt-train")
    if found != FORMAT:
        raise InputError(
            f"{path} has format {_excerpt(found)}, but this version reads format {FORMAT}: use the "
            "version of transformer_mt that wrote it"
        )
    for key, accepted in _REMOVED.items():
        *groups, name = key.split(".")
        settings: Any = values
        for group in groups:
            settings = settings.get(group) if isinstance(settings, dict) else None
        if isinstance(settings, dict) and (not accepted or settings.get(name) in accepted):
            settings.pop(name, None)
    data = values.get("data")
    if isinstance(data, dict) and isinstance(rates := data.get("augment"), dict):  # once six rates
        data["augment"] = "standard" if any(rates.values()) else "none"
    try:
        job = OmegaConf.to_object(OmegaConf.merge(schema(TrainJob), values))
    except ConfigKeyError as error:
        raise InputError(
            f"{path}: unknown setting {_excerpt(error.full_key)}; another version wrote this file"
        ) from None
    except (OmegaConfBaseException, InputError, ValueError) as error:
        raise InputError(f"{path} is damaged: {_excerpt(error)}") from None
    assert isinstance(job, TrainJob)
    return job, checksum


def _parse_yaml(text: str) -> object:
    """The content of a YAML document, which must have no aliases and no interpolations.

    Aliases may expand to exponentially many items. Interpolations, which OmegaConf would resolve,
    read environment variables; they are looked for after YAML's own escapes are decoded.
    """
    # The loader in C is fast but unsafe for deep nesting; its events are safe.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases (*name) are not allowed in a model folder")
        if isinstance(event, yaml.ScalarEvent) and "${" in event.value:
            raise ValueError("interpolations (${…}) are not allowed in a model folder")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_CONFIG_DEPTH:
            raise ValueError(f"nested more than {_MAX_CONFIG_DEPTH} levels deep")
    return loader(text).get_single_data()


def _excerpt(content: object) -> str:
    """The beginning of something from a folder, as one line."""
    return printable(" ".join(str(content)[:500].split()))


def locate(reference: str | Path, cache_dir: str = TrainJob.cache_dir) -> Path:
    """The folder of a model: a local one, or that of a repository of the Hub after its download.

    A MarianMT model of Hugging Face transformers is converted once; its folder is in the cache.

    Raises:
        InputError: There is no such repository, or the model cannot be converted.
    """
    if str(reference).startswith(PREFIX):
        folder = resolve(str(reference))
    else:
        folder = expand_user(reference)
    if (folder / run_layout.CONFIG).exists():
        return folder
    if not is_marian(folder):
        return folder
    names = [name for name in (*FILES, PICKLE) if (folder / name).exists()]
    states = [(name, *_identity(folder / name)) for name in names]
    identity = cache.key(_IMPORT_VERSION, str(folder.resolve()), states)
    entry = cache_path(cache_dir) / "imported" / identity
    convert = resolve_name(MARIAN_IMPORT)
    cache.build_once(entry, lambda to: convert(folder, to, str(reference)))
    return entry


def _identity(path: Path) -> tuple[int, int, int]:
    """Identity of a file's content without reading it: a checksum would take a second."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def load_tokenizer(folder: Path) -> tuple[Tokenizer, TrainJob]:
    """Loads the tokenizer of a model folder, and the configuration of its training.

    Raises:
        InputError: One of them is missing or damaged, or the vocabulary is a different one.
    """
    if not folder.is_dir():
        hint = "a repository of the Hugging Face Hub is hf://ORG/NAME"
        raise InputError(f"no model folder {folder.absolute()}; {hint}")
    job, checksum = _read_config(folder)
    tokenizer = Tokenizer.load(folder)
    if checksum not in (None, vocabulary_checksum(folder)):
        names = " or ".join(path.name for path in vocabulary_files(folder))
        raise InputError(f"{folder / names} is damaged or of another training run: copy it again")
    return tokenizer, job


def load_model(
    folder: Path, step: int | None = None, loaded: tuple[Tokenizer, TrainJob] | None = None
) -> "tuple[Transformer, Tokenizer, TrainJob]":
    """Loads the model of a folder in ``eval`` mode on the CPU, with its vocabulary and settings.

    The weights are the final ones (usually an average), or, with ``step``, a checkpoint's. What
    ``load_tokenizer`` has ``loaded`` is not read again.

    Raises:
        InputError: The folder, or something in it, is missing or damaged.
    """
    import torch

    from transformer_mt.checkpoint import load_weights, open_checkpoint, steps
    from transformer_mt.model.transformer import Transformer

    tokenizer, job = loaded or load_tokenizer(folder)
    place = folder if step is None else open_checkpoint(folder, step).path
    weights = place / run_layout.WEIGHTS
    if not weights.exists():
        saved = steps(folder)
        because = (
            f": copy it again, or set step={saved[-1]} to use a checkpoint"
            if saved
            else " yet: its training has not reached the first checkpoint"
        )
        raise InputError(f"{folder} has no {run_layout.WEIGHTS}{because}")
    with torch.device("meta"):
        model = Transformer(job.model, tokenizer.tgt.vocab_size, tokenizer.vocab_size)
    load_weights(model, weights)
    for name, tensor in model.state_dict().items():
        if not tensor.isfinite().all():
            raise InputError(
                f"{weights}: {name} is not finite: the file is damaged, or the training diverged"
            )
    return model.eval(), tokenizer, job


def model_files(folder: Path, data: DataConfig) -> Iterator[tuple[str, Path]]:
    """The files of a model folder and of its training data: what each is called, and its path."""
    names = [
        value
        for key, value in vars(run_layout).items()
        if key.isupper() and isinstance(value, str) and not key.startswith("CHECKPOINT_")
    ]
    for name in (*names, *run_layout.VOCABULARY):
        yield "the model", folder / Path(name).parts[0]
    for key in ("train", "valid", "test"):
        for source in getattr(data, key):
            for path in source.paths.values():
                yield f"data.{key}", Path(path)
