"""Credal sets on a graph of handwritten digits, trained without 8s and 9s.

    python examples/digits.py

Nodes are images, joined to similar ones; methods learn 0 to 7 and detect OOD test nodes, the 8s and 9s. credal-coverage
gives every class a lower and an upper probability: narrow intervals where similar nodes have labels, wide ones where
none has. credal-lj, the paper's model, is fitted for comparison: on data as easy as these its loss is least for closed
intervals, so that those of OOD nodes are as narrow as the others.
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from sklearn.metrics import roc_auc_score

import credalgnn as cg

OOD, KNOWN = "#c8500a", "#0a5c8f"
SHOWN = 6  # digits in a row of the picture
Predictions = dict[str, cg.Prediction]


def fit(task: cg.Task) -> tuple[cg.CredalCoverage, Predictions]:
    """Fit both methods, print their quality, and return credal-coverage and the predictions of the test nodes."""
    coverage = cg.CredalCoverage(seed=0)
    predictions, is_ood = {}, task.test.is_ood
    for model in (coverage, cg.CredalLJ(seed=0)):
        begin = time.perf_counter()
        predictions[model.name] = prediction = model.fit(task).predict(nodes=task.test.nodes)
        widest = prediction.credal.width.amax(-1)
        auroc = roc_auc_score(is_ood, prediction.epistemic)
        right = (prediction.classes == task.test.labels)[~is_ood].double().mean()
        print(
            f"{model.name}, fitted in {time.perf_counter() - begin:.0f} s: its EU detects OOD nodes with "
            f"AUROC {auroc:.1%},\n  {right:.1%} of the others are classified rightly. Widest interval of a typical "
            f"OOD node {widest[is_ood].median():.2f}, of a typical known digit {widest[~is_ood].median():.2f}.\n",
            flush=True,
        )
    return coverage, predictions


def spread(prediction: cg.Prediction, chosen: torch.Tensor, count: int) -> list[int]:
    """Return rows of some of the chosen nodes, evenly spread over their EU."""
    rows = chosen.nonzero().squeeze(-1)
    order = rows[prediction.epistemic[rows].argsort(stable=True)]
    return [int(order[int((k + 0.5) / count * len(order))]) for k in range(count)]


def show(path: Path, task: cg.Task, predictions: Predictions) -> None:
    """Draw OOD nodes above and known digits below, each with the intervals of both methods."""
    first, second = predictions.values()
    is_ood, images = task.test.is_ood, task.graph.features.to_dense()
    classes = task.graph.labels[task.test.nodes]
    ood = [row for k in task.ood_classes for row in spread(first, classes == k, SHOWN // len(task.ood_classes))]
    figure = plt.figure(figsize=(13.2, 7.2))
    parts = figure.subfigures(2, 1)
    for part, mask, rows, colour, words in (
        (parts[0], is_ood, ood, OOD, "OOD: digits that are not in the training data"),
        (parts[1], ~is_ood, spread(first, ~is_ood, SHOWN), KNOWN, "ID: digits of the training classes"),
    ):
        part.subplots_adjust(left=0.05, right=0.985, top=0.81, bottom=0.14, wspace=0.3, hspace=0.12)
        axes = part.subplots(2, SHOWN, height_ratios=[1.2, 1.5])
        for (image, bars), row in zip(axes.T, rows, strict=True):
            node = int(first.nodes[row])
            image.imshow(images[node].reshape(8, 8), cmap="Greys", interpolation="nearest")
            image.axis("off")
            guess = f"predicted {first.class_names[int(first.classes[row])]}"
            name = task.graph.class_names[int(classes[row])]
            image.set_title(f"{name}, {'not in training' if is_ood[row] else guess}", fontsize=12)
            draw(bars, first, second, row, colour)
        axes[1, 0].set_ylabel("probability", fontsize=10, labelpad=-2)
        part.text(0.05, 0.945, words, fontsize=15, weight="bold", color=colour, va="center")
        widths = [f"{one.credal.width.amax(-1)[mask].median():.2f}" for one in (first, second)]
        text = f"widest interval (median of all {int(mask.sum())}): {widths[0]}; credal-lj {widths[1]}"
        part.text(0.985, 0.945, text, fontsize=11, color="0.3", va="center", ha="right")
    text = (
        "bars: from the lower to the upper probability of each digit 0 to 7, by credal-coverage      "
        "diamonds: credal-lj, whose intervals are too narrow to be seen"
    )
    parts[1].text(0.5175, 0.025, text, ha="center", fontsize=10.5, color="0.3")
    figure.savefig(path, dpi=110, facecolor="white")
    plt.close(figure)


def draw(ax: Axes, first: cg.Prediction, second: cg.Prediction, row: int, colour: str) -> None:
    """Draw the intervals of one node: of the first method as bars, of the second as strokes with a diamond."""
    places = range(len(first.class_names))
    lower, upper = first.credal.lower[row], first.credal.upper[row]
    ax.bar(places, 1.0, width=0.62, color="0.94")
    ax.bar(places, (upper - lower).clamp_min(0.012), bottom=lower, width=0.62, color=colour)
    low, high = second.credal.lower[row], second.credal.upper[row]
    ax.vlines(places, low, high, color="0.1", linewidth=1.6)
    style = {"s": 13, "marker": "D", "color": "white", "edgecolor": "0.1", "linewidth": 0.8, "zorder": 3}
    ax.scatter(places, (low + high) / 2, **style, clip_on=False)
    ax.set(ylim=(0, 1), yticks=[0, 1], xticks=places, xticklabels=first.class_names)
    ax.tick_params(labelsize=9.5, length=0, pad=5)
    ax.spines[:].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the picture")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the graph is small
    task = cg.load_task("digits")
    counts = task.counts
    print(
        f"{counts['train_id']} training images of 0 to 7; {counts['test_id'] + counts['test_ood']} test images, "
        f"{counts['test_ood']} of them 8 or 9, which are not trained on.\n"
        "(The first time, kernels are compiled, which takes some seconds.)\n",
        flush=True,
    )
    coverage, predictions = fit(task)
    show(out / "digits.png", task, predictions)
    (typical,) = spread(predictions[coverage.name], task.test.is_ood, 1)
    print(f"Why is the credal set of a typical OOD node wide?\n{coverage.explain(int(task.test.nodes[typical]))}\n")
    print(f"the picture: {out / 'digits.png'}; all methods: make demo")


if __name__ == "__main__":
    main()
