"""Lines in capitals, which are translated in their usual case.

A model knows "MAN" as another word than "man", or spells it letter by letter, so that it translates
text in capitals to nonsense unless much of its training text was in capitals.
"""

import re

from transformer_mt.data.subwords.tokenizer import Tokenizer
from transformer_mt.data.text.tags import add_tag, split_tag

_MIN_LETTERS = 4
"""A line with fewer letters is more likely an abbreviation (TV, USA), or "I"."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_SENTENCE_START = re.compile(r"(?:^(?=.*[^\w'’])|[.!?…]\s)\W*[^\W\d_]")


def usual_case(line: str, tokenizer: Tokenizer) -> str:
    """A source line in capitals as it would usually be written; any other line as it is.

    Each word is written as the source vocabulary knows it best: in lower case, with a capital first
    letter (names, German nouns, "I") or in capitals, whichever has the fewest pieces or, if tied,
    the lowest ids, of the most frequent pieces. Sentences of several words start with a capital.
    """
    tag, text = split_tag(line, tokenizer.tags)
    if not text.isupper() or sum(map(str.isalpha, text)) < _MIN_LETTERS:
        return line

    def best_known(match: re.Match[str]) -> str:
        forms = match[0].lower(), match[0].capitalize(), match[0]
        return min(forms, key=lambda form: (len(ids := tokenizer.encode(form)), *ids))

    text = _SENTENCE_START.sub(lambda match: match[0].upper(), _WORD.sub(best_known, text))
    return add_tag(tag, text)
