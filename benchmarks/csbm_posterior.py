"""How exact the posterior of the contextual stochastic block model is, and what it takes.

    make bench-posterior        (or: python benchmarks/csbm_posterior.py --seeds 1)

For the default ``csbm`` with several homophilies, without known labels and with those of 60 % of the nodes: the
difference of two chains (root mean square over classes and nodes that are not known, and the largest; the worst of the
seeds), for how many seeds they started at different labellings, and the seconds of one core that both take. Then, over
all nodes that are not known, in per cent the mean probability of the most probable class and how often it is the true
one, and the NLL beside that of the features alone.
"""

from __future__ import annotations

import argparse
from time import process_time

import torch

from credalgnn.graphs import csbm, csbm_graph_posterior, csbm_posterior

HOMOPHILIES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.8, 1.0)


def line(homophily: float, share: float, seeds: int) -> str:
    errors, largest, seconds, kinds = [], [], [], []
    numbers = []
    for seed in range(seeds):
        labels = csbm(homophily=homophily, seed=seed).labels
        known = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed)) < share
        start = process_time()
        found = csbm_graph_posterior(homophily=homophily, seed=seed, known=known)
        seconds.append(process_time() - start)
        errors.append(found.error)
        largest.append(found.largest_error)
        kinds.append(found.independent)
        open_nodes = ~known & (torch.arange(len(labels)) >= 4)
        p, truth = found.probabilities[open_nodes], labels[open_nodes]
        alone = csbm_posterior(homophily=homophily, seed=seed)[open_nodes]
        right = (p.argmax(1) == truth).double().mean()
        nll = [-q.gather(1, truth[:, None]).log().mean() for q in (p, alone)]
        numbers.append(torch.stack([p.max(1).values.mean(), right, *nll]))
    sure, right, nll, alone = torch.stack(numbers).mean(0).tolist()
    cells = (
        f"{homophily:g}",
        f"{share:.0%}",
        f"{max(errors):.4f}",
        f"{max(largest):.3f}",
        f"{sum(kinds)} of {seeds}",
        f"{sum(seconds) / seeds:.1f}",
        f"{100 * sure:.1f}",
        f"{100 * right:.1f}",
        f"{nll:.3f}",
        f"{alone:.3f}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--homophily", type=float, nargs="+", default=HOMOPHILIES)
    options = parser.parse_args()
    csbm_graph_posterior(20, 4, sweeps=1)  # compiles
    print("| homophily | known | difference | largest | starts differ | seconds | sure | right | NLL | of features |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for share in (0.0, 0.6):
        for homophily in options.homophily:
            print(line(homophily, share, options.seeds), flush=True)


if __name__ == "__main__":
    main()
