"""What a user is meant to read."""


class InputError(Exception):
    """Bad input or environment: the message is one line that says what, where, and what to do.

    The command-line programs print it to stderr without a traceback and exit with status 1.
    """


_NO_MEMORY = (
    "can't allocate memory",
    "mkl_malloc",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def lacks_memory(error: Exception) -> bool:
    """Whether memory does not suffice, on whatever device."""
    # By its name, since this file does without PyTorch. On a CPU, and in CUDA's libraries, it is a
    # RuntimeError like any other, but for its text.
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(text in str(error) for text in _NO_MEMORY)


def in_a_line(error: OSError) -> str:
    """What the system refused, and of which file."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([error.strerror or str(error) or repr(error), *names])
