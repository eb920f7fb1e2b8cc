"""Contract of data sets."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import torch

from ..graphs import Dataset, Graph, Task, dataset_name, find_dataset
from ..methods import CredalWarning, Vanilla
from ..metrics import evaluate


def check_dataset(
    dataset: str | os.PathLike[str] | Dataset | Graph | Task | Callable[..., Any],
    ood_classes: Any = None,
    *,
    split_seed: int = 0,
) -> None:
    """Check that a data set meets the contract of the package; return silently if it does.

    Args:
        dataset: Anything that ``load_task`` takes, a ``Dataset``, or its ``make``: a function or its result.
        ood_classes: Classes to leave out, by number or name, if the data set does not define them; default None.
        split_seed: Split to check, default 0.

    Raises:
        AssertionError: Names the first problem and its remedy.

    Example:
        >>> check_dataset("digits")
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
    required = [part for part in counts if task.ood_classes or not part.endswith("ood")]
    for part in required:
        if not counts[part]:
            fail(entry, f"the part {part} has no node", "change the split, or leave out another class")
    with sandbox():
        model = Vanilla(epochs=2, patience=2, hidden=8).fit(task)
        evaluate(model.predict(), task)


def _dataset(source: Any) -> Dataset:
    if isinstance(source, Dataset):
        return source
    if isinstance(source, str | os.PathLike):
        return find_dataset(source)
    if isinstance(source, Graph | Task):
        return Dataset("dataset", lambda: source)
    if not callable(source):
        raise AssertionError(
            f"dataset must be a name, Dataset, Graph, Task or a function that makes one, not {type(source).__name__}"
        )
    return Dataset(dataset_name(getattr(source, "__name__", "dataset")), source)


def fail(subject: type | Dataset, problem: str, remedy: str) -> NoReturn:
    """Raise an ``AssertionError`` that names a class or data set, a problem and its remedy."""
    name = subject.__qualname__ if isinstance(subject, type) else subject.name
    raise AssertionError(f"{name}: {problem}: {remedy}")


@contextmanager
def sandbox() -> Iterator[None]:
    """Restore the global random generators, and silence warnings about credal sets of short trainings."""
    state = np.random.get_state()  # noqa: NPY002  # methods must not use the global state
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", CredalWarning)
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
