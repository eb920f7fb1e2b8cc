"""Leave-out-class tasks: the only place that knows which nodes are out of distribution.

A method that trains is given ``task.training``, which is made of masked copies: no test label and no
out-of-distribution label can be reached from it, and of an inductive task no other node at all. ``task.validation`` and
``task.test`` hold the truth, for evaluation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ._checks import check_mask, node_numbers
from .errors import GraphError
from .graph import Graph


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint parts of a graph's nodes, as sorted indices."""

    train: Tensor
    val: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            part = getattr(self, name)
            if not isinstance(part, Tensor) or part.dim() != 1 or part.is_floating_point() or part.dtype == torch.bool:
                raise GraphError(f"split: {name} must be a tensor of node numbers; for masks use Split.from_masks")
            if not len(part):
                raise GraphError(f"split: {name} is empty")
            object.__setattr__(self, name, part.detach().to("cpu", torch.int64).sort().values)
            part = getattr(self, name)
            if int(part[0]) < 0:
                raise GraphError(f"split: {name} names node {int(part[0])}, which does not exist")
            twice = part[1:][part[1:] == part[:-1]]
            if len(twice):
                raise GraphError(f"split: node {int(twice[0])} stands twice in {name}")
        for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
            shared = getattr(self, one)[torch.isin(getattr(self, one), getattr(self, other))]
            if len(shared):
                raise GraphError(f"split: node {int(shared[0])} is in both {one} and {other}; parts must not overlap")

    @classmethod
    def random(cls, num_nodes: int, seed: int = 0) -> Split:
        """60/20/20, rounded down but for the test part, from a generator of its own: nothing else changes it."""
        order = torch.randperm(num_nodes, generator=seeded(seed))
        first, second = int(0.6 * num_nodes), int(0.6 * num_nodes) + int(0.2 * num_nodes)
        return cls(order[:first], order[first:second], order[second:])

    @classmethod
    def from_masks(cls, train: Tensor, val: Tensor, test: Tensor) -> Split:
        """From boolean masks [N], as PyG data sets have them."""
        masks = [torch.as_tensor(mask) for mask in (train, val, test)]
        for name, mask in zip(("train", "val", "test"), masks, strict=True):
            check_mask(mask, name, len(masks[0]))
        return cls(*(mask.nonzero().squeeze(-1) for mask in masks))


def seeded(seed: int) -> torch.Generator:
    """A generator of one's own. torch takes 32 bits of a seed; a larger one would silently equal a smaller."""
    if not 0 <= seed < 2**32:
        raise GraphError(f"a seed must be between 0 and {2**32 - 1}, not {seed}")
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True, eq=False)
class Part:
    """Nodes to evaluate on: labels are those of the ID classes, -1 where the node is out of distribution."""

    nodes: Tensor
    labels: Tensor
    is_ood: Tensor


@dataclass(frozen=True, eq=False)
class TrainingView:
    """All that a method sees: a graph to train on, and the one in which the nodes ``val`` to stop by are.

    Of a transductive task both are the whole graph, with the labels of training and ID validation nodes and no others.
    Of an inductive one ``graph`` holds the training nodes alone, ``val_graph`` these and behind them the ID validation
    nodes, each with the edges among its nodes; ``train`` has the same numbers in both.
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
        """One's own graph, with nodes to train on and to stop by (masks or node numbers); all its classes are known."""
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
        shared = parts["train"][torch.isin(parts["train"], parts["val"])]
        if len(shared):
            raise GraphError(f"node {int(shared[0])} is in both train and val; parts must not overlap")
        masked = graph.replace(labels=labels, class_names=graph.class_names)
        fingerprint = digest.hexdigest()
        return cls(masked, masked, parts["train"], parts["val"], graph.num_classes, graph.class_names, fingerprint)


@dataclass(frozen=True, eq=False)
class Task:
    """A graph, the classes left out, and a split.

    Transductive: the whole graph takes part in message passing, in training, too. ``inductive``: the graph grows after
    training, which sees the training nodes and the edges among them; predictions are made on the whole graph.
    """

    name: str
    graph: Graph
    ood_classes: tuple[int, ...]
    split: Split
    train_labels: Tensor = field(repr=False)  # re-indexed labels of the ID training nodes, after any label noise
    shifts: tuple[str, ...] = ()
    shifted_nodes: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64), repr=False)
    inductive: bool = False

    def __post_init__(self) -> None:
        if not self.inductive:
            return
        trains = torch.zeros(self.graph.num_nodes, dtype=torch.bool)
        trains[self.split.train] = True
        if not bool(trains[self.graph.edge_index].all(0).any()):
            raise GraphError(
                "the training nodes have no edges among themselves, so there is no graph to train on without the "
                "others: inductive=False, or another split"
            )

    @classmethod
    def leave_out(
        cls,
        graph: Graph,
        ood_classes: Sequence[int],
        split: Split | None = None,
        split_seed: int = 0,
        name: str = "custom",
        inductive: bool = False,
    ) -> Task:
        """Make the nodes of ``ood_classes`` strangers: dropped from training, to be recognised in validation and test.

        ID classes are numbered anew, 0..C-1 in their order. Nodes without a label stay in the graph, in no part of it.
        ``inductive`` hides all nodes but those of training from training, and not their labels alone.
        """
        split = split or Split.random(graph.num_nodes, split_seed)
        last = max(int(part[-1]) for part in (split.train, split.val, split.test))
        if last >= graph.num_nodes:
            raise GraphError(f"split: node {last} does not exist; the graph has {graph.num_nodes} nodes")
        left_out = tuple(sorted({int(k) for k in ood_classes}))
        if not graph.num_classes:
            raise GraphError("the graph has no labels, so no class can be left out")
        for k in left_out:
            if not 0 <= k < graph.num_classes:
                raise GraphError(f"class {k} cannot be left out: the graph has the classes 0..{graph.num_classes - 1}")
        if not left_out:
            raise GraphError("no class is left out: name at least one in ood_classes")
        if graph.num_classes - len(left_out) < 2:
            left = "one class stays" if len(left_out) < graph.num_classes else "all classes are left out, none stays"
            raise GraphError(f"{left} in distribution; a classifier needs 2 or more")
        renumbered = _renumber(graph, left_out)
        known = graph.labels >= 0
        train = split.train[renumbered[split.train] >= 0]
        parts = {name: part[known[part]] for name, part in (("val", split.val), ("test", split.test))}
        if not len(train):
            raise GraphError("no training node belongs to an ID class; choose another split or other classes")
        for part_name, part in parts.items():
            if not len(part):
                raise GraphError(f"split: no node in {part_name} has a label")
        kept = Split(train, parts["val"], parts["test"])
        if inductive and graph.node_ids is None:  # by which nodes of the smaller graph are known again in the larger
            graph = graph.replace(node_ids=np.arange(graph.num_nodes))
        return cls(name, graph, left_out, kept, renumbered[train], inductive=inductive)

    @property
    def id_classes(self) -> tuple[int, ...]:
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
        labels = _renumber(self.graph, self.ood_classes)[nodes]
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
        """Keep a share of the training nodes, at least one of each class."""
        from .shifts import fewer_labels

        return fewer_labels(self, share, seed)

    def fewer_strangers(self, share: float, seed: int = 0) -> Task:
        """Keep a share of the nodes of OOD classes in the graph, those of the test part before others."""
        from .shifts import fewer_strangers

        return fewer_strangers(self, share, seed)

    def label_noise(self, share: float, seed: int = 0) -> Task:
        """Give a share of the training nodes another ID label."""
        from .shifts import label_noise

        return label_noise(self, share, seed)

    def feature_noise(self, share: float, std: float = 1.0, seed: int = 0) -> Task:
        """Add normal noise to the features of a share of the test nodes."""
        from .shifts import feature_noise

        return feature_noise(self, share, std, seed)

    def feature_removal(self, share: float, seed: int = 0) -> Task:
        """Set the features of a share of the test nodes to zero."""
        from .shifts import feature_removal

        return feature_removal(self, share, seed)

    def rewired(self, share: float, seed: int = 0) -> Task:
        """Draw anew the other end of every edge at a share of the test nodes."""
        from .shifts import rewired

        return rewired(self, share, seed)

    def shifted(self, words: str, **changes: object) -> Task:
        """A changed copy that records the change."""
        return replace(self, shifts=(*self.shifts, words), **changes)  # type: ignore[arg-type]


def _renumber(graph: Graph, left_out: tuple[int, ...]) -> Tensor:
    """Labels of all nodes among the ID classes, -1 for those left out and unknown ones."""
    table = torch.full((graph.num_classes + 1,), -1)  # the last entry serves label -1
    kept = [k for k in range(graph.num_classes) if k not in left_out]
    table[kept] = torch.arange(len(kept))
    return table[graph.labels]
