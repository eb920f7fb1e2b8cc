"""Latents of graphs that do not fit in memory, computed layer by layer for some nodes at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..runtime.memory import let_go, on_disk
from .adjacency import Adjacency
from .backbones import BackboneError, Stack
from .layers import Features, MessageLayer, rows_of

ROWS = 1 << 16  # nodes that are computed together
LEAVE = 0.5  # share of the free memory that is not for latents, but for what nodes send
PAUSE = 4  # chunks of nodes after which mapped pages are released


class Scratch:
    """Storage for matrices of one row per node: in memory within a budget, beyond it in mapped temporary files.

    The budget is shared by all instances of the process, such as those of an ensemble's members.

    Args:
        memory: Bytes that may be used in memory, by all of this process.
    """

    _in_use: ClassVar[weakref.WeakKeyDictionary[Scratch, int]] = weakref.WeakKeyDictionary()

    def __init__(self, memory: int) -> None:
        self.left = max(0, memory - self.held())
        self._maps: dict[int, NDArray[Any]] = {}

    @classmethod
    def held(cls) -> int:
        """Return the bytes of all matrices of this process that are in memory and still in use."""
        return sum(cls._in_use.values())

    def matrix(self, rows: int, columns: int, leave: float = 0.0) -> Tensor:
        """Return an empty float32 matrix: a file if less than the share `leave` of the memory would be left."""
        size = 4 * rows * columns
        if size <= self.left * (1.0 - leave):
            self.left -= size
            self._in_use[self] = self._in_use.get(self, 0) + size
            return torch.empty(rows, columns)
        array = on_disk((rows, columns))
        tensor = torch.from_numpy(array)
        self._maps[tensor.data_ptr()] = array
        return tensor

    def files_for(self, rows: int, widths: Sequence[int], leave: float = 0.0) -> int:
        """Return the bytes of the files that ``matrix`` would make for these numbers of columns, one after another."""
        left, files = self.left, 0
        for size in (4 * rows * width for width in widths):
            fits = size <= left * (1.0 - leave)
            left, files = left - size * fits, files + size * (not fits)
        return files

    def groups(self, rows: int, columns: int) -> list[slice]:
        """Split the columns of a matrix into groups of about the same size that fit in memory."""
        fit = max(1, min(columns, self.left // (4 * rows)))
        count = -(-columns // fit)
        ends = [columns * number // count for number in range(count + 1)]
        return [slice(*pair) for pair in pairwise(ends)]

    def release(self) -> None:
        """Release the memory of mapped files, which are read again when needed."""
        for array in self._maps.values():
            let_go(array)


def check_chunks(backbone: nn.Module) -> None:
    """Refuse a backbone whose layers cannot be computed for some nodes at a time."""
    if type(backbone).forward is not Stack.forward:
        raise BackboneError(
            f"the graph does not fit in memory, and the backbone {type(backbone).__name__} needs all of it at once: "
            "choose backbone='sage', 'gcn', 'gin' or 'mlp', or allow more memory"
        )


def latents_by_chunks(
    backbone: Stack,
    x: Features,
    edges: Adjacency,
    scratch: Scratch,
    report: Callable[[str, float], None] = lambda layer, share: None,
    release: Callable[[], None] = lambda: None,
) -> list[Tensor]:
    """Return the latents z1 .. zL of all nodes, equal to ``backbone(x, edges)`` up to rounding.

    What each node sends is computed for all nodes, as many columns at a time as memory holds, and then what they
    receive: memory holds these columns and a few rows of everything else.

    Args:
        backbone: Backbone in evaluation, accepted by ``check_chunks``.
        x: Features of all nodes, perhaps mapped from a file.
        edges: All edges.
        scratch: Storage of latents and sent columns.
        report: Called with the name of a layer and the share of it that is done.
        release: Called between chunks, to release the memory of mapped files.
    """
    latents: list[Tensor] = []
    with torch.no_grad():
        for number, layer in enumerate(backbone.convs, 1):
            before: Features = latents[-1] if latents else x
            name, width = f"layer {number} of {len(backbone.convs)}", backbone.widths[number - 1]
            made = scratch.matrix(edges.num_nodes, width, LEAVE)
            if isinstance(layer, MessageLayer):
                for columns in scratch.groups(edges.num_nodes, width):
                    _receive(layer, before, edges, made, columns, scratch, release)
                    report(name, 0.9 * columns.stop / width)
            for rows in _chunks(edges.num_nodes, scratch, release):
                made[rows] = latent_of(backbone, number, made[rows], rows_of(before, rows))
            report(name, 1.0)
            latents.append(made)
    return latents


def latent_of(backbone: Stack, number: int, received: Tensor, x: Features) -> Tensor:
    """Return the latents of some nodes after layer `number` (from 1); ``received`` may be overwritten.

    Args:
        backbone: The backbone.
        number: Number of the layer.
        received: What the nodes receive along their edges; not read of a layer without message passing.
        x: Latents, or features, of these nodes before the layer.
    """
    layer = backbone.convs[number - 1]
    z = layer.receive(received, x) if isinstance(layer, MessageLayer) else layer(x, None)
    return backbone.activated(z, number)


def _receive(
    layer: MessageLayer,
    before: Features,
    edges: Adjacency,
    made: Tensor,
    columns: slice,
    scratch: Scratch,
    release: Callable[[], None],
) -> None:
    """Write some columns of what all nodes receive into ``made``."""
    sent = torch.empty(edges.num_nodes, columns.stop - columns.start)
    for rows in _chunks(edges.num_nodes, scratch, release):
        sent[rows] = layer.send(rows_of(before, rows), columns)
    for number, (first, last) in enumerate(edges.edges.chunks(max_nodes=ROWS), 1):
        made[first:last, columns] = edges.rows(layer.operator, first, last) @ sent
        if number % PAUSE == 0:
            scratch.release()
            release()


def _chunks(count: int, scratch: Scratch, release: Callable[[], None]) -> Iterator[slice]:
    """Yield slices of nodes; release mapped files between some of them."""
    for number, first in enumerate(range(0, count, ROWS), 1):
        yield slice(first, min(first + ROWS, count))
        if number % PAUSE == 0:
            scratch.release()
            release()
