import bz2
import gzip
import io
import lzma
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.errors import input_error

from transformer_mt.data.text.lines import COMPRESSED, raw_lines, read_lines

# Characters that str.splitlines or a text-mode file would split at, and ones it would not.
TEXT = st.text(st.sampled_from("ab ä\n\r\t\f\v\x00\x1c\x85\u2028\u2029\ufeff😀"), max_size=30)


def write(path: Path, data: bytes) -> Path:
    """The data as a file, compressed by the tool that the suffix names."""
    zstd = zstandard.ZstdCompressor(write_checksum=True).compress  # as the zstd command does
    compress = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd}
    path.write_bytes(compress.get(path.suffix, bytes)(data))
    return path


def error_of(path: Path) -> str:
    with input_error() as caught:
        list(read_lines(path))
    return str(caught.value)


@given(TEXT)
def test_lines_equal_bytes_split_at_line_feeds(text: str) -> None:
    data = text.encode()
    expected = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not expected[-1]:  # what follows the last line feed is a line only if there is something
        expected.pop()
    assert list(raw_lines(io.BytesIO(data), "x")) == [line.removesuffix(b"\r") for line in expected]


DATA = b"\xef\xbb\xbfa\r\n\n\xef\xbb\xbfb\rc\r\r\n" + "d\u2028e\u2029f\x85g\vh\fi\x1cj".encode()


@pytest.mark.parametrize("suffix", ["", ".txt", *COMPRESSED])
def test_lines_of_files(tmp_path: Path, suffix: str) -> None:
    """Also of empty files, and of compressed files that are appended to each other."""
    path = write(tmp_path / f"x{suffix}", DATA)
    lines = ["a", "", "\ufeffb\rc\r", "d\u2028e\u2029f\x85g\vh\fi\x1cj"]
    assert list(read_lines(path)) == lines
    path.write_bytes(path.read_bytes() + write(tmp_path / f"y{suffix}", b"z\n").read_bytes())
    assert list(read_lines(str(path))) == [*lines[:-1], f"{lines[-1]}z"]
    assert list(read_lines(write(tmp_path / f"empty{suffix}", b""))) == []


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *product(COMPRESSED, ["one byte short", "flipped", "not compressed"]),
        *product([".gz", ".zst"], ["appended"]),
    ],
)
def test_damaged_compressed_file(tmp_path: Path, suffix: str, damage: str) -> None:
    lines = [f"line {i} {i * 7919 % 100_003}" for i in range(1, 10_001)]
    path = write(tmp_path / f"x{suffix}", "\n".join(lines).encode())
    data = path.read_bytes()
    path.write_bytes(
        {
            "one byte short": data[:-1],
            "flipped": data[:5000] + bytes([data[5000] ^ 0xFF]) + data[5001:],
            "not compressed": b"plain text\n",
            "appended": data + b"X" + data[1:],  # a later stream begins with damage
        }[damage]
    )
    read: list[str] = []
    with input_error() as caught:
        read.extend(read_lines(path))
    assert str(caught.value).startswith(f"{path}, line {len(read) + 1} is damaged: ")
    if damage != "flipped":  # found by the checksum at the end
        assert read == lines[: len(read)]


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\x80", b"\xe4", b"\xfea\xff"])
def test_undecodable_byte_is_located(tmp_path: Path, suffix: str, bad: bytes) -> None:
    """Surrogates, overlong forms, Latin-1."""
    error = error_of(path := write(tmp_path / f"x{suffix}", "ok\nfür B".encode() + bad + b"r\n"))
    place = f"line 2 is not valid UTF-8 (byte 0x{bad[0]:02X} at position 7): convert it"
    assert error.startswith(f"{path}, {place}")
    assert "iconv -f latin1 -t utf-8; if it is compressed, its name must end in" in error


def test_other_formats_are_recognised(tmp_path: Path) -> None:
    zipped, utf_16 = gzip.compress(b"a"), "\ufeffBär\n".encode("utf-16-le")
    starts = {"UTF-16, not UTF-8: convert it, e.g. iconv": utf_16, "compressed by gzip": zipped}
    for problem, content in {**starts, "a document or archive": b"PK\3\4\n"}.items():
        path = write(tmp_path / "x", content)
        assert error_of(path).startswith(f"{path} is {problem}")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """100 MB of text compressed to some kB is read in a process with 64 MB more than it needs."""
    path = write(tmp_path / "x.gz", (b"a line of text of thirty bytes, " * 9 + b"\n") * 340_000)
    code = (
        "import resource, sys\n"
        "from transformer_mt.data.text.lines import read_lines\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + 2**26\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "print(sum(1 for _ in read_lines(sys.argv[1])))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "340000\n", "")
