"""Latents of graphs that do not fit in memory: layer by layer, some rows at a time, equal to the whole to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .._memory import let_go, on_disk
from .backbones import BackboneError, Stack
from .edge_rows import EdgeRows
from .layers import Features, MessageLayer
from .sampling import rows_of

ROWS = 1 << 16  # nodes that are computed together


class Scratch:
    """Room for matrices of one row a node: memory while the budget lasts, then files that are mapped into it.

    Args:
        memory: Bytes that may be held in memory.
    """

    def __init__(self, memory: int) -> None:
        self.left = memory
        self._maps: dict[int, NDArray[Any]] = {}

    def matrix(self, rows: int, columns: int) -> Tensor:
        """A float32 matrix to be filled.

        Args:
            rows: How many rows.
            columns: How many columns.
        """
        size = 4 * rows * columns
        if size <= self.left:
            self.left -= size
            return torch.empty(rows, columns)
        array = on_disk((rows, columns))
        tensor = torch.from_numpy(array)
        self._maps[tensor.data_ptr()] = array
        return tensor

    def free(self, matrix: Tensor) -> None:
        """Give back the room of a matrix that nobody reads any more.

        Args:
            matrix: One that ``matrix`` made.
        """
        if self._maps.pop(matrix.data_ptr(), None) is None:
            self.left += 4 * matrix.numel()

    def release(self) -> None:
        """Let the system have the memory that mapped files take; they are read again when asked for."""
        for array in self._maps.values():
            let_go(array)


def check_pieces(backbone: nn.Module) -> None:
    """Refuse a backbone whose layers cannot be computed for some nodes at a time.

    Args:
        backbone: The backbone.
    """
    if type(backbone).forward is not Stack.forward:
        raise BackboneError(
            f"the graph does not fit in memory, and the backbone {type(backbone).__name__} needs all of it at once: "
            "choose backbone='sage' or 'gcn', or allow more memory"
        )


def latents_by_pieces(
    backbone: Stack,
    x: Features,
    edges: EdgeRows,
    scratch: Scratch,
    tell: Callable[[str, float], None] = lambda layer, share: None,
    release: Callable[[], None] = lambda: None,
) -> list[Tensor]:
    """The latents z1 .. zL of all nodes: what ``backbone(x, edges)`` gives, some rows at a time.

    What each node sends is computed and kept for all nodes, then what some of them receive; so memory holds a few rows
    of edges and whatever ``scratch`` leaves in memory.

    Args:
        backbone: Whose dropout is off; ``check_pieces`` has not refused it.
        x: The features of all nodes; perhaps a file that is mapped into memory.
        edges: All edges.
        scratch: Where the latents, and what is sent, find room.
        tell: Hears how far each layer is.
        release: Called between pieces, to let the system have the memory of mapped files.
    """
    latents: list[Tensor] = []
    with torch.no_grad():
        for number, layer in enumerate(backbone.convs, 1):
            before: Features = latents[-1] if latents else x
            made = scratch.matrix(edges.num_nodes, backbone.widths[number - 1])
            name = f"layer {number} of {len(backbone.convs)}"
            if isinstance(layer, MessageLayer):
                sent = scratch.matrix(edges.num_nodes, backbone.widths[number - 1])
                for first, last in _stretches(edges.num_nodes):
                    sent[first:last] = layer.send(_rows(before, first, last))
                    _pause(scratch, release, first)
                for first, last in edges.blocks(rows=ROWS):
                    received = edges.rows(layer.operator, first, last) @ sent
                    made[first:last] = backbone.activated(layer.receive(received, _rows(before, first, last)), number)
                    tell(name, last / edges.num_nodes)
                    _pause(scratch, release, first)
                scratch.free(sent)
            else:
                for first, last in _stretches(edges.num_nodes):
                    made[first:last] = backbone.activated(layer(_rows(before, first, last), edges), number)
                    _pause(scratch, release, first)
            latents.append(made)
    return latents


def _stretches(count: int) -> list[tuple[int, int]]:
    return [(first, min(first + ROWS, count)) for first in range(0, count, ROWS)]


def _rows(x: Features, first: int, last: int) -> Features:
    return rows_of(x, slice(first, last))


def _pause(scratch: Scratch, release: Callable[[], None], first: int) -> None:
    if first // ROWS % 16 == 15:
        scratch.release()
        release()
