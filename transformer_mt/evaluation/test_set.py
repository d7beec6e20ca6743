"""A test set: references, and the source if known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources.testsets import testset_files


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """Line-aligned texts that translations are scored against."""

    __test__ = False  # not a test case for pytest

    references: Mapping[str, Sequence[str]]
    """Reference translations by the name of their file."""
    source: Sequence[str] | None = None
    """Sentences to translate, if known."""
    source_name: str = "the source"
    """Name of the source in error messages."""

    @property
    def texts(self) -> dict[str, Sequence[str]]:
        """All texts by name."""
        source = {} if self.source is None else {self.source_name: self.source}
        return {**self.references, **source}


def load_testset(name: str, langs: str) -> TestSet:
    """Load a sacreBLEU test set, downloading it if necessary; see ``testset_files``."""
    source, references = testset_files(name, langs)
    return TestSet(
        references={path.name: list(read_lines(path)) for path in references},
        source=list(read_lines(source)),
        source_name=source.name,
    )
