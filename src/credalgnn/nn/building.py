"""A bound on the size of modules built from a file's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

SPARE = 100_000  # numbers that any module may hold besides those that are stored
_MAKERS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}


class at_most(TorchFunctionMode):
    """Context in which modules with many more than `numbers` numbers are refused by ValueError before they are made.

    It covers this thread alone, and the shapes that torch is asked for.
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self._left = numbers + SPARE

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if func in _MAKERS:
            size = (kwargs or {}).get("size", args[0] if args and not isinstance(args[0], int) else args)
            self._left -= math.prod(each for each in size if isinstance(each, int))
            if self._left < 0:
                raise ValueError("its hyper-parameters make a larger model than the one that was stored")
        return func(*args, **(kwargs or {}))
