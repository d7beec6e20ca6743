"""Arguments in the grammar of Hydra: texts are kept as they were typed."""

import re
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from antlr4 import CommonTokenStream, InputStream
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.grammar.gen.OverrideLexer import OverrideLexer
from hydra.grammar.gen.OverrideParser import OverrideParser
from hydra.grammar.gen.OverrideParserVisitor import OverrideParserVisitor

from transformer_mt.config import JOBS, Command, SourceConfig

_NUMBER = r"[+-]?(?:inf|nan|[\d._]+(?:e[+-]?\d+)?)"
_PLAIN = re.compile(rf"(?!(?:null|true|false|{_NUMBER})$)[\w./:@+-]+", re.IGNORECASE | re.ASCII)
"""Text that Hydra reads as it is, without quotes."""


def override(key: str, value: object) -> str:
    """The argument ``key=value`` of a command that sets a setting to exactly this value.

    The exception is text with ``${``, which Hydra reads as an interpolation.

    Args:
        key: The name of the setting.
        value: None, a number, text, a path, a data source, or a list of them.
    """
    return f"{key}={_argument(value)}"


def _argument(value: object) -> str:
    if isinstance(value, SourceConfig):
        fields = [f"{k}: {quoted(v)}" for k, v in asdict(value).items() if v is not None]
        return f"{{{', '.join(fields)}}}"
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, int | float):
        return str(value)
    text = str(value)
    return text if _PLAIN.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """The text in the quotes of Hydra's grammar."""
    return QuotedString(text, Quote.double).with_quotes()


def with_exact_texts(
    overrides: Sequence[str], command: Command, *, sweep: bool = False
) -> list[str]:
    """Quotes the texts among the arguments, so that Hydra's grammar takes them as they were typed.

    Without, ``output=1.50`` would name a file ``1.5``, and a sentence would need two pairs of
    quotes. A value in quotes is left to Hydra, and so are, for texts that may be null, ``null``,
    and in a sweep commas and functions: there, and in lists, only numbers and truth values are
    quoted.

    Args:
        overrides: Arguments, ``key=value``.
        command: The command.
        sweep: Whether they are those of a sweep.
    """
    return [_with_exact_text(argument, JOBS[command], sweep) for argument in overrides]


def _with_exact_text(argument: str, job: type, sweep: bool) -> str:
    name, _, text = argument.partition("=")
    kind: Any = job
    for field in name.lstrip("+").split("."):
        kind = get_type_hints(kind).get(field) if is_dataclass(kind) else None
    if list in (get_origin(kind), *map(get_origin, get_args(kind))):
        return _with_quoted_numbers(argument)
    if kind is not str and str not in get_args(kind):
        return argument
    if sweep:
        return _with_quoted_numbers(argument)
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    is_null = kind is not str and text.lower() == "null"
    return argument if is_quoted or is_null or not text else f"{name}={quoted(text)}"


def _with_quoted_numbers(argument: str) -> str:
    """The argument with quotes around each number and truth value in it."""
    lexer = OverrideLexer(InputStream(argument))
    parser = OverrideParser(CommonTokenStream(lexer))
    for recognizer in (lexer, parser):
        recognizer.removeErrorListeners()
    numbers = _Numbers()
    numbers.visit(parser.override())
    if parser.getNumberOfSyntaxErrors():
        return argument  # which Hydra reports
    for token in reversed(numbers.tokens):
        argument = f'{argument[: token.start]}"{token.text}"{argument[token.stop + 1 :]}'
    return argument


class _Numbers(OverrideParserVisitor):
    """Collects the values in an argument that Hydra would read as numbers or truth values."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []

    def visitPrimitive(self, ctx: Any) -> None:  # noqa: N802
        """Collects a value that is one word."""
        tokens = [child.symbol for child in ctx.getChildren()]
        words = [token for token in tokens if token.type != OverrideLexer.WS]
        if len(words) == 1 and words[0].type in (
            OverrideLexer.INT,
            OverrideLexer.FLOAT,
            OverrideLexer.BOOL,
        ):
            self.tokens += words
