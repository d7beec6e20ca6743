"""What translations are measured against: references, and the source where it is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformer_mt.data.text.lines import read_lines
from transformer_mt.data.text.sources.testsets import testset_files


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
    """A test set of sacreBLEU: see ``testset_files``."""
    source, references = testset_files(name, langs)
    return TestSet(
        references={path.name: list(read_lines(path)) for path in references},
        source=list(read_lines(source)),
        source_name=source.name,
    )
