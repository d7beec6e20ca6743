"""What translations are measured against: references, and the source where it is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.text import read_lines
from transformer_mt.errors import InputError


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """Lines that belong together by their number."""

    __test__ = False  # no test case of pytest's

    references: Mapping[str, Sequence[str]]
    """By the name of their file."""
    source: Sequence[str] | None = None
    """The lines to translate, if they are known."""
    source_name: str = "the source"
    """Its file, for errors."""

    @property
    def texts(self) -> dict[str, Sequence[str]]:
        """All texts by name."""
        source = {} if self.source is None else {self.source_name: self.source}
        return {**self.references, **source}


def load_testset(name: str, langs: str) -> TestSet:
    """A test set as ``sacrebleu -t name -l langs`` reads it, downloaded if it is not there yet.

    Args:
        name: Such as ``wmt14/full``; ``sacrebleu --list`` shows them all.
        langs: Source and target language, such as ``en-de``.

    Raises:
        InputError: There is no such set, or this machine does not have it and cannot get it.
    """
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
        with FileLock(folder / "transformer_mt.lock"):  # it writes its text files in place
            source = DATASETS[name].get_source_file(langs)
            references = DATASETS[name].get_reference_files(langs)
    except (Exception, SystemExit) as error:  # it exits where a download is damaged
        reason = "damaged" if isinstance(error, SystemExit) else type(error).__name__
        raise InputError(
            f"testset={name} is not on this machine and cannot be downloaded "
            f"({reason}): copy {folder / name} from a machine that has it "
            "(another folder: SACREBLEU=FOLDER)"
        ) from error
    return TestSet(
        references={Path(path).name: list(read_lines(path)) for path in references},
        source=list(read_lines(source)),
        source_name=Path(source).name,
    )
