"""The configuration schema: one dataclass per config group, with defaults, meanings and checks.

Files under ``configs/`` hold the values that differ, Hydra composes them. The result is converted
to these dataclasses once; the library never sees OmegaConf objects.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

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
from transformer_mt.errors import InputError

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


def config_dir(command: Command = "train") -> Path:
    """Absolute path of a command's Hydra config tree: packaged if present, else the checkout's.

    Only ``train`` has groups: next to them ``model=FOLDER`` would choose a file of ``model/``.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "configs", package.parent / "configs"):
        if candidate.is_dir():
            return candidate if command == "train" else candidate / "commands"
    raise InputError(f"no configs/ folder in or next to {package}: reinstall transformer_mt")


def register_schema(command: Command) -> None:
    """Adds the command's schema to Hydra's ConfigStore, as ``train_schema`` and so on."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name=f"{command}_schema", node=schema(JOBS[command]))


def compose_config(command: Command, overrides: Sequence[str] = ()) -> DictConfig:
    """The command's configuration, not resolved; Hydra's own is its node ``hydra``."""
    import hydra  # which a program that loads a model does not need

    register_schema(command)
    with hydra.initialize_config_dir(str(config_dir(command)), version_base="1.3"):
        return hydra.compose(command, list(overrides), return_hydra_config=True)


_HYDRA = Lock()


@contextmanager
def exclusive_hydra() -> Iterator[None]:
    """Context in which only this thread uses Hydra, whose state is global.

    What an application of the caller has set there is restored.
    """
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.singleton import Singleton

    with _HYDRA:
        state = Singleton.get_state()
        try:
            GlobalHydra.instance().clear()
            yield
        finally:
            Singleton.set_state(state)


def schema(job: type) -> DictConfig:
    """Types and defaults of a config dataclass as an OmegaConf node that can be merged into."""
    root = OmegaConf.structured(job)
    nodes = [root]
    while nodes:  # OmegaConf write-protects the nodes of frozen dataclasses, against merging too
        node = nodes.pop()
        OmegaConf.set_readonly(node, False)
        for key in node:
            if not OmegaConf.is_missing(node, key) and isinstance(node[key], DictConfig):
                nodes.append(node[key])
    return root


def dotted(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flattens nested dictionaries: ``{"train": {"seed": 1}}`` → ``{"train.seed": 1}``."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = prefix + key
        flat |= dotted(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
