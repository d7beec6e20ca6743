"""``mt-train`` from data to scores: outputs, stopping, resuming, and errors.

One run is the real console script. The others are forked from a server that has imported PyTorch,
which saves seconds each; they are separate processes, with signals and exit statuses.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard
from safetensors.numpy import load_file
from support.model_folders import load_folder
from support.training_runs import (
    MT_TRAIN,
    TIMEOUT,
    Running,
    Start,
    arguments,
    checkpoints,
    curve,
    one_line_error,
    records,
    write_corpus,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

from transformer_mt import model_folder
from transformer_mt.config import TrainJob
from transformer_mt.model_folder import ModelFolder


@pytest.fixture(scope="module")
def finished(corpus: Path) -> Path:
    """An uninterrupted run by the console script; its stdout is beside it. Do not change it."""
    run_dir = corpus / "finished"
    command = [MT_TRAIN, *arguments(corpus, run_dir)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=env)
    assert done.returncode == 0, done.stderr
    printed(run_dir).write_text(done.stdout)
    return run_dir


def printed(run_dir: Path) -> Path:
    return run_dir.with_name("stdout")


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def same_model(run_dir: Path, expected: Path) -> None:
    for name in ("model.safetensors", "test.json"):
        assert (run_dir / name).read_bytes() == (expected / name).read_bytes()
    assert curve(run_dir) == curve(expected)


def stamps(folder: Path) -> dict[str, tuple[int, bytes]]:
    """The files of a run and when they were written, but for those that every start writes."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("train.log", ".mt-train.lock")
    }


def test_run_folder_contents(finished: Path) -> None:
    run_dir, out = finished, printed(finished).read_text()
    for name in ("config.yaml", "tokenizer.model", "model.safetensors", "test.json",
                 "metrics.jsonl", "train.log", "README.md", "curves.png"):  # fmt: skip
        assert (run_dir / name).stat().st_size > 0
    assert [path.name for path in checkpoints(run_dir)] == [
        f"step_{step:08d}" for step in (8, 16, 20, 24, 32, 40)
    ]
    model, tokenizer, job = load_folder(run_dir)
    assert tokenizer.vocab_size == 290
    assert model.embedding.weight.shape == (290, 16)
    assert (job.train.max_steps, job.model.d_ff, job.run_dir) == (40, 32, str(run_dir))
    assert [record[0] for record in curve(run_dir)] == [1, 8, 16, 20, 24, 32, 40]
    assert [record[0] for record in curve(run_dir, "valid")] == [20, 40]
    board = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    assert [event.step for event in board.Scalars("train/loss")] == [1, 8, 16, 20, 24, 32, 40]
    assert [event.step for event in board.Scalars("valid/bleu")] == [20, 40]
    (final,) = records(run_dir, "final")
    line = (
        f"final model: loss {final['loss']:.3f}  ppl {final['ppl']:.3g}  BLEU {final['bleu']:.2f}"
    )
    assert line in (run_dir / "train.log").read_text()
    scores = json.loads((run_dir / "test.json").read_text())
    assert [score["name"] for score in scores][:3] == ["BLEU", "chrF2", "TER"]
    for score in scores:
        assert score["signature"]
        assert score["segments"] == 7
        assert f"{score['score']:.2f}" in out  # standard output has the scores
    assert "40/40 loss" not in out  # and nothing else
    assert "40/40 loss" in (run_dir / "train.log").read_text()
    assert not list(run_dir.rglob(".*.mt-tmp-*"))


def test_finished_run_started_again_changes_nothing(
    copy: Path, finished: Path, train: Start
) -> None:
    before = stamps(copy)
    out, err = train(copy).done()
    assert "is finished: nothing to do (reached train.max_steps=40; raise that limit" in err
    assert out == printed(finished).read_text()
    for changed in ("schedule.warmup_steps=3", "train.clip_norm=1"):
        error = one_line_error(train(copy, changed).wait())
        assert f"no effect ({changed.partition('=')[0]} was " in error
        assert "choose a different run_dir, or raise that limit" in error
    assert stamps(copy) == before


def test_finished_run_with_new_search_and_card_settings_is_only_scored_again(
    copy: Path, train: Start, tmp_path: Path
) -> None:
    before = curve(copy), curve(copy, "valid")
    argv = ["train.final=best", "decode.beam_size=1", "decode.max_extra_tokens=0"]
    argv += ["card.license=mit", "card.name=org/new"]
    out, err = train(copy, *argv).done()
    assert "nothing to do" not in err
    assert (curve(copy), curve(copy, "valid")) == before  # no update, no validation
    card = ModelCard.load(copy / "README.md").data
    assert (card.license, card.model_name) == ("mit", "org/new")
    assert model_folder.read_config(copy, TrainJob).card.license == "mit"
    # While BLEU is 0, perplexity decides.
    found = records(copy, "valid")
    best = max((r["bleu"], -r["nll"] if r["bleu"] == 0 else 0, -r["step"]) for r in found)
    checkpoint = copy / f"checkpoints/step_{-best[2]:08d}/model.safetensors"
    chosen, used = load_file(checkpoint), load_file(copy / "model.safetensors")
    assert all(np.array_equal(chosen[name], array) for name, array in used.items())
    scores, err = Running("evaluate", [f"model={copy}"], tmp_path / "text").done()
    assert scores == out  # uses the folder's search settings
    assert "data.test has changed" not in err
    out, err = train(copy, *argv).done()
    assert "is finished: nothing to do" in err
    assert out == scores


def test_run_is_repeated_from_its_config_yaml(finished: Path, tmp_path: Path) -> None:
    again, desk = tmp_path / "again", tmp_path / "desk"
    desk.mkdir()
    argv = ["--config-dir", str(finished), "--config-name", "config", f"run_dir={again}"]
    Running("train", argv, tmp_path / "output", cwd=desk).done()
    same_model(again, finished)
    assert list(desk.iterdir()) == []  # nothing of Hydra's


def test_signals_save_a_checkpoint_and_the_run_resumes(
    finished: Path, tmp_path: Path, train: Start
) -> None:
    run_dir, stopped_at = tmp_path / "run", 0

    def newest() -> int:
        found = [int(path.name.removeprefix("step_")) for path in checkpoints(run_dir)]
        return max(found, default=0)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        running, before = train(run_dir), stopped_at
        running.wait_for(lambda before=before: newest() > before)
        running.send(number)
        status, out, err = running.wait()
        assert status == 128 + number
        assert out == ""
        assert "Traceback" not in err
        assert "Run the same command to resume" in err
        assert f"resuming after update {before}" in err or not before
        stopped_at = newest()
        assert before < stopped_at < 40
        assert not (run_dir / "test.json").exists()
        ModelFolder(run_dir).load_model()  # a model that translates, at any time

    _, err = train(run_dir).done()
    assert f"resuming after update {stopped_at}" in err
    for name in ("model.safetensors", "test.json"):
        assert (run_dir / name).read_bytes() == (finished / name).read_bytes()


def test_a_finished_run_that_continues_leaves_files_of_others_alone(
    copy: Path, finished: Path, train: Start
) -> None:
    """Its scores are deleted, and unfinished files of its own; not what mt-translate writes."""
    names = (".tmp/a", ".tmp_backup/a", ".notes.tmp", ".out.de.mt-tmp-0123abcd", "data/mine.en")
    others = [copy / name for name in names]
    unfinished = [
        copy / f"{name}.mt-tmp-0123abcd"
        for name in (".config.yaml", "data/.cleaning.json", ".curves.png",
                     "checkpoints/.step_00000009", "checkpoints/step_00000040/.state.json")
    ]  # fmt: skip
    for path in (*others, *unfinished):
        path.parent.mkdir(exist_ok=True)
        path.write_text("written")
    running = train(copy, "train.max_steps=2000")
    running.wait_for(lambda: (copy / "checkpoints" / "step_00000048").exists())
    running.send(signal.SIGTERM)
    assert running.wait()[0] == 143
    weights = [(folder / "model.safetensors").read_bytes() for folder in (copy, finished)]
    assert weights[0] != weights[1]  # another average
    assert not (copy / "test.json").exists()
    assert [path.read_text() for path in others] == ["written"] * len(others)
    assert not any(path.exists() for path in unfinished)


def test_a_refused_folder_is_left_as_it_is(copy: Path, train: Start) -> None:
    (copy / "checkpoints").rename(copy.parent / "checkpoints")
    before = stamps(copy)
    assert "no intact checkpoint" in one_line_error(train(copy).wait())
    assert stamps(copy) == before


def test_finished_run_without_a_test_set(tmp_path: Path, train: Start) -> None:
    argv = ["data.test=[]", "train.max_steps=10"]
    command = f"mt-translate model={tmp_path / 'run'} < in.en > out.de"
    for finished_before in (False, True):
        out, err = train(tmp_path / "run", *argv).done()
        assert out == ""
        assert ("nothing to do (reached train.max_steps=10; " in err) == finished_before
        # Only where something was trained.
        assert err.splitlines()[-1].endswith(command) != finished_before


def test_a_pair_longer_than_the_learned_positions_is_refused(tmp_path: Path, train: Start) -> None:
    valid, run_dir = tmp_path / "valid.tsv", tmp_path / "run"
    valid.write_text("a\tb\n" + "a b " * 40 + "\tc\n")
    more = [f"data.valid=[{{tsv: {valid}}}]", "model.positions=learned", "model.max_positions=66"]
    message = one_line_error(train(run_dir, *more).wait())
    assert re.search(
        r"validation pair 2 has \d+ tokens, but model\.max_positions=66: incr", message
    )
    assert not (run_dir / "model.safetensors").exists()


def test_fine_tuning_starts_with_the_weights_and_vocabulary_of_a_folder(
    finished: Path, train: Start, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_corpus(other, translate=str.title, pairs=40)  # would give a different vocabulary
    # At such a small learning rate the weights hardly change.
    schedule = ["schedule=inverse_sqrt", "schedule.peak_lr=1e-12", "train.max_steps=3"]
    base = shutil.copytree(finished, tmp_path / "base")
    start = f"train.init_from={base}"
    more = ["tokenizer.vocab_size=777", "model.dropout=0.3", "train.validate_every=1"]
    argv = [start, *schedule, *more, "schedule.warmup_steps=4"]
    run_dir = tmp_path / "tuned"
    _, err = train(run_dir, *argv, folder=other).done()
    assert f"starting from the weights of {base} (" in err
    assert "the run ends after 3 updates, in its warm-up of 4" in err
    old = load_file(finished / "model.safetensors")
    for name in ("model.safetensors", "checkpoints/step_00000001/model.safetensors"):
        new = load_file(run_dir / name)
        assert old.keys() == new.keys()
        for key, array in old.items():
            np.testing.assert_allclose(new[key], array, rtol=1.3e-6, atol=1e-5)
    pieces = (finished / "tokenizer.model").read_bytes()
    assert (run_dir / "tokenizer.model").read_bytes() == pieces
    assert model_folder.read_config(run_dir, TrainJob).tokenizer.vocab_size == 290
    shutil.rmtree(base)  # from now on, the run needs neither
    assert "is finished: nothing to do" in train(run_dir, *argv, folder=other).done()[1]
    _, err = train(run_dir, *argv, "train.max_steps=4", folder=other).done()
    assert "resuming after update 3\n" in err
    assert "its warm-up" not in err


def test_stage_prepare_prepares_the_data_only_and_the_next_run_uses_them(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    words = ["cat", "dog", "horse", "bird", "fish", "mouse"]
    lines = [f"the {a} sees the {b}\tdie {b} sieht die {a}" for a in words for b in words]
    (tmp_path / "train.tsv").write_text("\n".join([*lines, "\tleer", lines[0]]) + "\n")

    def mt_train(name: str, *more: str) -> tuple[str, str]:
        more = (*more, "cleaning=standard", "tokenizer.vocab_size=300")
        argv = arguments(tmp_path, tmp_path / "run", *more)
        return Running("train", argv, tmp_path / name, CUDA_VISIBLE_DEVICES="").done()

    # Prepared on a machine without a GPU, for a run on a GPU.
    out, err = mt_train("first", "stage=prepare", "train.device=cuda")
    places = {name: Path(path) for name, path in map(str.split, out.splitlines())}
    assert list(places) == ["vocabulary", "corpus", "report"]
    assert all(path.exists() for path in places.values())
    report = json.loads(places["report"].read_text())
    assert (report["total"], report["kept"]) == (38, 36)
    (kept,) = [line.split() for line in err.splitlines() if line.startswith("kept")]
    assert kept[1] == "36"
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"train.log"}

    _, err = mt_train("second", "train.max_steps=1", "train.max_tokens_per_device=256")
    assert "encoding the training data" not in err
    assert err.count("deduplicate=pairs") == 1  # the table, now from the cache
    saved = json.loads((tmp_path / "run" / "data" / "cleaning.json").read_text())
    assert all(saved.pop(key) for key in ("corpus", "valid", "test"))
    assert saved == report
