"""How credal-coverage degrades, and what its AU and EU answer to: fewer labels, fewer OOD nodes, noisy labels.

Prints three tables in Markdown and draws docs/images/coverage.png. Everything is sealed; test nodes are read once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

import credalgnn as cg

GRAPHS = ("chameleon", "squirrel", "coauthor", "computers", "cora", "digits")
LABELS = (1.0, 0.5, 0.2, 0.1, 0.05)
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4)
CASES = (  # share of the labels, share of the OOD nodes
    (1.0, 1.0),
    (0.2, 1.0),
    (0.05, 1.0),
    (1.0, 0.2),
    (1.0, 0.05),
    (0.2, 0.2),
    (0.1, 0.05),
)


class Outcome(NamedTuple):
    """AUROCs of EU, of the coverage alone and of the vanilla GNN's entropy, in per cent; mean AU and EU in bits."""

    eu: float
    coverage: float
    entropy: float
    mean_au: float
    mean_eu: float
    trust: float


def run(task: cg.Task, seed: int) -> Outcome:
    vanilla = cg.Vanilla(seed=seed).fit(task, progress=False)
    model = cg.CredalCoverage(model=vanilla, seed=seed).fit(task, progress=False)
    nodes = task.test.nodes
    prediction = model.predict(nodes=nodes)
    found = cg.evaluate(prediction, task).scores
    entropy = cg.evaluate(vanilla.predict(nodes=nodes), task).scores["entropy"]["auroc"]
    values = (found["EU"]["auroc"], found["coverage"]["auroc"], entropy)
    percent = [100.0 * (value or 0.0) for value in values]
    means = [prediction.aleatoric.mean().item(), prediction.epistemic.mean().item()]
    return Outcome(*percent, *means, (model.diagnosis or {})["trust"])


def shifted(task: cg.Task, labels: float, ood: float, seed: int) -> cg.Task:
    task = task if ood == 1.0 else task.fewer_ood(ood, seed)
    return task if labels == 1.0 else task.fewer_labels(labels, seed)


def measure(make: Callable[[int], cg.Task], seeds: int) -> np.ndarray:
    """Outcomes ``[seeds, fields]``; every seed has a draw, a vanilla GNN and folds of its own."""
    return np.array([run(make(seed), seed) for seed in range(seeds)])


def table(head: list[str], rows: list[list[str]]) -> None:
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-d", "--datasets", nargs="+", default=list(GRAPHS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--plot", type=Path, default=Path("docs/images/coverage.png"))
    args = parser.parse_args()
    tasks = {name: cg.load_task(name) for name in args.datasets}
    jobs = [(name, kind, case) for name in tasks for kind, cases in
            (("case", CASES), ("labels", LABELS), ("noise", NOISE)) for case in cases]  # fmt: skip
    found: dict[tuple[str, str, object], np.ndarray] = {}
    for name, kind, case in tqdm(jobs, unit="case"):
        task = tasks[name]
        same = (name, "case", (case, 1.0)) if kind == "labels" else (name, "labels", 1.0)
        if (kind == "labels" or case == 0.0) and same in found:
            found[name, kind, case] = found[same]
        elif kind == "case":
            labels, ood = case  # type: ignore[misc]
            found[name, kind, case] = measure(lambda s, t=task, a=labels, b=ood: shifted(t, a, b, s), args.seeds)
        elif kind == "labels":
            found[name, kind, case] = measure(lambda s, t=task, a=case: shifted(t, a, 1.0, s), args.seeds)
        else:
            found[name, kind, case] = measure(lambda s, t=task, a=case: t.label_noise(a, s), args.seeds)

    def mean(name: str, kind: str, case: object) -> Outcome:
        return Outcome(*found[name, kind, case].mean(0))

    print(f"\nAUROC of EU | coverage alone | vanilla entropy (trust), test nodes, mean of {args.seeds} seeds")
    rows = []
    for labels, ood in CASES:
        cells = (mean(name, "case", (labels, ood)) for name in tasks)
        words = [f"{o.eu:.1f} / {o.coverage:.1f} / {o.entropy:.1f} ({o.trust:.2f})" for o in cells]
        rows.append([f"{labels:.0%}", f"{ood:.0%}", *words])
    table(["labels", "OOD nodes", *tasks], rows)
    for kind, cases, title in (("labels", LABELS, "labels"), ("noise", NOISE, "label noise")):
        print(f"\nMean EU / AU of test nodes in bits, by {title}")
        rows = []
        for name in tasks:
            means = [mean(name, kind, case) for case in cases]
            rows.append([name, *(f"{o.mean_eu:.3f} / {o.mean_au:.3f}" for o in means)])
        table([title, *(f"{case:.0%}" for case in cases)], rows)
    draw({name: {k: mean(name, "labels", k) for k in LABELS} for name in tasks},
         {name: {k: mean(name, "noise", k) for k in NOISE} for name in tasks},
         {name: {k: mean(name, "case", (1.0, k)) for k in (1.0, 0.2, 0.05)} for name in tasks}, args.plot)  # fmt: skip


def draw(
    labels: dict[str, dict[float, Outcome]],
    noise: dict[str, dict[float, Outcome]],
    ood: dict[str, dict[float, Outcome]],
    path: Path,
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    colours = {name: f"C{number}" for number, name in enumerate(labels)}
    for axis, cases, title in ((axes[0], labels, "labels kept"), (axes[1], ood, "OOD nodes kept")):
        for name, by in cases.items():
            axis.plot([100 * k for k in by], [o.eu for o in by.values()], "o-", color=colours[name], label=name, ms=4)
            axis.plot([100 * k for k in by], [o.entropy for o in by.values()], ":", color=colours[name], lw=1)
        axis.set(xscale="log", xlabel=f"{title} (%)", ylabel="AUROC (dotted: vanilla entropy)")
        axis.set_xticks([100 * k for k in next(iter(cases.values()))])
        axis.xaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.invert_xaxis()
    for axis, cases, title in ((axes[2], labels, "labels kept (%)"), (axes[3], noise, "label noise (%)")):
        for name, by in cases.items():
            axis.plot([100 * k for k in by], [o.mean_eu for o in by.values()], "o-", color=colours[name], ms=4)
            axis.plot([100 * k for k in by], [o.mean_au for o in by.values()], "s--", color=colours[name], ms=3, lw=1)
        axis.set(xlabel=title, ylabel="mean EU (solid), AU (dashed), bits")
    axes[2].set(xscale="log")
    axes[2].set_xticks([100 * k for k in LABELS])
    axes[2].xaxis.set_major_formatter("{x:g}")
    axes[2].minorticks_off()
    axes[2].invert_xaxis()
    titles = ("Fewer labels", "Fewer OOD nodes", "Fewer labels: EU rises", "Noisy labels: AU rises")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=11)
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(labels), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"\n{path}")


if __name__ == "__main__":
    main()
