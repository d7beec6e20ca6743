"""User-facing errors, which have one line."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from transformer_mt.errors import InputError


@contextmanager
def input_error(match: str | None = None) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """The block must raise an ``InputError`` of one line, which matches a pattern."""
    with pytest.raises(InputError, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)
