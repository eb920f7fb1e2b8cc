"""Latents of graphs that do not fit in memory: layer by layer, some rows at a time, equal to the whole to rounding."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..runtime.memory import let_go, on_disk
from .backbones import BackboneError, Stack
from .edge_rows import EdgeRows
from .layers import Features, MessageLayer, rows_of

ROWS = 1 << 16  # nodes that are computed together
LEAVE = 0.5  # of the memory that is left is not for latents, but for what nodes send
PAUSE = 4  # stretches of nodes after which mapped pages are given back


class Scratch:
    """Room for matrices of one row a node: memory while the budget lasts, then files that are mapped into it.

    What others hold at the same time is part of the budget: the ten members of an ensemble have one between them.

    Args:
        memory: Bytes that may be held in memory, by all of this process.
    """

    _held: ClassVar[weakref.WeakKeyDictionary[Scratch, int]] = weakref.WeakKeyDictionary()

    def __init__(self, memory: int) -> None:
        self.left = max(0, memory - self.held())
        self._maps: dict[int, NDArray[Any]] = {}

    @classmethod
    def held(cls) -> int:
        """Bytes of all matrices of this process that are in memory and still in use."""
        return sum(cls._held.values())

    def matrix(self, rows: int, columns: int, leave: float = 0.0) -> Tensor:
        """A float32 matrix to be filled.

        Args:
            rows: How many rows.
            columns: How many columns.
            leave: The share of the memory that must be left for others, or else it is a file.
        """
        size = 4 * rows * columns
        if size <= self.left * (1.0 - leave):
            self.left -= size
            self._held[self] = self._held.get(self, 0) + size
            return torch.empty(rows, columns)
        array = on_disk((rows, columns))
        tensor = torch.from_numpy(array)
        self._maps[tensor.data_ptr()] = array
        return tensor

    def files_for(self, rows: int, widths: Sequence[int], leave: float = 0.0) -> int:
        """Bytes of the files that some matrices would need, one after another.

        Args:
            rows: Of each.
            widths: Their columns.
            leave: See ``matrix``.
        """
        left, files = self.left, 0
        for size in (4 * rows * width for width in widths):
            fits = size <= left * (1.0 - leave)
            left, files = left - size * fits, files + size * (not fits)
        return files

    def groups(self, rows: int, columns: int) -> list[slice]:
        """Columns of a matrix in groups of about the same size, each of which memory holds.

        Args:
            rows: Of the matrix.
            columns: Of the matrix.
        """
        fit = max(1, min(columns, self.left // (4 * rows)))
        count = -(-columns // fit)
        ends = [columns * number // count for number in range(count + 1)]
        return [slice(*pair) for pair in pairwise(ends)]

    def release(self) -> None:
        """Let the system have the memory that mapped files take; they are read again when asked for."""
        for array in self._maps.values():
            let_go(array)


def check_chunks(backbone: nn.Module) -> None:
    """Refuse a backbone whose layers cannot be computed for some nodes at a time.

    Args:
        backbone: The backbone.
    """
    if type(backbone).forward is not Stack.forward:
        raise BackboneError(
            f"the graph does not fit in memory, and the backbone {type(backbone).__name__} needs all of it at once: "
            "choose backbone='sage', 'gcn' or 'gin', or allow more memory"
        )


def latents_by_chunks(
    backbone: Stack,
    x: Features,
    edges: EdgeRows,
    scratch: Scratch,
    tell: Callable[[str, float], None] = lambda layer, share: None,
    release: Callable[[], None] = lambda: None,
) -> list[Tensor]:
    """The latents z1 .. zL of all nodes: what ``backbone(x, edges)`` gives, some rows at a time.

    What each node sends is computed and kept for all nodes, as many columns of it at a time as memory holds, and then
    what they receive; so memory holds these columns and a few rows of everything else.

    Args:
        backbone: Whose dropout is off; ``check_chunks`` has not refused it.
        x: The features of all nodes; perhaps a file that is mapped into memory.
        edges: All edges.
        scratch: Where the latents, and what is sent, find room.
        tell: Hears how far each layer is.
        release: Called between chunks, to let the system have the memory of mapped files.
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
                    tell(name, 0.9 * columns.stop / width)
            for first, last in _stretches(edges.num_nodes):
                made[first:last] = latent_of(backbone, number, made[first:last], rows_of(before, slice(first, last)))
                _pause(scratch, release, first)
            tell(name, 1.0)
            latents.append(made)
    return latents


def latent_of(backbone: Stack, number: int, received: Tensor, own: Features) -> Tensor:
    """The latents of some nodes behind a layer; ``received`` may be overwritten.

    Args:
        backbone: Whose layer.
        number: Of the layer, from 1.
        received: What the nodes receive along their edges; of a layer that sends nothing it is not looked at.
        own: The latents, or features, of these nodes before the layer.
    """
    layer = backbone.convs[number - 1]
    z = layer.receive(received, own) if isinstance(layer, MessageLayer) else layer(own, None)
    return backbone.activated(z, number)


def received_by(layer: MessageLayer, edges: EdgeRows, first: int, last: int, sent: Tensor) -> Tensor:
    """What consecutive nodes receive along their edges.

    Args:
        layer: Whose operator.
        edges: All edges.
        first: The first of the nodes.
        last: The node behind the last one.
        sent: What all nodes send, or some columns of it.
    """
    return edges.rows(layer.operator, first, last) @ sent


def _receive(
    layer: MessageLayer,
    before: Features,
    edges: EdgeRows,
    made: Tensor,
    columns: slice,
    scratch: Scratch,
    release: Callable[[], None],
) -> None:
    """Some columns of what all nodes receive, into ``made``."""
    sent = torch.empty(edges.num_nodes, columns.stop - columns.start)
    for first, last in _stretches(edges.num_nodes):
        sent[first:last] = layer.send(rows_of(before, slice(first, last)), columns)
        _pause(scratch, release, first)
    for number, (first, last) in enumerate(edges.blocks(rows=ROWS)):
        made[first:last, columns] = received_by(layer, edges, first, last, sent)
        _pause(scratch, release, number * ROWS)


def _stretches(count: int) -> list[tuple[int, int]]:
    return [(first, min(first + ROWS, count)) for first in range(0, count, ROWS)]


def _pause(scratch: Scratch, release: Callable[[], None], first: int) -> None:
    if first // ROWS % PAUSE == PAUSE - 1:
        scratch.release()
        release()
