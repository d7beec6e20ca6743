"""A translation memory as training data: equal to two files; memory and speed of reading it.

    pip install translate-toolkit                                writes the memory
    python scripts/bench/translation_memory.py                   200,000 units, then 1 GB of them
    python scripts/bench/translation_memory.py --units 2000 --megabytes 20        a quick look

The text is real, from ../shared/data/mix. Each unit has three languages (the third is the English
text in capitals) and, at random places, inline elements of every kind. `mt-train stage=prepare`
reads the memory, and the same text in two files; both corpora must be equal bit for bit. The large
memory repeats the units. Reading it alone is timed in a separate process, with its peak memory.
"""

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from real_run_text import mix
from reporting import SHARED_DATA, argument_parser, heading, run_main, table

from transformer_mt.cli.compose import override
from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import Pair, read_pairs
from transformer_mt.errors import InputError
from transformer_mt.files import sha256

INLINE = ("bpt", "ept", "ph", "it", "hi")
READ = r"""
import re, sys, time
from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources import read_pairs
begin = time.perf_counter()
source = SourceConfig(tmx=sys.argv[1])
count = sum(1 for _ in read_pairs([source], src_lang="en", tgt_lang="de"))
seconds = time.perf_counter() - begin
peak = re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]  # ru_maxrss is inherited
print(count, seconds, peak)
"""


def main() -> None:
    options = argument_parser(__doc__)
    options.add_argument("--units", type=int, default=200_000, help="units of the memory")
    options.add_argument("--megabytes", type=int, default=1000, help="size of the large memory")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tmx-") as name:
        folder = Path(name)
        pairs = list(islice(usable_pairs(), chosen.units))
        for side, lang in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"a.{lang}").write_text(text, encoding="utf-8", newline="\n")
        write_memory(folder / "a.tmx", pairs)
        sources = {"two files": SourceConfig(src=f"{folder}/a.en", tgt=f"{folder}/a.de")}
        sources["memory"] = SourceConfig(tmx=f"{folder}/a.tmx")
        corpora = {kind: prepared(folder / kind, source) for kind, source in sources.items()}
        if corpora["two files"] != corpora["memory"]:
            raise InputError(f"the corpora differ: {corpora}")
        print(heading("two cores"))
        print(f"\n{len(pairs):,} units: the corpora are equal\n")
        repeat(folder / "a.tmx", folder / "large.tmx", chosen.megabytes * 10**6)
        rows = [measure(path) for path in (folder / "a.tmx", folder / "large.tmx")]
        print(table(["file", "MB", "pairs", "s", "MB/s", "pairs/s", "peak MiB"], rows))


def usable_pairs() -> Iterator[Pair]:
    """Pairs of ``mix`` without characters that XML does not have."""
    for pair in read_pairs(mix(SHARED_DATA)[0], src_lang="en", tgt_lang="de"):
        if not re.search("[\x00-\x08\x0b-\x1f\ufffe\uffff]", f"{pair.src}{pair.tgt}"):
            yield pair


def write_memory(path: Path, pairs: list[Pair]) -> None:
    """Writes the units with translate-toolkit."""
    sys.path.remove(str(Path(__file__).parent))  # translate.py of this folder hides the package
    from translate.storage.tmx import tmxfile

    rng, memory = random.Random(1), tmxfile(sourcelanguage="en-GB", targetlanguage="de-AT")
    for pair in pairs:
        unit = memory.UnitClass("")
        texts = {"fr": pair.src.upper(), "en-GB": pair.src, "de-AT": pair.tgt}
        for element in list(unit.xmlelement):
            unit.xmlelement.remove(element)
        for lang, text in texts.items():
            node = unit.createlanguageNode(lang, text, "target")
            if rng.random() < 0.5:
                add_inline(node[0], rng)
            unit.xmlelement.append(node)
        memory.addunit(unit)
    with path.open("wb") as file:
        memory.serialize(file)


def add_inline(segment: Any, rng: random.Random) -> None:
    """Puts an inline element into a segment, which does not change its text."""
    from lxml.etree import SubElement

    text, name = segment.text or "", rng.choice(INLINE)
    start, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    element = SubElement(segment, name, {"x": "1"} if name == "ph" else {})
    kept = name == "hi"
    segment.text = text[:start]
    element.text = text[start:end] if kept else "<code & more>"
    element.tail = text[end:] if kept else text[start:]


def prepared(folder: Path, source: SourceConfig) -> dict[str, str]:
    """Checksums of the encoded corpus that ``mt-train`` makes of a source."""
    overrides = [
        override("run_dir", folder), override("cache_dir", f"{folder}.cache"), "data=files",
        "stage=prepare", "data.src_lang=en", "data.tgt_lang=de",
        override("data.train", [source]), "data.valid=[{sample: valid}]",
        "data.test=[]", "tokenizer.vocab_size=8000",
    ]  # fmt: skip
    command = [sys.executable, "-m", "transformer_mt.cli", "train", *overrides]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    corpus = Path(dict(line.split("\t") for line in done.stdout.splitlines())["corpus"])
    paths = sorted(corpus.glob("shard-*/*"))  # the report beside them names the source
    return {str(path.relative_to(corpus)): sha256(path) for path in paths}


def repeat(small: Path, large: Path, size: int) -> None:
    """Writes a memory of about ``size`` bytes, with the units of a small one."""
    head, body, tail = re.split(b"(?<=<body>)|(?=</body>)", small.read_bytes())
    with large.open("wb") as file:
        file.write(head)
        for _ in range(max(1, size // len(body))):
            file.write(body)
        file.write(tail)


def measure(path: Path) -> list[str]:
    """A row of the table: reads a memory in a separate process."""
    done = subprocess.run([sys.executable, "-c", READ, path], stdout=subprocess.PIPE, check=True)
    count, seconds, peak = done.stdout.split()
    megabytes, elapsed = path.stat().st_size / 1e6, float(seconds)
    rates = (megabytes / elapsed, int(count) / elapsed)
    return [
        path.name, f"{megabytes:,.0f}", f"{int(count):,}", f"{elapsed:.1f}", f"{rates[0]:.1f}",
        f"{rates[1]:,.0f}", f"{int(peak) / 1024:.0f}",
    ]  # fmt: skip


if __name__ == "__main__":
    run_main(main)
