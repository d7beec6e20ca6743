"""What a user is meant to read."""


class InputError(Exception):
    """Bad input or environment: the message is one line that says what, where, and what to do.

    The command-line programs print it to stderr without a traceback and exit with status 1.
    """


def lacks_memory(error: Exception) -> bool:
    """Whether memory does not suffice, on whatever device."""
    # By its name, since this file does without PyTorch. On a CPU it raises a RuntimeError like any
    # other, but for its text.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(text in str(error) for text in ("can't allocate memory", "mkl_malloc"))


def in_a_line(error: OSError) -> str:
    """What the system refused, and of which file."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([error.strerror or str(error) or repr(error), *names])
