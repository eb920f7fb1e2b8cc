"""What of a graph fits in memory, and what a network does where it does not: batches to train, chunks to predict."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from ..graphs import Graph
from ..nn.backbones import BackboneError, Features, Stack
from ..nn.chunks import LEAVE, Scratch, check_chunks, latents_by_chunks
from ..nn.layers import rows_of
from ..nn.training import Classifier, Output
from ..runtime.context import Context
from ..runtime.memory import available_memory, in_units, parse_memory, resident_memory, temporary_folder
from ..runtime.warn import warn_caller
from .inputs import inputs_by_rows
from .jobs import Cluster
from .prediction import MethodError

BATCH = 1024  # training nodes of a batch, where nothing else is said
VALIDATION = 10_000  # validation nodes that early stopping looks at while batches are trained on
PROGRAM = 400 << 20  # bytes that torch and its kernels take before anything is done
CHUNK = 1 << 10  # nodes whose outputs are made together
SCATTERED = 1 << 7  # of nodes that lie apart: each may map half a MiB of every file of latents


class MemoryWarning(UserWarning):
    """A graph does not fit in the memory that may be used, and something else is done than usual."""


def training_bytes(graph: Graph, widths: list[int]) -> int:
    """About the bytes that full-batch training takes: features, operators and their transposes, latents, gradients.

    Args:
        graph: What is trained on.
        widths: Of the latents, and of the head's output.
    """
    return held_bytes(graph) + 12 * graph.num_nodes * sum(widths) + 8 * graph.num_nodes * max(widths)


def prediction_bytes(graph: Graph, widths: list[int]) -> int:
    """About the bytes that a prediction takes that holds the whole graph and all latents.

    Args:
        graph: What is predicted.
        widths: Of the latents, and of the head's output.
    """
    return (
        held_bytes(graph)
        + 4 * graph.num_nodes * (sum(widths) + max(widths))
        + answer_bytes(graph.num_nodes, widths[-1])
    )


def answer_bytes(count: int, num_classes: int) -> int:
    """About the bytes that the answers for some nodes take, and what they are made of.

    Args:
        count: How many nodes.
        num_classes: Of the classes that they are predicted in.
    """
    return 48 * count * num_classes


def held_bytes(graph: Graph) -> int:
    """About the bytes that a graph takes that is held as a whole, with the operators made of its edges.

    Args:
        graph: The graph.
    """
    x = graph.features
    features = 8 * x.values().numel() if x.layout == torch.sparse_csr else 4 * x.numel()
    return PROGRAM + features + 40 * graph.num_edges


def fits(graph: Graph, num_classes: int, memory: int | None) -> bool:
    """Whether a graph and a prediction of all its nodes fit in memory, with a network of usual size.

    Args:
        graph: What is predicted.
        num_classes: Of the classes that it is predicted in.
        memory: Bytes that may be used; None: what is available.
    """
    return prediction_bytes(graph, [64, 64, num_classes]) <= (available_memory() if memory is None else memory)


def keep_within(memory: int | None, graph: Graph) -> Callable[[], None] | None:
    """To be called now and then: gives the pages of a packed graph back when the process holds more than it may.

    Args:
        memory: Bytes that may be used; None: nothing is given back, since the system takes what it needs by itself.
        graph: The graph; None is returned for one in memory.
    """
    if memory is None or graph.path is None:
        return None

    def check() -> None:
        if resident_memory() > 0.8 * memory:
            graph.release()

    return check


def refusal(needed: int, allowed: int) -> str:
    """How much is needed and how much there is, for messages.

    Args:
        needed: Bytes.
        allowed: Bytes.
    """
    return f"takes about {in_units(needed)}, and {in_units(allowed)} may be used"


def budget_of(memory: str | int | None) -> int | None:
    """Bytes that may be used; None: what is available when somebody asks.

    Args:
        memory: Bytes, or text such as ``"4GiB"``.
    """
    try:
        return None if memory is None else parse_memory(memory)
    except ValueError as error:
        raise MethodError(f"memory: {error}") from None


def batch_size_for(name: str, module: Classifier, graph: Graph, context: Context, widths: list[int]) -> int | None:
    """Training nodes of a mini-batch where nobody has said: None, all nodes at once, if memory allows.

    Args:
        name: What is trained, for messages.
        module: The network.
        graph: What it is trained on.
        context: Of the call.
        widths: Of its latents, and of the head's output.
    """
    needed, allowed = training_bytes(graph, widths), context.allowed
    if needed <= allowed:
        return None
    try:
        check_chunks(module.backbone)
    except BackboneError as error:
        raise MethodError(str(error)) from None
    warn_caller(
        f"{name}: training on the whole graph at once {refusal(needed, allowed)}: mini-batches of {BATCH:,} "
        "nodes with sampled neighbours are trained on instead (batch_size= and fanouts= choose others)",
        MemoryWarning,
    )
    return BATCH


def check_prediction(module: Classifier, graph: Graph, context: Context, widths: list[int]) -> None:
    """Refuse, before anything is trained, what could not be predicted by chunks where that will be needed.

    Args:
        module: The network.
        graph: What will be predicted.
        context: Of the call.
        widths: Of its latents, and of the head's output.
    """
    if prediction_bytes(graph, widths) <= context.allowed:
        return
    try:
        check_stored(module, graph, (widths if context.logits else widths[:-1]) * context.networks, context.memory)
    except BackboneError as error:
        raise MethodError(str(error)) from None


def check_stored(module: Classifier, graph: Graph, widths: list[int], memory: int | None) -> None:
    """Refuse outputs by chunks that cannot be made: of a backbone that needs the whole graph, or without room for them.

    Args:
        module: The network.
        graph: What will be predicted.
        widths: Of all that is kept of each node.
        memory: Bytes that may be used; None: what is available.
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
    """Bytes that may be used: of what is available, what this process holds for latents is gone already."""
    return available_memory() + Scratch.held() if memory is None else memory


def _scratch(memory: int) -> Scratch:
    return Scratch(int(0.6 * (memory - PROGRAM)))


class StoredOutputs:
    """Outputs and latents of all nodes of one graph, computed by chunks; what memory does not hold lies in files.

    Args:
        module: The network, in evaluation.
        graph: In memory, or opened.
        memory: Bytes that may be used; None: what is available.
        progress: Show a bar; None: on a terminal, once it has taken a few seconds.
        cluster: Whose machines compute the latents; None: this process.
    """

    def __init__(
        self,
        module: Classifier,
        graph: Graph,
        memory: int | None,
        progress: bool | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        check_chunks(module.backbone)
        self._release = graph.release
        self._memory = _budget(memory)
        self._here = copy.deepcopy(module).cpu()  # which is where rows are read, and latents kept
        backbone = self._here.backbone
        assert isinstance(backbone, Stack)
        x, edges = inputs_by_rows(graph)
        self._scratch = _scratch(self._memory)
        self._logits: Tensor | None = None
        try:
            with _bar(progress) as bar:
                if cluster is not None:
                    latents = cluster.latents(backbone, graph, self._scratch, _teller(bar))
                else:
                    latents = latents_by_chunks(backbone, x, edges, self._scratch, _teller(bar), graph.release)
        except OSError as error:
            raise _no_room(error) from None
        self.latents: list[Features] = [x, *latents]

    def at(self, nodes: Tensor) -> Output:
        """The head's output at some nodes.

        Args:
            nodes: Their numbers.
        """
        consecutive = len(nodes) > 0 and int(nodes[-1] - nodes[0]) == len(nodes) - 1
        parts = [self._head(part) for part in torch.split(nodes, CHUNK if consecutive else SCATTERED)]
        if not consecutive:  # what lies around them is mapped, too, and what comes next may be something else
            self._scratch.release()
            self._release()
        if isinstance(parts[0], Tensor):
            return torch.cat([part for part in parts if isinstance(part, Tensor)])
        return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))

    def logits(self, made_of: Callable[[Output], Tensor]) -> Tensor:
        """Logits of all nodes ``[N, C]``, made once.

        Args:
            made_of: What makes them of the head's output; always the same.
        """
        if self._logits is not None:
            return self._logits
        count = len(self.latents[-1])
        result: Tensor | None = None
        for first in range(0, count, CHUNK):
            part = made_of(self._head(torch.arange(first, min(first + CHUNK, count))))
            if result is None:
                try:
                    result = self._scratch.matrix(count, part.shape[1])
                except OSError as error:
                    raise _no_room(error) from None
            result[first : first + len(part)] = part
        assert result is not None
        self._logits = result
        return result

    def _head(self, nodes: Tensor) -> Output:
        if self._here.joint:
            output: Output = self._here.head([rows_of(z, nodes) for z in self.latents])
        else:
            output = self._here.head(rows_of(self.latents[-1], nodes))
        if resident_memory() > 0.8 * self._memory:
            self._scratch.release()
            self._release()
        return output


def _no_room(error: OSError) -> MethodError:
    return MethodError(error.strerror or str(error))


def _bar(progress: bool | None) -> Any:
    hidden = None if progress is None else not progress
    return tqdm(total=100, desc="latents", unit="%", delay=3, disable=hidden, leave=False)


def _teller(bar: Any) -> Callable[[str, float], None]:
    def tell(layer: str, share: float) -> None:
        bar.set_description(layer)
        bar.n = int(100 * share)
        bar.refresh()

    return tell
