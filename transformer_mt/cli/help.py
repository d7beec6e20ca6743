"""The text of ``--help``.

Settings, defaults and meanings come from the config dataclasses, groups and examples from
``configs/``.
"""

import textwrap
from collections.abc import Iterable, Iterator

from transformer_mt.cli import PROGRAMS
from transformer_mt.cli.compose import compose_config
from transformer_mt.cli.settings import Section, first_sentence, sections
from transformer_mt.config import Command

_WIDTH = 80
_COLUMN = 30
"""Column at which descriptions begin."""
_EXIT_STATUS = """Exit status: 0 done, 1 bad input or environment, 2 bad usage,
130 and 143 interrupted (Ctrl-C, SIGTERM)."""


def help_text(command: Command) -> str:
    """Examples, and every setting with its default, in 80 columns."""
    program, config = PROGRAMS[command], compose_config(command)
    more = (
        (f"{program} --cfg job", "every setting and its value"),
        (f"{program} -m KEY=A,B", "a sweep: a job for each value"),
        ("--config-dir FOLDER", "options in a folder of your own"),
        ("--config-name NAME", "another main file, such as a run's config"),
        (f'eval "$({program} -sc install=bash)"', "completion in bash (also zsh, fish)"),
    )
    blocks = [
        [str(config.hydra.help.header).strip()],
        *map(_help_section, sections(command, config)),
        ["More", *_rows(more)],
        [_EXIT_STATUS],
    ]
    return "\n\n".join("\n".join(lines) for lines in blocks)


def _help_section(section: Section) -> list[str]:
    title = "Settings (KEY=VALUE; quote 'KEY=[...]' and values with commas or spaces)"
    if section.title:
        meaning = first_sentence(section.meaning).replace("``", "").rstrip(".")
        title = f"{section.title}: {meaning}"
    texts = dict[str, str]()
    for setting in section.settings:
        folder, slash, option = setting.key.rpartition("/")
        if slash:  # many options, such as the rows of Table 3, in one row
            key = f"{folder}/…"
            texts[key] = f"{texts[key]}, {option}" if key in texts else f"One of: {option}"
        else:
            default = "" if setting.default is None else f"={setting.default}"
            texts[f"{setting.key}{default}"] = setting.meaning
    return [*textwrap.wrap(title, _WIDTH, break_on_hyphens=False), *_rows(texts.items())]


def _rows(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Two columns, of which the second has the first sentence of each text.

    A name that is too long has a line of its own.
    """
    for name, text in pairs:
        wrapped = textwrap.wrap(
            first_sentence(text).replace("``", ""),
            _WIDTH - _COLUMN,
            break_on_hyphens=False,
            break_long_words=False,
        )
        first, *more = wrapped or [""]
        if len(name) + 4 > _COLUMN:
            yield f"  {name}"
            name = ""
        yield f"  {name:<{_COLUMN - 2}}{first}".rstrip()
        yield from (" " * _COLUMN + line for line in more)
