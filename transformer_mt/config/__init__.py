"""The configuration schema: one dataclass per config group, with defaults, meanings and checks.

Files under ``configs/`` hold the values that differ, Hydra composes them. The result is converted
to these dataclasses once; the library never sees OmegaConf objects.
"""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from transformer_mt.config.data import CleaningConfig, DataConfig, SourceConfig, TokenizerConfig
from transformer_mt.config.decode import DecodeConfig
from transformer_mt.config.jobs import EvaluateJob, ExportJob, TranslateJob
from transformer_mt.config.model import ModelConfig
from transformer_mt.config.train import (
    CardConfig,
    DistributedConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.errors import InputError

__all__ = [
    "CardConfig",
    "CleaningConfig",
    "DataConfig",
    "DecodeConfig",
    "DistributedConfig",
    "EvaluateJob",
    "ExportJob",
    "ModelConfig",
    "OptimizerConfig",
    "ScheduleConfig",
    "SourceConfig",
    "TokenizerConfig",
    "TrainConfig",
    "TrainJob",
    "TranslateJob",
    "config_dir",
    "dotted",
    "schema",
]


def config_dir() -> Path:
    """Absolute path of the Hydra config tree: the packaged copy if present, else the checkout's."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "configs", package.parent / "configs"):
        if candidate.is_dir():
            return candidate
    raise InputError(f"no configs/ folder in or next to {package}: reinstall transformer-mt")


def schema(job: type) -> DictConfig:
    """Types and defaults of a config dataclass as an OmegaConf node that can be merged into."""
    return _writable(OmegaConf.structured(job))


def dotted(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested dictionaries: ``{"train": {"seed": 1}}`` → ``{"train.seed": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = prefix + key
        flat |= dotted(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _writable(node: DictConfig) -> DictConfig:
    # OmegaConf write-protects the nodes of frozen dataclasses, against merging too.
    OmegaConf.set_readonly(node, False)
    for key in node:
        if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
            _writable(node[key])
    return node
