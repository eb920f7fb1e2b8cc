"""What a data set is: a name, how its graph is made, which classes are left out, how its nodes are split."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..errors import GraphError, OwnTaskError
from ..graph import Graph
from ..split import Split
from ..task import Classes, Task
from .files import File

Folder = str | os.PathLike[str] | None


class Loaded(NamedTuple):
    """A graph, and the splits that are published with it.

    Args:
        graph: The graph.
        splits: What ``split_seed`` chooses from; None: it seeds a random one.
    """

    graph: Graph
    splits: Sequence[Split] | None = None


class Summary(NamedTuple):
    """The size of a graph.

    Args:
        nodes: How many nodes.
        edges: How many directed edges.
        classes: How many classes.
        homophily: The share of edges between nodes of one class; in words where only these are published.
    """

    nodes: int
    edges: int
    classes: int
    homophily: float | str


@dataclass(frozen=True)
class Dataset:
    """A graph that can be asked for by name, and the leave-out-class task on it.

    Args:
        name: What it is called, in tables and in folders.
        make: Makes the graph, or the graph and its splits (``Loaded``), or a task of its own. It is called without
            arguments, or, if there are ``files``, with the folder below which they lie. One that makes a task may take
            ``split_seed``, ``ood_classes`` and ``inductive`` by these names, and is given them then.
        ood_classes: The classes left out unless others are asked for: numbers or names, ``()`` for none. None: whoever
            asks for a task has to say.
        description: What nodes, edges and classes are, in a line.
        files: Raw files by their path below the folder. They are looked for in a mirror and else downloaded, and the
            graph is kept once it is made.
        published: The size of the graph, to be shown while the files are not here.
        paper: The sizes of the parts in the paper's table (``train_id``, ``val_id``, ``val_ood``, ``test_id``,
            ``test_ood``), whose other columns are in ``published``.
        source: Where the data set comes from, for records.
    """

    name: str
    make: Callable[..., Graph | Loaded | Task]
    ood_classes: Classes | None = None
    description: str = ""
    files: dict[str, File] = field(default_factory=dict)
    published: Summary | None = None
    paper: tuple[int, int, int, int, int] | None = None
    source: str = ""

    def load(self, *, mirror: Folder = None, data_root: Folder = None) -> Loaded:
        """The graph and its splits; of a data set with files from the cache, if they were read before.

        Args:
            mirror: A folder with raw files, looked at first. Default: ``CREDALGNN_MIRROR``.
            data_root: Where graphs are kept once read, and files downloaded to. Default: ``CREDALGNN_DATA``, or the
                user's cache folder.
        """
        made = self._made({}, mirror, data_root)
        return Loaded(made.graph, [made.split]) if isinstance(made, Task) else made

    def task(
        self,
        split_seed: int = 0,
        *,
        ood_classes: Classes | None = None,
        inductive: bool = False,
        mirror: Folder = None,
        data_root: Folder = None,
    ) -> Task:
        """The leave-out-class task on the graph; see ``load_task``.

        Args:
            split_seed: Which of the published splits, or the seed of a random one.
            ood_classes: The classes to leave out, by number or name; None: those that the data set names.
            inductive: Whether training sees the training nodes alone.
            mirror: See ``load``.
            data_root: See ``load``.
        """
        options = {"split_seed": split_seed, "ood_classes": ood_classes, "inductive": inductive}
        made = self._made(options, mirror, data_root)
        if isinstance(made, Task):
            return replace(made, name=self.name, source=self.source)
        left_out = self.ood_classes if ood_classes is None else ood_classes
        if left_out is None:
            raise GraphError(
                f"{self.name} does not say which classes are left out: name them with ood_classes (--ood-classes), "
                f"none for a task without; the classes are {', '.join(made.graph.class_names[:12])}"
            )
        split = None
        if made.splits is not None:
            if not 0 <= split_seed < len(made.splits):
                last = len(made.splits) - 1
                raise GraphError(f"{self.name} has the public splits 0..{last}; there is no split {split_seed}")
            split = made.splits[split_seed]
        return Task.leave_out(made.graph, left_out, split, split_seed, self.name, inductive, source=self.source)

    def _made(self, options: dict[str, Any], mirror: Folder, data_root: Folder) -> Loaded | Task:
        from .cache import load_files

        if self.files:
            return load_files(self, mirror, data_root)
        known = inspect.signature(self.make).parameters
        passed = {name: value for name, value in options.items() if name in known}
        try:
            made = self.make(**passed)
        except GraphError:
            raise
        except Exception as error:  # whatever a function from outside raises
            raise GraphError(f"{self.source or self.name}: {type(error).__name__}: {error}") from error
        if isinstance(made, Task):
            defaults = {"split_seed": 0, "ood_classes": None, "inductive": made.inductive}
            ignored = [name for name, value in options.items() if name not in passed and value != defaults[name]]
            if ignored:
                raise OwnTaskError(
                    f"{self.name} is made as a task with a split and classes of its own: to choose {ignored[0]}, let "
                    f"the function that makes it take {ignored[0]}= or return a graph"
                )
            return made
        if isinstance(made, Graph):
            return Loaded(made)
        if not isinstance(made, Loaded):
            raise GraphError(f"{self.name}: a Graph, a Loaded or a Task is wanted, not {type(made).__name__}")
        return made

    def summary(self, data_root: Folder = None) -> Summary | None:
        """The size of the graph as far as it is known without reading raw files.

        Args:
            data_root: See ``load``.
        """
        from .cache import cached_summary

        if self.files:
            return cached_summary(self.name, data_root) or self.published
        if self.published is not None:
            return self.published
        graph = self.load().graph
        described = graph.describe()
        return Summary(described.nodes, described.edges, graph.num_classes, described.homophily)

    def place(self, mirror: Folder = None, data_root: Folder = None) -> str:
        """Where the graph is, in a few words for a listing.

        Args:
            mirror: See ``load``.
            data_root: See ``load``.
        """
        from .cache import cached_summary, mirror_of

        if not self.files:
            return "embedded"
        if cached_summary(self.name, data_root) is not None:
            return "yes"
        given = mirror_of(mirror)
        mirrored = given is not None and all((given / file).is_file() for file in self.files)
        return "raw files in the mirror" if mirrored else "no"
