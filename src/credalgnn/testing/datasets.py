"""The contract of data sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from ..graphs import Dataset, Graph, Task, dataset_name, find_dataset
from ..methods import Vanilla
from ..metrics import evaluate
from ._common import fail, sandbox


def check_dataset(
    dataset: str | os.PathLike[str] | Dataset | Graph | Task | Callable[..., Any],
    ood_classes: Any = None,
    *,
    split_seed: int = 0,
) -> None:
    """Try everything that the package asks of a data set; silent if all is well.

    Args:
        dataset: Whatever ``load_task`` takes, a ``Dataset``, or what its ``make`` would be: a function or what it
            returns.
        ood_classes: The classes to leave out, by number or name, if the data set does not say.
        split_seed: The split to try.
    """
    entry = _dataset(dataset)
    if dataset_name(entry.name) != entry.name:
        fail(entry, "its name is not safe for a folder", "use letters, digits, '.', '_' and '-'")
    task, again = (entry.task(split_seed, ood_classes=ood_classes) for _ in range(2))
    if task.graph.fingerprint != again.graph.fingerprint:
        fail(entry, "made twice, the graph differs", "seed whatever is drawn at random")
    if task.fingerprint != again.fingerprint:
        fail(entry, "made twice, the task differs", "let split_seed alone decide the split")
    parts = {"train": task.split.train, "val": task.split.val, "test": task.split.test}
    for name, other in (("train", "val"), ("train", "test"), ("val", "test")):
        shared = parts[name][torch.isin(parts[name], parts[other])]
        if len(shared):
            fail(entry, f"node {int(shared[0])} is in {name} and in {other}", "split the nodes into disjoint parts")
    for number in range(task.graph.num_classes):
        if not bool((task.graph.labels == number).any()):
            name = task.graph.class_names[number]
            fail(entry, f"no node is of class {name!r}", "leave this class out of class_names")
    counts = task.counts
    needed = [part for part in counts if task.ood_classes or not part.endswith("ood")]
    for part in needed:
        if not counts[part]:
            fail(entry, f"the part {part} has no node", "change the split, or leave out another class")
    with sandbox():
        model = Vanilla(epochs=2, patience=2, hidden=8).fit(task)
        evaluate(model.predict(), task)


def _dataset(given: Any) -> Dataset:
    if isinstance(given, Dataset):
        return given
    if isinstance(given, str | os.PathLike):
        return find_dataset(given)
    if isinstance(given, Graph | Task):
        return Dataset("dataset", lambda: given)
    if not callable(given):
        raise AssertionError(
            f"a name, a Dataset, a Graph, a Task or a function that makes one is wanted, not {type(given).__name__}"
        )
    return Dataset(dataset_name(getattr(given, "__name__", "dataset")), given)
