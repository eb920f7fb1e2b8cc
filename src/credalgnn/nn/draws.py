"""Random draws of one training: from generators of its own, whatever other threads draw and seed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_GLOBAL = threading.Lock()  # on torch's global generators, for the few operators that know no others


class RngScope(TorchDispatchMode):
    """Inside, and in this thread alone, all that torch draws comes from generators that were seeded here.

    Modules of PyG and torch (weights, dropout) only know torch's global generator, which all threads share. Here their
    operators are handed another one on the way to their kernels: it gives the bits that the global one would give after
    ``torch.manual_seed(seed)``, and the global one is not moved. It may be entered many times, and goes on where it
    was left. Operators cost some microseconds more inside, so one enters it where something may be drawn.

    Args:
        seed: Of the generators, one a device.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def state(self) -> dict[str, torch.Tensor]:
        """How far it has drawn, by device; ``restore`` goes on from there."""
        return {str(device): generator.get_state() for device, generator in self._generators.items()}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on where another one was.

        Args:
            state: What its ``state`` gave.
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
        given = kwargs or {}
        if not _is_random(func) or given.get("generator") is not None:
            return func(*args, **given)
        tensor = next((value for value in args if isinstance(value, torch.Tensor)), None)
        device = torch.device(given.get("device") or ("cpu" if tensor is None else tensor.device))
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        own, seeded = self._generators[device], _with_generator(func)
        if seeded is not None:
            return seeded(*args, **{**given, "generator": own})
        with _GLOBAL:
            common = _global(device)
            before = common.get_state()
            common.set_state(own.get_state())
            try:
                return func(*args, **given)
            finally:
                own.set_state(common.get_state())
                common.set_state(before)


@cache
def _is_random(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags


@cache
def _with_generator(func: Any) -> Callable[..., Any] | None:
    """The operator, or its overload, that takes a generator; None: there is none."""
    name = "generator" if func._overloadname == "default" else f"{func._overloadname}_generator"
    for each in (func, getattr(func.overloadpacket, name, None)):
        if each is not None and any(argument.name == "generator" for argument in each._schema.arguments):
            found: Callable[..., Any] = each
            return found
    return None


def _global(device: torch.device) -> torch.Generator:
    """Torch's own generator of a device."""
    if device.type == "cpu":
        return torch.default_generator
    module: Any = torch.get_device_module(device)
    generator: torch.Generator = module.default_generators[device.index or 0]
    return generator
