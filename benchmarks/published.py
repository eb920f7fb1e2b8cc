"""Ours beside what the originals publish, where a graph is here and the protocol can be followed.

    make bench-published

Each figure says where it stands. What a protocol needs and the package does not have (normalised features, outputs for
classes that are never trained, weights of the last epoch) is done here. ``apart`` is the difference of the means in
standard deviations: of both, pooled, where a spread is published, else of ours alone.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import credalgnn as cg
from credalgnn.graphs import Graph, Split, Task
from credalgnn.methods import scores
from credalgnn.nn import Adjacency, Classifier, Monitor, SparseMatrix
from credalgnn.nn.backbones import GCNLayer, LinearLayer

HERE = Path(__file__).resolve().parents[1]


class Row(NamedTuple):
    """One line: a published figure, in per cent, and ours."""

    what: str
    published: float
    spread: float | None
    ours: Sequence[float]


def show(title: str, source: str, rows: Sequence[Row]) -> None:
    """A Markdown table."""
    print(f"\n**{title}** ({source})\n\n| | published | ours | runs | apart |\n|---|---:|---:|---:|---:|")
    for what, published, spread, ours in rows:
        mean, own = float(np.mean(ours)), float(np.std(ours, ddof=1))
        unit = own if spread is None else ((own**2 + spread**2) / 2) ** 0.5
        theirs = f"{published:.1f}" if spread is None else f"{published:.1f} ± {spread:.1f}"
        apart = f"{(mean - published) / unit:+.1f}" if unit else ("0" if abs(mean - published) < 0.05 else "-")
        print(f"| {what} | {theirs} | {mean:.1f} ± {own:.1f} | {len(ours)} | {apart} |", flush=True)


def auroc(is_ood: Tensor, score: Tensor) -> float:
    return 100.0 * float(roc_auc_score(is_ood, score))


def planetoid(graph: Graph, ood: Sequence[int], full: bool, tested: Tensor | None = None) -> Task:
    """Cora's public split: 140 (or all other) nodes to train, 500 to stop by, the last 1,000 to test."""
    node = torch.arange(graph.num_nodes)
    val, test = (node >= 140) & (node < 640), node >= graph.num_nodes - 1000
    train = ~val & ~test if full else node < 140
    if tested is not None:  # known nodes of the test part, and these OOD nodes, wherever they are
        known = ~torch.isin(graph.labels, torch.tensor(ood))
        train, val, test = train & known, val & known, (test & known) | tested
    return Task.leave_out(graph, ood, Split.from_masks(train, val, test))


# ----------------------------------------------------------------------------------------------------------------------
# GNNSafe on Cora: classes 4 to 6 are known, 0 to 2 OOD, 3 takes no part
# ----------------------------------------------------------------------------------------------------------------------

SAFE_SOURCE = (
    "Wu et al. 2023, logs in their repository: GNNSafe/results/discuss/backbone.csv and prop.csv, one run each; "
    "MSP, energy, GNNSafe (2 steps, alpha 0.5) and accuracy"
)
SAFE = {"gcn": (91.15, 91.41, 92.80, 88.92), "gat": (91.62, 92.31, 93.89, 91.14), "mlp": (60.49, 76.31, 89.58, 77.22)}
SPREAD = {(1, 0.1): 92.00, (8, 0.5): 92.89, (64, 0.5): 92.18, (16, 0.9): 93.00}  # by steps and alpha, GCN


class GATLayer(nn.Module):
    """PyG's attention on dense features."""

    def __init__(self, in_channels: int, out_channels: int, heads: int, concat: bool) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv

        self.conv = GATConv(in_channels, out_channels, heads=heads, concat=concat)

    def forward(self, x: Tensor | SparseMatrix, edges: Adjacency) -> Tensor:
        return self.conv(x if isinstance(x, Tensor) else x.to_dense(), edges.edge_index)


class TwoLayers(nn.Module):
    """Their networks: a layer, batch normalisation, an activation, and a layer that gives logits.

    The energy's training runs the network twice in a step, once for OOD nodes that it then does nothing with, so that
    the averages of batch normalisation move twice (``passes``).
    """

    def __init__(self, kind: str, features: int, hidden: int, outputs: int, passes: int) -> None:
        super().__init__()
        made: dict[str, Callable[[], list[nn.Module]]] = {
            "gcn": lambda: [GCNLayer(features, hidden), GCNLayer(hidden, outputs)],
            "mlp": lambda: [LinearLayer(features, hidden), LinearLayer(hidden, outputs)],
            "gat": lambda: [GATLayer(features, hidden, 2, True), GATLayer(2 * hidden, outputs, 1, False)],
        }
        self.first, self.second = made[kind]()
        self.kind, self.passes = kind, passes
        self.norm = nn.BatchNorm1d(2 * hidden if kind == "gat" else hidden)

    def forward(self, x: Tensor | SparseMatrix, edges: Adjacency) -> list[Tensor]:
        z = self.first(x, edges)
        z = z.relu() if self.kind == "mlp" else z
        for _ in range(self.passes - 1 if self.training else 0):
            self.norm(z.detach())
        z = self.norm(z)
        z = {"gcn": torch.relu, "gat": nn.functional.elu, "mlp": nn.Identity()}[self.kind](z)
        return [z, self.second(z, edges)]


class Theirs(cg.Vanilla):
    """Trained as theirs: 200 epochs, the weights of the least loss of validation nodes."""

    kind, passes, outputs_ = "gcn", 1, 7

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        network = TwoLayers(self.kind, num_features, self.hidden, self.outputs_, self.passes)
        return Classifier(network, nn.Identity(), 2)


def trained(task: Task, kind: str, passes: int, outputs: int, seed: int) -> cg.Vanilla:
    made = type("Theirs", (Theirs,), {"kind": kind, "passes": passes, "outputs_": outputs})
    return made(hidden=64, lr=0.01, weight_decay=0.01, epochs=200, patience=200, seed=seed).fit(task)


def gnnsafe(seeds: int) -> None:
    graph = cg.load_graph("cora")
    x = graph.features.to_dense()
    graph = graph.replace(features=x / x.sum(1, keepdim=True).clamp_min(1.0))
    task = planetoid(graph, (0, 1, 2, 3), full=False, tested=graph.labels < 3)
    nodes, is_ood, right = task.test.nodes, task.test.is_ood, task.test.labels[~task.test.is_ood]
    rows = []
    for kind, figures in SAFE.items():
        found: dict[str, list[float]] = {}
        for seed in range(min(seeds, 3) if kind == "gat" else seeds):
            once = trained(task, kind, 1, 7, seed).outputs().logits
            twice = trained(task, kind, 2, 7, seed).outputs().logits
            energy = scores.energy(twice)
            found.setdefault("MSP", []).append(auroc(is_ood, scores.msp(once)[nodes]))
            found.setdefault("energy", []).append(auroc(is_ood, energy[nodes]))
            spread = {(2, 0.5): "GNNSafe"}
            if kind == "gcn":
                spread |= {(steps, alpha): f"{steps} steps, alpha {alpha}" for steps, alpha in SPREAD}
            for (steps, alpha), name in spread.items():
                value = auroc(is_ood, scores.propagate(energy, graph, alpha, steps)[nodes])
                found.setdefault(name, []).append(value)
            classes = twice[nodes[~is_ood]].argmax(1)
            found.setdefault("accuracy", []).append(100.0 * (classes == right).double().mean().item())
        published = dict(zip(("MSP", "energy", "GNNSafe", "accuracy"), figures, strict=True))
        published |= {f"{steps} steps, alpha {alpha}": value for (steps, alpha), value in SPREAD.items()}
        rows += [Row(f"{kind}, {name}", published[name], None, values) for name, values in found.items()]
    own: dict[str, list[float]] = {"energy": [], "GNNSafe": []}
    for seed in range(seeds):
        model = trained(task, "gcn", 2, 3, seed)
        for name, method in (("energy", cg.Energy(model=model)), ("GNNSafe", cg.GNNSafe(model=model))):
            own[name].append(auroc(is_ood, method.fit(task).predict().score[nodes]))
    figures = dict(zip(("energy", "GNNSafe"), SAFE["gcn"][1:3], strict=True))
    rows += [Row(f"gcn, {name}, 3 outputs as in this package", figures[name], None, own[name]) for name in own]
    show("GNNSafe, Cora, AUROC", SAFE_SOURCE, rows)


# ----------------------------------------------------------------------------------------------------------------------
# Random sets on Chameleon and Cora: single runs with their hyper-parameters
# ----------------------------------------------------------------------------------------------------------------------

SETS_SOURCE = (
    "Woodley et al. 2026, logs in their repository: plots/random_set_results/by_dataset/*/runs.csv, the first runs "
    "with 128 units or less and a weight decay below {}; entropy of the pignistic probabilities"
)


class Run(NamedTuple):
    """A line of their log."""

    hidden: int
    layers: int
    lr: float
    weight_decay: float
    auroc: float
    accuracy: float


CHAMELEON = (
    Run(128, 3, 0.0222894, 0.0249831, 78.72, 36.96),
    Run(128, 3, 0.0384835, 0.0126715, 81.11, 36.96),
    Run(64, 3, 0.0276220, 0.0107176, 79.82, 36.96),
    Run(128, 3, 0.0475886, 0.0048328, 61.63, 44.20),
    Run(128, 3, 0.0226997, 0.0049334, 40.93, 51.81),
    Run(64, 3, 0.0369615, 0.0197266, 74.22, 36.96),
    Run(128, 2, 0.0936078, 0.0272752, 82.53, 36.96),
    Run(128, 2, 0.0994487, 0.0196942, 82.43, 36.96),
    Run(64, 3, 0.0179516, 0.0249506, 64.53, 36.96),
    Run(64, 2, 0.0211971, 0.0056182, 51.71, 56.52),
)
CORA = (
    Run(128, 2, 0.0035815, 0.0050061, 87.12, 93.99),
    Run(128, 2, 0.0081593, 0.0009845, 89.29, 93.35),
    Run(128, 2, 0.0088884, 0.0026176, 85.56, 92.72),
    Run(64, 3, 0.0218732, 0.0025330, 91.26, 93.04),
    Run(64, 2, 0.0049767, 0.0039804, 86.02, 93.35),
    Run(128, 3, 0.0122286, 0.0071582, 82.88, 93.35),
    Run(64, 2, 0.0048052, 0.0021496, 88.04, 94.30),
)
PATIENCE = 50


class LastLatent(nn.Module):
    """PyG's GAT, whose last layer has no ReLU."""

    def __init__(self, features: int, hidden: int, layers: int) -> None:
        super().__init__()
        from torch_geometric.nn.models import GAT

        self.gat = GAT(features, hidden, layers, out_channels=hidden)

    def forward(self, x: Tensor | SparseMatrix, edges: Adjacency) -> list[Tensor]:
        return [self.gat(x if isinstance(x, Tensor) else x.to_dense(), edges.edge_index)]


class AtTheEnd(cg.RandomSet):
    """Stops as theirs, when the loss has not fallen for 50 epochs, and keeps the weights that it then has."""

    def _build(self, num_features: int, num_classes: int) -> Classifier:
        network = LastLatent(num_features, self.hidden, self.layers)
        return Classifier(network, self._head([self.hidden], num_classes), self.layers)

    def _monitor(self, given: object) -> Monitor:
        inner, seen = super()._monitor(given), []  # type: ignore[arg-type]

        def value(output: Tensor | tuple[Tensor, ...]) -> float:
            seen.append(inner.value(output))
            stale = len(seen) - 1 - int(np.argmin(seen[1:] or seen))
            return float(-len(seen)) if stale <= PATIENCE else float("inf")

        return Monitor(inner.nodes, value, inner.on)


def random_set() -> None:
    for name, task, runs, below in (
        ("Chameleon", cg.load_task("chameleon"), CHAMELEON, 0.03),
        ("Cora", planetoid(cg.load_graph("cora"), (0, 1, 2, 3), full=True), CORA, 0.01),
    ):
        is_ood = task.test.is_ood
        most = 100.0 * torch.bincount(task.test.labels[~is_ood]).max().item() / int((~is_ood).sum())
        values = [measured(run, task, seed) for seed, run in enumerate(runs)]
        stuck, rows = [abs(run.accuracy - most) < 0.1 for run in runs], []
        for group in (True, False):
            pairs = [(run, value) for run, value, flag in zip(runs, values, stuck, strict=True) if flag == group]
            which = ", runs that predict one class" if group else ", other runs" if any(stuck) else ""
            for place, what in enumerate(("auroc", "accuracy") if pairs else ()):
                published = [getattr(run, what) for run, _ in pairs]
                spread = float(np.std(published, ddof=1))
                label = what.replace("auroc", "AUROC") + which
                rows.append(Row(label, float(np.mean(published)), spread, [value[place] for _, value in pairs]))
        show(f"random sets, {name}", SETS_SOURCE.format(below), rows)


def measured(run: Run, task: Task, seed: int) -> tuple[float, float]:
    """AUROC of the entropy, and accuracy."""
    method = AtTheEnd(
        hidden=run.hidden,
        layers=run.layers,
        lr=run.lr,
        weight_decay=run.weight_decay,
        epochs=200,
        patience=1,
        seed=seed,
    ).fit(task)
    found, is_ood = method.predict(nodes=task.test.nodes), task.test.is_ood
    right = found.classes[~is_ood] == task.test.labels[~is_ood]
    return auroc(is_ood, torch.special.entr(found.probabilities).sum(1)), 100.0 * right.double().mean().item()


# ----------------------------------------------------------------------------------------------------------------------
# The credal authors' later table, beside docs/results/paper
# ----------------------------------------------------------------------------------------------------------------------

LATER_SOURCE = (
    "Tolloso and Bacciu, docs/status/campaign_v02.md in their repository: the five best of a search by OOD validation "
    "nodes; ours: docs/results/paper/table.csv, the best of a search by the same, five seeds"
)
LATER = {  # AUROC on Coauthor
    ("energy", "energy"): (94.25, 1.58),
    ("knn", "distance"): (83.58, 1.59),
    ("odin", "odin"): (94.50, 0.03),
    ("mahalanobis", "distance"): (87.23, 9.59),
    ("gnnsafe", "energy"): (94.50, 0.09),
    ("knn-lj", "distance"): (64.71, 0.16),
    ("classical-ensemble", "best"): (96.50, 0.09),
    ("credal-ensemble", "best"): (95.76, 0.12),
    ("credal-lj", "best"): (69.60, 9.08),
    ("credal-final", "best"): (62.62, 7.99),
}


def later_table() -> None:
    with (HERE / "docs/results/paper/table.csv").open() as file:
        known = {
            (line["method"], line["score"]): (100.0 * float(line["mean"]), 100.0 * float(line["std"]))
            for line in csv.DictReader(file)
            if line["dataset"] == "coauthor" and line["metric"] == "auroc"
        }
    print(f"\n**Coauthor, AUROC** ({LATER_SOURCE})\n\n| | published | ours | apart |\n|---|---:|---:|---:|")
    for (method, score), (published, spread) in LATER.items():
        best = max((value, name) for (one, name), value in known.items() if one == method) if score == "best" else None
        (mean, own), name = best or (known[method, score], score)
        apart = (mean - published) / ((own**2 + spread**2) / 2) ** 0.5
        print(f"| {method}, {name} | {published:.1f} ± {spread:.1f} | {mean:.1f} ± {own:.1f} | {apart:+.1f} |")


# ----------------------------------------------------------------------------------------------------------------------
# JLDE as its authors' code has it
# ----------------------------------------------------------------------------------------------------------------------


def jlde(seeds: int) -> None:
    """No published figure is on a graph that is here; this is what their settings would give in place of ours."""
    head = "| | 32 components, k = 10 | 95 % of the variance of all nodes, k = 5 |"
    print(f"\n**JLDE, AUROC**\n\n{head}\n|---|---:|---:|")
    for name in ("chameleon", "squirrel", "cora"):
        task = cg.load_task(name)
        nodes, train, is_ood = task.test.nodes, task.split.train, task.test.is_ood
        ours, theirs = [], []
        for seed in range(seeds):
            model = cg.Vanilla(seed=seed).fit(task)
            ours.append(auroc(is_ood, cg.JLDE(model=model).fit(task).predict(nodes=nodes).score))
            joint = torch.cat([components(z) for z in model.outputs().latents], 1)
            theirs.append(auroc(is_ood, scores.knn(joint[train], joint[nodes], 5)))
        cells = [f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" for values in (ours, theirs)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def components(latent: Tensor | SparseMatrix) -> Tensor:
    """The principal components that hold 95 % of the variance."""
    z = (latent if isinstance(latent, Tensor) else latent.to_dense()).double()
    z = z - z.mean(0)
    values, vectors = torch.linalg.eigh(z.t() @ z)
    count = int((values.flip(0).cumsum(0) / values.sum() < 0.95).sum()) + 1
    return z @ vectors.flip(1)[:, :count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)  # another number rounds dense products differently
    gnnsafe(args.seeds)
    random_set()
    later_table()
    jlde(3)


if __name__ == "__main__":
    main()
