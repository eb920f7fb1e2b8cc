"""Results of a probe: one number per method and test, curves over levels, tables, page and chart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..methods import METHODS
from ..records.folder import EXPERIMENT
from ..records.schema import RecordError, read_json
from ..report.drawing import Svg
from ..report.page import Page, numbers
from ..report.summary import Summary, read_runs, summarise
from ..report.table import Table, columns
from ..runtime.files import write
from ..runtime.texts import markdown as escaped
from ..runtime.texts import one_line
from .conditions import BASE, BINS, DETECTIONS, HOMOPHILY, OOD_TEST, RISES, ProbeTest, levels_of

KIND = "probe"  # of an experiment, in its folder
OPEN = 0.05  # bits of mean entropy below which the true posterior counts as certain
PAGE, TABLES, PICTURE, VALUES, LEVELS = "probe.html", "probe.md", "probe.svg", "probe.csv", "probe_levels.csv"
TITLE = "What AU and EU respond to"
SCALE = (
    "1: only the right component responds; 0: neither does, or both alike; below 0: the wrong direction. -: the method "
    "has no AU or no credal set, or not everything was measured. With one seed, small values may be chance."
)
Record = Mapping[str, Any]


class Question(NamedTuple):
    """Column of the table of answers.

    Attributes:
        name: Name of the test, or of the comparison with the true posterior.
        label: Head of the column.
        meaning: The test, and the meaning of 1, 0 and -1.
        lowest: Smallest possible answer.
    """

    name: str
    label: str
    meaning: str
    lowest: float = -1.0


def _question(test: ProbeTest) -> Question:
    if test in RISES:
        other = "AU" if test.component == "EU" else "EU"
        scale = f"1: only {test.component} rises; 0: both rise alike, or neither; below: {other} responds instead"
    else:
        scale = "1: all of them score higher than all others; 0: chance; -1: all lower (2 AUROC - 1)"
    return Question(test.name, test.label, f"{test.meaning}. {scale}")


QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        *map(_question, (*RISES, *DETECTIONS, OOD_TEST)),
        Question(
            "true-entropy", "AU ~ truth",
            "csbm, homophilies with an uncertain posterior: rank correlation (Spearman) of AU, or of the entropy where "
            "there is no AU, with the entropy of the true posterior",
        ),
        Question(
            "true-error", "EU ~ error",
            "the same graphs: rank correlation of EU with the total variation between point prediction and true "
            "posterior",
        ),
        Question(
            "inside", "truth inside",
            "the same graphs: share of nodes whose true posterior is in the credal set, within 0.02; depends on the "
            "width",
            0.0,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Answer of one method to one question on one graph.

    Attributes:
        graph: Name of the data set.
        method: Name of the method.
        question: Name of the question.
        value: Over seeds, from -1 (wrong direction) to 1 (right); 0 is no response. Where two components are compared,
            the mean is of mean changes and the spread of single seeds.
        epistemic: Change of EU, or its AUROC, over seeds; None where the question has none.
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
    """Results of a probe; ``probe`` makes them.

    Attributes:
        records: One record per run.
        total: Number of runs, including failed and remaining ones.
        failed: Number of failed runs.
        left: Number of runs still to do; the same call of ``probe`` continues.
    """

    records: list[dict[str, Any]]
    total: int = 0
    failed: int = 0
    left: int = 0

    @cached_property
    def done(self) -> list[dict[str, Any]]:
        """Records of successful runs."""
        return [record for record in self.records if record["status"] == "done"]

    @property
    def graphs(self) -> list[str]:
        """Names of the data sets."""
        return list(dict.fromkeys(record["probe"]["graph"] for record in self.done))

    @property
    def methods(self) -> list[str]:
        """Names of the methods, built-in ones in the order of the registry."""
        order = {name: number for number, name in enumerate(METHODS)}
        names = dict.fromkeys(record["method"] for record in self.done)
        return sorted(names, key=lambda name: order.get(name, len(order)))

    @cached_property
    def answers(self) -> list[Answer]:
        """One answer per graph, method and question, where it was measured."""
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
        """Graphs, tests and levels with an uncertain true posterior, on average over seeds."""
        entropies: dict[tuple[str, str, float], list[float]] = {}
        for record in self.done:
            probed = record["probe"]
            if "truth" in probed:
                key = probed["graph"], probed["test"], probed["level"]
                entropies.setdefault(key, []).append(probed["truth"]["entropy"])
        return {key for key, values in entropies.items() if np.mean(values) >= OPEN}

    def truths(self, graph: str, method: str) -> list[Record]:
        """Records of a method on graphs with an uncertain true posterior; empty unless all are there.

        Args:
            graph: Name of the data set.
            method: Name of the method.
        """
        runs: list[Record] = [
            record
            for record in self.done
            if (record["probe"]["graph"], record["method"]) == (graph, method)
            and (graph, record["probe"]["test"], record["probe"]["level"]) in self.open_levels
        ]
        levels = sum(name == graph for name, _, _ in self.open_levels)
        seeds = {record["seed"] for record in runs}
        return runs if len(runs) == levels * len(seeds) else []

    def overall(self) -> dict[str, dict[str, float]]:
        """Means over graphs by method and question, where the method has an answer on all graphs of the question."""
        graphs: dict[str, set[str]] = {}
        values: dict[tuple[str, str], dict[str, float]] = {}
        for answer in self.answers:
            graphs.setdefault(answer.question, set()).add(answer.graph)
            values.setdefault((answer.method, answer.question), {})[answer.graph] = answer.value.mean
        means: dict[str, dict[str, float]] = {}
        for (method, question), by_graph in values.items():
            if set(by_graph) == graphs[question]:
                means.setdefault(method, {})[question] = float(np.mean(list(by_graph.values())))
        return means

    def write(self, out: str | Path) -> Path:
        """Write ``probe.html``, ``probe.md``, ``probe.csv``, ``probe_levels.csv`` and ``probe.svg``.

        Args:
            out: Folder to write to.

        Returns:
            The path of the page.
        """
        folder = Path(out)
        write(folder / TABLES, as_markdown(self).encode())
        write(folder / VALUES, as_csv(self).encode())
        write(folder / LEVELS, levels_as_csv(self).encode())
        page = Page("probe", TITLE, page_data(self), ("common.js", "charts.js", "probe.js"), skip="answers")
        write(folder / PAGE, page.render().encode())
        write(folder / PICTURE, chart(self).encode())
        return folder / PAGE

    def __str__(self) -> str:
        head = one_line(f"{TITLE}: means over {', '.join(self.graphs)}")
        table = overview(self, [*QUESTIONS])  # names are shorter than labels
        return "\n".join([head, "", table.terminal(), "", SCALE, *map(one_line, in_words(self))])


def is_probe(folder: Path) -> bool:
    """True for the folder of a probe; False for what cannot be read."""
    try:
        return bool(read_json(folder / EXPERIMENT, "an experiment's description").get("kind") == KIND)
    except (RecordError, OSError):
        return False


def read_probes(folders: Sequence[Path], total: int = 0, failed: int = 0, left: int = 0) -> ProbeResults:
    """Read the records of one or more probes.

    Args:
        folders: The folders.
        total: Number of runs; 0 for that of the records.
        failed: Number of failed runs.
        left: Number of runs still to do.
    """
    records = read_runs(folders)
    other = next((record for record in records if record["status"] == "done" and "probe" not in record), None)
    if other is not None:
        raise RecordError(
            f"{other['dataset']} {other['method']} seed {other['seed']} is no run of a probe: give folders of "
            "credalgnn probe only"
        )
    return ProbeResults(records, total or len(records), failed, left)


# ---------------------------------------------------------------- answers


def cliffs_delta(before: Sequence[float], after: Sequence[float]) -> float:
    """Cliff's delta: P(after > before) - P(after < before), from -1 to 1, whatever the unit.

    Args:
        before: Quantiles of the values.
        after: Quantiles of the values after a change.
    """
    difference = np.sign(np.subtract.outer(np.asarray(after, float), np.asarray(before, float)))
    return float(difference.mean())


def rise(target: float, other: float) -> float:
    """Score "the target component must rise and the other stay" by their Cliff's deltas.

    Rises of the target count for it, any change of the other against it: two names for one number, and two numbers that
    mirror each other, get 0 where the target rises, and less where it falls.

    Args:
        target: Delta of the component that must rise.
        other: Delta of the component that must stay.
    """
    return max(-1.0, target - abs(other))


def _answers(graph: str, method: str, runs: Mapping[tuple[str, float, int], Record]) -> Iterable[Answer]:
    seeds = sorted({seed for _, _, seed in runs})
    base = {seed: runs[BASE, 0.0, seed] for seed in seeds if (BASE, 0.0, seed) in runs}
    for test in RISES:
        strongest = {seed: runs[key] for seed in seeds if (key := (test.name, test.levels[-1], seed)) in runs}
        pairs = [(base[seed]["probe"], record["probe"]) for seed, record in strongest.items() if seed in base]
        if pairs and pairs[0][0]["aleatoric"] is not None:
            changes = {part: [_change(*pair, part) for pair in pairs] for part in ("epistemic", "aleatoric")}
            target, other = ("epistemic", "aleatoric") if test.component == "EU" else ("aleatoric", "epistemic")
            moved = {part: summarise(values) for part, values in changes.items()}
            values = [rise(*each) for each in zip(changes[target], changes[other], strict=True)]
            # Changes of seeds in both directions cancel before the absolute value is taken.
            overall = replace(summarise(values), mean=rise(moved[target].mean, moved[other].mean))
            yield Answer(graph, method, test.name, overall, moved["epistemic"], moved["aleatoric"])
    for test in DETECTIONS:
        changed = [(record["probe"], record["probe"].get("changed", {}).get(test.name, {})) for record in base.values()]
        yield from _detection(graph, method, test.name, changed)
    ood = [
        (record["probe"], {name: metrics["auroc"] for name, metrics in record["scores"].items()})
        for record in base.values()
    ]
    yield from _detection(graph, method, OOD_TEST.name, ood)


def _change(before: Mapping[str, Any], after: Mapping[str, Any], part: str) -> float:
    return cliffs_delta(before["quantiles"][before[part]], after["quantiles"][after[part]])


def _detection(
    graph: str, method: str, question: str, runs: Sequence[tuple[Mapping[str, Any], Mapping[str, float | None]]]
) -> Iterable[Answer]:
    """Detection of some nodes by EU, and by AU for comparison; runs are pairs of probe and AUROC by score."""
    columns: dict[str, list[float]] = {}
    for probed, aurocs in runs:
        for part in ("epistemic", "aleatoric"):
            value = aurocs.get(probed[part])
            if value is not None:
                columns.setdefault(part, []).append(value)
    if "epistemic" in columns:
        value_of = summarise([2.0 * value - 1.0 for value in columns["epistemic"]])
        parts = [summarise(columns[part]) if part in columns else None for part in ("epistemic", "aleatoric")]
        yield Answer(graph, method, question, value_of, *parts)


def _doubt(probed: Mapping[str, Any]) -> str | None:
    """Score that is compared with the true entropy: AU, or the entropy of methods without AU."""
    return probed["aleatoric"] or ("entropy" if "entropy" in probed["quantiles"] else None)


def _against_truth(graph: str, method: str, records: Sequence[Record]) -> Iterable[Answer]:
    """Compare AU with the true entropy, EU with the error of the point prediction, and credal sets with the truth.

    One value per seed, means over graphs of all homophilies. A constant score has no correlation, which counts as 0.
    """
    columns: dict[str, dict[int, list[float]]] = {}
    for record in records:
        probed, truth, doubt = record["probe"], record["probe"]["truth"], _doubt(record["probe"])
        values = {
            "true-entropy": None if doubt is None else truth["spearman"][doubt] or 0.0,
            "true-error": truth["error_spearman"][probed["epistemic"]] or 0.0 if "error" in truth else None,
            "inside": truth.get("inside"),
        }
        for question, value in values.items():
            if value is not None:
                columns.setdefault(question, {}).setdefault(record["seed"], []).append(value)
    for question, by_seed in columns.items():
        yield Answer(graph, method, question, summarise([float(np.mean(each)) for each in by_seed.values()]))


# ---------------------------------------------------------------- curves

Values = list[float | None]  # one per level; None where nothing was measured
# Comparison with the true posterior: mean entropy, distance of AU from it, total variation between prediction and
# truth, mean widest interval, its rank correlation with the error, and share of credal sets that contain the truth.
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
        levels: From the unchanged graph to the strongest change; those of homophily in ascending order.
        epistemic: Mean EU of ID test nodes.
        aleatoric: Mean AU of ID test nodes.
        auroc: AUROC of EU for OOD nodes.
        accuracy: Accuracy of ID nodes.
    """

    levels: list[float]
    epistemic: Values
    aleatoric: Values
    auroc: Values
    accuracy: Values


def curve(results: ProbeResults, graph: str, method: str, test: ProbeTest) -> Curve | None:
    """Curve of a method over the levels of a test; None with fewer than two levels.

    Args:
        results: The results.
        graph: Name of the data set.
        method: Name of the method.
        test: A test with levels: one of ``RISES``, or ``HOMOPHILY``.
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
    """Number of nodes, AUROC of EU for OOD nodes and accuracy by bins of local homophily; empty if not measured."""
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
    """Means of the comparison with the true posterior over runs of one method, by the keys of ``TRUTH``."""
    rows: list[tuple[float | None, ...]] = []
    for record in records:
        truth, doubt = record["probe"]["truth"], _doubt(record["probe"])
        # Only scores in bits have a distance in bits.
        bits = truth["bits"][doubt] if doubt in ("AU", "entropy") else None
        rows.append((truth["entropy"], bits, *(truth.get(name) for name in list(TRUTH)[2:])))
    return dict(zip(TRUTH, map(mean_of, zip(*rows, strict=True)), strict=True)) if rows else {}


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are not None; None if all are."""
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def every_value(results: ProbeResults) -> Iterator[tuple[Any, ...]]:
    """All measurements: graph, method, test, level, quantity, mean over seeds."""
    for graph in results.graphs:
        for method in results.methods:
            for test in (*RISES, HOMOPHILY):
                line = curve(results, graph, method, test)
                if line is not None:
                    for quantity in Curve._fields[1:]:
                        for level, value in zip(line.levels, getattr(line, quantity), strict=True):
                            yield graph, method, test.name, level, quantity, value
            for quantity, values in by_neighbours(results, graph, method).items():
                for edge, value in zip(BINS, values, strict=False):
                    yield graph, method, "local-homophily", round(float(edge), 3), quantity, value
            by_level: dict[float, list[Record]] = {}
            for record in results.done:
                probed = record["probe"]
                if (probed["graph"], record["method"]) == (graph, method) and "truth" in probed:
                    homophily = HOMOPHILY.start if probed["test"] == BASE else probed["level"]
                    by_level.setdefault(float(homophily or 0.0), []).append(record)
            for level, records in sorted(by_level.items()):
                for quantity, value in beside_truth(records).items():
                    yield graph, method, HOMOPHILY.name, level, f"truth-{quantity}", value


# ---------------------------------------------------------------- tables, page and chart


def in_words(results: ProbeResults) -> list[str]:
    """Methods whose components both respond as they must, and the best of them, in sentences."""
    overall = results.overall()
    both = {
        method: (values["labels"], values["label-noise"])
        for method, values in overall.items()
        if {"labels", "label-noise"} <= set(values)
    }
    if not both:
        return []
    best = max(both, key=lambda method: min(both[method]))
    right = [method for method, values in both.items() if min(values) > 0.0]
    return [
        f"EU rises with missing labels and AU with wrong ones, each more than the other changes, in {len(right)} of "
        f"{len(both)} methods{': ' + ', '.join(right) if right else ''}.",
        f"The best at both is {best} ({both[best][0]:+.2f} for fewer labels, {both[best][1]:+.2f} for noisy labels).",
    ]


def overview(results: ProbeResults, heads: Sequence[str] | None = None) -> Table:
    """Means over graphs, one row per method.

    Args:
        results: The results.
        heads: Heads of the columns in the order of ``QUESTIONS``; None for their labels.
    """
    overall = results.overall()
    cells = {(method, name): _mean(name, value) for method in overall for name, value in overall[method].items()}
    return _by_method(cells, results.methods, heads)


def _by_method(
    cells: Mapping[tuple[str, str], str], methods: Sequence[str], heads: Sequence[str] | None = None
) -> Table:
    """Table of texts by method and question; only questions with answers are columns."""
    heads = heads or [question.label for question in QUESTIONS.values()]
    named = {name: head for name, head in zip(QUESTIONS, heads, strict=True) if any(name == key for _, key in cells)}
    rows = [[method, *(cells.get((method, name)) for name in named)] for method in methods]
    return Table(columns("method", [*named.values()]), rows)


def _mean(question: str, value: float) -> str:
    return f"{100.0 * value:.0f} %" if question == "inside" else f"{value:+.2f}"


def _spread(question: str, value: Summary) -> str:
    scale, sign, digits = (100.0, "", 0) if question == "inside" else (1.0, "+", 2)
    spread = f" ± {scale * value.std:.{digits}f}" if value.n > 1 else ""
    return f"{scale * value.mean:{sign}.{digits}f}{spread}"


def as_markdown(results: ProbeResults) -> str:
    """Means over graphs, the questions, each graph alone, and the curves behind the numbers."""
    parts = [f"# {TITLE}", "", escaped(f"{', '.join(results.graphs)}: means over graphs."), ""]
    parts += [overview(results).markdown(), "", SCALE, "", *map(escaped, in_words(results)), "", "## Questions", ""]
    names = dict.fromkeys(answer.question for answer in results.answers)
    questions = [[QUESTIONS[name].label, QUESTIONS[name].meaning] for name in names]
    parts.append(Table(columns("test meaning"), questions).markdown())
    for graph in results.graphs:
        answers = [answer for answer in results.answers if answer.graph == graph]
        cells = {(answer.method, answer.question): _spread(answer.question, answer.value) for answer in answers}
        methods = [method for method in results.methods if any(method == answer.method for answer in answers)]
        seeds = max((answer.value.n for answer in answers), default=0)
        spread = f"Mean ± standard deviation over {seeds} seeds." if seeds > 1 else "One seed."
        parts += ["", f"## {escaped(graph)}", "", spread, "", _by_method(cells, methods).markdown()]
        for test in RISES:
            rows, levels = _curves(results, graph, test, ("epistemic", "aleatoric"), 1.0, 3)
            share = "kept" if test.name == "labels" else "wrong"
            title = f"Mean EU / AU of ID test nodes, by the share of labels {share}"
            parts += _table(title, [f"{100 * level:g} %" for level in levels], rows)
        neighbours = {method: by_neighbours(results, graph, method) for method in results.methods}
        bins = [f"{100 * low:.0f} to {100 * high:.0f} %" for low, high in itertools.pairwise(BINS)]
        title = "AUROC of EU for OOD nodes / accuracy, by the share of a node's neighbours that are of its class"
        parts += _table(title, bins, [[method, *_pairs(one["auroc"], one["accuracy"], 100.0, 1)]
                                      for method, one in neighbours.items() if one])  # fmt: skip
    for graph in results.graphs:
        truths = {method: beside_truth(results.truths(graph, method)) for method in results.methods}
        means = [[method, *row.values()] for method, row in truths.items() if row]
        if means:
            text = "Means over the homophilies with an uncertain posterior; errors and distances are means over nodes."
            table = Table(columns("method", [*TRUTH.values()], ".3f"), means)
            parts += ["", f"## {escaped(graph)}: comparison with the true posterior", "", text, "", table.markdown()]
    for graph in results.graphs:
        rows, levels = _curves(results, graph, HOMOPHILY, ("auroc", "accuracy"), 100.0, 1)
        title = f"{graph}: AUROC of EU for OOD nodes / accuracy, by the share of edges within a class"
        table_parts = _table(title, [f"{level:g}" for level in levels], rows)
        parts += ["", "## Homophily", *table_parts] if table_parts else []
    return "\n".join(parts) + "\n"


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Lines of a table with a title; none where there are no rows."""
    return ["", escaped(title), "", Table(columns("method", heads), rows).markdown()] if rows else []


def _curves(
    results: ProbeResults, graph: str, test: ProbeTest, fields: tuple[str, str], scale: float, digits: int
) -> tuple[list[list[str]], list[float]]:
    """Two quantities at every level of a test: rows of methods, and the levels."""
    first, second = fields
    curves = {method: curve(results, graph, method, test) for method in results.methods}
    shown = {method: one for method, one in curves.items() if one is not None and any(getattr(one, second))}
    rows = [
        [method, *_pairs(getattr(one, first), getattr(one, second), scale, digits)] for method, one in shown.items()
    ]
    return rows, next(iter(shown.values())).levels if shown else []


def _pairs(first: Iterable[float | None], second: Iterable[float | None], scale: float, digits: int) -> list[str]:
    def texts(values: Iterable[float | None]) -> list[str]:
        return ["-" if value is None else f"{scale * value:.{digits}f}" for value in values]

    return [f"{one} / {other}" for one, other in zip(texts(first), texts(second), strict=True)]


def levels_as_csv(results: ProbeResults) -> str:
    """All measurements by level, homophily and true posterior, one line per value."""
    heads = columns("graph method test level quantity mean")
    rows = [[*map(str, key), value] for *key, value in every_value(results) if value is not None]
    return Table(heads, rows).csv()


def as_csv(results: ProbeResults) -> str:
    """Answers, one line per graph, method and question."""
    rows = [
        [one.graph, one.method, one.question, one.value.mean, one.value.std, one.value.low, one.value.high, one.value.n,
         *(None if part is None else part.mean for part in (one.epistemic, one.aleatoric))]
        for one in results.answers
    ]  # fmt: skip
    return Table(columns("graph method test answer std low high seeds epistemic aleatoric"), rows).csv()


def page_data(results: ProbeResults) -> dict[str, Any]:
    """Data of the page as plain values."""
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    for one in results.answers:
        parts = [None if part is None else part.mean for part in (one.epistemic, one.aleatoric)]
        values = numbers((one.value.mean, one.value.std, *parts))
        answers.setdefault(one.graph, {}).setdefault(one.method, {})[one.question] = [*values, one.value.n]
    local: dict[str, Any] = {}
    truth: dict[str, Any] = {}
    for graph in results.graphs:
        bins = {method: by_neighbours(results, graph, method) for method in results.methods}
        truths = {method: beside_truth(results.truths(graph, method)) for method in results.methods}
        local[graph] = {
            method: {name: numbers(values) for name, values in one.items()} for method, one in bins.items() if one
        }
        rows = {method: dict(zip(row, numbers(row.values()), strict=True)) for method, row in truths.items() if row}
        truth |= {graph: rows} if rows else {}
    return {
        "graphs": results.graphs,
        "methods": results.methods,
        "questions": [question._asdict() for question in QUESTIONS.values()],
        "overall": {
            method: dict(zip(values, numbers(values.values()), strict=True))
            for method, values in results.overall().items()
        },
        "answers": answers,
        "rises": [{"name": test.name, "label": test.label, "meaning": test.meaning} for test in RISES],
        "curves": {
            test.name: {graph: _curve_data(results, graph, test) for graph in results.graphs}
            for test in (*RISES, HOMOPHILY)
        },
        "bins": [float(edge) for edge in BINS],
        "local": local,
        "truth": truth,
        "scale": SCALE,
        "words": in_words(results),
        "runs": len(results.done),
        "failed": len(results.records) - len(results.done),
        "left": results.left,
        "finished": max((record["finished"] for record in results.done), default=None),
    }


def _curve_data(results: ProbeResults, graph: str, test: ProbeTest) -> dict[str, Any]:
    """Curves of all methods over the levels of a test."""
    curves = {method: curve(results, graph, method, test) for method in results.methods}
    return {
        method: {name: numbers(values) for name, values in one._asdict().items()}
        for method, one in curves.items()
        if one is not None
    }


def chart(results: ProbeResults) -> str:
    """Draw the means over graphs as a table of colours, as SVG: blue is right, orange the wrong direction."""
    overall = results.overall()
    names = [name for name in QUESTIONS if any(name in values for values in overall.values())]
    methods = [method for method in results.methods if method in overall]
    notes = (
        one_line(f"{TITLE}: means over {', '.join(results.graphs)}"),
        "+1: only the right component responds; 0: neither, or both alike; -1: the wrong direction",
    )
    left, top, width, height = 20 + 7.5 * max(map(len, methods), default=0), 50, 92, 24
    base = top + height * len(methods)
    svg = Svg(max(left + width * len(names), 7.0 * max(map(len, notes))) + 10, base + 60, notes[0])

    def text(content: str, x: float, y: float, anchor: str = "middle") -> None:
        svg.add("text", x=x, y=y, text_anchor=anchor, content=content)

    for column, name in enumerate(names):
        x = left + width * column
        first, _, rest = QUESTIONS[name].label.replace(", ", " ").partition(" ")
        text(first, x + width / 2, top - 26)
        text(rest, x + width / 2, top - 10)
        for row, method in enumerate(methods):
            value, y = overall[method].get(name), top + height * row
            if value is not None and name != "inside":  # a share has no wrong direction
                side, opacity = "right" if value > 0 else "wrong", f"{0.65 * min(abs(value), 1.0):.3f}"
                svg.add("rect", side, x=x + 1, y=y + 1, width=width - 2, height=height - 2, opacity=opacity)
            text("-" if value is None else _mean(name, value), x + width / 2, y + 17)
    for row, method in enumerate(methods):
        text(one_line(method), left - 10, top + height * row + 17, "end")
    for k, note in enumerate(notes):
        text(note, 10, base + 24 + 20 * k, "start")
    return svg.render()
