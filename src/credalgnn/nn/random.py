"""Random numbers of one training, independent of other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_GLOBAL = threading.Lock()  # on torch's global generators, for the few operators that accept no other


class RngScope(TorchDispatchMode):
    """Context in which all random numbers that this thread draws in torch come from seeded generators.

    Modules of PyG and torch (weights, dropout) only know torch's global generator, which all threads share. Here their
    operators receive another generator on the way to their kernels: it gives the bits that the global one would give
    after ``torch.manual_seed(seed)``, and the global one is not moved. The context may be entered many times and
    continues where it was left. Operators cost some microseconds more inside, so enter it only where something may be
    drawn.

    Args:
        seed: Seed of the generators, one per device.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def state(self) -> dict[str, Tensor]:
        """State of each generator, by device; ``restore`` continues from it."""
        return {str(device): generator.get_state() for device, generator in self._generators.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue where another scope was.

        Args:
            state: Result of its ``state``.
        """
        for name, value in state.items():
            device = torch.device(name)
            self._generators[device] = torch.Generator(device)
            self._generators[device].set_state(value)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # of torch: a wrapper around what follows, which would take half of its time
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if not _is_random(func) or options.get("generator") is not None:
            return func(*args, **options)
        tensor = next((value for value in args if isinstance(value, Tensor)), None)
        device = torch.device(options.get("device") or ("cpu" if tensor is None else tensor.device))
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        generator, overload = self._generators[device], _overload_with_generator(func)
        if overload is not None:
            return overload(*args, **{**options, "generator": generator})
        with _GLOBAL:
            shared = _global_generator(device)
            before = shared.get_state()
            shared.set_state(generator.get_state())
            try:
                return func(*args, **options)
            finally:
                generator.set_state(shared.get_state())
                shared.set_state(before)


def rng_state(device: str, *key: int) -> dict[str, Tensor]:
    """State of an ``RngScope`` for a key: processes with the same weights drop different units."""
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))
    indexed = torch.empty(0, device=device).device  # with its number, where there are several
    return {str(each): torch.Generator(each).manual_seed(seed).get_state() for each in {torch.device("cpu"), indexed}}


@cache
def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def _overload_with_generator(func: Any) -> Callable[..., Any] | None:
    """Return the operator, or its overload, that takes a generator; None if there is none."""
    name = "generator" if func._overloadname == "default" else f"{func._overloadname}_generator"
    for each in (func, getattr(func.overloadpacket, name, None)):
        if each is not None and any(argument.name == "generator" for argument in each._schema.arguments):
            overload: Callable[..., Any] = each
            return overload
    return None


def _global_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    module: Any = torch.get_device_module(device)
    generator: torch.Generator = module.default_generators[device.index or 0]
    return generator
