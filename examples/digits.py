"""What a model that was never shown an 8 or a 9 does not know: ``make demo``.

Ten small networks learn the digits 0 to 7 from bootstrap samples of scikit-learn's handwritten digits. Their softmax
vectors span one credal set per image; its exact uncertainties are asked which test images are 8s and 9s.
"""

import argparse
import time
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier

import credalgnn as cg
from credalgnn.sets import Uncertainty

KNOWN = 8  # classes 0..7 are trained on; 8 and 9 only turn up in the test
MEMBERS = 10
CLASSES = [str(k) for k in range(KNOWN)]


def train(images: np.ndarray, labels: np.ndarray, tests: np.ndarray) -> np.ndarray:
    """Softmax vectors [M, N, C] of an ensemble on the test images."""
    rng = np.random.default_rng(0)
    members = []
    for k in range(MEMBERS):
        print(f"\rtraining network {k + 1} of {MEMBERS}", end="", flush=True)
        sample = rng.integers(0, len(images), len(images))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            network = MLPClassifier((64,), max_iter=60, random_state=k).fit(images[sample], labels[sample])
        members.append(network.predict_proba(tests))
    print()
    return np.stack(members)


def show(path: Path, images: np.ndarray, labels: np.ndarray, credal: cg.HullSet, measures: Uncertainty) -> None:
    """The images with the least total, the most aleatoric and the most epistemic uncertainty, with their intervals."""
    total, aleatoric, epistemic = (measure.numpy() for measure in measures)
    rows = {
        "surest\n(least TU)": np.argsort(total)[:6],
        "most ambiguous\n(largest AU)": np.argsort(-aleatoric)[:6],
        "most unknown\n(largest EU)": np.argsort(-epistemic)[:6],
    }
    envelope = credal.to_intervals()
    figure, axes = plt.subplots(3, 12, figsize=(15, 5.2), width_ratios=[1, 1.25] * 6, layout="constrained")
    for line, (title, chosen) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(title, fontsize=11)
        for k, node in enumerate(chosen):
            image, bars = line[2 * k], line[2 * k + 1]
            image.imshow(images[node].reshape(8, 8), cmap="Greys")
            image.set(xticks=[], yticks=[])
            stranger = labels[node] >= KNOWN
            image.set_title(f"a {labels[node]}" + (" (never seen)" if stranger else ""), fontsize=9,
                            color="#b2182b" if stranger else "black")  # fmt: skip
            lower, upper = envelope.lower[node].numpy(), envelope.upper[node].numpy()
            bars.barh(
                CLASSES,
                upper - lower,
                left=lower,
                color="#2166ac",
                edgecolor="#2166ac",
                linewidth=2,
                height=0.7,
                clip_on=False,
            )
            bars.set(xlim=(0, 1), xticks=[0, 1])
            bars.invert_yaxis()
            bars.tick_params(labelsize=7, length=2)
            bars.set_title(f"AU {aleatoric[node]:.2f}  EU {epistemic[node]:.2f}", fontsize=8)
            bars.spines[["top", "right"]].set_visible(False)
    figure.suptitle("Lower to upper probability of each digit 0..7, exact uncertainties in bits", fontsize=12)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for the picture")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    order = np.random.default_rng(0).permutation(len(images))
    train_part, test_part = order[: int(0.6 * len(order))], order[int(0.6 * len(order)) :]
    train_part = train_part[labels[train_part] < KNOWN]
    truth, stranger = labels[test_part], labels[test_part] >= KNOWN
    print(f"{len(train_part)} training images of 0..7; {len(truth)} test images, {stranger.sum()} of them 8 or 9")

    credal = cg.HullSet(train(images[train_part], labels[train_part], images[test_part]))
    print("measuring (the first time, the solver is compiled, which takes a few seconds)", flush=True)
    begin = time.perf_counter()
    certified = cg.uncertainty(credal, certify=True)
    measures = Uncertainty(*certified[:3])
    print(f"exact uncertainties of {len(truth)} credal sets in {time.perf_counter() - begin:.2f} s, "
          f"proved to {certified.upper.gap.max():.0e} bits\n")  # fmt: skip

    correct = credal.mean().argmax(-1).numpy() == truth
    print(f"accuracy on the known digits  {correct[~stranger].mean():6.1%}\n")
    print(f"{'':34s}{'known':>8s}{'8 and 9':>9s}   AUROC (8 and 9 against the rest)")
    for name, score in zip(("total", "aleatoric", "epistemic"), measures, strict=True):
        values = score.numpy()
        means = f"{values[~stranger].mean():8.3f}{values[stranger].mean():9.3f}"
        print(f"{name + ' uncertainty, mean bits':34s}{means}{roc_auc_score(stranger, values):8.3f}")
    kept = cg.e_admissibility(credal)
    known = torch.from_numpy(~stranger)
    sizes = kept.sum(-1).double()
    utility = cg.u65(kept[known], torch.from_numpy(truth[~stranger])).mean()
    print(f"{'classes kept, mean':34s}{sizes[known].mean():8.2f}{sizes[~known].mean():9.2f}")
    print(f"{'utility u65 of the sets':34s}{utility:8.3f}")

    show(out / "digits.png", images[test_part], truth, credal, measures)
    print(f"\nthe picture: {out / 'digits.png'}")


if __name__ == "__main__":
    main()
