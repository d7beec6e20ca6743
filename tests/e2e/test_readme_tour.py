"""The pages: commands and code run and print what is shown, and links lead somewhere.

A block without a language that follows a block of code is its output; numbers are compared up to
rounding. Commands run on a tiny model; slow tests train the model of the quick start, and run those
for ``runs/quickstart`` on it.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.training_runs import Running, write_corpus

from transformer_mt import compose

FIXTURE = Path(__file__).parent / "fixtures/model"
MODULES: dict[str, Any] = {
    "mt-train": "train",
    "mt-translate": "translate",
    "mt-eval": "evaluate",
    "mt-export": "export",
}
CONTRIB = "transformer_mt.contrib."
PAGES = [
    path
    for path in ROOT.rglob("*.md")
    if not path.relative_to(ROOT).parts[0].startswith((".", "runs"))
]
MANUAL = [path for path in PAGES if path.name == "README.md"]
TOURS = [ROOT / "transformer_mt/model/README.md", ROOT / "README.md"]
"""Pages with Python to paste and its output."""

FENCED = re.compile(r"^```\w*\n.*?^```\n", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\s*^```\n(.*?)^```\n)?", FENCED.flags)
"""Language, code, and the block without a language that may follow."""
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[tuple[str, str]]:
    """The code of each block in a language, and what the page shows as its output, if anything."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [(code, output) for of, code, output in found if of == language]


@dataclass
class Command:
    page: Path
    words: list[str]
    output: str
    """What the page shows, if the command is a block of its own."""

    @property
    def arguments(self) -> list[str]:
        """Without redirections, and without what a pipe does with the output."""
        return [*takewhile(lambda word: word not in ("<", ">", "2>", "|"), self.words[1:])]

    def __str__(self) -> str:
        return f"{name(self.page)}: {shlex.join(self.words)}"


def commands(page: Path) -> list[Command]:
    """The ``mt-…`` commands, and those of contrib, of a page that can be run as they stand."""
    result = []
    for code, shown in blocks(page, "bash"):
        lines = code.replace("\\\n", " ").splitlines()
        output = shown if len(lines) == 1 else ""
        for words in (shlex.split(line, comments=True) for line in lines):
            if words[:2] == ["python", "-m"]:
                words = words[2:]
            known = words and (words[0] in MODULES or words[0].startswith(CONTRIB))
            if known and not {"-m", "…"}.intersection(words):
                result.append(Command(page, words, output))
    return result


COMMANDS: dict[str, Command] = {}
"""Each command once, on the first page that shows it."""
for command in (command for page in MANUAL for command in commands(page)):
    COMMANDS.setdefault(shlex.join(command.words), command)

ELSEWHERE = ("testset=", "-", "ensemble=", "tag=", "format=argos", "compute_type=")
"""Commands with these need a network, another model or another library, or are Hydra's own."""


def runs_here(command: Command) -> bool:
    given = [word for word in command.words[1:] if word.startswith(ELSEWHERE) or "hf://" in word]
    return command.words[0] != "mt-train" and not given


def same(printed: str, shown: str, tolerance: float = 1e-6) -> bool:
    """Whether the output is what a page shows."""
    numbers = [float(number.replace(",", "")) for number in NUMBER.findall(printed)]
    expected = [float(number.replace(",", "")) for number in NUMBER.findall(shown)]
    return NUMBER.sub("#", printed) == NUMBER.sub("#", shown) and numbers == pytest.approx(
        expected, rel=0.02, abs=tolerance
    )


FILES = (
    *("in.en", "in.txt", "src.en", "out.de", "ref.de", "sysA.de", "sysB.de", "a.de", "b.de"),
    *("page", "page.html", "in.po", "de.po", "in.xlf", "file.xlf"),
)
HTML = "<html><body><p>a <b>b</b> c</p></body></html>"
CONTENT = {
    "": HTML,
    ".html": HTML,
    ".po": 'msgid ""\nmsgstr ""\n\nmsgid "a b c"\nmsgstr ""\n',
    ".xlf": (
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
        '<file original="f" source-language="en" target-language="de" datatype="text">'
        '<body><trans-unit id="1"><source>a b</source></trans-unit></body></file></xliff>'
    ),
}
"""By the endings of files that do not have lines of text."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name, and a tiny model where they have theirs."""
    path = tmp_path_factory.mktemp("reader")
    write_corpus(path)
    words = {word for command in COMMANDS.values() for word in command.words}
    runs = {word for word in words if re.fullmatch(r"(model=)?runs/[\w/]+", word)}
    for run in {word.removeprefix("model=") for word in runs}:
        config = shutil.copytree(FIXTURE, path / run) / "config.yaml"
        text = re.sub(r"tsv: .*/(\w+\.tsv)", rf"tsv: {path}/\1", config.read_text("utf-8"))
        config.write_text(text, encoding="utf-8")
    for name in ("text.tsv", "more.tsv"):
        shutil.copy(path / "train.tsv", path / name)
    for file in FILES:
        (path / file).write_text(CONTENT.get(Path(file).suffix, "a b c\nd e f g\n"))
    return path


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the quick start has trained its model."""
    path = tmp_path_factory.mktemp("quickstart")
    command = [sys.executable, "-m", "transformer_mt.cli", "train", "experiment=quickstart"]
    subprocess.run(command, cwd=path, capture_output=True, check=True)
    return path


def printed_by(page: Path, cwd: Path) -> Iterator[tuple[str, str, str]]:
    """The Python blocks of a page, pasted into one interpreter: code, shown and real output."""
    found = blocks(page, "python")
    end = "\nprint('\\x1e', end='')\n"
    text = 'import matplotlib\nmatplotlib.use("agg")\n' + "".join(code + end for code, _ in found)
    done = subprocess.run(
        [sys.executable, "-i"], input=text, cwd=cwd, capture_output=True, text=True, timeout=120
    )
    assert "Error" not in done.stderr, done.stderr
    assert done.returncode == 0
    for (code, shown), printed in zip(found, done.stdout.split("\x1e")[:-1], strict=True):
        yield code, shown, printed


@pytest.mark.parametrize("page", TOURS, ids=name)
def test_python_blocks_can_be_pasted(page: Path, folder: Path) -> None:
    for code, shown, printed in printed_by(page, folder):
        assert bool(printed) == bool(shown), code
        if "runs/" not in code:
            assert same(printed, shown), f"{code}\n{printed}"
        for picture in re.findall(r'"(\w+\.png)"', code):
            content = (folder / picture).read_bytes()
            assert content.startswith(b"\x89PNG"), picture
            assert len(content) > 10_000, picture


def run(command: Command, cwd: Path, out: Path, text: str = "") -> str:
    """Runs a command; returns what it prints. The text is its standard input, unless it has one."""
    stdin = out.with_name(f"{out.name}.stdin")
    stdin.write_text(text)
    if "<" in command.words:
        stdin = cwd / command.words[command.words.index("<") + 1]
    program = command.words[0]
    module = MODULES.get(program, [sys.executable, "-m", program])
    status, printed, err = Running(module, command.arguments, out, cwd, stdin).wait()
    assert status == 0, err
    return printed


@pytest.mark.parametrize("command", [c for c in COMMANDS.values() if runs_here(c)], ids=str)
def test_commands_run(command: Command, folder: Path, tmp_path: Path) -> None:
    run(command, folder, tmp_path / "run")
    for word in command.words:
        key, _, file = word.partition("=")
        if key in ("output", "report"):
            assert (folder / file).exists()
        elif command.words[0].startswith(CONTRIB) and word.endswith(".html"):
            assert (folder / word).exists()


@pytest.mark.parametrize("command", [c for c in COMMANDS.values() if not runs_here(c)], ids=str)
def test_settings_in_commands_exist(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    words = [word for word in command.arguments if word not in ("--cfg", "job")]
    if not [word for word in words if word.startswith("-")]:
        compose(words, MODULES[command.words[0]])


@pytest.mark.slow
def test_quick_start_prints_what_the_pages_show(quickstart: Path, tmp_path: Path) -> None:
    for page in TOURS:
        for code, shown, printed in printed_by(page, quickstart):
            if "runs/quickstart" in code:
                assert same(printed, shown, 0.5), f"{code}\n{printed}"
    checked = 0
    for number, command in enumerate(COMMANDS.values()):
        if command.output and {"model=runs/quickstart", "runs/quickstart"} & {*command.words}:
            printed = run(command, quickstart, tmp_path / str(number))
            assert same(printed, command.output, 1), f"{command}\n{printed}"
            checked += 1
    assert checked


@pytest.mark.slow
def test_translations_of_the_quick_start(quickstart: Path, tmp_path: Path) -> None:
    """Those in the block below ``scripts/quickstart``, and the sentences to try."""
    bash = blocks(ROOT / "README.md", "bash")
    (shown,) = [shown for code, shown in bash if "quickstart  " in code]
    pairs = re.findall(r"^ +(\S.*)\n +→ (.*)$", shown, re.MULTILINE)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.partition("| try | translation |\n|---|---|\n")[2].partition("\n\n")[0]
    to_try = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert len(to_try) == 5
    pairs += [(source, target) for source, target in to_try]
    command = Command(ROOT, ["mt-translate", "model=runs/quickstart"], "")
    text = "".join(f"{source}\n" for source, _ in pairs)
    printed = run(command, quickstart, tmp_path / "out", text)
    assert printed.splitlines() == [target for _, target in pairs]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_linked_files_and_headings_exist(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    missing = []
    for file, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(f"{file}#{anchor}")
    assert missing == []


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_files_and_symbols_in_the_tables_exist() -> None:
    """From paper to code (README and package), and where to add what (CONTRIBUTING)."""
    checked = 0
    for page in ("README.md", "transformer_mt/README.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        rows = re.findall(r"^\| (?:eq|§|Table|Figure|an? ).*$", text, re.MULTILINE)
        for path, symbols in re.findall(
            r"`([\w./]+/[\w./]*|\w+\.py)(?:: ([\w, ]+))?`", " ".join(rows)
        ):
            places = [ROOT / path, ROOT / "transformer_mt" / path, ROOT / "tests" / path]
            found = [place for place in places if place.exists()]
            assert found, f"{page}: {path}"
            for symbol in symbols.split(", ") if symbols else ():
                source = found[0].read_text(encoding="utf-8")
                assert re.search(rf"^(def|class) {symbol}\b", source, re.MULTILINE), (
                    f"{path}: {symbol}"
                )
            checked += 1
    assert checked > 60
