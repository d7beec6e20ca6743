"""The registries: every entry exists, and whatever is registered is accepted by its setting."""

from collections.abc import Callable
from pkgutil import resolve_name

import pytest

from transformer_mt import registries
from transformer_mt.config import EvaluateJob, ExportJob, ScheduleConfig, TrainConfig, TranslateJob
from transformer_mt.errors import InputError
from transformer_mt.registries import Registry

ACCEPTED: dict[str, Callable[[str], object]] = {
    "ENGINES": lambda name: TranslateJob(model="x", engine=name),
    "DOCUMENT_FORMATS": lambda name: TranslateJob(model="x", format=name),
    "SCHEDULES": lambda name: ScheduleConfig(name=name, peak_lr=None if name == "noam" else 1.0),
    "VALIDATION_METRICS": lambda name: TrainConfig(best_by=name),
    "METRICS": lambda name: EvaluateJob(model="x", metrics=[name]),
    "EXPORT_FORMATS": lambda name: ExportJob(model="x", output="y", format=name),
}
PATHS = sorted(
    path
    for attribute, value in vars(registries).items()
    if attribute.isupper() and attribute not in ("DOCUMENT_ENDINGS", "QUANTIZED_FORMATS")  # names
    for path in (value.values() if isinstance(value, dict) else [value])
)


@pytest.mark.parametrize("path", PATHS)
def test_every_entry_exists(path: str) -> None:
    assert callable(resolve_name(path))


@pytest.mark.parametrize("attribute", ACCEPTED)
def test_registered_names_are_accepted_and_listed(
    attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry: Registry = getattr(registries, attribute)
    for name in registry:
        ACCEPTED[attribute](name)
    with pytest.raises(InputError, match=rf"'mine' is not one of: .*{name.replace('+', '.')}"):
        ACCEPTED[attribute]("mine")
    monkeypatch.setitem(registry, "mine", "module:function")
    ACCEPTED[attribute]("mine")


def test_every_ending_is_of_a_format() -> None:
    assert set(registries.DOCUMENT_ENDINGS.values()) == set(registries.DOCUMENT_FORMATS)
