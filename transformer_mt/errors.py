"""The one exception a user is meant to read."""


class InputError(Exception):
    """Bad input or environment: the message is one line that says what, where, and what to do.

    The command-line programs print it to stderr without a traceback and exit with status 1.
    """
