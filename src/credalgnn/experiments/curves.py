"""What a probe measured at every level: AU, EU, strangers told and accuracy; by homophily, and beside the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .conditions import BASE, HOMOPHILY, RISES, ProbeTest, levels_of
from .measure import BINS
from .probe_results import ProbeResults, Record, doubt_of

Values = list[float | None]  # one a level; None where nothing was measured
# What stands beside the true posterior: mean bits of the true entropy, how far AU is from it, how far the prediction is
# from the truth (total variation), the mean widest interval, whether it is wider where the error is larger (Spearman),
# and the share of nodes whose true distribution lies in the set.
TRUTH = {
    "entropy": "true entropy (bits)",
    "bits": "AU, distance from it (bits)",
    "error": "error of the prediction",
    "width": "widest interval",
    "width_spearman": "width ~ error (Spearman)",
    "inside": "truth inside",
}


class Curve(NamedTuple):
    """Means over seeds at the levels of a test.

    Attributes:
        levels: From the unchanged graph to the strongest change; those of homophily in their order.
        epistemic: Mean EU of known test nodes at each.
        aleatoric: Mean AU.
        auroc: AUROC of EU for strangers.
        accuracy: Of known nodes.
    """

    levels: list[float]
    epistemic: Values
    aleatoric: Values
    auroc: Values
    accuracy: Values


def curve(results: ProbeResults, graph: str, method: str, test: ProbeTest) -> Curve | None:
    """How a method goes with the levels of a test; None where fewer than two were measured.

    Args:
        results: Of a probe.
        graph: The data set.
        method: The method.
        test: One with a scale: ``RISES`` or ``HOMOPHILY``.
    """
    by_level: dict[float, list[Record]] = {}
    every: set[float] = set()
    for record in results.done:
        probed = record["probe"]
        if probed["graph"] != graph or probed["test"] not in (BASE, test.name):
            continue
        level = float(test.start or 0.0) if probed["test"] == BASE else float(probed["level"])
        every.add(level)
        if record["method"] == method:
            by_level.setdefault(level, []).append(record)
    if len(by_level) < 2:
        return None
    levels = sorted(every) if test is HOMOPHILY else levels_of(test, list(every))

    def means(value: Callable[[Record], float | None]) -> Values:
        return [mean_of(value(record) for record in by_level.get(level, ())) for level in levels]

    def score(part: str, record: Record) -> float | None:
        name = record["probe"][part]
        return None if name is None else record["probe"]["mean"][name]

    return Curve(
        levels,
        means(lambda record: score("epistemic", record)),
        means(lambda record: score("aleatoric", record)),
        means(lambda record: record["scores"][record["probe"]["epistemic"]]["auroc"]),
        means(lambda record: record["metrics"].get("accuracy")),
    )


def by_neighbours(results: ProbeResults, graph: str, method: str) -> dict[str, Values]:
    """In bins of local homophily, means over seeds: nodes, AUROC of EU for strangers, accuracy; empty if not measured.

    Args:
        results: Of a probe.
        graph: The data set.
        method: The method.
    """
    rows: dict[str, list[Sequence[float | None]]] = {}
    for record in results.done:
        probed = record["probe"]
        if (probed["graph"], record["method"], probed["test"]) == (graph, method, BASE) and "homophily" in probed:
            bins = probed["homophily"]
            columns = {**{name: bins[name] for name in ("known", "ood", "accuracy")},
                       "auroc": bins["auroc"][probed["epistemic"]]}  # fmt: skip
            for name, values in columns.items():
                rows.setdefault(name, []).append(values)
    return {name: [mean_of(column) for column in zip(*values, strict=True)] for name, values in rows.items()}


def beside_truth(records: Iterable[Record]) -> dict[str, float | None]:
    """Runs beside the true posterior, on average: what ``TRUTH`` names.

    Args:
        records: Of one method.
    """
    rows: list[tuple[float | None, ...]] = []
    for record in records:
        truth, doubt = record["probe"]["truth"], doubt_of(record["probe"])
        # A difference in bits is worth a number only of what is measured in bits.
        bits = truth["bits"][doubt] if doubt in ("AU", "entropy") else None
        rows.append((truth["entropy"], bits, *(truth.get(name) for name in list(TRUTH)[2:])))
    return dict(zip(TRUTH, map(mean_of, zip(*rows, strict=True)), strict=True)) if rows else {}


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of what is there; None where nothing is.

    Args:
        values: Numbers or None.
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def every_value(results: ProbeResults) -> Iterator[tuple[Any, ...]]:
    """All of this, one line a value: graph, method, test, level, quantity, mean over seeds.

    Args:
        results: Of a probe.
    """
    for graph in results.graphs:
        for method in results.methods:
            for test in (*RISES, HOMOPHILY):
                found = curve(results, graph, method, test)
                if found is not None:
                    for quantity in Curve._fields[1:]:
                        for level, value in zip(found.levels, getattr(found, quantity), strict=True):
                            yield graph, method, test.name, level, quantity, value
            for quantity, values in by_neighbours(results, graph, method).items():
                for edge, value in zip(BINS, values, strict=False):
                    yield graph, method, "local-homophily", round(float(edge), 3), quantity, value
            beside: dict[float, list[Record]] = {}
            for record in results.done:
                probed = record["probe"]
                if (probed["graph"], record["method"]) == (graph, method) and "truth" in probed:
                    drawn = HOMOPHILY.start if probed["test"] == BASE else probed["level"]
                    beside.setdefault(float(drawn or 0.0), []).append(record)
            for level, records in sorted(beside.items()):
                for quantity, value in beside_truth(records).items():
                    yield graph, method, HOMOPHILY.name, level, f"truth-{quantity}", value
