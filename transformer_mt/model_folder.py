"""Model folders: the configuration, vocabulary and weights that translation needs.

Loading a stranger's folder cannot run its code: nothing is unpickled, and settings are values of
dataclasses, in which nothing is interpolated and nothing names a class or a function.
"""

from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar, cast

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer_mt import files
from transformer_mt.config import DataConfig, ModelConfig, SearchConfig, TokenizerConfig, TrainJob
from transformer_mt.config.checks import schema
from transformer_mt.data.subwords.tokenizer import Tokenizer, vocabulary_files
from transformer_mt.errors import InputError, first_line
from transformer_mt.hub_models import FILES, PICKLE, PREFIX, is_marian, resolve
from transformer_mt.registries import MARIAN_IMPORT
from transformer_mt.run_layout import CONFIG, WEIGHTS

if TYPE_CHECKING:  # loads PyTorch, which a translation by CTranslate2 does not need
    from transformer_mt.model.transformer import Transformer

T = TypeVar("T")

FORMAT = 2
"""Version of the model folder's format; changes that break loading increase it."""

_IMPORT_VERSION = 4
"""Version of the conversion of other libraries' models; if it changes, they are converted again."""


def write_config(folder: Path, job: TrainJob, tokenizer: Tokenizer | None = None) -> None:
    """Writes the resolved configuration of a run and the checksum of its vocabulary."""
    values: dict[str, Any] = asdict(job)
    if tokenizer is not None:
        values["tokenizer_sha256"] = tokenizer.checksum
    values["format"] = FORMAT  # the last key: a truncated file has none
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1000)
    files.write_text(folder / CONFIG, text)


@dataclass(kw_only=True, frozen=True)
class ModelSettings:
    """The settings of a training run that its model depends on."""

    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    decode: SearchConfig = field(default_factory=SearchConfig)
    tokenizer_sha256: str | None = None
    """Checksum of the vocabulary, if the configuration was written with one."""


def read_config(folder: Path, kind: type[T]) -> T:
    """Reads settings of a model folder; ``InputError`` if they are missing or damaged.

    Args:
        folder: The model folder.
        kind: ``ModelSettings``, or ``TrainJob`` for all.
    """
    path = folder / CONFIG
    if not path.exists():
        raise InputError(f"{folder} is not a model folder: it has no {path.name}")
    with files.reading(path, yaml.YAMLError):
        # Written in C, it takes a tenth of the time where it is installed.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        values = loader(path.read_text(encoding="utf-8")).get_single_data()
        if not isinstance(values, dict):
            raise ValueError("it has no settings")
    if (found := values.pop("format", None)) != FORMAT:
        raise InputError(
            f"{path} has format {found!r}, but this version reads {FORMAT}: it is truncated, "
            "or another version of transformer_mt wrote it"
        )
    if "${" in repr(values):  # OmegaConf would read environment variables
        raise InputError(f"{path}: interpolations (${{…}}) are not allowed in a model folder")
    own = {f.name: values[f.name] for f in fields(cast(Any, kind)) if f.name in values}
    try:
        return cast(T, OmegaConf.to_object(OmegaConf.merge(schema(kind), own)))
    except (OmegaConfBaseException, InputError) as error:
        raise InputError(
            f"{path}: {first_line(error)}; it is damaged, or another version wrote it"
        ) from error


def locate(reference: str | Path, cache_dir: str = TrainJob.cache_dir) -> Path:
    """The folder of a model: a local one, or that of a repository of the Hub after its download.

    A MarianMT model of Hugging Face transformers is converted once; its folder is in the cache.
    """
    if str(reference).startswith(PREFIX):
        folder = resolve(str(reference))
    else:
        folder = files.expand_user(reference)
    if (folder / CONFIG).exists() or not is_marian(folder):
        return folder
    found = [path for name in (*FILES, PICKLE) if (path := folder / name).exists()]
    # Without reading them: checksums would take a second.
    states = [(path.name, (s := path.stat()).st_ino, s.st_size, s.st_mtime_ns) for path in found]
    identity = files.cache_key(_IMPORT_VERSION, str(folder.resolve()), states)
    entry = files.cache_path(cache_dir) / "imported" / identity
    convert = resolve_name(MARIAN_IMPORT)
    files.build_once(entry, lambda to: convert(folder, to, str(reference)))
    return entry


class ModelFolder:
    """A folder with a model that translates; its weights are read when they are needed.

    Args:
        reference: The model: a folder, or a repository of the Hugging Face Hub.
        step: Step of the checkpoint whose weights to use; None for the final weights, which are
            usually an average.
        cache_dir: Where a MarianMT model is converted.
    """

    def __init__(
        self, reference: str | Path, step: int | None = None, cache_dir: str = TrainJob.cache_dir
    ):
        self.path, self.step = locate(reference, cache_dir), step
        if not self.path.is_dir():
            hint = "a repository of the Hugging Face Hub is hf://ORG/NAME"
            raise InputError(f"no model folder {self.path.absolute()}; {hint}")
        self.trained = read_config(self.path, ModelSettings)
        self.tokenizer = Tokenizer(self.path)
        if self.trained.tokenizer_sha256 not in (None, self.tokenizer.checksum):
            names = " or ".join(path.name for path in vocabulary_files(self.path))
            raise InputError(
                f"{self.path / names} is damaged or of another training run: copy it again"
            )

    @property
    def weights(self) -> Path:
        """The file of the weights."""
        if self.step is not None:
            from transformer_mt.checkpoint import open_checkpoint  # loads PyTorch

            return open_checkpoint(self.path, self.step).path / WEIGHTS
        weights = self.path / WEIGHTS
        if not weights.exists():
            remedy = "copy it again, or wait for the first checkpoint of its training"
            raise InputError(f"{self.path} has no {WEIGHTS}: {remedy}")
        return weights

    @cached_property
    def checksum(self) -> str:
        """A short hash of its weights, vocabulary and configuration."""
        config = files.sha256(self.path / CONFIG)
        return files.cache_key(files.sha256(self.weights), self.tokenizer.checksum, config)

    def load_model(self) -> "Transformer":
        """Loads the model, in ``eval`` mode on the CPU."""
        import torch

        from transformer_mt.checkpoint import read_tensors
        from transformer_mt.model.transformer import Transformer

        with torch.device("meta"):
            model = Transformer(
                self.trained.model, self.tokenizer.tgt.vocab_size, self.tokenizer.vocab_size
            )
        weights = self.weights
        tensors = read_tensors(weights, model.state_dict())
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise InputError(
                    f"{weights}: {name} is not finite: the file is damaged, or the training "
                    "diverged"
                )
        model.to_empty(device="cpu")  # memory, once the weights are known to fit it
        model.load_state_dict(tensors)
        return model.eval()
