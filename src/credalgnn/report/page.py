"""A benchmark as one HTML file: tables, curves and single nodes, without a server, a network or other files.

Python picks and rounds what the page needs; the scripts in ``web`` show it. All data go into one JSON script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..metrics import MARKS, METRICS
from ..records.folder import Folder, read_nodes
from ..records.node_tables import column_names, read_columns
from ..records.schema import RecordError, read_record
from ..runtime.files import write
from ..runtime.names import install_hint
from .document import distinct_numbers, document, numbers
from .summary import Row, TaskKey, make_rows

NODES = 600  # test nodes of one data set that go into the page
MANY = 20  # with more classes than this, fewer nodes
TOP = 15  # extreme nodes of each kind that are always among them
EPOCHS = 80  # points of a training curve
SCRIPTS = ("common.js", "charts.js", "chosen.js", "results.js", "figures.js", "nodes.js", "meet.js", "start.js")
Record = Mapping[str, Any]


def write_page(
    records: Sequence[dict[str, Any]], folders: Sequence[Path], path: Path, title: str = "credalgnn benchmark"
) -> None:
    """Write records, and the predictions per node that lie in the folders they are from, as one HTML file."""
    rows = make_rows(records)
    keys = dict.fromkeys([row.task for row in rows] + [TaskKey.of(record) for record in records])
    tasks = [
        _task(key, [record for record in records if TaskKey.of(record) == key], rows, [Path(one) for one in folders])
        for key in keys
    ]
    data = {
        "title": title,
        "tasks": [task for task in tasks if task["methods"]],
        "failed": [
            {name: record.get(name) for name in ("dataset", "protocol", "setting", "method", "seed", "error")}
            for record in records
            if record["status"] != "done"
        ],
        "versions": _versions(records),
        "finished": max((str(record["finished"]) for record in records if record.get("finished")), default=None),
        "metrics": [
            {
                "key": metric.key,
                "label": metric.label,
                "better": metric.better,
                "percent": metric.percent,
                "meaning": metric.meaning,
            }
            for metric in METRICS.values()
            if metric.shown
        ],
        "marks": {name: {"meaning": mark.meaning, "advice": mark.advice} for name, mark in MARKS.items()},
    }
    write(Path(path), document(title, data, "page.html", SCRIPTS))


def _versions(records: Iterable[Record]) -> dict[str, list[str]]:
    """Every version of every package that made a record; more than one is worth seeing."""
    result: dict[str, dict[str, None]] = {}
    for record in records:
        for name, version in (record.get("versions") or {}).items():
            result.setdefault(name, {})[str(version)] = None
    return {name: sorted(versions) for name, versions in result.items()}


def _task(key: TaskKey, records: Sequence[Record], rows: Iterable[Row], folders: Sequence[Path]) -> dict[str, Any]:
    """All that is shown of one data set under one protocol and setting."""
    mine = [row for row in rows if row.task == key]
    done = sorted(
        (record for record in records if record["status"] == "done"), key=lambda r: (r["seed"], r["split_seed"])
    )
    methods = {}
    for method in dict.fromkeys(row.method for row in mine):
        runs = [record for record in done if record["method"] == method]
        if runs:
            trivial = any(row.trivial for row in mine if row.method == method)
            methods[method] = {"trivial": trivial, **_method(runs)}
    return {
        **key._asdict(),
        "classes": done[0]["class_names"] if done else [],
        "ood": done[0]["ood_names"] if done else [],
        "counts": done[0]["counts"] if done else {},
        "seeds": sorted({record["seed"] for record in done}),
        "rows": [_row(row) for row in mine],
        "methods": methods,
        "nodes": _nodes(key.dataset, done, folders),
    }


def _row(row: Row) -> dict[str, Any]:
    values = {
        key: numbers((s.mean, s.std, s.low, s.high), 9) for key, s in row.values.items()
    }  # rounded once, when shown
    names = ("method", "score", "headline", "trivial", "marks", "disqualified", "runs", "failed", "rank", "tested",
             "competes")  # fmt: skip
    return {**{name: getattr(row, name) for name in names}, "values": values}


def _method(runs: Sequence[Record]) -> dict[str, Any]:
    """Curves of one method over its runs."""
    headline, scores = runs[0]["headline"], list(runs[0]["scores"])
    return {
        "headline": headline,
        "scores": scores,
        "roc": _band(run["curves"]["roc"].get(headline) for run in runs),
        "rejection": _band(run["curves"]["rejection"].get(headline) for run in runs),
        "histograms": {name: _histogram(runs[0]["curves"]["histogram"].get(name)) for name in scores},
        "seed": runs[0]["seed"],
        "training": [_training(run) for run in runs if run["curves"]["training"]],
        "diagnosis": runs[0].get("diagnosis"),
        "config": runs[0]["config"],
    }


def _band(curves: Iterable[Sequence[float | None] | None]) -> dict[str, Any] | None:
    """Mean, least and largest of curves on one grid."""
    whole = [curve for curve in curves if curve and None not in curve]
    if not whole:
        return None
    stack = np.array(whole, dtype=float)
    parts = {"mean": stack.mean(0), "low": stack.min(0), "high": stack.max(0)}
    return {name: numbers(values) for name, values in parts.items()} | {"runs": len(whole)}


def _histogram(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {**result, "edges": distinct_numbers(result["edges"])} if result else None


def _training(run: Record) -> dict[str, Any]:
    """At most ``EPOCHS`` epochs of a training, evenly spread, the first and the last among them."""
    curve = run["curves"]["training"]
    kept = [curve[i] for i in np.unique(np.linspace(0, len(curve) - 1, EPOCHS).round().astype(int))]
    epoch, loss, monitor = zip(*kept, strict=True)
    return {"seed": run["seed"], "epoch": list(epoch), "loss": numbers(loss), "monitor": numbers(monitor)}


class _Table(NamedTuple):
    """Test nodes of one Parquet file in the order of their numbers."""

    path: Path
    headline: str
    node: NDArray[np.int64]
    ood: NDArray[np.bool_]
    label: NDArray[np.int64]
    prediction: NDArray[np.int64] | None
    scores: dict[str, NDArray[np.float64]]
    credal: bool

    def typical(self) -> dict[str, int]:
        """Of a method with credal sets, the position of the ID and of the OOD node at the median of the headline score.

        The lower one of two; ties in the order of the numbers. Chosen from all test nodes, so that nobody picks them.
        """
        order = np.argsort(self.scores[self.headline], kind="stable")
        sides = {"id": order[~self.ood[order]], "ood": order[self.ood[order]]} if self.credal else {}
        return {kind: int(one[(len(one) - 1) // 2]) for kind, one in sides.items() if len(one)}

    def extremes(self, top: int) -> dict[str, NDArray[np.int64]]:
        """Positions of the extreme nodes of each kind, the most extreme first; ties in the order of the numbers."""
        both = {"EU", "AU"} <= set(self.scores)
        kinds = {"epistemic": "EU", "aleatoric": "AU"} if both else {"uncertain": self.headline}
        result = {kind: np.argsort(-self.scores[score], kind="stable")[:top] for kind, score in kinds.items()}
        surest = np.argsort(self.scores.get("TU", self.scores[self.headline]), kind="stable")
        if self.prediction is not None:
            result["wrong"] = surest[(~self.ood & (self.prediction != self.label))[surest]][:top]
        return result | {"ood": surest[self.ood[surest]][:top]}


def _nodes(dataset: str, done: Sequence[Record], folders: Sequence[Path]) -> dict[str, Any]:
    """The test nodes that go into the page: of the first seed for which most methods have predictions."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return {"missing": f"Predictions per node cannot be read without pyarrow: {install_hint('pyarrow')}."}
    result: dict[tuple[int, int, str], list[tuple[Path, Record]]] = {}
    for record in done:
        if (found := _folder_of(record, folders)) is not None:
            task = (record["seed"], record["split_seed"], record["fingerprint"])
            result.setdefault(task, []).append(found)
    if not result:
        return {"missing": "There are no predictions per node: run the benchmark with --predictions first."}
    runs = result[max(result, key=lambda task: (len(result[task]), -task[0], -task[1]))]
    run, classes = runs[0][1], len(runs[0][1]["class_names"])
    tables = {record["method"]: _read(_parquet(folder, record), record) for folder, record in runs}
    first = next(iter(tables.values()))
    tables = {name: table for name, table in tables.items() if np.array_equal(table.node, first.node)}
    top, picked, sample = _choose(list(tables.values()), max(NODES // 4, NODES * MANY // max(MANY, classes)))
    wanted = first.node[picked]
    names: dict[str, int] = {}
    shown: dict[bytes, str] = {}
    return {
        "seed": run["seed"],
        "total": len(first.node),
        "node": wanted.tolist(),
        "class": [names.setdefault(one, len(names)) for one in _columns(first.path, ["class"], wanted)["class"]],
        "ood": first.ood[picked].astype(int).tolist(),
        "label": first.label[picked].tolist(),
        "sample": sample[picked].astype(int).tolist(),
        "methods": {name: _predictions(name, table, top, picked, classes, shown) for name, table in tables.items()},
        "graph": _graph([folder for folder, _ in runs], dataset, wanted, names),
        "names": list(names),  # made last: the neighbours have added theirs
    }


def _parquet(folder: Path, record: Record) -> Path:
    return Folder(folder).predictions(record["dataset"], record["method"], record["seed"])


def _folder_of(record: Record, folders: Iterable[Path]) -> tuple[Path, Record] | None:
    """The folder that holds predictions of this very run, and its record there, which vouches for them."""
    for folder in folders:
        run = Folder(folder).record(record["dataset"], record["method"], record["seed"])
        if _parquet(folder, record).is_file() and run.is_file():
            there = read_record(run)
            same = ("protocol", "setting", "split_seed", "fingerprint", "config")
            if there.get("predictions") and all(there[name] == record[name] for name in same):
                return folder, there
    return None


def _choose(tables: Sequence[_Table], limit: int) -> tuple[int, NDArray[np.int64], NDArray[np.bool_]]:
    """At most ``limit`` nodes: how many of each extreme, the positions of all, and which are of the random sample."""
    total = len(tables[0].node)
    if total <= limit:
        return TOP, np.arange(total), np.ones(total, dtype=bool)
    every = [one for table in tables for one in table.extremes(TOP).values()]
    middle = np.array([one for table in tables for one in table.typical().values()], dtype=np.int64)
    for top in range(TOP, 0, -1):  # extremes take two thirds at most
        extreme = np.unique(np.concatenate([middle, *(one[:top] for one in every)]))
        if len(extreme) <= limit * 2 // 3:
            break
    chosen, sample = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    chosen[extreme] = True
    drawn = np.random.default_rng(0).permutation(total)
    many = np.cumsum(~chosen[drawn]) + len(extreme)  # nodes chosen once a draw is in
    sample[drawn[: int(np.searchsorted(many, limit)) + 1]] = True
    chosen |= sample
    return top, np.flatnonzero(chosen), sample


def _predictions(
    name: str, table: _Table, top: int, picked: NDArray[np.int64], classes: int, shown: dict[bytes, str]
) -> dict[str, Any]:
    """What one method says of the picked nodes. Methods on one backbone share probabilities: they are kept once."""
    from scipy.stats import rankdata

    rank = (rankdata(table.scores[table.headline]) - 0.5) / len(table.node)
    place = {int(position): i for i, position in enumerate(picked)}
    result: dict[str, Any] = {
        "prediction": None if table.prediction is None else table.prediction[picked].tolist(),
        "scores": {score: distinct_numbers(values[picked]) for score, values in table.scores.items()},
        "rank": [round(float(share), 4) for share in rank[picked]],
        "picks": {kind: [place[int(one)] for one in places] for kind, places in table.extremes(top).items()},
        "typical": {kind: place[one] for kind, one in table.typical().items()},
    }
    kinds = () if table.prediction is None else ("p", "lower", "upper")
    wanted = ["reasons", *(f"{kind}_{k}" for kind in kinds for k in range(classes))]
    columns = _columns(table.path, wanted, table.node[picked])
    if "reasons" in columns:
        result["reasons"] = [str(one or "") for one in columns["reasons"]]
    for kind in kinds:
        values = [columns[f"{kind}_{k}"] for k in range(classes) if f"{kind}_{k}" in columns]
        if len(values) == classes:
            stack = np.array(values, dtype=float).T
            same = shown.setdefault(stack.tobytes(), name) if kind == "p" else name
            stack[stack < 1e-6] = 0.0
            result[kind] = {"as": same} if same != name else [numbers(row) for row in stack]
    return result


def _read(path: Path, record: Record) -> _Table:
    """The predictions of a run that its record names."""
    import pyarrow.compute as pc

    read_nodes(path, record["predictions"])
    headline, there = record["headline"], column_names(path)
    lacking = {"node", "split", "ood", "label", "class", "prediction", f"score_{headline}"}.difference(there)
    if lacking:
        raise RecordError(f"{path}: without {min(lacking)}, so of another run; delete it, and it is made again")
    names = [name for name in there if not re.fullmatch(r"(p|lower|upper)_\d+|class|reasons", name)]
    table = read_columns(path, names)
    table = table.filter(pc.equal(table["split"], "test")).drop_columns("split").sort_by("node")
    column = {name: table[name].to_numpy() for name in table.column_names if name != "prediction"}
    prediction = None if table["prediction"].null_count else table["prediction"].to_numpy().astype(np.int64)
    scores = {name.removeprefix("score_"): column[name].astype(float) for name in names if name.startswith("score_")}
    credal = "lower_0" in there and prediction is not None
    return _Table(path, headline, column["node"], column["ood"], column["label"], prediction, scores, credal)


def _columns(path: Path, names: Sequence[str], nodes: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Columns of a Parquet file, as far as it has them, for the given nodes; None for a node that is not in it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    read_nodes(path)
    there = [name for name in names if name in column_names(path)]
    table = read_columns(path, ["node", *there])
    table = table.filter(pc.is_in(table["node"], pa.array(nodes, table["node"].type)))
    place = {node: i for i, node in enumerate(table["node"].to_pylist())}
    result = {name: table[name].to_pylist() for name in there}
    rows = [place.get(int(node)) for node in nodes]
    return {name: [None if row is None else values[row] for row in rows] for name, values in result.items()}


def _graph(
    folders: Iterable[Path], dataset: str, nodes: NDArray[np.int64], names: dict[str, int]
) -> dict[str, Any] | None:
    """Degree, homophily and neighbours of the nodes; class names go into ``names``."""
    for folder in folders:
        path = Folder(folder).graph(dataset)
        if path.is_file():
            wanted = ["degree", "homophily", "neighbours", "neighbour_classes"]
            if lacking := {"node", *wanted}.difference(column_names(path)):
                raise RecordError(
                    f"{path}: damaged (without {min(lacking)}); delete it, and the benchmark makes it again"
                )
            result = _columns(path, wanted, nodes)
            classes = [[names.setdefault(one, len(names)) for one in row or []] for row in result["neighbour_classes"]]
            return {
                "degree": result["degree"],
                "homophily": numbers(result["homophily"]),
                "neighbours": [row or [] for row in result["neighbours"]],
                "neighbour_classes": classes,
            }
    return None
