"""Memory estimates, and the out-of-memory path of networks: mini-batches to train, chunks to predict."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn.backbones import BackboneError, Features, Stack
from ..nn.chunks import LEAVE, Scratch, check_chunks, latents_by_chunks
from ..nn.layers import rows_of
from ..nn.training import Classifier, Output
from ..runtime.context import Context
from ..runtime.errors import translated
from ..runtime.memory import available_memory, in_units, parse_memory, resident_memory, temporary_folder
from ..runtime.progress import Progress
from ..runtime.warn import warn_caller
from .inputs import inputs_by_rows
from .prediction import MethodError

if TYPE_CHECKING:
    from .cluster import Tasks

BATCH = 1024  # default number of training nodes of a mini-batch
VALIDATION = 10_000  # validation nodes that early stopping with mini-batches looks at
PROGRAM = 400 << 20  # bytes that torch and its kernels take
CHUNK = 1 << 10  # nodes whose outputs are computed together
SCATTERED = 1 << 7  # ... if they are not consecutive: each may map half a MiB of every file of latents


class MemoryWarning(UserWarning):
    """A graph does not fit in the memory budget, so that mini-batches are used."""


def training_bytes(graph: Graph, widths: list[int]) -> int:
    """Estimate the bytes of full-batch training: features, operators and their transposes, latents, gradients.

    `widths` are those of the latents and of the head's output.
    """
    return held_bytes(graph) + 12 * graph.num_nodes * sum(widths) + 8 * graph.num_nodes * max(widths)


def prediction_bytes(graph: Graph, widths: list[int]) -> int:
    """Estimate the bytes of a prediction that holds the whole graph and all latents."""
    return (
        held_bytes(graph)
        + 4 * graph.num_nodes * (sum(widths) + max(widths))
        + answer_bytes(graph.num_nodes, widths[-1])
    )


def answer_bytes(count: int, num_classes: int) -> int:
    """Estimate the bytes of the predictions of `count` nodes, and of what they are computed from."""
    return 48 * count * num_classes


def held_bytes(graph: Graph) -> int:
    """Estimate the bytes of a graph in memory with the operators made of its edges."""
    x = graph.features
    features = 8 * x.values().numel() if x.layout == torch.sparse_csr else 4 * x.numel()
    return PROGRAM + features + 40 * graph.num_edges


def fits(graph: Graph, num_classes: int, memory: int | None) -> bool:
    """Return whether a graph and a prediction of all its nodes fit in memory, with a network of usual size."""
    return prediction_bytes(graph, [64, 64, num_classes]) <= (available_memory() if memory is None else memory)


def keep_within(memory: int | None, graph: Graph) -> Callable[[], None] | None:
    """Return a callback that releases the pages of a packed graph when the process holds too much; None if needless.

    Without a budget nothing is released, as the system takes what it needs.
    """
    if memory is None or graph.path is None:
        return None

    def check() -> None:
        if resident_memory() > 0.8 * memory:
            graph.release()

    return check


def refusal(needed: int, allowed: int) -> str:
    """Return how many bytes are needed and allowed, for messages."""
    return f"takes about {in_units(needed)}, and {in_units(allowed)} may be used"


def budget_of(memory: str | int | None) -> int | None:
    """Return a budget such as ``"4GiB"`` in bytes; None stands for what is available when it is needed."""
    with translated(ValueError, lambda error: MethodError(f"memory: {error}")):
        return None if memory is None else parse_memory(memory)


def batch_size_for(name: str, module: Classifier, graph: Graph, context: Context, widths: list[int]) -> int | None:
    """Return the default batch size: None, full batches, if memory allows."""
    needed, allowed = training_bytes(graph, widths), context.allowed
    if needed <= allowed:
        return None
    with translated(BackboneError, lambda error: MethodError(str(error))):
        check_chunks(module.backbone)
    warn_caller(
        f"{name}: training on the whole graph at once {refusal(needed, allowed)}: mini-batches of {BATCH:,} "
        "nodes with sampled neighbours are trained on instead (batch_size= and fanouts= choose others)",
        MemoryWarning,
    )
    return BATCH


def check_prediction(module: Classifier, graph: Graph, context: Context, widths: list[int]) -> None:
    """Refuse, before training, a graph whose prediction would need chunks that are not possible."""
    if prediction_bytes(graph, widths) <= context.allowed:
        return
    with translated(BackboneError, lambda error: MethodError(str(error))):
        check_stored(module, graph, (widths if context.logits else widths[:-1]) * context.networks, context.memory)


def check_stored(module: Classifier, graph: Graph, widths: list[int], memory: int | None) -> None:
    """Refuse outputs by chunks of a backbone that needs the whole graph, or without disk space for them.

    `widths` are those of everything stored for each node.
    """
    check_chunks(module.backbone)
    needed = _scratch(_budget(memory)).files_for(graph.num_nodes, widths, LEAVE)
    folder = temporary_folder()
    if needed > (free := shutil.disk_usage(folder).free):
        raise MethodError(
            f"the outputs of {graph.num_nodes:,} nodes need {in_units(needed)} of temporary files, and {folder} has "
            f"{in_units(free)} free: make room, set TMPDIR to another folder, or allow more memory"
        )


def _budget(memory: int | None) -> int:
    """Return the bytes that may be used, including those of latents of this process."""
    return available_memory() + Scratch.held() if memory is None else memory


def _scratch(memory: int) -> Scratch:
    return Scratch(int(0.6 * (memory - PROGRAM)))


class StoredOutputs:
    """Outputs and latents of all nodes of one graph, computed by chunks; what memory does not hold is in files.

    Args:
        module: Network in evaluation.
        graph: In memory or packed.
        memory: Memory budget in bytes; None: what is available.
        progress: Show a bar; None: on a terminal, after a few seconds.
        cluster: Cluster that computes the latents; None: this process.
    """

    def __init__(
        self,
        module: Classifier,
        graph: Graph,
        memory: int | None,
        progress: bool | None = None,
        cluster: Tasks | None = None,
    ) -> None:
        check_chunks(module.backbone)
        self._release = graph.release
        self._memory = _budget(memory)
        self._module = copy.deepcopy(module).cpu()  # where rows are read, and latents stored
        backbone = self._module.backbone
        assert isinstance(backbone, Stack)
        x, edges = inputs_by_rows(graph)
        self._scratch = _scratch(self._memory)
        self._logits: Tensor | None = None
        try:
            with Progress(100, "latents", "%", progress) as shown:

                def report(layer: str, share: float) -> None:
                    shown.update(int(100 * share), label=layer)

                if cluster is not None:
                    latents = cluster.latents(backbone, graph, self._scratch, report)
                else:
                    latents = latents_by_chunks(backbone, x, edges, self._scratch, report, graph.release)
        except OSError as error:
            raise _no_room(error) from None
        self.latents: list[Features] = [x, *latents]

    def at(self, nodes: Tensor) -> Output:
        """Return the head's output at some nodes."""
        consecutive = len(nodes) > 0 and int(nodes[-1] - nodes[0]) == len(nodes) - 1
        parts = [self._head(part) for part in torch.split(nodes, CHUNK if consecutive else SCATTERED)]
        if not consecutive:  # rows around them are mapped, too
            self._scratch.release()
            self._release()
        if isinstance(parts[0], Tensor):
            return torch.cat([part for part in parts if isinstance(part, Tensor)])
        return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))

    def logits(self, made_of: Callable[[Output], Tensor]) -> Tensor:
        """Return the logits of all nodes ``[N, C]``, made once by a function of the head's output."""
        if self._logits is not None:
            return self._logits
        count = len(self.latents[-1])
        result: Tensor | None = None
        for first in range(0, count, CHUNK):
            part = made_of(self._head(torch.arange(first, min(first + CHUNK, count))))
            if result is None:
                with translated(OSError, lambda error: _no_room(error)):
                    result = self._scratch.matrix(count, part.shape[1])
            result[first : first + len(part)] = part
        assert result is not None
        self._logits = result
        return result

    def _head(self, nodes: Tensor) -> Output:
        if self._module.joint:
            output: Output = self._module.head([rows_of(z, nodes) for z in self.latents])
        else:
            output = self._module.head(rows_of(self.latents[-1], nodes))
        if resident_memory() > 0.8 * self._memory:
            self._scratch.release()
            self._release()
        return output


def _no_room(error: OSError) -> MethodError:
    return MethodError(error.strerror or str(error))
