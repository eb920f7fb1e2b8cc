"""Wiki-CS: Wikipedia's articles on computer science (Mernyei and Cangea, 2020), with its twenty splits."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np

from ...runtime.reading import parse_json, read_bytes
from ..graph import Graph
from .base import Dataset, Loaded, Summary
from .files import File
from .public import distinct_edges, splits_from_masks

FILE = "WikiCS/raw/data.json"


def _read(root: Path) -> Loaded:
    """Edges in both directions, as in PyG. All splits have the same nodes to test on.

    Wiki-CS has nodes to stop by and others to choose hyper-parameters by; here one part serves for both.
    """
    content = parse_json(read_bytes(root / FILE))
    links = content["links"]
    sources = np.repeat(np.arange(len(links)), [len(targets) for targets in links])
    targets = np.fromiter(chain.from_iterable(links), np.int64)
    edges = distinct_edges(np.stack([sources, targets]), both_directions=True)
    graph = Graph(np.array(content["features"], np.float32), edges, np.array(content["labels"], np.int64))
    train, val, stopping = (np.array(content[f"{part}_masks"], bool) for part in ("train", "val", "stopping"))
    test = np.tile(np.array(content["test_mask"], bool), (len(train), 1))
    return Loaded(graph, splits_from_masks(train, val | stopping, test, nodes=graph.num_nodes))


WIKI_CS = Dataset(
    "wiki-cs",
    _read,
    ood_classes=tuple(range(3)),
    description="Wikipedia's articles on computer science, linked; branch of it",
    files={FILE: File("https://github.com/pmernyei/wiki-cs-dataset/raw/master/dataset/data.json")},
    published=Summary(11701, 431726, 10, "high"),
)
