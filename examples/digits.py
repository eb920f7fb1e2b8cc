"""The methods by hand, on a graph of handwritten digits of which none has seen an 8 or a 9: python examples/digits.py.

Nodes are images, joined to those that look alike; the methods learn 0 to 7 and are asked which test nodes are
strangers. The picture shows test nodes with the probability intervals of the credal ensemble. Those of credal-lj are
hardly to be seen here: on data as easy as this its loss is least where intervals close, and the decay of its
half-lengths keeps them open a little (the table says how wide they are); without it they would close, and it would
warn.
"""

import argparse
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from sklearn.metrics import roc_auc_score

import credalgnn as cg


def compare(task: cg.Task) -> dict[str, cg.Prediction]:
    """Fit every method, print what each is worth on the test nodes; the backbones they share are trained once."""
    test, vanilla = task.test, cg.Vanilla(seed=0)
    members = [vanilla, *(cg.Vanilla(seed=seed) for seed in range(1, 10))]
    found = {}
    head = f"{'method':20s}{'AUROC (8 and 9 against the rest)':>34s}{'accuracy on 0..7':>18s}"
    print(f"{head}{'interval':>10s}{'seconds':>9s}")
    for name, method in cg.METHODS.items():
        if name == "vanilla":
            model = vanilla
        elif name.endswith("ensemble"):
            model = method(members=members)
        else:
            model = method(vanilla=vanilla) if hasattr(method, "vanilla") else method()
        if sys.stdout.isatty():
            print(f"{name:20s} ...", end="\r", flush=True)
        begin = time.perf_counter()
        found[name] = prediction = model.fit(task).predict(nodes=test.nodes)
        seconds = time.perf_counter() - begin
        aurocs = {score: roc_auc_score(test.is_ood, values) for score, values in prediction.scores.items()}
        words = "  ".join(f"{score} {auroc:.3f}" for score, auroc in aurocs.items())
        accuracy = width = "-"
        if prediction.probabilities is not None:
            accuracy = f"{(prediction.classes == test.labels)[~test.is_ood].double().mean():.1%}"
        if prediction.credal is not None:
            width = f"{intervals(prediction).width.amax(-1).mean():.3f}"
        print(f"{name:20s}{words:>34s}{accuracy:>18s}{width:>10s}{seconds:9.1f}", flush=True)
    return found


def intervals(prediction: cg.Prediction) -> cg.IntervalSet:
    """Probability intervals, for a hull the smallest around it."""
    return prediction.credal.to_intervals() if isinstance(prediction.credal, cg.HullSet) else prediction.credal


def show(path: Path, task: cg.Task, prediction: cg.Prediction) -> None:
    """The images with the least total, the most aleatoric and the most epistemic uncertainty, with their intervals."""
    aleatoric, epistemic = prediction.aleatoric, prediction.epistemic
    rows = {
        "surest\n(least TU)": prediction.total.argsort()[:6],
        "most ambiguous\n(largest AU)": aleatoric.argsort(descending=True)[:6],
        "most unknown\n(largest EU)": epistemic.argsort(descending=True)[:6],
    }
    images, bounds = task.graph.features.to_dense(), intervals(prediction)
    figure, axes = plt.subplots(3, 12, figsize=(15, 5.2), width_ratios=[1, 1.25] * 6, layout="constrained")
    for line, (title, chosen) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(title, fontsize=11)
        for k, row in enumerate(chosen.tolist()):
            image, bars = line[2 * k], line[2 * k + 1]
            node = int(prediction.nodes[row])
            label = int(task.graph.labels[node])
            image.imshow(images[node].reshape(8, 8), cmap="Greys")
            image.set(xticks=[], yticks=[])
            stranger = label in task.ood_classes
            words = f"a {label}" + (" (never seen)" if stranger else "")
            image.set_title(words, fontsize=9, color="#b2182b" if stranger else "black")
            lower, upper = bounds.lower[row], bounds.upper[row]
            style = {"color": "#2166ac", "edgecolor": "#2166ac", "linewidth": 2, "height": 0.7, "clip_on": False}
            bars.barh(prediction.class_names, upper - lower, left=lower, **style)
            bars.set(xlim=(0, 1), xticks=[0, 1])
            bars.invert_yaxis()
            bars.tick_params(labelsize=7, length=2)
            bars.set_title(f"AU {aleatoric[row]:.2f}  EU {epistemic[row]:.2f}", fontsize=8)
            bars.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        "credal ensemble: lower to upper probability of each digit 0..7, exact uncertainties in bits", fontsize=12
    )
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the picture")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the graph is small
    task = cg.load_task("digits")
    counts = task.counts
    print(
        f"{counts['train_id']} training images of 0..7; {counts['test_id'] + counts['test_ood']} test images, "
        f"{counts['test_ood']} of them 8 or 9\n(the first time, kernels are compiled, which takes half a minute)\n",
        flush=True,
    )
    found = compare(task)
    show(out / "digits.png", task, found["credal-ensemble"])
    gap = max(prediction.gap.max() for prediction in found.values() if prediction.gap is not None)
    print(f"\ninterval: the widest of a node, on average; uncertainties of credal sets proved to {gap:.0e} bits")
    print(f"the picture: {out / 'digits.png'}")


if __name__ == "__main__":
    main()
