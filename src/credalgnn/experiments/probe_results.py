"""Results of a probe: one number per method and test, and curves over levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..methods import METHODS
from ..records.folder import EXPERIMENT
from ..records.schema import RecordError, read_json
from ..report.summary import Summary, read_runs, summarise
from .conditions import BASE, BINS, DETECTIONS, HOMOPHILY, OOD_TEST, RISES, ProbeTest, levels_of

KIND = "probe"  # of an experiment, in its folder
OPEN = 0.05  # bits of the true posterior's mean entropy, below which there is nothing to be in doubt about
Record = Mapping[str, Any]


class Question(NamedTuple):
    """A column of the table of answers.

    Attributes:
        name: Of the test, or of what is asked of the true posterior.
        label: For people.
        meaning: What is asked, and what 1, 0 and -1 mean.
        lowest: The least that an answer can be.
    """

    name: str
    label: str
    meaning: str
    lowest: float = -1.0


def _asked(test: ProbeTest) -> Question:
    if test in RISES:
        other = "AU" if test.component == "EU" else "EU"
        scale = f"1: only {test.component} rises; 0: both rise alike, or nothing moves; below: {other} moves instead"
    else:
        scale = "1: all of them score higher than all others; 0: guessing; -1: all lower (twice the AUROC, less 1)"
    return Question(test.name, test.label, f"{test.meaning}. {scale}")


QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        *map(_asked, (*RISES, *DETECTIONS, OOD_TEST)),
        Question(
            "true-entropy", "AU ~ truth",
            "csbm, all homophilies that leave anything open: Spearman's correlation of AU (of the entropy where there "
            "is no AU) with the entropy of the true posterior; 1: the same order",
        ),
        Question(
            "true-error", "EU ~ error",
            "the same graphs: Spearman's correlation of EU with how far the point prediction is from the true "
            "posterior (total variation)",
        ),
        Question(
            "inside", "truth inside",
            "the same graphs: share of nodes whose true posterior lies in the credal set, within 0.02; read it beside "
            "the width",
            0.0,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What one method answers to one question on one graph.

    Attributes:
        graph: The data set.
        method: The method.
        question: The name of the question.
        value: Over seeds: from -1 (wrong direction) by 0 (no answer) to 1 (right). Of two components the mean is that
            of mean changes, and the spread that of single seeds.
        epistemic: The change of EU, or its AUROC, over seeds; None where the question has none.
        aleatoric: The same of AU; None where the method has no AU.
    """

    graph: str
    method: str
    question: str
    value: Summary
    epistemic: Summary | None = None
    aleatoric: Summary | None = None


@dataclass(frozen=True, eq=False)
class ProbeResults:
    """What a probe has measured.

    Attributes:
        records: One per run.
        total: How many runs there are, with those that failed or are left.
        failed: How many runs failed.
        left: How many runs are still to be done: the same call does them.
    """

    records: list[dict[str, Any]]
    total: int = 0
    failed: int = 0
    left: int = 0

    @cached_property
    def done(self) -> list[dict[str, Any]]:
        """The records of runs that ended well."""
        return [record for record in self.records if record["status"] == "done"]

    @property
    def graphs(self) -> list[str]:
        return list(dict.fromkeys(record["probe"]["graph"] for record in self.done))

    @property
    def methods(self) -> list[str]:
        order = {name: number for number, name in enumerate(METHODS)}
        names = dict.fromkeys(record["method"] for record in self.done)
        return sorted(names, key=lambda name: order.get(name, len(order)))

    @cached_property
    def answers(self) -> list[Answer]:
        """One for each graph, method and question that can be answered."""
        cells: dict[tuple[str, str], dict[tuple[str, float, int], Record]] = {}
        for record in self.done:
            probed = record["probe"]
            cell = cells.setdefault((probed["graph"], record["method"]), {})
            cell[probed["test"], probed["level"], record["seed"]] = record
        return [
            answer
            for graph in self.graphs
            for method in self.methods
            if (graph, method) in cells
            for answer in (
                *_answers(graph, method, cells[graph, method]),
                *_against_truth(graph, method, self.truths(graph, method)),
            )
        ]

    @cached_property
    def open_levels(self) -> set[tuple[str, str, float]]:
        """The graphs, tests and levels whose true posterior leaves anything open, on average over seeds."""
        entropies: dict[tuple[str, str, float], list[float]] = {}
        for record in self.done:
            probed = record["probe"]
            if "truth" in probed:
                key = probed["graph"], probed["test"], probed["level"]
                entropies.setdefault(key, []).append(probed["truth"]["entropy"])
        return {key for key, values in entropies.items() if np.mean(values) >= OPEN}

    def truths(self, graph: str, method: str) -> list[Record]:
        """The runs of a method beside a true posterior that leaves anything open; none unless all of them are there.

        Args:
            graph: The data set.
            method: The method.
        """
        runs: list[Record] = [
            record
            for record in self.done
            if (record["probe"]["graph"], record["method"]) == (graph, method)
            and (graph, record["probe"]["test"], record["probe"]["level"]) in self.open_levels
        ]
        wanted = sum(name == graph for name, _, _ in self.open_levels)
        seeds = {record["seed"] for record in runs}
        return runs if len(runs) == wanted * len(seeds) else []

    def overall(self) -> dict[str, dict[str, float]]:
        """By method and question the mean over graphs, where the method was asked on all graphs that were."""
        asked: dict[str, set[str]] = {}
        values: dict[tuple[str, str], dict[str, float]] = {}
        for answer in self.answers:
            asked.setdefault(answer.question, set()).add(answer.graph)
            values.setdefault((answer.method, answer.question), {})[answer.graph] = answer.value.mean
        result: dict[str, dict[str, float]] = {}
        for (method, question), by_graph in values.items():
            if set(by_graph) == asked[question]:
                result.setdefault(method, {})[question] = float(np.mean(list(by_graph.values())))
        return result

    def write(self, out: str | Path) -> Path:
        """Write ``probe.html``, ``probe.md``, ``probe.csv`` and, if matplotlib is there, ``probe.png``.

        Args:
            out: The folder to write to.

        Returns:
            The page.
        """
        from .probe_report import write_probe

        return write_probe(self, Path(out))

    def __str__(self) -> str:
        from .probe_report import as_text

        return as_text(self)


def is_probe(folder: Path) -> bool:
    """Whether a folder is that of a probe; what cannot be read is none.

    Args:
        folder: The folder.
    """
    try:
        return bool(read_json(folder / EXPERIMENT, "an experiment's description").get("kind") == KIND)
    except (RecordError, OSError):
        return False


def read_probes(folders: Sequence[Path], total: int = 0, failed: int = 0, left: int = 0) -> ProbeResults:
    """The records of one or more folders of probes.

    Args:
        folders: The folders.
        total: How many runs there are.
        failed: How many failed.
        left: How many are still to be done.
    """
    records = read_runs(folders)
    other = next((record for record in records if record["status"] == "done" and "probe" not in record), None)
    if other is not None:
        raise RecordError(
            f"{other['dataset']} {other['method']} seed {other['seed']} is no run of a probe: give folders of "
            "credalgnn probe only"
        )
    return ProbeResults(records, total or len(records), failed, left)


def cliffs_delta(before: Sequence[float], after: Sequence[float]) -> float:
    """How much higher values have become: the chance that one after is above one before, less the chance of below.

    From -1 (all are lower) by 0 to 1 (all are higher); the unit of the values plays no part.

    Args:
        before: Quantiles of the values.
        after: Quantiles of the values after a change.
    """
    difference = np.sign(np.subtract.outer(np.asarray(after, float), np.asarray(before, float)))
    return float(difference.mean())


def rise(wanted: float, other: float) -> float:
    """One number for "this component must rise and the other stay", from the Cliff's deltas of both.

    What the wanted one rises counts for it, and any change of the other against it: two names for one number, and two
    numbers that mirror each other, get 0 where the wanted one rises, and less where it falls.

    Args:
        wanted: Of the component that must rise.
        other: Of the one that must stay.
    """
    return max(-1.0, wanted - abs(other))


def _answers(graph: str, method: str, runs: Mapping[tuple[str, float, int], Record]) -> Iterable[Answer]:
    seeds = sorted({seed for _, _, seed in runs})
    base = {seed: runs[BASE, 0.0, seed] for seed in seeds if (BASE, 0.0, seed) in runs}
    for test in RISES:
        strongest = {seed: runs[key] for seed in seeds if (key := (test.name, test.levels[-1], seed)) in runs}
        pairs = [(base[seed]["probe"], record["probe"]) for seed, record in strongest.items() if seed in base]
        if pairs and pairs[0][0]["aleatoric"] is not None:
            changes = {part: [_change(*pair, part) for pair in pairs] for part in ("epistemic", "aleatoric")}
            wanted, other = ("epistemic", "aleatoric") if test.component == "EU" else ("aleatoric", "epistemic")
            moved = {part: summarise(values) for part, values in changes.items()}
            values = [rise(*each) for each in zip(changes[wanted], changes[other], strict=True)]
            # What seeds move in both directions cancels before the sign is taken away.
            overall = replace(summarise(values), mean=rise(moved[wanted].mean, moved[other].mean))
            yield Answer(graph, method, test.name, overall, moved["epistemic"], moved["aleatoric"])
    for test in DETECTIONS:
        found = [(record["probe"], record["probe"].get("changed", {}).get(test.name, {})) for record in base.values()]
        yield from _told(graph, method, test.name, found)
    strangers = [
        (record["probe"], {name: metrics["auroc"] for name, metrics in record["scores"].items()})
        for record in base.values()
    ]
    yield from _told(graph, method, OOD_TEST.name, strangers)


def _change(before: Mapping[str, Any], after: Mapping[str, Any], part: str) -> float:
    return cliffs_delta(before["quantiles"][before[part]], after["quantiles"][after[part]])


def _told(
    graph: str, method: str, question: str, runs: Sequence[tuple[Mapping[str, Any], Mapping[str, float | None]]]
) -> Iterable[Answer]:
    """How well EU tells some nodes; AU beside it. Of each run what was probed, and the AUROC of its scores."""
    columns: dict[str, list[float]] = {}
    for probed, aurocs in runs:
        for part in ("epistemic", "aleatoric"):
            value = aurocs.get(probed[part])
            if value is not None:
                columns.setdefault(part, []).append(value)
    if "epistemic" in columns:
        told = summarise([2.0 * value - 1.0 for value in columns["epistemic"]])
        parts = [summarise(columns[part]) if part in columns else None for part in ("epistemic", "aleatoric")]
        yield Answer(graph, method, question, told, *parts)


def doubt_of(probed: Mapping[str, Any]) -> str | None:
    """The score to be held against the true entropy: AU, or of methods without one the entropy.

    Args:
        probed: What was measured of a run.
    """
    return probed["aleatoric"] or ("entropy" if "entropy" in probed["quantiles"] else None)


def _against_truth(graph: str, method: str, records: Sequence[Record]) -> Iterable[Answer]:
    """AU beside the true entropy, EU beside the error of the point prediction, and how often the set has the truth.

    Means over graphs of all homophilies, a value a seed. A score that never changes has no correlation: no answer, 0.
    """
    columns: dict[str, dict[int, list[float]]] = {}
    for record in records:
        probed, truth, doubt = record["probe"], record["probe"]["truth"], doubt_of(record["probe"])
        found = {
            "true-entropy": None if doubt is None else truth["spearman"][doubt] or 0.0,
            "true-error": truth["error_spearman"][probed["epistemic"]] or 0.0 if "error" in truth else None,
            "inside": truth.get("inside"),
        }
        for question, value in found.items():
            if value is not None:
                columns.setdefault(question, {}).setdefault(record["seed"], []).append(value)
    for question, by_seed in columns.items():
        yield Answer(graph, method, question, summarise([float(np.mean(values)) for values in by_seed.values()]))


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
