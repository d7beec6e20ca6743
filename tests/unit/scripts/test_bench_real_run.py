"""``scripts/bench/real_run.py``: its figures, its control of processes, and the peers' loops."""

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.paths import ROOT
from torch import Tensor
from torch.nn import functional as F

from transformer_mt.cli.compose import compose
from transformer_mt.config import ScheduleConfig
from transformer_mt.data.prepare import prepare
from transformer_mt.data.subwords.tokenizer import BOS, PAD
from transformer_mt.errors import InputError
from transformer_mt.training.metrics_log import read_records
from transformer_mt.training.optimizer import inverse_sqrt

real_run = importlib.import_module("real_run")
process = importlib.import_module("real_run_process")
peers = importlib.import_module("real_run_peers")
report = importlib.import_module("real_run_report")
process_tree = importlib.import_module("process_tree")

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="no /proc/PID/smaps_rollup"
)


# Figures.


def train_record(step: int, at: float, rate: float, **values: float) -> dict[str, Any]:
    return {"step": step, "split": "train", "time": at, "tokens_per_second": rate, **values}


def records_of(updates: Sequence[float], every: int, tokens: int) -> list[dict[str, Any]]:
    """Records of updates that take so many seconds each."""
    ends = np.cumsum(updates)
    found = []
    for i in range(every, len(updates) + 1, every):
        seconds = sum(updates[i - every : i])
        found.append(train_record(i, ends[i - 1], every * tokens / seconds))
    return found


def test_tenths_of_the_training_time() -> None:
    draw = np.random.default_rng(1)
    seconds = draw.uniform(0.1, 0.5, 400).tolist()
    rates = report.intervals(records_of(seconds, 5, 100))
    counted = seconds[5:]  # the first record has the start-up
    # At each moment, the rate of the record that it belongs to.
    spread = np.repeat([sum(counted[i : i + 5]) / 5 for i in range(0, 395, 5)], 5)
    moments = np.linspace(0, sum(counted), 1_000_001)[:-1]
    at = np.searchsorted(np.cumsum(spread), moments, side="right")
    rate = 100 / spread[np.minimum(at, 394)]
    for start, stop in ((0, 0.1), (0.9, 1), (0, 1)):
        part = rate[int(start * 1e6) : int(stop * 1e6)]
        assert report.mean_rate(rates, start, stop) == pytest.approx(part.mean(), rel=1e-4)
    assert report.mean_rate(rates) == pytest.approx(395 * 100 / sum(counted))


def test_larger_updates_weigh_more() -> None:
    rates = report.intervals(
        [
            train_record(1, 0, 1, target_tokens=7),
            train_record(2, 1, 100, target_tokens=100),  # one second
            train_record(3, 4, 300, target_tokens=900),  # three seconds
        ]
    )
    assert report.mean_rate(rates) == 1000 / 4
    assert report.mean_rate(rates, 0, 0.5) == (100 + 300) / 2
    assert math.isnan(report.mean_rate([]))


def test_turns_of_other_runs_do_not_count(tmp_path: Path) -> None:
    run = report.Run("a", tmp_path, ["mt-train"], spans=[(100, 160), (1000, 1060)])
    assert run.minutes(130) == 0.5
    assert run.minutes(500) == 1
    assert run.minutes(1030) == 1.5
    times = (110, 120, 150, 1010, 1020, 2000)
    log = [train_record(i, time, 10.0) for i, time in enumerate(times, 1)]
    log.insert(3, {"step": 3, "split": "valid", "time": 1005, "nll": 2.5})
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in log))
    # Neither the interval that contains the pause nor what was written after the end.
    assert [rate.end for rate in run.rates()] == pytest.approx([20 / 60, 50 / 60, 80 / 60])
    assert run.validations() == [(pytest.approx(65 / 60), 2.5)]


def test_runs_are_compared_in_neighbouring_turns(tmp_path: Path) -> None:
    machine = [100.0, 50.0, 200.0]  # its speed in three minutes
    runs = []
    for name, start, share in (("old", 0, 1.0), ("new", 30, 0.9)):
        spans = [(minute + start, minute + start + 30) for minute in (0.0, 60.0, 120.0)]
        # "new" has no record in its last turn.
        moments = [(span[0] + at, rate) for span, rate in zip(spans, machine, strict=True)
                   for at in (5, 15, 25) if (name, rate) != ("new", 200.0)]  # fmt: skip
        log = [train_record(i, at, share * rate) for i, (at, rate) in enumerate(moments, 1)]
        (tmp_path / name / "run").mkdir(parents=True)
        lines = "".join(json.dumps(record) + "\n" for record in log)
        (tmp_path / name / "run/metrics.jsonl").write_text(lines)
        runs.append(report.Run(name, tmp_path / name, ["mt-train"], spans=spans))
    old, new = runs
    # A turn of "new" lies between two of "old".
    assert report.turn_ratios(new, old) == pytest.approx([90 / 75, 45 / 125])
    assert report.turn_ratios(old, new) == pytest.approx([100 / 90, 50 / 67.5, 200 / 45])


def test_usage_of_a_process_tree() -> None:
    child = "x = bytearray(60 << 20); sum(range(3 * 10**6)); print(1, flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        own = process_tree.usage(process.pid)
        assert own.rss >= own.pss > 60 << 20
        assert 0.02 < own.cpu_seconds < 60
        process.communicate(b"\n")
    assert process_tree.usage(process.pid) == process_tree.Usage()


# Runs.


def test_plans() -> None:
    parse = real_run.Plan.parse
    assert parse("mt-train") == real_run.Plan("mt-train")
    assert parse("torch") == real_run.Plan("torch", "torch")
    plan = parse("pre=model.norm=pre LD_PRELOAD=/lib/x.so 'data.valid=[{src: a, tgt: b}]'")
    assert plan.overrides == ("model.norm=pre", "data.valid=[{src: a, tgt: b}]")
    assert plan.environment == {"LD_PRELOAD": "/lib/x.so"}
    assert parse(f"before={ROOT}: train.seed=2") == real_run.Plan(
        "before", None, ROOT, ("train.seed=2",)
    )
    assert parse("t=torch: LD_PRELOAD=x.so:y.so").environment == {"LD_PRELOAD": "x.so:y.so"}


def test_a_peer_that_is_missing_is_named_to_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_run, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install transformers accelerate$"):
        real_run.Plan.parse("marian")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("oars", "no run 'oars'"),
        ("a/b=x=y", "a name has letters"),
        ("old=/nowhere: a=b", "neither a peer nor a checkout"),
        ("t=torch: model=base", "environment variables only"),
    ],
)
def test_a_plan_that_cannot_run_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        real_run.Plan.parse(text)


FAKE = """
import json, os, pathlib, sys, time

def train():
    folder = pathlib.Path(dict(a.split("=", 1) for a in sys.argv[1:])["run_dir"])
    folder.mkdir()
    start = time.time()
    for step in range(1, 100000):
        time.sleep(0.02)
        record = {"step": step, "split": "train", "time": time.time(), "tokens_per_second": 50.0}
        nll = {"step": step, "split": "valid", "time": time.time(), "nll": 9 / step}
        with (folder / "metrics.jsonl").open("a") as file:
            print(json.dumps(record), json.dumps(nll), sep="\\n", file=file)
        if step == 5 and "FAIL" in os.environ:
            sys.exit(3)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose mt-train only writes a log."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "fake.py").write_text(FAKE)
    (folder / "pyproject.toml").write_text('[project.scripts]\nmt-train = "fake:train"\n')
    return folder


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(process, "SAMPLE_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake.py").write_text("raise SystemExit(9)\n")  # not the package of the checkout
    small = ["--corpus", "sample", "--pairs", "100", "--valid-pairs", "20", "--vocab", "400"]
    return [*small, "--model", "tiny", "--folder", str(tmp_path / "out"), "--minutes", "0.02"]


@pytest.mark.parametrize("turns", [[], ["--slice-minutes", "0.005"]])
def test_runs_are_measured_and_not_repeated(
    tmp_path: Path,
    checkout: Path,
    arguments: list[str],
    turns: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments += [*turns, "--run", f"a={checkout}:", "--run", f"b={checkout}: FAIL=1"]
    assert real_run.main(arguments) == 0
    printed = capsys.readouterr()
    assert "b ended with status 3" in printed.err
    out = tmp_path / "out"
    assert (out / "report.md").read_text() == printed.out
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    a, b = (json.loads(line) for line in (out / "results.jsonl").read_text().splitlines())
    assert (a["end"], b["end"]) == ("time limit", "ended with status 3")
    assert 1.2 <= 60 * a["minutes"] < 1.2 + 4
    assert b["updates"] == 5 < a["updates"]
    rates = [a[key] for key in ("tokens_per_second", "first_tenth", "last_tenth")]
    assert rates == pytest.approx([50] * 3)
    assert a["peak_rss"] >= a["peak_pss"] > 1 << 20
    assert 0 <= a["cores"] < 2
    assert len(a["validations"]) == a["updates"]
    row = next(line for line in printed.out.splitlines() if line.startswith("| b "))
    assert "ended with status 3" in row

    log = (out / "a/run/metrics.jsonl").read_text()
    real_run.main(arguments)  # only b runs again
    assert (out / "a/run/metrics.jsonl").read_text() == log
    assert "a: finished earlier" in capsys.readouterr().err

    with pytest.raises(InputError, match="run with other settings"):
        real_run.main([*arguments[:-3], f"a={checkout}: train.seed=2"])
    with pytest.raises(InputError, match=r"other settings \(minutes\)"):
        real_run.main([*arguments, "--minutes", "1"])


def test_a_head_start(
    tmp_path: Path, checkout: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[tuple[str, float]] = []

    def go(self: Any, seconds: float) -> None:
        start = self._run.spans[-1][1] if self._run.spans else 0.0
        self._run.spans.append((start, start + seconds))
        turns.append((self._run.name, round(seconds, 3)))

    monkeypatch.setattr(real_run.Process, "go", go)
    monkeypatch.setattr(real_run.Process, "is_running", True)
    monkeypatch.setattr(
        real_run.Process, "finish", lambda self, why: setattr(self._run, "end", why)
    )
    runs = ["--run", f"a={checkout}:", "--run", f"b={checkout}:", "--head-start-minutes", "0.01"]
    with pytest.raises(InputError, match="in turns"):
        real_run.main([*arguments, *runs])
    slices = ["--slice-minutes", "0.005"]
    with pytest.raises(InputError, match="head-start"):
        real_run.main([*arguments, *runs[:-1], "0.02", *slices])
    real_run.main([*arguments, *runs, *slices])
    # 1.2 seconds of "a"; "b" starts after half of them, and ends with it.
    assert turns == [("a", 0.3)] * 2 + [("b", 0.3), ("a", 0.3)] * 2


def test_an_interruption_keeps_the_results(
    tmp_path: Path, checkout: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Any, seconds: float) -> None:
        if self._run.name == "b":
            go(self, 0.3)
            raise KeyboardInterrupt
        go(self, seconds)

    go = real_run.Process.go
    monkeypatch.setattr(real_run.Process, "go", interrupt)
    runs = [word for name in "abc" for word in ("--run", f"{name}={checkout}:")]
    assert real_run.main([*arguments, *runs]) == 130
    results = (tmp_path / "out/results.jsonl").read_text().splitlines()
    ends = {r["name"]: r["end"] for r in map(json.loads, results)}
    assert ends == {"a": "time limit", "b": "interrupted"}
    monkeypatch.setattr(real_run.Process, "go", go)
    assert real_run.main([*arguments, *runs]) == 0
    results = (tmp_path / "out/results.jsonl").read_text().splitlines()
    assert [json.loads(r)["end"] for r in results] == ["time limit"] * 3


def test_a_folder_of_something_else_is_not_deleted(
    tmp_path: Path, checkout: Path, arguments: list[str]
) -> None:
    precious = tmp_path / "out/a/model.safetensors"
    precious.parent.mkdir(parents=True)
    precious.write_text("weights")
    with pytest.raises(InputError, match="not a run of this benchmark"):
        real_run.main([*arguments, "--run", f"a={checkout}:"])
    assert precious.read_text() == "weights"


def test_reading_a_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = records_of([0.1] * 100 + [0.2] * 100, 10, 50)
    log.append({"step": 200, "split": "valid", "time": 0, "nll": 1.25})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in log))
    assert real_run.main(["--read", str(tmp_path)]) == 0
    (row,) = capsys.readouterr().out.splitlines()[2:]
    # 190 updates in 9 + 20 seconds.
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [str(tmp_path), "328", "500", "250", "0.50", "200", "1.250"]
    with pytest.raises(InputError, match=r"no metrics\.jsonl"):
        real_run.main(["--read", str(tmp_path / "no")])


# Peers.


@pytest.fixture
def recipe(tmp_path: Path, arguments: list[str]) -> Any:
    """The built-in sample, 100 pairs, and a tiny model."""
    options = real_run.parse([*arguments, "--precision", "fp32", "--log-every", "1"])
    options.batch_tokens, options.warmup_steps, options.validate_every = 300, 3, 10**6
    return real_run.prepare(options)


def test_peers_and_mt_train_read_the_same_tokens(tmp_path: Path, recipe: Any) -> None:
    ours = prepare(compose(real_run.mt_train_overrides(tmp_path / "a", recipe)))
    theirs = recipe.read("train")
    for side in ("src", "tgt"):
        mine, peer = getattr(ours.train.sample, side), getattr(theirs, side)
        np.testing.assert_array_equal(mine.tokens, peer.tokens)
        np.testing.assert_array_equal(mine.offsets, peer.offsets)


def test_sorted_batches_have_every_pair_once(recipe: Any) -> None:
    train = recipe.read("train")
    batches = list(peers.SortedBatches(train, 300))
    assert sorted(i for batch in batches for i in batch) == list(range(len(train)))
    sizes = [train.tgt.lengths[batch].sum() for batch in batches]
    assert np.mean(sizes) == pytest.approx(300, rel=0.2)
    assert max(sizes) < 300 + train.tgt.lengths.max()
    ranges = [np.ptp(train.tgt.lengths[batch]) for batch in batches]
    assert np.mean(ranges) < np.ptp(train.tgt.lengths) / 3


def nll_of(logits: Any, store: Any) -> float:
    """Negative log-likelihood per target token, one pair at a time."""
    total = 0.0
    for i in range(len(store)):
        src, tgt = (torch.tensor(side[i].astype(np.int64))[None] for side in (store.src, store.tgt))
        scores: Tensor = logits(src, torch.cat([torch.tensor([[BOS]]), tgt[:, :-1]], 1))
        total -= scores.log_softmax(-1)[0, range(tgt.shape[1]), tgt[0]].sum().item()
    return total / len(store.tgt.tokens)


def check_log(folder: Path, recipe: Any, nll: float, lr: float, *, late: int = 0) -> None:
    train, valid = recipe.read("train"), recipe.read("valid")
    log = read_records(folder)
    epoch = -(-len(train) // recipe.pairs_per_update(train))
    counted = [r["target_tokens"] for r in log if r["split"] == "train"][:epoch]
    assert sum(counted) == len(train.tgt.tokens)
    assert log[0]["loss"] == pytest.approx(math.log(400), rel=0.2)
    (validation,) = [r for r in log if r["split"] == "valid"]
    assert validation["nll"] == pytest.approx(nll, rel=1e-4)
    assert validation["nll"] < math.log(400) - 0.1
    assert len(valid) == 20
    schedule = ScheduleConfig(
        name="inverse_sqrt", peak_lr=recipe.peak_lr, warmup_steps=recipe.warmup_steps
    )
    rate = inverse_sqrt(recipe.max_steps - late, schedule, d_model=1, max_steps=0)
    assert lr == pytest.approx(rate)


def shortened(recipe: Any, **values: Any) -> Any:
    epoch = -(-100 // recipe.pairs_per_update(recipe.read("train")))
    return type(recipe)(**{**vars(recipe), "max_steps": epoch + 2, **values})


def test_the_plain_loop(tmp_path: Path, recipe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, rates = shortened(recipe), []
    step = torch.optim.Adam.step

    def noted(self: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self)

    monkeypatch.setattr(torch.optim.Adam, "step", noted)
    peers.train_torch(recipe, tmp_path / "run")
    model = peers.TorchPeer(recipe.initial_model()).eval()
    model.load_state_dict(torch.load(tmp_path / "run/checkpoint.pt")["model"])

    def logits(src: Tensor, tgt_in: Tensor) -> Tensor:
        with torch.no_grad():
            return model(peers.PaddedPairs(src, None, tgt_in, tgt_in))

    check_log(tmp_path / "run", recipe, nll_of(logits, recipe.read("valid")), rates[-1])


def test_the_plain_loop_validates_in_bf16(tmp_path: Path, recipe: Any) -> None:
    peers.train_torch(shortened(recipe, precision="bf16", max_steps=1), tmp_path / "run")
    (validation,) = [r for r in read_records(tmp_path / "run") if r["split"] == "valid"]
    assert validation["nll"] == pytest.approx(math.log(400), rel=0.2)


@pytest.mark.slow
def test_hugging_face_trainer(tmp_path: Path, recipe: Any) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    recipe = shortened(recipe)
    recipe = shortened(recipe, validate_every=recipe.max_steps)
    peers.train_marian(recipe, tmp_path / "run")
    (checkpoint,) = (tmp_path / "run/checkpoints").iterdir()
    model = peers.MarianPeer(recipe.initial_model()).model.eval()
    # Not in the file: shared embeddings and fixed positions.
    model.load_state_dict(load_file(checkpoint / "model.safetensors"), strict=False)

    def logits(src: Tensor, tgt_in: Tensor) -> Tensor:
        with torch.no_grad():
            return model(input_ids=src, decoder_input_ids=tgt_in).logits

    state = json.loads((checkpoint / "trainer_state.json").read_text())
    rates = [entry["learning_rate"] for entry in state["log_history"] if "loss" in entry]
    nll = nll_of(logits, recipe.read("valid"))
    check_log(tmp_path / "run", recipe, nll, rates[-1], late=1)


def test_losses_of_both_libraries_are_the_same(recipe: Any) -> None:
    """Labels of padding do not count, and labels are shifted alike."""
    train = recipe.read("train")
    rows = [{"input_ids": train.src[i].tolist(), "labels": train.tgt[i].tolist()} for i in range(9)]
    batch = peers.marian_batch(rows)
    pairs = peers.PaddedPairs.collate(train, np.arange(9))
    torch.testing.assert_close(batch["input_ids"], pairs.src)
    torch.testing.assert_close(batch["decoder_input_ids"], pairs.tgt_in)
    torch.testing.assert_close(batch["attention_mask"] == 0, pairs.src_padding)
    torch.testing.assert_close(batch["labels"] == peers.IGNORED, pairs.tgt_out == PAD)
    logits = torch.randn(*pairs.tgt_out.shape, 400).transpose(1, 2)
    torch.testing.assert_close(
        F.cross_entropy(logits, batch["labels"], ignore_index=peers.IGNORED),
        F.cross_entropy(logits, pairs.tgt_out, ignore_index=PAD),
    )
