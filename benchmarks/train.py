"""Milliseconds per training step (forward, backward, Adam): ours against stock PyG, in one run and one thread.

    make bench-train        (or: python benchmarks/train.py --mirror FOLDER --tables methods --datasets chameleon)

Stock is ``torch_geometric.nn.models.GCN``, ``GraphSAGE``, ``GIN`` or (if asked for with ``--backbones gat gatv2``)
``GAT`` on ``edge_index`` with dense features, whose last layer gives the logits; ``like ours`` is the same with
``jk="last"``, which has our vanilla's architecture: as many hidden layers and a linear layer on top. ``stock CSR`` is
stock on a sparse CSR matrix of the edges (torch's, which layers of PyG take in the place of ``edge_index``), with GCN's
normalisation made once. Timings are CPU time, the best of several rounds that take turns, because machines are noisy.
A second table has what other methods cost beside a vanilla GNN, in one thread: of methods that stand on a fitted model,
what comes on top of it. A third one has whole fits, on all cores: what credal-coverage costs, prediction included, in
vanilla fits.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from credalgnn import CredalCoverage, CredalLJ, Vanilla, load_task
from credalgnn.graphs import Graph, Task
from credalgnn.graphs.edges import Edges
from credalgnn.methods import METHODS
from credalgnn.methods.inputs import inputs

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

HIDDEN, LAYERS = 64, 2
OTHERWISE = ("vanilla", "credal-coverage", "classical-ensemble", "credal-ensemble")  # ensembles: as many vanilla fits
RIVALS = [name for name, kind in METHODS.items() if not kind.is_baseline and name not in OTHERWISE]
STOCK: dict[str, Callable[..., nn.Module]] = {
    "gcn": GCN,
    "sage": GraphSAGE,
    "gin": GIN,
    "gat": GAT,
    "gatv2": partial(GAT, v2=True),
}
BARS = {
    "chameleon": {"gcn": 5, "sage": 50},
    "squirrel": {"gcn": 8, "sage": 100},
    "coauthor": {"gcn": 8, "sage": 40},
}


def ours(task: Task, method: Vanilla | CredalLJ) -> Callable[[], float]:
    """One step of a method's own module and loss, as the training loop makes it."""
    view = task.training
    x, edges = inputs(view.graph)
    model = method._build(view.graph.num_features, view.num_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    labels = view.graph.labels[view.train]

    def step() -> float:
        output = model(x, edges)
        at = output[view.train] if isinstance(output, torch.Tensor) else tuple(part[view.train] for part in output)
        loss = method._loss(at, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def stock(task: Task, kind: Callable[..., nn.Module], csr: bool = False, **options: str) -> Callable[[], float]:
    """One step of PyG's model on dense features and ``edge_index``, or a sparse CSR matrix of the edges."""
    view = task.training
    x = view.graph.features.to_dense()
    edges = view.graph.edge_index
    if csr:
        edges = csr_edges(view.graph, normalised=kind is GCN)
    known = {"normalize": False} if csr and kind is GCN else {}
    model = kind(view.graph.num_features, HIDDEN, LAYERS, view.num_classes, **options, **known)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    labels = view.graph.labels[view.train]

    def step() -> float:
        loss = nn.functional.cross_entropy(model(x, edges)[view.train], labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def csr_edges(graph: Graph, normalised: bool) -> torch.Tensor:
    """The transposed adjacency matrix, which PyG's layers take for edges, with GCN's normalisation or ones.

    Args:
        graph: The graph.
        normalised: Whether GCN's layers are to find their normalisation done.
    """
    count, edges, weights = graph.num_nodes, graph.edge_index, None
    if normalised:
        edges, weights = gcn_norm(edges, None, count)
    starts, sources, values = Edges.of(edges, count, weights)  # to_torch_csr_tensor drops edges that stand twice
    return torch.sparse_csr_tensor(
        starts, sources.long(), torch.ones(len(sources)) if values is None else values, (count, count)
    )


def best(steps: dict[str, Callable[[], float]], rounds: int = 4, seconds: float = 0.5) -> dict[str, float]:
    """Milliseconds of each, the best of rounds that take turns: CPU time, which is that of a clock in one thread."""
    found = dict.fromkeys(steps, float("inf"))
    for name, step in steps.items():
        begin = time.process_time()
        step()  # warm up: compile, make operators
        found[name] = 1e3 * (time.process_time() - begin)
    for _ in range(rounds):
        for name, step in steps.items():
            spent = time.process_time()
            while True:
                begin = time.process_time()
                step()
                end = time.process_time()
                found[name] = min(found[name], 1e3 * (end - begin))
                if end - spent > seconds:
                    break
    return found


def costs(args: argparse.Namespace) -> None:
    """CPU time of fits as they are by default, early stopping included, and of predictions of all nodes."""
    print("\n| graph | method | fit, s | / vanilla | epochs | ms an epoch | predict, ms |\n" + "|---" * 7 + "|")
    for name in args.datasets:
        task = load_task(name, mirror=args.mirror)
        vanilla = Vanilla(seed=0).fit(task, progress=False)  # operators are there once it is timed
        base = 0.0
        for method in ("vanilla", *RIVALS):
            kind = METHODS[method]
            made = kind(seed=0) if kind.components is None else kind(seed=0, model=vanilla)
            begin = time.process_time()
            made.fit(task, progress=False)
            middle = time.process_time()
            made.predict()
            fit, predict = middle - begin, time.process_time() - middle
            base = base or fit
            epochs = max(len(made.history_) - 1, 0)
            each = f"{1e3 * fit / epochs:.1f}" if epochs else "-"
            cells = (name, method, f"{fit:.2f}", f"{fit / base:.2f}", epochs, each, f"{1e3 * predict:.0f}")
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def whole_fits(args: argparse.Namespace) -> None:
    """Seconds of a vanilla fit, and of credal-coverage with prediction of all nodes, the vanilla fit included."""
    torch.set_num_threads(os.cpu_count() or 1)
    print("\n| graph | vanilla fit, s | credal-coverage, s | ratio | wanted |\n|---|---|---|---|---|")
    for name in args.datasets:
        task = load_task(name, mirror=args.mirror)
        times = []
        for _ in range(2):
            begin = time.perf_counter()
            vanilla = Vanilla(seed=0).fit(task, progress=False)
            middle = time.perf_counter()
            CredalCoverage(model=vanilla, seed=0).fit(task, progress=False).predict()
            times.append((middle - begin, time.perf_counter() - begin))
        fit, whole = (min(column) for column in zip(*times, strict=True))
        wanted = {"coauthor": "ratio <= 6", "chameleon": "<= 20 s"}.get(name, "")
        print(f"| {name} | {fit:.1f} | {whole:.1f} | {whole / fit:.1f} | {wanted} |", flush=True)


def steps(args: argparse.Namespace) -> None:
    """Milliseconds a training step, ours and stock PyG's."""
    print(f"milliseconds per step, hidden {HIDDEN}, {LAYERS} layers, one thread, torch {torch.__version__}\n")
    head = ("graph", "backbone", "stock", "like ours", "stock CSR", "vanilla", "credal-lj")
    head += ("stock/vanilla", "wanted", "stock CSR/vanilla", "lj/vanilla")
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for name in args.datasets:
        task = load_task(name, mirror=args.mirror)
        for backbone in args.backbones:
            kind = STOCK[backbone]
            options = {"backbone": backbone, "hidden": HIDDEN, "layers": LAYERS}
            times = best(
                {
                    "stock": stock(task, kind),
                    "like ours": stock(task, kind, jk="last"),
                    "stock CSR": stock(task, kind, csr=True),
                    "vanilla": ours(task, Vanilla(**options)),
                    "credal-lj": ours(task, CredalLJ(**options)),
                }
            )
            ratio, sparse, lj = (
                times[one] / times[other]
                for one, other in (("stock", "vanilla"), ("stock CSR", "vanilla"), ("credal-lj", "vanilla"))
            )
            cells = [name, backbone, *(f"{t:,.1f}" for t in times.values())]
            wanted = f">= {BARS[name][backbone]}" if backbone in BARS[name] else ""
            cells += [f"{ratio:.1f}", wanted, f"{sparse:.1f}", f"{lj:.2f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


TABLES = {"steps": steps, "methods": costs, "fits": whole_fits}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mirror", help="folder with raw files (default: $CREDALGNN_MIRROR)")
    parser.add_argument("--datasets", nargs="+", default=list(BARS), choices=list(BARS))
    parser.add_argument("--backbones", nargs="+", default=["gcn", "sage", "gin"], choices=list(STOCK))
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in args.tables:
        TABLES[name](args)


if __name__ == "__main__":
    main()
