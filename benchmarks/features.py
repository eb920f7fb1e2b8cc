"""What changes if every node's features are divided by their sum, as PyG's ``NormalizeFeatures`` does.

    python benchmarks/features.py

On Chameleon and Squirrel nodes of the classes left out have fewer active features. As they are, such nodes lie near all
others in the joint latent; with rows of sum 1 they lie far away, and a score by distance turns round.
"""

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import credalgnn as cg
from credalgnn.methods import Method

SEEDS = range(3)


def with_rows_of_sum_one(task: cg.Task) -> cg.Task:
    """The same task on a graph whose features are shares."""
    features = task.graph.features.to_dense()
    shares = features / features.abs().sum(1, keepdim=True).clamp_min(1e-12)
    graph = task.graph.replace(features=shares)  # kept as a sparse matrix where that is smaller
    return cg.Task.leave_out(graph, task.ood_classes, task.split, name=task.name)


def auroc(task: cg.Task, method: Method) -> float:
    found = method.fit(task).predict(nodes=task.test.nodes)
    return 100.0 * float(roc_auc_score(task.test.is_ood, found.score))


def main() -> None:
    torch.set_num_threads(1)
    print("| graph | method | features as they are | rows of sum 1 |\n|---|---|---:|---:|")
    for name in ("chameleon", "squirrel", "coauthor"):
        task = cg.load_task(name)
        for words, make in (
            ("knn, k = 50", lambda seed: cg.KNN(k=50, seed=seed)),
            ("knn-lj, k = 50", lambda seed: cg.KNNLJ(k=50, seed=seed)),
            ("credal-lj, EU", lambda seed: cg.CredalLJ(half_length_decay=0.0, seed=seed)),  # the paper's
        ):
            cells = []
            for one in (task, with_rows_of_sum_one(task)):
                values = [auroc(one, make(seed)) for seed in SEEDS]
                cells.append(f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}")
            print(f"| {name} | {words} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
