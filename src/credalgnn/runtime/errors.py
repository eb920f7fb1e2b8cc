"""Base of the errors that a user can act on."""


class CredalError(Exception):
    """An error that a user can act on; the message says what is wrong, where, and what to do.

    Messages name Python arguments as `name` or name='value'; commands show flags instead.
    """

    exit_code = 2  # of a command


class ArgumentError(CredalError, ValueError):
    """An argument has a value that is not allowed."""
