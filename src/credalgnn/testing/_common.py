"""What the checks of methods and data sets share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
import torch

from ..graphs import Dataset
from ..methods import CredalWarning


def fail(what: type | Dataset, problem: str, remedy: str) -> NoReturn:
    """Say what is wrong.

    Args:
        what: The class or the data set.
        problem: With it.
        remedy: What to do.
    """
    name = what.__qualname__ if isinstance(what, type) else what.name
    raise AssertionError(f"{name}: {problem}: {remedy}")


@contextmanager
def sandbox() -> Iterator[None]:
    """Leave the global random generators as they were, and be silent about credal sets of short trainings."""
    state = np.random.get_state()  # noqa: NPY002  # what a method should not have used
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", CredalWarning)
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
