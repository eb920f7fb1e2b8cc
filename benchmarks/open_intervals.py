"""What keeps the intervals of credal-lj open on easy graphs, judged by ID validation nodes alone.

    make bench-open        (or: python benchmarks/open_intervals.py --graphs digits chameleon)

Each cell: the share of TU that is EU, accuracy in per cent and NLL of the ID validation nodes, mean over seeds; N and S
where runs have closed or saturated sets there, with how many if not all (the rule of the warnings). The first line is
the paper's model, and every other one changes one thing about it. The second table asks how well EU finds OOD nodes
that are none: one more known class is left out of training, and its validation nodes are told from the other known
ones (AUROC in per cent, mean over up to four such classes, one seed). Neither test nodes nor the classes that a task
leaves out decide anything here.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import torch
from features import with_rows_of_sum_one
from sklearn.metrics import roc_auc_score

import credalgnn as cg
from credalgnn.methods.diagnostics import findings

GRAPHS = ("digits", "csbm", "chameleon", "squirrel", "coauthor")
DECAYS = (0.01, 0.03, 0.1, 0.3)
SUM_ONE = "rows of sum 1"
CANDIDATES: dict[str, dict[str, Any]] = {
    "the paper's": {},
    SUM_ONE: {},
    "dropout 0.5": {"dropout": 0.5},
    "weight decay 0": {"weight_decay": 0.0},
    "weight decay 5e-3": {"weight_decay": 5e-3},
    "weight decay 5e-2": {"weight_decay": 5e-2},
    "lr 0.001": {"lr": 0.001},
    "patience 10": {"patience": 10},
    "monitor id_f1": {"monitor": "id_f1"},
    "delta 1": {"delta": 1.0},
    "delta 0.25": {"delta": 0.25},
    "sigmoids": {"midpoint": "sigmoid", "half_length": "sigmoid"},
    **{f"half_length_decay {decay}": {"half_length_decay": decay} for decay in DECAYS},
}


def model(seed: int, options: dict[str, Any]) -> cg.CredalLJ:
    return cg.CredalLJ(seed=seed, **{"half_length_decay": 0.0, **options})


def on_known(task: cg.Task, options: dict[str, Any], seeds: int) -> str:
    """How open the intervals of ID validation nodes are, and what they cost."""
    nodes = task.training.val
    labels = task.training.graph.labels[nodes]
    numbers, marks = [], []
    for seed in range(seeds):
        found = model(seed, options).fit(task).predict(nodes=nodes)
        p = found.probabilities.gather(1, labels[:, None]).clamp_min(1e-300)
        right = (found.classes == labels).double().mean()
        numbers.append([found.epistemic.sum() / found.total.sum(), 100 * right, -p.log().mean()])
        marks += findings(found)
    share, accuracy, nll = np.mean(numbers, axis=0)
    count = {letter: marks.count(name) for letter, name in (("N", "narrow"), ("S", "saturated"))}
    signs = [letter + (str(many) if many < seeds else "") for letter, many in count.items() if many]
    return " ".join([f"{share:.3f}, {accuracy:.1f}, {nll:.3f}", *signs])


def on_left_out(task: cg.Task, options: dict[str, Any], _: int) -> str:
    """How well EU tells validation nodes of a known class, left out of training, from the other known ones."""
    known = [k for k in range(len(task.graph.class_names)) if k not in task.ood_classes]
    values = []
    for k in known[:: max(1, len(known) // 4)][:4]:
        smaller = cg.Task.leave_out(task.graph, [*task.ood_classes, k], task.split)
        part = smaller.validation
        kept = ~part.is_ood | (task.graph.labels[part.nodes] == k)
        found = model(0, options).fit(smaller).predict(nodes=part.nodes[kept])
        values.append(100 * roc_auc_score(part.is_ood[kept], found.epistemic))
    return f"{np.mean(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)  # another number rounds dense products differently
    warnings.simplefilter("ignore", cg.CredalWarning)  # the tables say it
    tasks = {name: cg.load_task(name) for name in args.graphs}
    for title, measure, names in (
        ("EU / TU, accuracy, NLL", on_known, list(CANDIDATES)),
        ("AUROC of EU", on_left_out, ["the paper's", "half_length_decay 0.03", "half_length_decay 0.1"]),
    ):
        print(f"| {title} | {' | '.join(tasks)} |\n|---" + "|---" * len(tasks) + "|")
        for name in names:
            cells = []
            for task in tasks.values():
                given = with_rows_of_sum_one(task) if name == SUM_ONE else task
                cells.append(measure(given, CANDIDATES[name], args.seeds))
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        print()


if __name__ == "__main__":
    main()
