"""What credal-lj reaches untuned on real graphs: mean and standard deviation over seeds, on test nodes read once.

    make bench-untuned

Hyper-parameters are fixed here: hidden 64, 2 layers, lr 0.01, weight decay 5e-4, delta 0.75; ``decay`` is that of the
half-lengths, of which the paper has none. ``id_loss`` stops by the loss of ID validation nodes (the sealed protocol),
``ood_auroc`` as the paper does. Beside the AUROCs: ID accuracy, the median over nodes of the widest interval, the
median over all intervals, the share of nodes whose TU is within 1e-3 bits of log2 C, and the rank correlation of AU and
EU, by which two scores that are one and its mirror image would show.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from credalgnn import CredalLJ, load_task
from credalgnn.graphs import Task

RUNS = (
    ("chameleon", "sage", "id_loss", 0.03),
    ("chameleon", "sage", "id_loss", 0.0),
    ("chameleon", "sage", "ood_auroc", 0.0),
    ("squirrel", "sage", "id_loss", 0.03),
    ("squirrel", "sage", "id_loss", 0.0),
    ("squirrel", "sage", "ood_auroc", 0.0),
    ("coauthor", "gcn", "id_loss", 0.03),
    ("coauthor", "gcn", "id_loss", 0.0),
)
COLUMNS = ("EU", "AU", "TU", "accuracy", "widest", "width", "saturated", "spearman")


def run(task: Task, backbone: str, monitor: str, decay: float, seed: int) -> dict[str, float]:
    """One fit, and what it is worth on the test nodes."""
    method = CredalLJ(
        backbone=backbone, hidden=64, layers=2, lr=0.01, weight_decay=5e-4, delta=0.75, half_length_decay=decay,
        monitor=monitor, seed=seed,
    )  # fmt: skip
    method.fit(task, protocol="paper" if monitor == "ood_auroc" else "sealed")
    test, whole = task.test, method.predict()
    found = {name: 100 * roc_auc_score(test.is_ood, whole.scores[name][test.nodes]) for name in ("EU", "AU", "TU")}
    right = whole.classes[test.nodes] == test.labels
    width = whole.credal.width
    return {
        **found,
        "accuracy": 100 * right[~test.is_ood].double().mean().item(),
        "widest": width.amax(-1).median().item(),
        "width": width.median().item(),
        "saturated": (whole.total > math.log2(task.num_classes) - 1e-3).double().mean().item(),
        "spearman": spearmanr(whole.aleatoric, whole.epistemic).statistic,
    }


def summary(task: Task, backbone: str, monitor: str, seeds: int, decay: float = 0.0) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over seeds."""
    found = [run(task, backbone, monitor, decay, seed) for seed in range(seeds)]
    columns = {name: [record[name] for record in found] for name in COLUMNS}
    return {name: (float(np.mean(values)), float(np.std(values, ddof=1))) for name, values in columns.items()}


def shown(mean: float, std: float) -> str:
    """Percentages with one digit, shares with two, and what is nearly nothing with its power of ten."""
    if 0 < abs(mean) < 0.005:
        return f"{mean:.0e}"
    return f"{mean:.1f} ± {std:.1f}" if mean > 5 else f"{mean:.2f} ± {std:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mirror", help="folder with raw files (default: $CREDALGNN_MIRROR)")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)  # another number rounds dense products differently
    head = ("graph", "backbone", "monitor", "decay", *COLUMNS)
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name, backbone, monitor, decay in RUNS:
        found = summary(load_task(name, mirror=args.mirror), backbone, monitor, args.seeds, decay)
        cells = [shown(*pair) for pair in found.values()]
        print("| " + " | ".join([name, backbone, monitor, f"{decay:g}", *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
