"""Where the tasks of runs come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from ..graphs import GraphError, OwnTaskError, Task, dataset_name, load_task
from .plan import Run


@dataclass(frozen=True)
class Source:
    """Where tasks come from; each is read once per process.

    Args:
        mirror: A folder with raw files, looked at first.
        data_root: Where graphs are kept once read.
        ood_classes: The classes to leave out, by number or name, of every data set that does not make a task of its
            own; None: those that a data set names.
        specs: By the name of a data set what ``load_task`` finds it by, if it is not its name.
        given: Tasks that are there already, by name and split.
    """

    mirror: Path | None = None
    data_root: Path | None = None
    ood_classes: tuple[int | str, ...] | None = None
    specs: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[tuple[str, int], Task] = field(default_factory=dict)

    def task(self, run: Run) -> Task:
        """The task of a run.

        Args:
            run: The run.
        """
        return self.load(run.dataset, run.split_seed, run.inductive)

    def load(self, dataset: str, split_seed: int, inductive: bool) -> Task:
        """A task by the name of its data set.

        Args:
            dataset: The name.
            split_seed: Which split.
            inductive: The setting.
        """
        if (dataset, split_seed) in self.given:
            return self.given[dataset, split_seed]
        spec = self.specs.get(dataset, dataset)
        return _load(spec, split_seed, self.ood_classes, inductive, self.mirror, self.data_root)


@lru_cache(maxsize=4)
def _load(
    spec: str,
    split_seed: int,
    ood_classes: tuple[int | str, ...] | None,
    inductive: bool,
    mirror: Path | None,
    data_root: Path | None,
) -> Task:
    try:
        return load_task(spec, split_seed, ood_classes, inductive=inductive, mirror=mirror, data_root=data_root)
    except OwnTaskError:
        if ood_classes is None:
            raise
        return load_task(spec, split_seed, inductive=inductive, mirror=mirror, data_root=data_root)


def load_tasks(
    source: Source, data: Sequence[str | Task], splits: Sequence[int], inductive: bool
) -> tuple[Source, dict[tuple[str, int], Task]]:
    """Every task, before any work is done, by name and split; the splits of a data set share its graph.

    Args:
        source: Where tasks come from.
        data: Whatever ``load_task`` finds a data set by, or tasks.
        splits: The seeds of the splits.
        inductive: The setting.

    Returns:
        The source that knows these, and the tasks.
    """
    named: dict[str, str | Task] = {}
    for each in data:
        name = each.name if isinstance(each, Task) else dataset_name(each)
        if named.setdefault(name, each) is not each and named[name] != each:
            raise GraphError(f"two data sets are called {name!r}: give one of them another name")
    source = replace(
        source,
        specs={name: each for name, each in named.items() if isinstance(each, str) and each != name},
        given={(name, split): each for name, each in named.items() if isinstance(each, Task) for split in splits},
    )
    tasks: dict[tuple[str, int], Task] = {}
    for name in named:
        for split in splits:
            task = source.load(name, split, inductive)
            there = (other.graph for other in tasks.values() if other.graph.fingerprint == task.graph.fingerprint)
            graph = next(there, task.graph)  # splits share it, and so do changes of labels alone
            tasks[name, split] = task if graph is task.graph else replace(task, graph=graph)
    return source, tasks
