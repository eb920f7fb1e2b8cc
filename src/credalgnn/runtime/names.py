"""What to say to a name that nobody knows: the nearest that there is, or all of them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 100  # letters of a name that are compared: what is longer is no typo


def suggestion(name: str, known: Iterable[str]) -> str:
    """A remedy for an unknown name: ``did you mean credal-lj?``, or what there is if nothing is near.

    Args:
        name: The name that is not known.
        known: Those that are.
    """
    by_lower = {each.lower(): each for each in known}
    near = get_close_matches(name.lower()[:LONGEST], by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_lower[near[0]]}?"
    return f"choose from {', '.join(by_lower.values())}" if by_lower else "there are none"
