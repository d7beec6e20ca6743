"""Model folders made to harm are refused in one line, without waiting and in little memory."""

import json
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hostile_folders import CONFIG, FOLDERS, LEFT_OUT, MODEL, TOKENIZER, WEIGHTS, fifo, link, make
from support import fork_server
from support.training_runs import Running, one_line_error

from transformer_mt import Translator, export
from transformer_mt.cli import main as commands
from transformer_mt.config import EvaluateJob, ExportJob, TranslateJob
from transformer_mt.errors import InputError
from transformer_mt.model_folder import load_model

SECONDS = 60
GROWTH = 2 * 2**30
"""Bytes of address space that a test may add."""
MEMORY = 8 * 2**30
"""Address space of a command in bytes; PyTorch alone takes about three GiB of it."""


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    """Bounds the time and the memory of a test: a failure must not take the machine with it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = pages * resource.getpagesize() + GROWTH
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    before = signal.signal(signal.SIGALRM, _timeout)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _timeout(*_: object) -> None:
    raise AssertionError(f"still at work after {SECONDS} seconds")


def assert_one_line(error: BaseException) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 2000


@pytest.mark.parametrize("name", FOLDERS)
def test_folder_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make(name, tmp_path / "model")
    with pytest.raises(InputError) as error:
        Translator.load(folder, device="cpu")
    assert str(folder) in str(error.value)
    assert_one_line(error.value)
    assert not (tmp_path / "HARMED").exists()


@pytest.mark.parametrize("name", [f"{WEIGHTS} is a FIFO", "d_model 100,000"])
def test_commands_refuse_it_too(name: str, tmp_path: Path) -> None:
    folder = str(make(name, tmp_path / "model"))
    with pytest.raises(InputError, match=r"model\.safetensors"):
        commands.translate(TranslateJob(model=folder))
    with pytest.raises(InputError, match=r"model\.safetensors"):
        commands.evaluate(EvaluateJob(model=folder))
    with pytest.raises(InputError, match=r"model\.safetensors"):
        Translator.load(MODEL, device="cpu", ensemble=[folder])


@pytest.fixture(scope="module")
def _server() -> None:
    """The server that commands are forked from, which starts without the bounds of a test."""
    first = fork_server.context().Process(target=int)
    first.start()
    first.join()


@pytest.mark.slow
@pytest.mark.usefixtures("_server")
@pytest.mark.parametrize("command", ["translate", "evaluate"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_command_ends_with_one_line(name: str, command: str, tmp_path: Path) -> None:
    folder = make(name, tmp_path / "model")
    running = Running(command, [f"model={folder}"], tmp_path / "output", tmp_path)
    resource.prlimit(running.process.pid or 0, resource.RLIMIT_AS, (MEMORY, MEMORY))
    one_line_error(running.wait())
    assert not (tmp_path / "HARMED").exists()


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_export_leaves_out_what_is_harmful(name: str, tmp_path: Path) -> None:
    folder, output = make(name, tmp_path / "model"), tmp_path / "exported"
    export(ExportJob(model=str(folder), format="hub", output=str(output)))
    model = {CONFIG, TOKENIZER, WEIGHTS}
    assert {path.name for path in output.iterdir()} <= model | {"README.md", "curves.png"}
    assert load_model(output)[2] == load_model(MODEL)[2]
    card = (output / "README.md").read_text()
    assert card.replace("\n", "").isprintable()
    assert "## Scores" not in card


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/ptmx"])
@pytest.mark.parametrize("name", ["metrics.jsonl", "README.md"])
def test_an_export_does_not_read_a_device(
    name: str, target: str, folder: Path, tmp_path: Path
) -> None:
    link(folder / name, target)
    with pytest.raises((InputError, OSError)) as error:
        export(ExportJob(model=str(folder), format="hub", output=str(tmp_path / "exported")))
    assert_one_line(error.value)
    assert not (tmp_path / "exported").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The intact model, with a test set that it was trained with."""
    folder = Path(shutil.copytree(MODEL, tmp_path / "model"))
    (tmp_path / "test.tsv").write_text("a b\tA B\n")
    config = folder / CONFIG
    config.write_text(config.read_text().replace("/made/in", str(tmp_path)))
    return folder


def test_links_to_files_are_followed(folder: Path, tmp_path: Path) -> None:
    """The Hub's cache is made of them."""
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in (CONFIG, TOKENIZER, WEIGHTS):
        (linked / name).symlink_to(folder / name)
    expected, _, _ = load_model(folder)
    model, _, _ = load_model(linked)
    assert torch.equal(model.embedding.weight, expected.embedding.weight)


@pytest.mark.parametrize("name", ["data/cleaning.json", "metrics.jsonl"])
def test_mt_eval_does_not_wait_for_a_pipe(folder: Path, tmp_path: Path, name: str) -> None:
    fifo(folder / name)
    with pytest.raises((InputError, OSError)) as error:
        commands.evaluate(EvaluateJob(model=str(folder), report=str(tmp_path / "report.html")))
    assert_one_line(error.value)


def test_mt_eval_does_not_read_a_test_set_from_a_device(folder: Path) -> None:
    config = folder / CONFIG
    config.write_text(config.read_text().replace(f"{folder.parent}/test.tsv", "/dev/zero"))
    with pytest.raises(InputError, match=r"data\.test .*/dev/zero is not a regular file"):
        commands.evaluate(EvaluateJob(model=str(folder)))


def test_records_that_are_no_numbers_are_skipped(folder: Path, tmp_path: Path) -> None:
    records = [
        {"step": 1, "split": "train", "loss": 10**400},
        {"step": "x", "split": "train", "loss": 1},
        {"step": 10**400, "split": "train", "loss": 1},
        {"step": 2, "split": [], "loss": {}},
        {"step": 3, "split": "train", "loss": 2.5},
    ]
    lines = [*map(json.dumps, records), "[" * 100_000, "null", ""]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    report = tmp_path / "report.html"
    commands.evaluate(EvaluateJob(model=str(folder), report=str(report)))
    assert "<svg" in report.read_text()


def test_checkpoint_with_a_pipe_is_refused(folder: Path) -> None:
    (checkpoint,) = (folder / "checkpoints").iterdir()
    for name in ("state.json", WEIGHTS):
        kept = (checkpoint / name).read_bytes()
        fifo(checkpoint / name)
        with pytest.raises(InputError, match="not a regular file"):
            load_model(folder, 400)
        (checkpoint / name).unlink()
        (checkpoint / name).write_bytes(kept)
    load_model(folder, 400)


def test_linked_subfolder_is_not_searched(folder: Path, tmp_path: Path) -> None:
    """Its files must not be overwritten, but it may be the whole disk."""
    link(folder / "data", "/")
    (tmp_path / "in").write_text("a\n")
    job = TranslateJob(
        model=str(folder), input=str(tmp_path / "in"), output=str(tmp_path / "out"), engine="torch"
    )
    with pytest.raises(InputError, match="would overwrite the file of the model"):
        commands.translate(
            TranslateJob(model=str(folder), output=str(tmp_path / "in"), engine="torch")
        )
    link(folder / "data", str(tmp_path / "elsewhere"))
    commands.translate(job)
    assert (tmp_path / "out").read_text().count("\n") == 1


def test_conversion_is_not_written_through_a_link(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed (the extra 'fast')")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "float32").mkdir(parents=True)
    (elsewhere / "float32" / "mine").touch()
    link(folder / "ctranslate2", str(elsewhere))
    Translator.load(folder, device="cpu", engine="ctranslate2")
    assert [path.name for path in (elsewhere / "float32").iterdir()] == ["mine"]
    assert list((tmp_path / "home").rglob("model.bin"))


def test_the_model_itself_is_good() -> None:
    translator = Translator.load(MODEL, device="cpu", engine="torch")
    assert len(translator.translate(["a b", ""])) == 2
