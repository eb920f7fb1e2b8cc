"""What the person at the keyboard can mend."""


class UserError(Exception):
    """Printed as one line, exit code 2."""
