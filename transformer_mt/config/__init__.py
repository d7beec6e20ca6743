"""The configuration schema: one dataclass per config group, with defaults, meanings and checks.

Files under ``configs/`` hold the values that differ, and Hydra composes them (``cli.compose``). The
result is converted to these dataclasses once; the library never sees OmegaConf objects.
"""

from pathlib import Path
from typing import Literal

from transformer_mt.config.data import CleaningConfig as CleaningConfig
from transformer_mt.config.data import DataConfig as DataConfig
from transformer_mt.config.data import TokenizerConfig as TokenizerConfig
from transformer_mt.config.evaluate import EvaluateJob as EvaluateJob
from transformer_mt.config.export import ExportJob as ExportJob
from transformer_mt.config.model import ModelConfig as ModelConfig
from transformer_mt.config.source import SourceConfig as SourceConfig
from transformer_mt.config.train import CardConfig as CardConfig
from transformer_mt.config.train import DistributedConfig as DistributedConfig
from transformer_mt.config.train import OptimizerConfig as OptimizerConfig
from transformer_mt.config.train import ScheduleConfig as ScheduleConfig
from transformer_mt.config.train import TrainConfig as TrainConfig
from transformer_mt.config.train import TrainJob as TrainJob
from transformer_mt.config.translate import DecodeConfig as DecodeConfig
from transformer_mt.config.translate import SearchConfig as SearchConfig
from transformer_mt.config.translate import TranslateJob as TranslateJob

Command = Literal["train", "translate", "evaluate", "export"]

Job = TrainJob | TranslateJob | EvaluateJob | ExportJob
"""The configuration of any command."""

JOBS: dict[Command, type[Job]] = {
    "train": TrainJob,
    "translate": TranslateJob,
    "evaluate": EvaluateJob,
    "export": ExportJob,
}
"""The table of commands; ``cli.main`` has a function of the same name for each."""

_PACKAGE = Path(__file__).resolve().parent.parent
_PACKAGED = _PACKAGE / "configs"
CONFIG_DIR = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent / "configs"
"""Absolute path of the Hydra config tree: packaged if present, else the checkout's."""

CONFIG_DIRS: dict[Command, Path] = {
    "train": CONFIG_DIR,
    "translate": CONFIG_DIR / "commands",
    "evaluate": CONFIG_DIR / "commands",
    "export": CONFIG_DIR / "commands",
}
"""The part of the tree that each command composes.

Only ``train`` has groups: next to them ``model=FOLDER`` would choose a file of ``model/``.
"""
