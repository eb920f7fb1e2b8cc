"""The best points, and ``best.json``: the hyper-parameters that a folder's searches chose, for ``bench --tuned``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..graphs import Task
from ..methods import Method
from ..methods.training_data import EvalProtocol
from ..records.folder import EXPERIMENT
from ..records.schema import FORMAT, SETTINGS, RecordError, read_json
from ..runtime.files import locked, to_json, write

BEST = "best.json"
_AGAIN = "delete it, and credalgnn tune makes it again"


class Best(NamedTuple):
    """A point that a search has chosen.

    Where the validation nodes cannot tell points apart, there is no value, and the defaults stay.

    Args:
        config: Its hyper-parameters.
        value: What it is worth on the validation nodes.
        seed: Of its trial.
    """

    config: dict[str, Any]
    value: float | None
    seed: int


def write_best(folder: Path, protocol: EvalProtocol, task: Task, methods: Mapping[str, Mapping[str, Any]]) -> None:
    """Add what was chosen for methods on a task to the folder's ``best.json``.

    Args:
        folder: The experiment's folder.
        protocol: By which the points were chosen.
        task: On which they were chosen.
        methods: For each method a table with its ``config``, that of the models it stands on (``components``), and
            the ``value``.
    """
    with locked(folder / ".best", wait=True):
        tables = read_best(folder)["best"] if (folder / BEST).exists() else {}
        table = tables.get(task.name, {})
        if table.get("fingerprint") != task.fingerprint:  # other data, or another split
            table = {"fingerprint": task.fingerprint, "methods": {}}
        table["methods"].update(methods)
        write(folder / BEST, to_json({"format": FORMAT, "protocol": protocol, "best": {**tables, task.name: table}}))


def earlier_config(folder: Path, task: Task, method: str) -> dict[str, Any]:
    """The hyper-parameters that an earlier command chose in this folder for a method on this very task, if any.

    Args:
        folder: The experiment's folder.
        task: On which the method was tuned.
        method: Its name.
    """
    table = read_best(folder)["best"].get(task.name, {}) if (folder / BEST).exists() else {}
    if table.get("fingerprint") != task.fingerprint or method not in table["methods"]:
        return {}
    return dict(table["methods"][method]["config"])


def tuned(folder: Path, task: Task, protocol: EvalProtocol) -> dict[str, dict[str, Any]]:
    """The hyper-parameters that ``tune`` has chosen for the methods on a task.

    Args:
        folder: The ``--out`` of ``credalgnn tune``.
        task: The task that shall be run; what was tuned on other data, another split or in another setting is refused.
        protocol: The protocol of the runs; what was tuned by another is refused.

    Returns:
        For each method its own hyper-parameters (``config``) and those of the models that it was tuned on
        (``components``, empty if it stands on none).

    Raises:
        RecordError: Nothing was tuned there that fits, or a file is damaged.
    """
    dataset = task.name
    if not (folder / BEST).exists():
        raise RecordError(f"{folder}: nothing was tuned here ({BEST} is missing); credalgnn tune writes it")
    if not (folder / EXPERIMENT).exists():
        raise RecordError(f"{folder}: no folder of credalgnn tune ({EXPERIMENT} is missing); give its --out")
    experiment = read_json(folder / EXPERIMENT, "an experiment")
    if experiment.get("kind") != "tune":
        raise RecordError(f"{folder}: not of credalgnn tune; the points of a reproduction belong to its own runs")
    setting, wanted = experiment.get("setting", SETTINGS[0]), SETTINGS[task.inductive]
    if setting != wanted:
        raise RecordError(
            f"{folder}: tuned in the {setting} setting, and not in the {wanted} one: tune again, or give --setting"
        )
    content = read_best(folder)
    if content.get("protocol") != protocol:
        raise RecordError(
            f"{folder}: tuned by the {content.get('protocol')} protocol, and not by {protocol}: what may be looked at "
            "would differ; tune again, or give --protocol"
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
    """The folder's ``best.json``: the protocol, and for each data set its fingerprint and methods; checked.

    Args:
        folder: The experiment's folder.
    """
    content = read_json(folder / BEST, "what tuning chose", _AGAIN)
    try:
        for table in content["best"].values():
            if not isinstance(table["fingerprint"], str):
                raise TypeError
            if not all(isinstance(entry["config"], dict) for entry in table["methods"].values()):
                raise TypeError
    except (LookupError, TypeError, ValueError, AttributeError):
        raise RecordError(f"{folder / BEST}: damaged; {_AGAIN}") from None
    return content


def tuned_alike(
    folder: Path, methods: Sequence[type[Method]], task: Task, protocol: EvalProtocol
) -> dict[str, dict[str, Any]]:
    """What was tuned for a task, if a table may compare these methods.

    Args:
        folder: Of ``tune``.
        methods: Those that are compared; one that could have been tuned and was not is refused, and so are two that
            stand on models that were tuned apart.
        task: What they are compared on.
        protocol: Which must be that of the search.
    """
    table = tuned(folder, task, protocol)
    kinds = {kind.name: kind for kind in methods if kind.search_space}
    missing = [name for name in kinds if name not in table]
    if missing:
        raise RecordError(
            f"{folder}: {', '.join(missing)} not tuned on {task.name}, and a table compares methods of one budget: "
            "tune them too, or leave them out"
        )
    models: dict[str, dict[str, dict[str, Any]]] = {}  # hyper-parameters of what methods stand on, by kind and method
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
                f"again, {below} first or with them, or bench them apart"
            )
    return table
