"""Whether the guarantee holds, what it costs and finds, and what breaks it: tables in Markdown, for docs/guarantee.md.

    make bench-guarantee

(a) False alarms and (b) coverage and size of prediction sets over random divisions of the known test nodes into
calibration and test nodes; (c) OOD nodes caught, with calibration nodes that took no part in training; (d) the same
with exchangeability broken on purpose; (e) which score prediction sets are made from. Everything is sealed; labels of
test nodes are read once, for these rates.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

import credalgnn as cg
from credalgnn.conformal import ExchangeabilityTest, flags, nonconformity, p_values, prediction_sets, threshold

GRAPHS = ("csbm", "digits", "chameleon", "squirrel", "coauthor", "computers")
ALPHAS = (0.01, 0.05, 0.1, 0.2)
COVERAGES = (0.8, 0.9, 0.95)
SCORES = ("EU", "coverage")
CAUGHT = {"chameleon": 55, "squirrel": 45, "coauthor": 93, "digits": 95}  # graph: per cent to be reached
BROKEN = ("csbm", "digits", "chameleon", "squirrel")
RATE = 0.05  # of false alarms in (c) and (d)
BATCH = 20  # nodes a batch for the test over time in (d)


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def with_error(values: np.ndarray, scale: float = 100.0, digits: int = 1) -> str:
    """Mean and standard error."""
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{scale * values.mean():.{digits}f} ± {scale * error:.{digits}f}"


# (a) and (b): random divisions of known test nodes


def halves(count: int, divisions: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(divisions):
        order = torch.randperm(count, generator=generator)
        yield order[: count // 2], order[count // 2 :]


def false_alarms(scores: Tensor, divisions: int) -> np.ndarray:
    """Shares of flagged nodes ``[divisions, alphas]``, half of the known nodes calibrating each time."""
    rates = []
    for calibration, test in halves(len(scores), divisions):
        p = p_values(scores[calibration], scores[test])
        rates.append([float(flags(p, alpha).double().mean()) for alpha in ALPHAS])
    return np.array(rates)


def coverage_and_size(scores: Tensor, point: Tensor, labels: Tensor, divisions: int) -> np.ndarray:
    """Realised coverage and mean size of prediction sets ``[divisions, coverages, 2]``."""
    own = scores.gather(-1, labels[:, None]).squeeze(-1)
    found = []
    for calibration, test in halves(len(labels), divisions):
        row = []
        for coverage in COVERAGES:
            sets = prediction_sets(scores[test], threshold(own[calibration], coverage), point[test])
            hit = sets.gather(-1, labels[test, None])
            row.append([float(hit.double().mean()), float(sets.sum(-1).double().mean())])
        found.append(row)
    return np.array(found)


def set_scores(prediction: cg.Prediction, graph: cg.Graph) -> dict[str, Tensor]:
    """Nonconformity ``[N, C]`` by name: ours, and what others use, each by its definition."""
    assert prediction.credal is not None
    point = prediction.probabilities.double()
    own_mass = aps(point)
    place = point.argsort(-1, descending=True).argsort(-1) + 1  # 1: the most probable class
    return {
        "credal": nonconformity(prediction.credal.upper),
        "LAC": 1.0 - point,
        "APS": own_mass,
        "RAPS": own_mass + 0.2 * (place - 1),
        "DAPS": daps(own_mass, graph),
    }


def aps(point: Tensor) -> Tensor:
    """Romano, Sesia and Candes (2020): the mass of more probable classes and a random part of the class's own."""
    share = torch.rand(len(point), 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ordered, order = point.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.empty_like(point).scatter_(-1, order, before + share * ordered)


def daps(scores: Tensor, graph: cg.Graph, weight: float = 0.5) -> Tensor:
    """Zargarbashi, Antonelli and Bojchevski (2023): scores mixed with the mean of the neighbours' scores."""
    source, target = graph.edge_index
    total = torch.zeros_like(scores).index_add_(0, target, scores[source])
    degree = torch.bincount(target, minlength=len(scores))[:, None]
    return torch.where(degree > 0, (1.0 - weight) * scores + weight * total / degree.clamp_min(1), scores)


def on_divisions(graphs: list[str], divisions: int) -> None:
    alarms, sets = [], []
    for name in tqdm(graphs, desc="(a), (b)", unit="graph"):
        task = cg.load_task(name)
        prediction = cg.CredalCoverage(seed=0).fit(task, progress=False).predict()
        known = ~task.test.is_ood
        nodes, labels = task.test.nodes[known], task.test.labels[known]
        ood = task.test.nodes[~known]
        for score in SCORES:
            rates = false_alarms(prediction.scores[score][nodes], divisions)
            limits = np.array(ALPHAS) + 2.0 * rates.std(0, ddof=1) / math.sqrt(divisions)
            cells = [with_error(rates[:, k], digits=2) for k in range(len(ALPHAS))]
            verdict = "yes" if bool((rates.mean(0) <= limits).all()) else "**no**"
            alarms.append([name, score, str(len(nodes) // 2), *cells, verdict])
        point = prediction.probabilities.double()
        for kind, scores in set_scores(prediction, task.graph).items():
            found = coverage_and_size(scores[nodes], point[nodes], labels, divisions)
            limits = np.array(COVERAGES) - 2.0 * found[..., 0].std(0, ddof=1) / math.sqrt(divisions)
            cells = [f"{found[:, k, 1].mean():.3f} ({100 * found[:, k, 0].mean():.1f})" for k in range(len(COVERAGES))]
            own = scores[nodes].gather(-1, labels[:, None]).squeeze(-1)
            outside = prediction_sets(scores[ood], threshold(own, 0.9), point[ood]).sum(-1).double().mean()
            verdict = "yes" if bool((found[..., 0].mean(0) >= limits).all()) else "**no**"
            sets.append([name, kind, *cells, f"{outside:.2f}", verdict])
    title = f"(a) False alarms among known test nodes in per cent, {divisions:,} divisions: mean ± standard error"
    head = ["graph", "score", "calibration nodes", *(f"at {100 * alpha:g} %" for alpha in ALPHAS)]
    table(title, [*head, "at most alpha + 2 se"], alarms)
    title = f"(b) Mean number of classes in a set (realised coverage in per cent), known nodes, {divisions:,} divisions"
    head = ["graph", "sets", *(f"at {100 * coverage:g} %" for coverage in COVERAGES), "of OOD nodes, at 90 %"]
    table(title, [*head, "at least coverage - 2 se"], sets)


# (c): OOD nodes caught, calibration nodes of their own


class Sealed(NamedTuple):
    """A graph with the labels of known classes, and its nodes by their part; ID and OOD test nodes for the rates."""

    graph: cg.Graph
    train: Tensor
    stop: Tensor
    calibration: Tensor
    known: Tensor
    ood: Tensor


def sealed(task: cg.Task, seed: int) -> Sealed:
    """Half of the ID validation nodes of each class decides when to stop, the other half calibrates."""
    view, test = task.training, task.test
    random = np.random.default_rng(seed)
    stop = []
    for number in range(view.num_classes):
        members = random.permutation(view.val[view.graph.labels[view.val] == number].numpy())
        stop.append(members[: (len(members) + int(random.integers(2))) // 2])
    stops = torch.from_numpy(np.concatenate(stop)).sort().values
    calibration = view.val[~torch.isin(view.val, stops)]
    return Sealed(view.graph, view.train, stops, calibration, test.nodes[~test.is_ood], test.nodes[test.is_ood])


def fitted(parts: Sealed, seed: int) -> cg.CredalCoverage:
    return cg.CredalCoverage(seed=seed).fit(
        parts.graph, train=parts.train, val=parts.stop, calibration=parts.calibration, progress=False
    )


def rate(calibration: Tensor, scores: Tensor) -> float:
    return float(flags(p_values(calibration, scores), RATE).double().mean()) if len(scores) else math.nan


def caught(graphs: list[str], seeds: range) -> None:
    jobs = [(name, seed) for name in graphs if name in CAUGHT for seed in seeds]
    found: dict[tuple[str, str], list[list[float]]] = {}
    for name, seed in tqdm(jobs, desc="(c)", unit="fit"):
        parts = sealed(cg.load_task(name, split_seed=seed), seed)
        prediction = fitted(parts, seed).predict()
        for score in SCORES:
            values = prediction.scores[score]
            known, ood = (rate(values[parts.calibration], values[each]) for each in (parts.known, parts.ood))
            found.setdefault((name, score), []).append([ood, known, len(parts.calibration)])
    rows = []
    for (name, score), runs in found.items():
        values = np.array(runs)
        verdict = "yes" if 100.0 * values[:, 0].mean() >= CAUGHT[name] else "**no**"
        rows.append([name, score, f"{values[:, 2].mean():.0f}", with_error(values[:, 0]), with_error(values[:, 1]),
                     f"{CAUGHT[name]}: {verdict}"])  # fmt: skip
    head = ["graph", "score", "calibration nodes", "OOD nodes caught", "false alarms", "to be caught"]
    table(
        f"(c) Flagged at {100 * RATE:g} % false alarms in per cent, {len(seeds)} splits: mean ± standard error",
        head,
        rows,
    )


# (d): exchangeability broken on purpose


class Outcome(NamedTuple):
    """Shares of flagged nodes, and when the test over time raises its alarm."""

    same: float  # flagged among known nodes that nothing was done to
    changed: float  # flagged among known nodes that were changed, or among OOD nodes
    early: float  # 1: the test over time raised an alarm before the changed nodes came
    delay: float  # changed nodes until it raised one; NaN: never


def outcome(calibration: Tensor, same: Tensor, changed: Tensor, seed: int) -> Outcome:
    watch = ExchangeabilityTest(calibration, seed)
    for batch in same.split(BATCH):
        watch.update(batch)
    early, seen = watch.alarm, 0
    for batch in changed.split(BATCH):
        if watch.alarm:
            break
        watch.update(batch)
        seen += len(batch)
    delay = seen if watch.alarm and not early else math.nan
    return Outcome(rate(calibration, same), rate(calibration, changed), float(early), delay)


def nothing(task: cg.Task, seed: int) -> dict[str, Outcome]:
    """As in (c): the order of things for comparison, OOD nodes for changed nodes."""
    parts = sealed(task, seed)
    scores = fitted(parts, seed).predict().score
    return {"nothing; OOD nodes": outcome(*(scores[part] for part in parts[-3:]), seed)}


def grown(task: cg.Task, seed: int) -> dict[str, Outcome]:
    """Fitted on the graph of training and validation nodes; test nodes, OOD nodes among them, join afterwards."""
    parts = sealed(task, seed)
    whole = parts.graph.replace(node_ids=np.arange(parts.graph.num_nodes))
    there = torch.cat([parts.train, parts.stop, parts.calibration]).sort().values
    number = torch.full((whole.num_nodes,), -1)
    number[there] = torch.arange(len(there))
    small = Sealed(whole.subgraph(there), *(number[part] for part in parts[1:]))
    model = fitted(small, seed)
    before = model.predict().score[small.calibration]
    assert model.calibration_ is not None
    held_out = model.calibration_.fitted.scores  # of stored models, each by those that were not told about the node
    anew = model.predict(whole).score
    stored = model.set_params(reestimate=False).predict(whole).score
    others = (parts.known, parts.ood)
    return {
        "grows: coverage anew, all scored in the grown graph": outcome(
            anew[parts.calibration], *(anew[part] for part in others), seed
        ),
        "grows: stored models, all scored in the grown graph": outcome(
            stored[parts.calibration], *(stored[part] for part in others), seed
        ),
        "grows: stored models, scores of fit": outcome(held_out, *(stored[part] for part in others), seed),
        "grows: coverage anew, calibration scores of fit": outcome(before, *(anew[part] for part in others), seed),
    }


def shifted(kind: str) -> Callable[[cg.Task, int], dict[str, Outcome]]:
    """Fitted on a graph in which half of the test nodes are changed."""

    def run(task: cg.Task, seed: int) -> dict[str, Outcome]:
        task = getattr(task, kind)(0.5, seed=seed)
        parts = sealed(task, seed)
        scores = fitted(parts, seed).predict().score
        is_changed = torch.isin(parts.known, task.shifted_nodes)
        same, changed = scores[parts.known[~is_changed]], scores[parts.known[is_changed]]
        return {f"{kind} of half of the test nodes": outcome(scores[parts.calibration], same, changed, seed)}

    return run


def broken(graphs: list[str], seeds: range) -> None:
    kinds = [nothing, grown, *map(shifted, ("feature_noise", "feature_removal", "rewired"))]
    jobs = [(name, kind, seed) for name in graphs if name in BROKEN for kind in kinds for seed in seeds]
    found: dict[tuple[str, str], list[Outcome]] = {}
    for name, kind, seed in tqdm(jobs, desc="(d)", unit="fit"):
        for case, result in kind(cg.load_task(name, split_seed=seed), seed).items():
            found.setdefault((name, case), []).append(result)
    rows = []
    for (name, case), results in found.items():
        same, changed, early, delay = np.array(results).T
        noticed = f"{np.isfinite(delay).sum():.0f} of {int((1 - early).sum())}"
        after = f"{np.nanmedian(delay):.0f}" if np.isfinite(delay).any() else "-"
        rows.append(
            [name, case, with_error(same), with_error(changed), f"{early.sum():.0f} of {len(seeds)}", noticed, after]
        )
    head = ["graph", "what is done", "flagged, known and unchanged", "flagged, changed or OOD nodes"]
    head += ["alarm before the change", "alarm after it", "after so many nodes (median)"]
    table(f"(d) Flagged by EU at {100 * RATE:g} % in per cent, {len(seeds)} splits: mean ± standard error", head, rows)


# (e): which score the sets are made from


def candidates(prediction: cg.Prediction, graph: cg.Graph) -> dict[str, Tensor]:
    """Scores ``[N, C]`` that sets could be made from, by name; LAC first."""
    assert prediction.credal is not None
    p = prediction.probabilities.double()
    lower, upper = prediction.credal.lower.double(), prediction.credal.upper.double()
    others = set_scores(prediction, graph)

    def best_other(x: Tensor) -> Tensor:
        top = x.topk(2, -1).values
        return torch.where(x == top[:, :1], top[:, 1:], top[:, :1])

    return {
        "LAC": others["LAC"],
        "1 - (p_k + u_k) / 2": 1.0 - (p + upper) / 2.0,
        "max of other p_j - p_k": best_other(p) - p,
        "1 - u_k": others["credal"],
        "max of other l_j - u_k (calibrated interval dominance)": best_other(lower) - upper,
        "log of (max of other l_j / u_k)": best_other(lower).clamp_min(1e-12).log() - upper.clamp_min(1e-12).log(),
        **{name: others[name] for name in ("RAPS", "DAPS", "APS")},
    }


def compared(graphs: list[str], divisions: int) -> None:
    """On ID validation nodes: these decide which score is taken."""
    sizes: dict[str, list[float]] = {}
    for name in tqdm(graphs, desc="(e)", unit="graph"):
        task = cg.load_task(name)
        prediction = cg.CredalCoverage(seed=0).fit(task, progress=False).predict()
        known = ~task.validation.is_ood
        nodes, labels = task.validation.nodes[known], task.validation.labels[known]
        point = prediction.probabilities.double()[nodes]
        for kind, scores in candidates(prediction, task.graph).items():
            found = coverage_and_size(scores[nodes], point, labels, divisions)[..., 1].mean(0)
            sizes.setdefault(kind, []).extend(np.log(found).tolist())
    base = np.array(sizes.pop("LAC"))
    rows = [
        [kind, f"{100.0 * math.expm1((np.array(logs) - base).mean()):.1f} %"]
        for kind, logs in sorted(sizes.items(), key=lambda item: sum(item[1]))
    ]
    title = f"(e) Classes in sets of ID validation nodes above those of LAC, geometric mean, {divisions:,} divisions"
    table(title, ["score of class k", "more classes than LAC"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--graphs", nargs="+", default=list(GRAPHS), help="of all tables; (c) and (d) have some of them"
    )
    parser.add_argument("--seeds", type=int, default=10, help="splits, and seeds of the fits, of (c) and (d)")
    parser.add_argument("--divisions", type=int, default=1000, help="random divisions of (a) and (b)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--tables", nargs="+", choices=["ab", "c", "d", "e"], default=["ab", "c", "d", "e"])
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    if "ab" in args.tables:
        on_divisions(args.graphs, args.divisions)
    if "c" in args.tables:
        caught(args.graphs, seeds)
    if "d" in args.tables:
        broken(args.graphs, seeds)
    if "e" in args.tables:
        compared(args.graphs, min(args.divisions, 200))


if __name__ == "__main__":
    main()
