"""Best points of searches, and ``best.json``: the hyper-parameters that `benchmark(tuned=)` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..graphs import Task
from ..methods import Method
from ..methods.training_data import EvalProtocol
from ..records.folder import EXPERIMENT
from ..records.schema import FORMAT, SETTINGS, RecordError, read_json
from ..runtime.errors import translated
from ..runtime.files import locked, to_json, write

BEST = "best.json"
_AGAIN = "delete it, and the search (tune) makes it again"


class Best(NamedTuple):
    """A point chosen by a search.

    Where the validation nodes cannot distinguish points, there is no value, and the defaults stay.

    Attributes:
        config: Hyper-parameters.
        value: Value on the validation nodes.
        seed: Seed of the trial.
    """

    config: dict[str, Any]
    value: float | None
    seed: int


def write_best(folder: Path, protocol: EvalProtocol, task: Task, methods: Mapping[str, Mapping[str, Any]]) -> None:
    """Add the results of searches on a task to the folder's ``best.json``.

    `methods` has for each method its `config`, that of its `components`, and the `value`.
    """
    with locked(folder / ".best", wait=True):
        tables = read_best(folder)["best"] if (folder / BEST).exists() else {}
        table = tables.get(task.name, {})
        if table.get("fingerprint") != task.fingerprint:  # other data, or another split
            table = {"fingerprint": task.fingerprint, "methods": {}}
        table["methods"].update(methods)
        write(folder / BEST, to_json({"format": FORMAT, "protocol": protocol, "best": {**tables, task.name: table}}))


def earlier_config(folder: Path, task: Task, method: str) -> dict[str, Any]:
    """Return the hyper-parameters that an earlier search in this folder chose for a method on this task."""
    table = read_best(folder)["best"].get(task.name, {}) if (folder / BEST).exists() else {}
    if table.get("fingerprint") != task.fingerprint or method not in table["methods"]:
        return {}
    return dict(table["methods"][method]["config"])


def read_tuned(folder: Path, task: Task, protocol: EvalProtocol) -> dict[str, dict[str, Any]]:
    """Return by method the hyper-parameters (`config`, `components`) that `tune` has chosen on a task.

    Results of other data, another split, setting or protocol are refused.
    """
    dataset = task.name
    if not (folder / BEST).exists():
        raise RecordError(f"{folder}: no hyper-parameters here ({BEST} is missing): give the folder of a search (tune)")
    if not (folder / EXPERIMENT).exists():
        raise RecordError(f"{folder}: no search here ({EXPERIMENT} is missing): give the folder of a search (tune)")
    experiment = read_json(folder / EXPERIMENT, "an experiment")
    if experiment.get("kind") != "tune":
        raise RecordError(f"{folder}: not of a search (tune): the points of a reproduction are for its own runs")
    setting, needed = experiment.get("setting", SETTINGS[0]), SETTINGS[task.inductive]
    if setting != needed:
        raise RecordError(f"{folder}: tuned with setting={setting}, not {needed}: tune again, or change `setting`")
    content = read_best(folder)
    if content.get("protocol") != protocol:
        raise RecordError(
            f"{folder}: tuned with protocol={content.get('protocol')}, not {protocol}: tune again, or change `protocol`"
        )
    tables = content["best"]
    if dataset not in tables:
        raise RecordError(f"{folder}: nothing was tuned for {dataset}, only for {', '.join(tables):.200}")
    methods = dict(tables[dataset]["methods"])
    if not all(isinstance(entry.get("components"), dict) for entry in methods.values()):
        raise RecordError(f"{folder / BEST}: damaged; {_AGAIN}")
    if tables[dataset]["fingerprint"] != task.fingerprint:
        raise RecordError(
            f"{folder}: {dataset} was tuned on other data or another split, whose validation nodes may be test nodes "
            "here"
        )
    return methods


def read_best(folder: Path) -> dict[str, Any]:
    """Read and check the folder's ``best.json``: the protocol, and for each data set its fingerprint and methods."""
    content = read_json(folder / BEST, "the result of a search", _AGAIN)
    with translated(
        (LookupError, TypeError, ValueError, AttributeError),
        lambda _: RecordError(f"{folder / BEST}: damaged; {_AGAIN}"),
    ):
        for table in content["best"].values():
            if not isinstance(table["fingerprint"], str):
                raise TypeError
            if not all(isinstance(entry["config"], dict) for entry in table["methods"].values()):
                raise TypeError
    return content


def comparable_best(
    folder: Path, methods: Sequence[type[Method]], task: Task, protocol: EvalProtocol
) -> dict[str, dict[str, Any]]:
    """Return the results of a search on a task if a table may compare these methods.

    Refused are tunable methods that were not tuned, and methods tuned with different shared models.
    """
    table = read_tuned(folder, task, protocol)
    kinds = {kind.name: kind for kind in methods if kind.search_space}
    missing = [name for name in kinds if name not in table]
    if missing:
        raise RecordError(
            f"{folder}: {', '.join(missing)} not tuned on {task.name}, and a table compares methods of one budget: "
            "tune them too, or leave them out of `methods`"
        )
    models: dict[str, dict[str, dict[str, Any]]] = {}  # of shared models, by kind and method
    for name, kind in kinds.items():
        if kind.components is not None:
            models.setdefault(kind.components.kind.name, {})[name] = table[name]["components"]
        elif kind.is_shared:
            models.setdefault(name, {})[name] = table[name]["config"]
    for below, configs in models.items():
        first = next(iter(configs))
        other = next((name for name, config in configs.items() if config != configs[first]), None)
        if other is not None:
            raise RecordError(
                f"{folder}: {first} and {other} were tuned with different {below} GNNs on {task.name}: tune both "
                f"again, {below} first or with them, or benchmark them apart"
            )
    return table
