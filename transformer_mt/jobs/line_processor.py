"""What ``mt-translate`` does with every line: translates it, or scores what is given for it."""

from dataclasses import dataclass

from transformer_mt.decode.lines.markup import MarkupTranslator
from transformer_mt.decode.lines.sentences import SentenceTranslator
from transformer_mt.decode.translation import Translation
from transformer_mt.decode.translator import Translator
from transformer_mt.jobs.aligned_file import AlignedFile


@dataclass(frozen=True, kw_only=True)
class Work:
    """A translator, and what is asked of it."""

    translator: Translator
    nbest: int = 1
    """Translations of each line."""
    within: SentenceTranslator | MarkupTranslator | None = None
    """Gives ``translator`` what is within lines; it knows nothing of the settings below."""
    prefixes: AlignedFile | None = None
    """What each translation begins with."""
    targets: AlignedFile | None = None
    """Translations to score; none is made then."""
    align: bool = False
    """Say which words belong together."""

    @property
    def beside(self) -> AlignedFile | None:
        """The file that is read in step with the input."""
        return self.targets or self.prefixes

    @property
    def cut_lines(self) -> int:
        """Lines so far that were too long and translated in parts."""
        return self.translator.cut_lines

    def do(self, lines: list[str], first: int) -> list[list[Translation]]:
        """For each line its translations, best first; the first line has the number given."""
        if self.within is not None:
            return self.within.translate_nbest(lines, self.nbest)
        given = None if self.beside is None else self.beside.take(first, len(lines))
        if self.targets is not None and given is not None:
            return [[scored] for scored in self.translator.score(lines, given)]
        return self.translator.translate_nbest(lines, self.nbest, prefixes=given, align=self.align)
