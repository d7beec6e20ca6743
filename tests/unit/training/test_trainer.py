"""Complete runs of a tiny model: figures, skipped updates, the final model."""

import itertools
import logging
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.errors import input_error
from support.losses import mean_losses
from support.models import tiny_config
from support.tiny_trainer import (
    DATA,
    PAIRS,
    SCORES,
    VALID,
    Bleu,
    assert_equal,
    kept,
    records,
    trainer,
    weights,
)
from torch import Tensor

from transformer_mt.config import CleaningConfig, ScheduleConfig
from transformer_mt.distributed.world import World
from transformer_mt.training import trainer as trainer_module
from transformer_mt.training.step import TrainStep
from transformer_mt.training.trainer import Trainer


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "transformer_mt")
    return caplog


@pytest.mark.parametrize(
    ("config", "score", "calls", "averaged", "warned"),
    [
        ({}, 2.9, 5, [16, 20, 24], True),  # the fifth score is that of the average
        ({}, 3.1, 5, [16, 20, 24], False),
        ({}, 2.999, 5, [16, 20, 24], False),  # the log shows both as 3.00
        ({"average_checkpoints": 1}, 9, 4, [24], True),
        ({"final": "best"}, 9, 4, [12], False),
    ],
)
def test_the_final_model_is_returned_and_compared_with_the_best_checkpoint(
    tmp_path: Path,
    messages: pytest.LogCaptureFixture,
    config: dict[str, Any],
    score: float,
    calls: int,
    averaged: list[int],
    warned: bool,
) -> None:
    translate = Bleu(*SCORES, score)
    model = trainer(tmp_path, translate, **config).run()
    assert translate.calls == calls
    assert ("train.final=best" in messages.text) == warned
    parts = [weights(tmp_path / f"checkpoints/step_{step:08d}") for step in averaged]
    for name, tensor in weights(tmp_path).items():
        mean = torch.stack([part[name].double() for part in parts]).mean(0)
        torch.testing.assert_close(tensor.double(), mean, rtol=1e-6, atol=1e-8)
    assert_equal({n: p.detach() for n, p in model.named_parameters()}, weights(tmp_path))
    assert not model.training


def test_chance_bleu_is_not_compared(tmp_path: Path, messages: pytest.LogCaptureFixture) -> None:
    trainer(tmp_path, Bleu(0.9, 0.5, 0.3, 0.1, 0.8), seed=4).run()
    (advice,) = [text for text in messages.messages if "train.final=best" in text]
    assert "the checkpoint of update 24 (ppl " in advice


def test_settings_reach_the_training_step(tmp_path: Path) -> None:
    """Each setting has its own test elsewhere; here, that the trainer passes it on."""

    def trained(name: str, **config: Any) -> tuple[float, float]:
        """The loss of one update, and the norm of Adam's first moment, which is (1-β1)·g."""
        folder = tmp_path / name
        trainer(folder, max_steps=1, checkpoint_every=1, log_every=1, **config).run()
        state = load_file(folder / "checkpoints/step_00000001/optimizer.safetensors")
        moments = [moment.flatten() for key, moment in state.items() if key.endswith("exp_avg")]
        (record,) = [record for record in records(folder) if record["split"] == "train"]
        return record["loss"], float(torch.cat(moments).norm()) / (1 - 0.9)

    loss, norm = trained("plain")
    assert norm > 2e-3
    assert trained("clipped", clip_norm=1e-3) == (loss, pytest.approx(1e-3, rel=1e-3))
    assert trained("smooth", label_smoothing=0.3)[0] != loss


def test_a_validation_loss_that_is_not_finite_is_an_error_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"loss": math.inf, "nll": 1.0}
    monkeypatch.setattr("transformer_mt.training.trainer.validation_loss", lambda *_: found)
    with input_error(r"validation loss is not finite after update 6: lower the learn"):
        trainer(tmp_path).run()


def test_recorded_figures_are_per_target_token_and_per_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against their definitions, with weights that do not change, on this clock.

    The data of an update take three seconds, its computation one.
    """
    clock, prefetch, update = [100.0], trainer_module.prefetch, TrainStep.__call__
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def slow_data(batches: Any) -> Any:
        for item in prefetch(batches):
            clock[0] += 3.0
            yield item

    def slow_update(*args: Any) -> Any:
        clock[0] += 1.0
        return update(*args)

    monkeypatch.setattr(trainer_module, "prefetch", slow_data)
    monkeypatch.setattr(TrainStep, "__call__", slow_update)
    fixed = ScheduleConfig(name="inverse_sqrt", warmup_steps=1, peak_lr=1e-30)
    settings: dict[str, Any] = {"max_steps": 9, "log_every": 100, "validate_every": 9, "seed": 2}
    run = trainer(tmp_path, schedule=fixed, model=tiny_config(dropout=0.0), **settings)
    run.run()
    plan = run.batches.plan
    first, *rest = ([*np.concatenate(plan[i].chunks)] for i in range(9))
    sets = (PAIRS, first), (PAIRS, [*itertools.chain(*rest)]), (VALID, range(len(VALID)))
    one, others = (record for record in records(tmp_path, ()) if record["split"] == "train")
    found = zip((one, others, records(tmp_path)[-1]), sets, (1, len(rest), 0), strict=True)
    for record, (store, pairs), updates in found:
        targets = sum(len(store.tgt[pair]) for pair in pairs)
        assert targets != sum(len(store.src[pair]) for pair in pairs)
        loss, nll = mean_losses(run.model.eval(), store, pairs, 0.1)
        expected = {"loss": loss, "nll": nll, "ppl": math.exp(nll)}
        assert {name: record[name] for name in expected} == pytest.approx(expected, rel=1e-5)
        if updates:
            assert record["tokens_per_second"] == pytest.approx(targets / (4.0 * updates))
            assert record["data_wait"] == pytest.approx(0.75)


def poison(run: Trainer, bad: Sequence[int]) -> None:
    """Makes the gradients of some updates NaN."""
    run.model.encoder[0].feed_forward.linear1.weight.register_hook(
        lambda grad: grad * math.nan if run.state.step in bad else grad
    )


def test_out_of_memory_advice_is_a_valid_setting(tmp_path: Path) -> None:
    run = trainer(tmp_path, data=replace(DATA, cleaning=CleaningConfig(max_tokens=10)))

    def lacks(*_: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")

    run._train_step = lacks  # type: ignore[assignment]
    with input_error(r"memory on a batch of \d+ tokens: set train") as error:
        run.run()
    size, less = map(int, re.findall(r"(?:of |device=)(\d+)", str(error.value)))
    assert 10 <= less <= size // 2
    replace(run._job, train=replace(run._job.train, max_tokens_per_device=less))


def test_updates_that_are_not_finite_are_skipped_and_counted(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    poison(run, [2, 3, 7, 13, 14])
    run.run()
    skipped = [(r["step"], r["skipped"]) for r in records(tmp_path) if r["split"] == "train"]
    at_validations = {6: 2, 12: 3, 18: 5, 24: 5}
    assert dict(skipped) == {1: 0, 5: 2, 10: 3, 15: 5, 20: 5} | at_validations
    assert all(math.isfinite(r["loss"]) for r in records(tmp_path))


def test_speed_counts_skipped_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock on which an update takes one second."""
    run = trainer(tmp_path, log_every=1, max_steps=5)
    monkeypatch.setattr(time, "perf_counter", lambda: float(run.state.step))
    poison(run, [3, 4])
    run.run()
    found = {r["step"]: r["tokens_per_second"] for r in records(tmp_path, ()) if "lr" in r}
    tokens = [
        sum(len(PAIRS.tgt[pair]) for pair in np.concatenate(run.batches.plan[i].chunks))
        for i in range(5)
    ]
    assert found == pytest.approx({1: tokens[0], 2: tokens[1], 5: sum(tokens[2:]) / 3})


def test_too_many_skipped_updates_stop_the_run(tmp_path: Path) -> None:
    run = trainer(tmp_path, log_every=1)
    poison(run, range(9, 24))
    with input_error(r"by update 18 .* not finite in 10 updates in a row, .*: lower the learning"):
        run.run()
    assert kept(tmp_path) == [8, 12, 16]
    assert all(bool(t.isfinite().all()) for t in weights(tmp_path).values())


def test_all_ranks_split_an_update_by_the_memory_of_the_smallest_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = replace(DATA, cleaning=CleaningConfig(max_tokens=20))

    def final(name: str, **config: Any) -> dict[str, Tensor]:
        trainer(tmp_path / name, data=data, max_steps=6, **config).run()
        return weights(tmp_path / name)

    small, large = final("small", max_tokens_per_device=20), final("large")
    monkeypatch.setattr(World, "gather", lambda _, value: [value, 20])
    shared = final("shared")
    assert_equal(shared, small)  # parts of the same size draw the same dropout masks
    assert not torch.equal(shared["embedding.weight"], large["embedding.weight"])
