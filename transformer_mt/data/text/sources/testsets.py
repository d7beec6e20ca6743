"""Test sets of sacreBLEU, which downloads them if needed."""

from collections.abc import Iterator
from pathlib import Path

from transformer_mt.config import SourceConfig
from transformer_mt.data.text.sources.files import Pair, read_aligned
from transformer_mt.errors import InputError, first_line


def read_testset(source: SourceConfig, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Streams a test set, with the first of its references."""
    assert source.testset is not None
    assert source.langs is not None
    if source.langs == f"{tgt_lang}-{src_lang}":
        raise InputError(
            f"{source} is translated in the other direction than data.src_lang={src_lang}, "
            f"data.tgt_lang={tgt_lang}"
        )
    src, references = testset_files(source.testset, source.langs)
    return read_aligned(str(src), str(references[0]))


def testset_files(name: str, langs: str) -> tuple[Path, list[Path]]:
    """Source and references that ``sacrebleu -t name -l langs`` uses.

    Args:
        name: Name of the test set, e.g. ``wmt14/full``; ``sacrebleu --list`` shows all.
        langs: Source and target language, e.g. ``en-de``.

    Raises:
        InputError: sacreBLEU has no such test set, or cannot download it.
    """
    # Imported here: sacreBLEU is slow to import and takes its folder from the environment.
    from filelock import FileLock
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    if name not in DATASETS:
        raise InputError(f"testset={name}: sacreBLEU has no such test set (sacrebleu --list)")
    known = DATASETS[name].langpairs
    if langs not in known:
        raise InputError(f"testset={name} has no langs={langs}, only: {', '.join(sorted(known))}")
    folder = Path(SACREBLEU_DIR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "transformer_mt.lock"):  # sacreBLEU writes its text files in place
            source = DATASETS[name].get_source_file(langs)
            references = DATASETS[name].get_reference_files(langs)
    except (Exception, SystemExit) as error:  # sacreBLEU exits if a download is damaged
        damaged = isinstance(error, SystemExit)
        reason = "damaged" if damaged else first_line(error)
        raise InputError(
            f"testset={name} is not on this machine and cannot be downloaded "
            f"({reason}): check the connection, or copy {folder / name} from a machine that has it "
            "(to use another folder, set SACREBLEU=FOLDER)"
        ) from error
    return Path(source), [Path(path) for path in references]
