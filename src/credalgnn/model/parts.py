"""Which nodes to train on, to stop by and to calibrate with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from ..graphs import Graph, GraphError, GraphWarning, node_numbers, stratified_split

NAMES = ("train", "val", "calibration", "test")


def parts_of(graph: Graph, given: Mapping[str, Tensor | None], seed: int) -> dict[str, Tensor]:
    """The parts that are given, and the others dealt from the labelled nodes that are in none.

    Where no labelled node is left for calibration, half of the validation nodes calibrate and no longer decide when to
    stop.

    Args:
        graph: The graph, with its labels.
        given: Masks or node numbers by the name of a part; None: not given.
        seed: Of the deal.
    """
    parts = {}
    for name in NAMES:
        nodes = given.get(name)
        if nodes is not None:
            numbers = torch.unique(node_numbers(nodes, name, graph.num_nodes))
            parts[name] = numbers[graph.labels[numbers] >= 0]  # PyG's masks count nodes without a label, too
    for one, first in enumerate(parts):
        for other in list(parts)[one + 1 :]:
            shared = parts[first][torch.isin(parts[first], parts[other])]
            if len(shared):
                raise GraphError(f"node {int(shared[0])} is in both {first} and {other}: parts must not overlap")
    if not bool((graph.labels >= 0).any()):
        raise GraphError("no node has a label: a classifier learns from labelled nodes")
    dealt = stratified_split(graph.labels, parts, seed)
    if not len(dealt["calibration"]) and len(dealt["val"]) > 1:
        stopping = {"train": dealt["train"], "test": dealt.get("test", torch.empty(0, dtype=torch.int64))}
        inner = torch.full_like(graph.labels, -1)
        inner[dealt["val"]] = graph.labels[dealt["val"]]
        halves = stratified_split(inner, stopping, seed)
        dealt = {**dealt, "val": halves["val"], "calibration": halves["calibration"]}
        warnings.warn(
            "no labelled node is left for calibration, so half of the validation nodes calibrate and no longer decide "
            "when to stop; name calibration nodes to choose them",
            GraphWarning,
            stacklevel=3,
        )
    for name in ("train", "val", "calibration"):
        if not len(dealt[name]):
            raise GraphError(
                f"no labelled node is left for {name}: label more nodes, or name fewer of them in the other parts"
            )
    return {name: dealt[name] for name in NAMES if name in dealt}
