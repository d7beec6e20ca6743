"""``compose`` and the public functions: what the commands do, from Python."""

import logging
import sys
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.singleton import Singleton
from hypothesis import assume, example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from support.training_runs import arguments, write_corpus

import transformer_mt
from transformer_mt import compose
from transformer_mt.cli import main as cli
from transformer_mt.cli.compose import override
from transformer_mt.config import TrainJob
from transformer_mt.evaluation.scores import read_scores, to_text

pieces = st.sampled_from(
    ["\\", "$", "{", "}", "'", '"', " ", ",", "[", "]", "=", ":", "\n", "a", "1"]
)
odd_text = st.lists(pieces).map("".join) | st.text() | st.text("+-.0123_einfault")
values = odd_text | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)


@given(values | st.lists(values))
@example("null")
@example("-.5")
@example("it's {x}\\")
def test_hydra_reads_what_an_override_says(value: object) -> None:
    texts = map(str, value if isinstance(value, list) else [value])
    assume(not any(text == "???" or "${" in text for text in texts))
    parsed = OverridesParser.create().parse_override(override("key", value))
    assert not parsed.is_sweep_override()
    read = OmegaConf.to_container(OmegaConf.create({"key": parsed.value()}), resolve=True)
    assert repr(read) == repr({"key": value})  # which tells 1 from 1.0 and True


def test_compose_leaves_hydra_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[TrainJob] = []
    monkeypatch.setattr(sys, "argv", ["mt-train", "model=tiny", "train.seed=3"])
    monkeypatch.setitem(cli.RUN, "train", jobs.append)
    cli.main("train")
    config, before = HydraConfig.instance().cfg, set(Singleton._instances)
    jobs.append(compose(["model=tiny", "train.seed=3"]))
    jobs.append(compose(["model=tiny", "train.seed=3"]))
    assert jobs[0] == jobs[1] == jobs[2]
    assert set(Singleton._instances) == before
    assert HydraConfig.instance().cfg == config
    assert not GlobalHydra.instance().is_initialized()


def test_compose_within_an_application_of_hydra(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("a: 1\n")
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.3"):
        assert compose(["train.seed=3"]).train.seed == 3
        assert hydra.compose("mine") == {"a": 1}
    assert not GlobalHydra.instance().is_initialized()


def test_compose_refuses_a_single_string() -> None:
    with pytest.raises(TypeError, match="not a single string: pass"):
        compose("model=tiny")


def test_train_and_evaluate_from_python(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path, pairs=30)
    handlers = logging.getLogger("transformer_mt").handlers[:]
    settings = arguments(tmp_path, tmp_path / "run", "train.max_steps=2", "data.workers=0")
    result = transformer_mt.train(compose(settings))
    assert result.run_dir == tmp_path / "run"
    assert result.scores == read_scores(tmp_path / "run/test.json")
    job = compose([f"model={result.run_dir}", "format=json", "device=cpu"], "evaluate")
    (system,) = transformer_mt.evaluate(job).systems
    assert system.scores[0].score == pytest.approx(result.scores[0].score, abs=1e-4)
    assert capfd.readouterr().out == ""
    assert logging.getLogger("transformer_mt").handlers == handlers
    cli.train(compose(settings))  # of a finished run, only what it printed
    assert capfd.readouterr().out == f"{to_text(result.scores)}\n"


def test_every_public_name_is_found() -> None:
    assert dir(transformer_mt) == sorted(transformer_mt.__all__)
    assert all(hasattr(transformer_mt, name) for name in dir(transformer_mt))
