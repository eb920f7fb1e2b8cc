"""Tables of single nodes: predictions, true classes, and properties in the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ..graphs import Task, local_homophily
from ..methods import Method, Prediction
from ..metrics.evaluation import rows_of_part
from ..runtime.reading import Unreadable, check_regular, read_parquet
from .schema import RecordError

if TYPE_CHECKING:
    import pyarrow

Columns: TypeAlias = dict[str, NDArray[Any] | list[Any]]

REASONS = 20_000  # nodes up to which tables have reasons: texts take time and space


def columns(prediction: Prediction, task: Task, method: Method | None = None) -> Columns:
    """Return a prediction as a table with labels and, if the method gives them, reasons; one row per node."""
    parts = {"val": task.validation, "test": task.test}
    rows = torch.cat([rows_of_part(prediction, part, name) for name, part in parts.items()])
    nodes, labels = (torch.cat([getattr(part, name) for part in parts.values()]) for name in ("nodes", "labels"))
    table: Columns = {
        "node": nodes.numpy(),
        "split": np.repeat(list(parts), [len(part.nodes) for part in parts.values()]),
        "label": labels.numpy(),
        "class": np.array(task.graph.class_names, dtype=object)[task.graph.labels[nodes].numpy()],
        "ood": (labels < 0).numpy(),
        "prediction": [None] * len(nodes),
    }
    table.update({f"score_{name}": values[rows].numpy() for name, values in prediction.scores.items()})
    if prediction.probabilities is not None:
        table["prediction"] = prediction.classes[rows].numpy()
        table.update({f"p_{k}": p.numpy() for k, p in enumerate(prediction.probabilities[rows].unbind(-1))})
    if prediction.credal is not None:
        for side in ("lower", "upper"):
            each = getattr(prediction.credal, side)[rows].double().unbind(-1)
            table.update({f"{side}_{k}": bound.numpy() for k, bound in enumerate(each)})
    if method is not None and len(nodes) <= REASONS and (reasons := method.reasons(nodes)) is not None:
        table["reasons"] = list(reasons)
    return table


NEIGHBOURS = 30  # neighbours of a node that the page shows


def graph_columns(tasks: Sequence[Task]) -> Columns:
    """Return degree, homophily, neighbours and their classes of the validation and test nodes of a graph's splits."""
    graph = tasks[0].graph
    nodes = torch.cat([part.nodes for task in tasks for part in (task.validation, task.test)])
    nodes = torch.from_numpy(np.unique(nodes.numpy()))
    starts, sources, _ = graph.in_edges
    begin, degree = starts[nodes].tolist(), starts.diff()[nodes]
    ends = zip(begin, degree.tolist(), strict=True)
    near = [sources[first : first + count].sort().values[:NEIGHBOURS].long().numpy() for first, count in ends]
    share = local_homophily(graph)[nodes]
    names = np.array([*graph.class_names, "unknown"], dtype=object)  # the last serves label -1
    labels = graph.labels.numpy()
    return {
        "node": nodes.numpy(),
        "degree": degree.numpy(),
        "homophily": [None if value != value else value for value in share.tolist()],
        "neighbours": near,
        "neighbour_classes": [names[labels[row]] for row in near],
    }


# The types of columns, numbers at the end of names aside; these may miss values, and no others.
_TYPES = {
    "integer": ("node", "label", "prediction", "degree"),
    "floating": ("score", "p", "lower", "upper", "homophily"),
    "boolean": ("ood",),
    "string": ("split", "class", "reasons"),
}
_LISTS = {"neighbours": "integer", "neighbour_classes": "string"}
_NULLABLE = ("prediction", "homophily", "reasons")


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of a Parquet file of nodes."""
    import pyarrow.parquet as pq

    with _whole(path):
        check_regular(path)
        return list(pq.read_schema(path).names)


def read_columns(path: Path, names: Sequence[str]) -> pyarrow.Table:
    """Read columns of a Parquet file of nodes; all must be there, complete and of their types."""
    with _whole(path):
        table = read_parquet(path, names)
        for name in names:
            for part, is_right in _parts(name, table[name]):
                if not is_right(part.type) or (part.null_count and name not in _NULLABLE):
                    raise Unreadable(f"{name} is {part.type}{', and misses values' if part.null_count else ''}")
        return table


def _parts(name: str, column: Any) -> Iterator[tuple[Any, Callable[[Any], bool]]]:
    """Arrays of a column to check: itself and, for lists, their elements."""
    import pyarrow as pa
    import pyarrow.compute as pc

    stem = re.sub(r"^(score)_.*|^(p|lower|upper)_\d+$", lambda match: match[1] or match[2], name)
    if name in _LISTS:
        yield column, pa.types.is_list
        if pa.types.is_list(column.type):
            yield pc.list_flatten(column), getattr(pa.types, f"is_{_LISTS[name]}")
        return
    kind = next((kind for kind, stems in _TYPES.items() if stem in stems), None)
    if kind is not None:
        yield column, getattr(pa.types, f"is_{kind}")


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Name a Parquet file that cannot be read, with the remedy."""
    import pyarrow as pa

    try:
        yield
    except (Unreadable, pa.ArrowException, LookupError, OSError) as error:
        message = " ".join(str(error).split())
        raise RecordError(f"{path}: damaged ({message:.120}); delete it, and the benchmark makes it again") from None
