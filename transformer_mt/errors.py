"""User-facing errors."""


class InputError(Exception):
    """Bad input or environment; the message is one line: what is wrong, where, and what to do.

    The commands print it to standard error without a traceback and exit with status 1.
    """


class UsageError(InputError):
    """Arguments that cannot be parsed, name no setting or lack a required one: exit status 2."""


def printable(text: str) -> str:
    """The text with unprintable characters escaped, which could control a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's name if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_OUT_OF_MEMORY = (
    "can't allocate memory",
    "mkl_malloc",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: Exception) -> bool:
    """Whether the error means that the memory of a device is exhausted."""
    # torch.OutOfMemoryError by its name, because this module does not import PyTorch. On a CPU and
    # in CUDA's libraries the error is a plain RuntimeError that only its message tells apart.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return any(text in str(error) for text in _OUT_OF_MEMORY)


def environment_error(error: Exception) -> str | None:
    """One line about an error that the machine or its limits have caused; None for other errors."""
    if isinstance(error, OSError):
        return format_os_error(error)
    if is_out_of_memory(error):
        return f"out of memory ({first_line(error)}): use a smaller model, or smaller batches"
    if "no kernel image is available" in str(error):
        remedy = "install one that has (README.md, Install), or train and translate on the CPU"
        return f"this build of PyTorch has no code for this GPU: {remedy}"
    if "failed to map segment from shared object" in str(error):
        remedy = "raise ulimit -v, or allow execution in its folder"
        return f"cannot load a library ({first_line(error)}): {remedy}"
    if "can't start new thread" in str(error):
        return "cannot start a thread: raise ulimit -v (memory) or -u (processes)"
    if "Symlink loop" in str(error):  # Path.resolve until Python 3.12
        return first_line(error)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return not_utf8(error)
    return None


def not_utf8(error: UnicodeEncodeError) -> str:
    """One line about a name that is not valid UTF-8."""
    wrong = ascii(error.object[max(0, error.start - 40) : error.end + 40])
    return f"not valid UTF-8: {wrong}; rename the file or folder, or correct the argument"


def format_os_error(error: OSError) -> str:
    """An operating system error as one line: the reason and the files."""
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return ": ".join([error.strerror or str(error) or repr(error), *names])
