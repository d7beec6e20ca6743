"""The code in the README runs as it is printed there, and links in all pages lead somewhere."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.training_runs import Running

FIXTURE = Path(__file__).parent / "fixtures/run_2_3"
SECTIONS = ["The paper, running", "From Python"]


def blocks(section: str, language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (body,) = re.findall(rf"^##+ {section}\n(.*?)^##", text, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```", body, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a trained model in the place where quickstart leaves one."""
    shutil.copytree(FIXTURE, tmp_path / "runs/quickstart")
    return tmp_path


@pytest.mark.parametrize("section", SECTIONS)
def test_each_block_can_be_pasted_into_python(section: str, folder: Path) -> None:
    code = "".join(blocks(section, "python"))
    assert code.count("import") >= 2
    code = 'import matplotlib\nmatplotlib.use("agg")\n' + code
    done = subprocess.run(
        [sys.executable, "-i"], input=code, cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert "Error" not in done.stderr, done.stderr
    assert done.returncode == 0
    assert done.stdout
    for name in re.findall(r'"(\w+\.png)"', code):
        content = (folder / name).read_bytes()
        assert content.startswith(b"\x89PNG"), name
        assert len(content) > 10_000, name


def test_printed_attention_weights_match_the_description(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = blocks(SECTIONS[0], "python")[:2]
    exec(first + second, {})
    printed = capsys.readouterr().out.splitlines()
    rows = [[float(x) for x in re.findall(r"[\d.]+", row)] for row in printed]
    rows = [row for row in rows if row]
    assert all(rows[i][i] == max(rows[i]) > 0.9 for i in range(4))
    assert rows[4:] == [
        pytest.approx([1 / (i + 1)] * (i + 1) + [0] * (3 - i), abs=1e-3) for i in range(4)
    ]


def test_attention_command_writes_page_and_image(folder: Path) -> None:
    (command,) = blocks(SECTIONS[0], "bash")
    name, *arguments = shlex.split(command.replace("\\\n", " "))
    assert name == "mt-eval"
    status, _, err = Running("evaluate", arguments, folder / "output", cwd=folder).wait()
    assert status == 0, err
    assert (folder / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (folder / "attention.html").read_text(encoding="utf-8")


PAGES = [path for path in ROOT.rglob("*.md") if not path.relative_to(ROOT).parts[0].startswith(".")]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_linked_files_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [name for name in targets if not (page.parent / name).exists()] == []


def test_files_and_symbols_in_the_tables_exist() -> None:
    """From paper to code (README), and where to add what (CONTRIBUTING)."""
    checked = 0
    for page in ("README.md", "CONTRIBUTING.md"):
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
    assert checked > 50
