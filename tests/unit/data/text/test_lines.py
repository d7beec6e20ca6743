import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.data.text.lines import (
    COMPRESSED,
    is_blank,
    open_binary,
    raw_lines,
    read_lines,
)
from transformer_mt.errors import InputError

# Characters that str.splitlines or a text-mode file would split at, and ones it would not.
TEXT = st.text(st.sampled_from("ab ä\n\r\t\f\v\x00\x1c\x85\u2028\u2029\ufeff😀"), max_size=30)


def write(path: Path, data: bytes) -> Path:
    """The data as a file, compressed by the tool that the suffix names."""
    zstd = zstandard.ZstdCompressor(write_checksum=True).compress  # as the zstd command does
    compress = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd}
    path.write_bytes(compress.get(path.suffix, bytes)(data))
    return path


def error_of(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_lines(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@given(TEXT)
def test_lines_equal_bytes_split_at_line_feeds(text: str) -> None:
    data = text.encode()
    expected = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not expected[-1]:  # what follows the last line feed is a line only if there is something
        expected.pop()
    assert list(raw_lines(io.BytesIO(data), "x")) == [line.removesuffix(b"\r") for line in expected]


@pytest.mark.parametrize("suffix", ["", ".txt", *COMPRESSED])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\rc\r\r\n", ["a", "b\rc\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        ("a\u2028b\u2029c\x85d\ve\ff\x1cg\n".encode(), ["a\u2028b\u2029c\x85d\ve\ff\x1cg"]),
    ],
)
def test_lines_of_files(tmp_path: Path, suffix: str, data: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path / f"x{suffix}", data))) == lines


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_concatenated_compressed_files_are_read_completely(tmp_path: Path, suffix: str) -> None:
    one, two = (write(tmp_path / f"{i}{suffix}", f"{i}\n".encode()) for i in (1, 2))
    both = tmp_path / f"both{suffix}"
    both.write_bytes(one.read_bytes() + two.read_bytes())
    assert list(read_lines(str(both))) == ["1", "2"]


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("damage", ["truncated", "one byte short", "flipped", "not compressed"])
def test_damaged_compressed_file(tmp_path: Path, suffix: str, damage: str) -> None:
    lines = [f"line {i} {i * 7919 % 100_003}" for i in range(1, 50_001)]
    path = write(tmp_path / f"x{suffix}", "\n".join(lines).encode())
    data = path.read_bytes()
    path.write_bytes(
        {
            "truncated": data[: len(data) // 2],
            "one byte short": data[:-1],
            "flipped": data[:5000] + bytes([data[5000] ^ 0xFF]) + data[5001:],
            "not compressed": b"plain text\n",
        }[damage]
    )
    assert f"{path}: damaged or incomplete after line " in error_of(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damage_at_the_start_of_a_later_stream(tmp_path: Path, suffix: str) -> None:
    one, two = (write(tmp_path / f"{i}{suffix}", f"{i}\n".encode()) for i in (1, 2))
    both = tmp_path / f"both{suffix}"
    both.write_bytes(one.read_bytes() + b"X" + two.read_bytes()[1:])
    assert f"{both}: damaged or incomplete after line " in error_of(both)


def test_damage_is_reported_after_the_lines_that_were_read(tmp_path: Path) -> None:
    data = "".join(f"line {i} {i * 7919 % 100_003}\n" for i in range(1, 50_001)).encode()
    path = write(tmp_path / "x.gz", data)
    path.write_bytes(path.read_bytes()[:-20_000])
    read: list[str] = []
    with pytest.raises(InputError) as caught:
        read.extend(read_lines(path))
    assert len(read) > 1000
    assert read == data.decode().split("\n")[: len(read)]
    assert f"after line {len(read)} " in str(caught.value)


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
def test_undecodable_byte_is_located(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"x{suffix}", "ok\nfür ".encode() + "Bär\n".encode("latin1"))
    assert error_of(path) == (
        f"{path}, line 2: not valid UTF-8 (byte 0xE4 at column 6): "
        "convert it, e.g. iconv -f latin1 -t utf-8, or, if most of it is UTF-8, "
        "remove such bytes: iconv -c -f utf-8 -t utf-8"
    )


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\x80", b"\xe4", b"\xfea\xff"])
def test_decoding_is_strict(tmp_path: Path, bad: bytes) -> None:
    """Surrogates, overlong forms, a cut character, Latin-1."""
    path = write(tmp_path / "x", bad)
    assert f"{path}, line 1: not valid UTF-8 (byte 0x{bad[0]:02X} at column 1)" in error_of(path)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_recognised(tmp_path: Path, codec: str) -> None:
    assert "iconv -f utf-16 -t" in error_of(write(tmp_path / "x", "\ufeffBär\n".encode(codec)))


@pytest.mark.parametrize(
    ("suffix", "command"),
    [(".gz", "zcat"), (".zst", "zstdcat"), (".xz", "xzcat"), (".bz2", "bzcat")],
)
def test_compressed_file_without_suffix(tmp_path: Path, suffix: str, command: str) -> None:
    path = write(tmp_path / f"x{suffix}", b"a\nb\n").rename(tmp_path / "x")
    assert error_of(path) == (f"{path} is compressed: decompress it with {command}")


def test_zip_archive_is_not_read_as_text(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("x", "a\nb\n")
    assert "is compressed: decompress it with unzip" in error_of(tmp_path / "x.zip")


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
def test_missing_file_and_folder(tmp_path: Path, suffix: str) -> None:
    missing, folder = tmp_path / f"missing{suffix}", tmp_path / f"folder{suffix}"
    folder.mkdir()
    assert error_of(missing) == f"cannot read {missing}: No such file or directory"
    assert error_of(folder) == f"cannot read {folder}: Is a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x", b"a\n")
    path.chmod(0)
    assert error_of(path) == f"cannot read {path}: Permission denied"


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
def test_open_binary_gives_the_bytes(tmp_path: Path, suffix: str) -> None:
    data = bytes(range(256)) * 1000
    with open_binary(write(tmp_path / f"x{suffix}", data)) as stream:
        assert stream.read() == data


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """100 MB of text compressed to some kB is read in a process with 64 MB more than it needs."""
    path = write(tmp_path / "x.gz", b"a line of text of thirty bytes\n" * 3_300_000)
    code = (
        "import resource, sys\n"
        "from transformer_mt.data.text.lines import read_lines\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + 2**26\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "print(sum(1 for _ in read_lines(sys.argv[1])))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3300000\n", "")


@pytest.mark.parametrize(
    "text", ["", " ", "\t", "\u3000", "\xa0 \u2003", "\u200b", "\ufeff\xad \0"]
)
def test_texts_without_a_visible_character_are_blank(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(f"{text}.{text}")
