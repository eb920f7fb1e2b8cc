"""Errors that end a command with one line on stderr and an exit code."""


class UserError(Exception):
    """What the person at the keyboard can mend."""

    code = 2


class WorkLost(UserError):
    """What was done is not there any more."""

    code = 1
