"""Leave-out-class tasks: the only place that knows which nodes are out of distribution.

A method that trains is given ``task.training``, which is made of masked copies: no test label and no
out-of-distribution label can be reached from it, and of an inductive task no other node at all. ``task.validation`` and
``task.test`` hold the truth, for evaluation.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..runtime.names import suggestion
from ._checks import node_numbers
from .errors import GraphError
from .graph import Graph
from .split import Split, first_shared

Classes: TypeAlias = Iterable[int | str] | int | str  # class numbers or names; one of them, or several


@dataclass(frozen=True, eq=False)
class Part:
    """Nodes to evaluate on.

    Args:
        nodes: Their numbers.
        labels: Their ID classes, -1 where the node is out of distribution.
        is_ood: Whether each is out of distribution.
    """

    nodes: Tensor
    labels: Tensor
    is_ood: Tensor


@dataclass(frozen=True, eq=False)
class TrainingView:
    """All that a method sees: a graph to train on, and the graph in which the nodes ``val`` to stop by are.

    Of a transductive task both are the whole graph, with the labels of training and ID validation nodes and no others.
    Of an inductive task ``graph`` holds the training nodes alone, ``val_graph`` these and behind them the ID validation
    nodes, each with the edges among its nodes; ``train`` has the same numbers in both.

    Args:
        graph: To train on.
        val_graph: To stop by.
        train: Numbers of the training nodes, in both graphs.
        val: Numbers of the ID validation nodes in ``val_graph``.
        num_classes: How many ID classes there are.
        class_names: Their names.
        fingerprint: Of the task.
    """

    graph: Graph
    val_graph: Graph
    train: Tensor
    val: Tensor
    num_classes: int
    class_names: tuple[str, ...]
    fingerprint: str

    @classmethod
    def of_graph(cls, graph: Graph, train: Tensor, val: Tensor) -> TrainingView:
        """One's own graph, all of whose classes are known.

        Args:
            graph: The graph.
            train: The nodes to train on, a mask or node numbers.
            val: The nodes to stop by, a mask or node numbers.
        """
        parts = {"train": train, "val": val}
        labels = torch.full((graph.num_nodes,), -1)
        digest = hashlib.blake2b(graph.fingerprint.encode(), digest_size=16)
        for name in parts:
            nodes = parts[name] = torch.unique(node_numbers(parts[name], name, graph.num_nodes))
            unknown = nodes[graph.labels[nodes] < 0]
            if len(unknown):
                raise GraphError(f"node {int(unknown[0])} is in {name} but has no label: leave it out of {name}")
            labels[nodes] = graph.labels[nodes]
            digest.update(nodes.numpy().tobytes() + b";")
        shared = first_shared(parts["train"], parts["val"]) if len(parts["val"]) else None
        if shared is not None:
            raise GraphError(f"node {shared} is in both train and val; parts must not overlap")
        masked = graph.replace(labels=labels, class_names=graph.class_names)
        fingerprint = digest.hexdigest()
        return cls(masked, masked, parts["train"], parts["val"], graph.num_classes, graph.class_names, fingerprint)


@dataclass(frozen=True, eq=False)
class Task:
    """A graph, the classes left out, and a split; made by ``leave_out``.

    Transductive: the whole graph takes part in message passing, in training, too. Inductive: the graph grows after
    training, which sees the training nodes and the edges among them; predictions are made on the whole graph.

    Args:
        name: What it is called, in tables and in folders.
        graph: The graph, with all its labels.
        ood_classes: The numbers of the classes left out; none in a task without OOD nodes.
        split: The parts; the training part has nodes of ID classes only.
        train_labels: The ID classes of the training nodes, after any label noise.
        shifts: What was changed about it, in words.
        shifted_nodes: The test nodes that were changed.
        inductive: Whether training sees the training nodes alone.
        source: Where the graph came from, for records; not part of the fingerprint.
    """

    name: str
    graph: Graph
    ood_classes: tuple[int, ...]
    split: Split
    train_labels: Tensor = field(repr=False)
    shifts: tuple[str, ...] = ()
    shifted_nodes: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64), repr=False)
    inductive: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if not self.inductive:
            return
        trains = torch.zeros(self.graph.num_nodes, dtype=torch.bool)
        trains[self.split.train] = True
        edges = self.graph.in_edges
        joined = (
            trains[edges.sources[int(edges.starts[first]) : int(edges.starts[last])].long()]
            & trains[first:last].repeat_interleave(edges.starts[first : last + 1].diff())
            for first, last in edges.chunks()
        )
        if not any(bool(each.any()) for each in joined):
            raise GraphError(
                "the training nodes have no edges among themselves, so there is no graph to train on without the "
                "others: inductive=False, or another split"
            )

    @classmethod
    def leave_out(
        cls,
        graph: Graph,
        ood_classes: Classes,
        split: Split | None = None,
        split_seed: int = 0,
        name: str = "custom",
        inductive: bool = False,
        *,
        source: str = "",
    ) -> Task:
        """Take some classes for out of distribution: dropped from training, to be recognised in validation and test.

        ID classes are numbered anew, 0..C-1 in their order. Nodes without a label stay in the graph, in no part of it.

        Args:
            graph: The graph, with all its labels.
            ood_classes: The classes left out: a number or a name, or several. Text is taken for a name first, then for
                a number. ``()`` leaves out none: the task has no OOD nodes.
            split: The parts; None: a random 60/20/20.
            split_seed: The seed of a random split.
            name: What the task is called.
            inductive: Hide all nodes but those of training from training, and not their labels alone.
            source: Where the graph came from, for records.
        """
        split = split or Split.random(graph.num_nodes, split_seed)
        last = max(int(part[-1]) for part in (split.train, split.val, split.test))
        if last >= graph.num_nodes:
            raise GraphError(f"split: node {last} does not exist; the graph has {graph.num_nodes} nodes")
        if not graph.num_classes:
            raise GraphError("the graph has no labels, so no class can be left out")
        left_out = _class_numbers(graph, ood_classes)
        if graph.num_classes - len(left_out) < 2:
            left = "one class stays" if len(left_out) < graph.num_classes else "all classes are left out, none stays"
            raise GraphError(f"{left} in distribution; a classifier needs 2 or more")
        train_labels = _renumber(graph, left_out, split.train)
        train = split.train[train_labels >= 0]
        parts = {name: part[graph.labels[part] >= 0] for name, part in (("val", split.val), ("test", split.test))}
        if not len(train):
            raise GraphError("no training node belongs to an ID class; choose another split or other classes")
        for part_name, part in parts.items():
            if not len(part):
                raise GraphError(f"split: no node in {part_name} has a label")
        kept = Split(train, parts["val"], parts["test"])
        if inductive and graph.node_ids is None:  # by which nodes of the smaller graph are known again in the larger
            graph = graph.replace(node_ids=np.arange(graph.num_nodes))
        return cls(name, graph, left_out, kept, train_labels[train_labels >= 0], inductive=inductive, source=source)

    @property
    def id_classes(self) -> tuple[int, ...]:
        """The numbers that the ID classes have in the graph."""
        return tuple(k for k in range(self.graph.num_classes) if k not in self.ood_classes)

    @property
    def num_classes(self) -> int:
        """The number of ID classes."""
        return len(self.id_classes)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the ID classes."""
        return tuple(self.graph.class_names[k] for k in self.id_classes)

    @cached_property
    def training(self) -> TrainingView:
        """What a method may see, in tensors of its own."""
        validation = self.validation
        val = validation.nodes[~validation.is_ood]
        labels = torch.full((self.graph.num_nodes,), -1)
        labels[self.split.train] = self.train_labels
        labels[val] = validation.labels[~validation.is_ood]
        graph = val_graph = self.graph.replace(labels=labels, class_names=self.class_names)
        train = self.split.train.clone()
        if self.inductive:
            graph, val_graph = graph.subgraph(train), graph.subgraph(torch.cat([train, val]))
            train, val = torch.arange(len(train)), torch.arange(len(train), val_graph.num_nodes)
        return TrainingView(graph, val_graph, train, val, self.num_classes, self.class_names, self.fingerprint)

    @cached_property
    def prediction_graph(self) -> Graph:
        """What is predicted on: the whole graph, numbered as in ``validation`` and ``test``.

        It has the labels that training has seen; of an inductive task, whose training has not seen it, none at all.
        """
        if not self.inductive:
            return self.training.graph
        return self.graph.replace(labels=torch.full((self.graph.num_nodes,), -1), class_names=self.class_names)

    @property
    def validation(self) -> Part:
        """Validation nodes with the truth; for the evaluation, and for the paper's way of early stopping."""
        return self._part(self.split.val)

    @property
    def test(self) -> Part:
        """Test nodes with the truth; to be read once, after everything is chosen."""
        return self._part(self.split.test)

    def _part(self, nodes: Tensor) -> Part:
        labels = _renumber(self.graph, self.ood_classes, nodes)
        return Part(nodes.clone(), labels, labels < 0)

    @property
    def counts(self) -> dict[str, int]:
        """The sizes of the parts, named as in the paper's table."""
        validation, test = self.validation.is_ood, self.test.is_ood
        return {
            "train_id": len(self.split.train),
            "val_id": int((~validation).sum()),
            "val_ood": int(validation.sum()),
            "test_id": int((~test).sum()),
            "test_ood": int(test.sum()),
        }

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that the task is; whatever is derived from it stores it and checks it."""
        digest = hashlib.blake2b(self.graph.fingerprint.encode(), digest_size=16)
        digest.update(f"{self.ood_classes} {self.shifts}{' inductive' if self.inductive else ''}".encode())
        for part in (self.split.train, self.split.val, self.split.test, self.train_labels):
            digest.update(part.numpy().tobytes() + b";")
        return digest.hexdigest()

    def fewer_labels(self, share: float, seed: int = 0) -> Task:
        """Keep a share of the training nodes, at least one of each class.

        Args:
            share: The share of training nodes that stay.
            seed: Which of them.
        """
        from .shifts import fewer_labels

        return fewer_labels(self, share, seed)

    def fewer_ood(self, share: float, seed: int = 0) -> Task:
        """Keep a share of the nodes of OOD classes in the graph, those of the test part before others.

        Args:
            share: The share of OOD nodes that stay.
            seed: Which of them.
        """
        from .shifts import fewer_ood

        return fewer_ood(self, share, seed)

    def label_noise(self, share: float, seed: int = 0) -> Task:
        """Give a share of the training nodes another ID label.

        Args:
            share: The share of training nodes that are changed.
            seed: Which of them.
        """
        from .shifts import label_noise

        return label_noise(self, share, seed)

    def feature_noise(self, share: float, std: float = 1.0, seed: int = 0) -> Task:
        """Add normal noise to the features of a share of the test nodes.

        Args:
            share: The share of test nodes that are changed.
            std: The standard deviation of the noise.
            seed: Which of them.
        """
        from .shifts import feature_noise

        return feature_noise(self, share, std, seed)

    def feature_removal(self, share: float, seed: int = 0) -> Task:
        """Set the features of a share of the test nodes to zero.

        Args:
            share: The share of test nodes that are changed.
            seed: Which of them.
        """
        from .shifts import feature_removal

        return feature_removal(self, share, seed)

    def rewired(self, share: float, seed: int = 0) -> Task:
        """Draw anew the other end of every edge at a share of the test nodes.

        Args:
            share: The share of test nodes that are changed.
            seed: Which of them.
        """
        from .shifts import rewired

        return rewired(self, share, seed)

    def shifted(self, shift: str, **changes: object) -> Task:
        """A changed copy that records the change.

        Args:
            shift: The change in words, for the fingerprint and for records.
            **changes: Fields that are replaced.
        """
        return replace(self, shifts=(*self.shifts, shift), **changes)  # type: ignore[arg-type]


def _class_numbers(graph: Graph, classes: Classes) -> tuple[int, ...]:
    """Numbers of classes, sorted, of numbers or names."""
    several: Iterable[Any] = (classes,) if isinstance(classes, str) or not isinstance(classes, Iterable) else classes
    numbers = set()
    for given in several:
        number = given
        if isinstance(given, str):
            if given not in graph.class_names and not given.isdecimal():
                raise GraphError(
                    f"class {given!r} cannot be left out, as there is none of this name: "
                    f"{suggestion(given, graph.class_names)}"
                )
            number = graph.class_names.index(given) if given in graph.class_names else int(given)
        try:
            number = operator.index(number)
        except TypeError:
            raise GraphError(f"ood_classes must be class numbers or names, not {given!r}") from None
        if isinstance(given, bool) or not 0 <= number < graph.num_classes:
            raise GraphError(
                f"class {given!r} cannot be left out: the graph has the classes 0..{graph.num_classes - 1}"
            )
        numbers.add(number)
    return tuple(sorted(numbers))


def _renumber(graph: Graph, left_out: tuple[int, ...], nodes: Tensor) -> Tensor:
    """Labels of some nodes among the ID classes, -1 for those left out and unknown ones."""
    table = torch.full((graph.num_classes + 1,), -1)  # the last entry serves label -1
    kept = [k for k in range(graph.num_classes) if k not in left_out]
    table[kept] = torch.arange(len(kept))
    return table[graph.labels[nodes]]
