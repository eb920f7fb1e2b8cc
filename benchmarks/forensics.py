"""From our figures to the paper's, choice by choice: ``make bench-forensics``.

Every figure of Chameleon, Squirrel and Coauthor in which ``docs/results/paper`` and the paper differ by more than two
standard deviations, with the choices of the published runs switched on one after the other. A step searches and trains
again what it concerns, with small budgets (they stand above the tables); what it does not concern stays as it was. It
can be stopped, and goes on with the same --out.
"""

import argparse
import csv
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeAlias

os.environ.setdefault("OMP_NUM_THREADS", "1")

import credalgnn as cg
from credalgnn.experiments.engines import Processes
from credalgnn.experiments.paper import ACCURACY, Pair, paper_results
from credalgnn.experiments.paper_plan import Budget, Reproduction
from credalgnn.experiments.plan import Source
from credalgnn.experiments.published import CHOICES, PREFIX, TOLD, AsPublished, concerning, with_rows_of_sum_one
from credalgnn.experiments.runner import Session
from credalgnn.experiments.search import Studies, search_all
from credalgnn.records.folder import Folder
from credalgnn.report.summary import Summary, make_rows, read_runs

Figure: TypeAlias = tuple[str, str, str]  # method, score, metric
OURS = Path(__file__).parents[1] / "docs" / "results" / "paper" / "table.csv"
CREDAL = ("credal-lj", "credal-final")
AUROCS = {one["score"] for one in paper_results() if one["table"] != "id_f1"}
BUDGETS = {
    "chameleon": Budget(trials=8, pool=12, largest=5, runs=3),
    "squirrel": Budget(trials=6, pool=8, largest=4, runs=3),
    "coauthor": Budget(trials=3, pool=3, largest=2, runs=2, settings={"epochs": 60}),
}
HEADS = (("sigmoid-head", "sigmoid-backbone"), ("midpoint-softmax", "no-z0"))
CREDAL_REST = ("last-epoch", "one-seed", "greedy-pour", "saturating-auroc")
SCORES = (("kth-neighbour", "logit-mahalanobis", "box-hull"), ("greedy-pour",), ("saturating-auroc",))
VANILLA = ("ood-stopping", "last-epoch", "one-seed")
ROWS, LOG = ("row-normalised",), "--scale log"  # guesses of ours, each on top of all that the authors have told
STEPS = {
    "chameleon": {
        "credal": (*HEADS, CREDAL_REST, (LOG,)),
        "vanilla": (VANILLA, *SCORES, ROWS),
    },
    "squirrel": {
        "credal": (HEADS[0], (*HEADS[1], *CREDAL_REST)),
        "vanilla": (VANILLA, *SCORES, ROWS),
    },
    "coauthor": {
        "credal": ((*HEADS[0], *HEADS[1], *CREDAL_REST),),
        "vanilla": (("fresh-split",), VANILLA, *SCORES),
    },
}
WHAT = {"credal": "Credal models", "vanilla": "Vanilla GNNs, and what stands on them"}


def ours(dataset: str) -> dict[Figure, tuple[float, float]]:
    """Mean and standard deviation of our figures with the paper's budget, in per cent, by method, score and metric."""
    with OURS.open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["dataset"] == dataset]
    return {
        (line["method"], line["score"], line["metric"]): (100 * float(line["mean"]), 100 * float(line["std"] or 0))
        for line in lines
    }


def key_of(one: dict) -> Figure:
    """Method, score and metric of a figure of the paper; its F1 is the accuracy."""
    if one["table"] != "id_f1":
        return one["method"], one["score"], "auroc"
    return one["method"], "msp" if one["method"] == "vanilla" else "EU", ACCURACY[one["score"]]


def far_figures(dataset: str) -> dict[Figure, Pair]:
    """The figures that differ by more than two standard deviations."""
    known, result = ours(dataset), {}
    for one in paper_results():
        if one["dataset"] == dataset and one["table"] != "ood_auroc_main":
            pair = Pair(one["method"], one["score"], dataset, one["mean"], one["std"], *known[key_of(one)])
            if pair.is_far:
                result[key_of(one)] = pair
    return result


def figures(out: Path, dataset: str, methods: Sequence[str], names: set[str], jobs: int) -> dict[Figure, Summary]:
    """Search, train and judge some methods with some choices; what is there already is read."""
    choices = tuple(name for name in CHOICES if name in names)
    task = cg.load_task(dataset)
    source = Source()
    if "row-normalised" in choices:
        task = with_rows_of_sum_one(task)
        source = Source(loaded={(dataset, 0): task})
    budget = BUDGETS[dataset]
    (out / dataset).mkdir(parents=True, exist_ok=True)
    identity = {"kind": "forensics", "as_published": list(choices), "methods": list(methods), "budget": asdict(budget)}
    place = out / dataset / "-".join([*choices[-1:], str(len(choices)), methods[0], *(["log"] if LOG in names else [])])
    folder = Folder.open(place, identity)
    studies = Studies(out / dataset, "paper", "log" if LOG in names else "uniform")
    part = Reproduction(dataset, task, studies, budget, methods, AsPublished(task, choices))
    with Processes(jobs, source, out / dataset / "models") as engine:
        session = Session(folder, engine)
        search_all([part], studies, session)
        outcome = session.run(part.runs(), {(dataset, 0): task})
    if outcome.failed:
        sys.exit(f"{folder.path}: {outcome.failed} runs failed: the same command tries again")
    rows = make_rows(read_runs([folder.path]))
    return {
        (row.method.removeprefix(PREFIX), row.score, metric): value
        for row in rows
        for metric, value in row.values.items()
    }


def verdict(pair: Pair, first: Summary, last: Summary) -> str:
    """How far the choices that the authors have told explain a figure; first is ours with the same small budget."""
    mean, spread, near = 100 * last.mean, 200 * last.std, 2 * (pair.paper_std or 0.0)
    left = abs(mean - pair.paper)
    if left <= max(near, spread) and abs(100 * first.mean - pair.paper) <= near:
        return "the small budget alone is there"
    if left <= near:
        return "explained"
    if left <= spread:
        return "within our spread"
    if pair.score in AUROCS and abs(mean - 50.0) <= max(spread, 2.0):
        return "unexplained: at chance"  # nothing is left of ours, and nothing of the paper's is there
    return "closer" if left < abs(pair.difference) / 2 else "unexplained"


def table(out: Path, dataset: str, what: str, jobs: int) -> list[str]:
    """The steps of credal models, or of vanilla GNNs with what stands on them."""
    far = {key: pair for key, pair in far_figures(dataset).items() if (key[0] in CREDAL) == (what == "credal")}
    methods = list(dict.fromkeys(method for method, _, _ in far))
    heads = ["figure", "ours", "ours, small budget"]
    cells: dict[Figure, list[str]] = {key: [f"{pair.ours:.1f} ± {pair.ours_std:.1f}"] for key, pair in far.items()}
    told: set[str] = set()
    first: dict[Figure, Summary] = {}
    last: dict[Figure, Summary] = {}
    for step in ((), *STEPS[dataset][what]):
        is_told = all(name in TOLD for name in step)
        names = told | set(step)
        changed = [name for name in methods if step in ((), (LOG,)) or concerning(name, step)]
        began = time.monotonic()
        found = figures(out, dataset, changed, names, jobs)
        print(f"{dataset}: {', '.join(step) or 'ours'}, {time.monotonic() - began:.0f} s", file=sys.stderr)
        for key in far:
            cells[key].append(in_words(found[key]) if key[0] in changed else "")
        if is_told:
            told = names
            last |= {key: found[key] for key in far if key[0] in changed}
            first = first or dict(last)
        if step:
            heads.append(" ".join(f"+ {name}" for name in step) + ("" if is_told else " (our guess)"))
    lines = [f"| {' | '.join([*heads, 'paper', 'with all that is told'])} |", f"|---{'|---:' * len(heads)}|---|"]
    for key, pair in far.items():
        name = f"{pair.method}, {'F1 ' if key[2] != 'auroc' else ''}{pair.score}"
        paper = f"{pair.paper:.1f} ± {pair.paper_std:.1f}"
        lines.append(f"| {' | '.join([name, *cells[key], paper, verdict(pair, first[key], last[key])])} |")
    return lines


def in_words(value: Summary) -> str:
    return f"{100 * value.mean:.1f} ± {100 * value.std:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/forensics"))
    parser.add_argument("-d", "--datasets", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("-w", "--what", nargs="+", choices=WHAT, default=list(WHAT), help="which of the tables")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    args = parser.parse_args()
    for dataset in args.datasets:
        budget = BUDGETS[dataset]
        epochs = f", {budget.settings['epochs']} epochs at the most" if budget.settings else ""
        print(
            f"\n## {dataset.capitalize()}\n\n{budget.trials} trials, a pool of {budget.pool}, ensembles of up to "
            f"{budget.largest}, {budget.runs} runs{epochs}; ours has 30, 100, 15 and 5."
        )
        for what in args.what:
            print(f"\n{WHAT[what]}:\n")
            print("\n".join(table(args.out, dataset, what, args.jobs)), flush=True)


if __name__ == "__main__":
    main()
