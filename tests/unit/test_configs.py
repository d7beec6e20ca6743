"""The config tree: every option composes to the documented values; help and reference match it."""

from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from settings_reference import PAGE, reference

from transformer_mt.cli.compose import compose, compose_config
from transformer_mt.cli.help import help_text
from transformer_mt.cli.settings import sections
from transformer_mt.config import (
    CONFIG_DIR,
    JOBS,
    CleaningConfig,
    Command,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    SearchConfig,
    TokenizerConfig,
    TrainConfig,
    TrainJob,
)
from transformer_mt.config.checks import dotted, schema
from transformer_mt.errors import InputError
from transformer_mt.training.optimizer import inverse_sqrt

GROUPS = {
    "cleaning": CleaningConfig,
    "tokenizer": TokenizerConfig,
    "model": ModelConfig,
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "train": TrainConfig,
    "decode": SearchConfig,
}
OPTIONS = [(group, path.stem) for group in GROUPS for path in (CONFIG_DIR / group).glob("*.yaml")]
EXPERIMENTS = sorted(
    path.relative_to(CONFIG_DIR / "experiment").with_suffix("").as_posix()
    for path in (CONFIG_DIR / "experiment").rglob("*.yaml")
)
FILES = ["data=files", "data.src_lang=en", "data.tgt_lang=de"]
FILES += ["data.train=[{tsv: a.tsv}]", "data.valid=[{src: b.en, tgt: b.de}]"]


@cache
def train_job(*overrides: str) -> TrainJob:
    """The job that ``mt-train`` composes. Do not change it: tests share it."""
    return compose(overrides)


def values(config: object, **expected: object) -> None:
    assert {key: getattr(config, key) for key in expected} == expected


def test_the_default_is_the_recipe_of_the_paper() -> None:
    job = train_job()
    assert job.model == train_job("experiment=table3/base").model
    values(job.model, norm="post")
    values(job.tokenizer, type="bpe", vocab_size=37000, path=None)
    values(job.schedule, name="noam", warmup_steps=4000)
    values(job.train, batch_tokens=25000, max_steps=100_000, label_smoothing=0.1)
    values(job.train, average_checkpoints=5)
    values(job.decode, beam_size=4, length_penalty=0.6, max_extra_tokens=50)
    assert [source.hub for source in job.data.train] == ["wmt/wmt14"]
    assert (job.data.src_lang, job.data.tgt_lang) == ("en", "de")
    assert job.data.cleaning == CleaningConfig(max_tokens=256)  # max_length in tensor2tensor
    values(job.data, normalization="none", augment="none")


def test_longest_source_line_is_the_longest_training_pair() -> None:
    job = train_job("data.cleaning.max_tokens=64")
    assert job.decode.max_source_tokens == 64


def test_the_big_model_of_table_2() -> None:
    job = train_job("experiment=big")
    values(job.model, d_model=1024, d_ff=4096, num_heads=16, dropout=0.3)
    values(job.train, max_steps=300_000, average_checkpoints=20)
    assert job.train.checkpoint_every * 1.0 == 600  # §5.2, §6.1: 1.0 s a step, 10 minutes


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_composes_and_holds_only_what_differs(group: str, option: str) -> None:
    job = train_job(f"{group}={option}")
    composed = getattr(job.data if group == "cleaning" else job, group)
    default = GROUPS[group]()
    written = yaml.safe_load((CONFIG_DIR / group / f"{option}.yaml").read_text("utf-8")) or {}
    for name in (f.name for f in fields(GROUPS[group])):
        if name in written:
            assert written[name] != getattr(default, name), f"{name} repeats the default"
        else:
            assert getattr(composed, name) == getattr(default, name)


@pytest.mark.parametrize(
    "chosen",
    [
        *(f"data={path.stem}" for path in (CONFIG_DIR / "data").glob("*.yaml")),
        *(f"experiment={name}" for name in EXPERIMENTS),
    ],
)
def test_every_data_set_and_experiment_has_a_run_folder_of_its_own(chosen: str) -> None:
    job = train_job(*FILES) if chosen == "data=files" else train_job(chosen)
    name = chosen.partition("=")[2]
    assert job.run_dir == f"runs/{'wmt14_en_de_big' if name == 'big' else name}"
    direction = ("de", "en") if name == "iwslt14_de_en" else ("en", "de")
    assert (job.data.src_lang, job.data.tgt_lang) == direction


def test_tiny_is_the_model_of_wu_et_al() -> None:
    layers = {"num_encoder_layers": 4, "num_decoder_layers": 4}
    values(train_job("model=tiny").model, d_model=128, d_ff=256, num_heads=4, dropout=0.3, **layers)


def test_the_large_batch_of_ott_et_al() -> None:
    job = train_job("experiment=wmt14_fast")
    values(job.schedule, name="inverse_sqrt", warmup_steps=4000, peak_lr=1e-3)
    values(job.train, batch_tokens=400_000, label_smoothing=0.1)
    assert job.model == train_job().model
    assert job.train.max_steps * 10 == train_job().train.max_steps
    assert 1 < job.train.batch_tokens * job.train.max_steps / (100_000 * 25_000) < 2
    big = train_job("experiment=wmt14_fast", "model=big")
    values(big.model, d_model=1024, dropout=0.3)


def test_transformer_base_v2_of_tensor2tensor() -> None:
    job, base = train_job("experiment=base_v2"), train_job()
    changes = {"norm": "pre", "attention_dropout": 0.1, "activation_dropout": 0.1}
    assert job.model == replace(base.model, **changes)
    assert (job.optimizer, job.train) == (base.optimizer, base.train)
    assert job.schedule.name == "inverse_sqrt"
    for step in (1, 4000, 8000, 20_000):  # learning_rate.py: 5000 · 0.002 · 0.2 = 2
        expected = 5000 * 0.002 * 0.2 * 512**-0.5 * min(step * 8000**-1.5, step**-0.5)
        found = inverse_sqrt(step, job.schedule, d_model=512, max_steps=100_000)
        assert found == pytest.approx(expected, rel=1e-4)


def test_the_deep_encoder_and_shallow_decoder_of_kasai_et_al() -> None:
    changes = {"num_encoder_layers": 12, "num_decoder_layers": 1, "norm": "pre"}
    assert train_job("model=deep_shallow").model == replace(train_job().model, **changes)


def test_cleaning_profiles_grow_stricter() -> None:
    none, standard = (train_job(f"cleaning={name}").data.cleaning for name in ("none", "standard"))
    assert none == CleaningConfig(max_tokens=none.max_tokens)
    assert none.max_tokens > 256
    off = {f.name for f in fields(standard) if not getattr(standard, f.name)}
    assert off == {"min_language_probability"}  # the identifier is an extra
    assert standard.deduplicate == "pairs"  # several translations of a sentence are welcome


@pytest.mark.parametrize(
    ("command", "override", "message"),
    [
        ("train", "data.cleaning.max_tokens=1", r"≥ 2 and ≤ 100,000$"),
        ("train", "data.cleaning.max_ratio=0.9", r"≥ 1 \(or null\)"),
        ("train", "data.cleaning.max_ratio=nan", r"≥ 1"),
        ("train", "data.cleaning.min_script_share=1.1", r"≥ 0 and ≤ 1 "),
        ("train", "train.batch_tokens=1000000000", r"≥ \d+ and ≤ [\d,]+"),
        ("translate", "nbest=1000000000", r"≥ \d+ and ≤ [\d,]+"),
        ("evaluate", "bootstrap=1000000000", r"≥ \d+ and ≤ [\d,]+"),
    ],
)
def test_numbers_out_of_range_are_refused(command: Command, override: str, message: str) -> None:
    given = ["data.src_lang=en", "data.tgt_lang=de"] if command == "train" else ["model=x"]
    config = OmegaConf.merge(schema(JOBS[command]), OmegaConf.from_dotlist([*given, override]))
    with pytest.raises(InputError, match=rf"^{override} must be {message}"):
        OmegaConf.to_object(config)


# Table 3 as printed: N, d_model, d_ff, h, d_k, d_v, P_drop, eps_ls, steps. Its last column, the
# number of parameters, is that of test_parameter_counts.
BASE = (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000)
TABLE_3 = {
    "base": BASE,
    "A_heads_1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, 100_000),
    "A_heads_4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, 100_000),
    "A_heads_16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, 100_000),
    "A_heads_32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, 100_000),
    "B_dk_16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, 100_000),
    "B_dk_32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, 100_000),
    "C_layers_2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "C_layers_4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "C_layers_8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "C_dmodel_256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, 100_000),
    "C_dmodel_1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100_000),
    "C_dff_1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, 100_000),
    "C_dff_4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, 100_000),
    "D_dropout_0_0": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, 100_000),
    "D_dropout_0_2": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, 100_000),
    "D_smoothing_0_0": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, 100_000),
    "D_smoothing_0_2": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, 100_000),
    "E_learned_positions": BASE,
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 300_000),
}


def test_table_3_is_complete() -> None:
    assert {f"table3/{row}" for row in TABLE_3} == {e for e in EXPERIMENTS if "/" in e}


@pytest.mark.parametrize("row", TABLE_3)
def test_table_3(row: str) -> None:
    job, expected = train_job(f"experiment=table3/{row}"), TABLE_3[row]
    model = job.model
    assert model.num_encoder_layers == model.num_decoder_layers
    got: list[Any] = [model.num_encoder_layers, model.d_model, model.d_ff, model.num_heads]
    got += [model.key_size, model.value_size, model.dropout]
    assert (*got, job.train.label_smoothing, job.train.max_steps) == expected
    assert model.positions == ("learned" if row[0] == "E" else "sinusoidal")
    assert job.train.average_checkpoints == 1  # §6.2: "but no checkpoint averaging"
    assert job.data == train_job().data


@pytest.mark.parametrize("command", JOBS)
def test_help_lists_every_setting_with_its_default_and_fits_a_terminal(command: Command) -> None:
    text = help_text(command)
    assert max(map(len, text.splitlines())) <= 80
    config = compose_config(command)
    settings = [setting for section in sections(command, config) for setting in section.settings]
    keys = dotted(OmegaConf.to_container(config))
    assert {key for key in keys if not key.startswith("hydra.")} <= {s.key for s in settings}
    for setting in settings:
        assert setting.meaning, setting.key
        row = setting.key if setting.default is None else f"{setting.key}={setting.default}"
        folder, _, option = row.rpartition("/")  # many options, such as the rows of Table 3
        assert (option in text) if folder == "experiment=table3" else (f"\n  {row}" in text), row


def test_reference_is_up_to_date() -> None:
    """``scripts/settings_reference.py`` rewrites transformer_mt/config/README.md."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == reference(page)
