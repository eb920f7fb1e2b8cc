"""Draw the figures of these pages: ``make figures``. Prints the numbers that stand under them."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import mpltern  # noqa: F401  (registers the ternary projection)
import torch

from credalgnn import IntervalSet, uncertainty
from credalgnn.report import plot_ternary

CASES = {
    "(a) low AU, low EU\nconfident": ([0.91, 0.00, 0.01], [0.97, 0.06, 0.06]),
    "(b) high AU, low EU\nnoisy data": ([0.28, 0.30, 0.27], [0.40, 0.42, 0.38]),
    "(c) high AU, high EU\nnovel and noisy": ([0.10, 0.08, 0.09], [0.80, 0.76, 0.78]),
    "(d) low AU, high EU\nnovel data": ([0.00, 0.00, 0.00], [1.00, 0.95, 0.97]),
}


def four_cases(path: Path) -> None:
    """The credal row of the paper's Figure 1, with the exact uncertainties under each set."""
    figure = plt.figure(figsize=(12.0, 3.8))
    print(f"{'case':34s}{'TU':>8s}{'AU':>8s}{'EU':>8s}")
    for k, (title, (lower, upper)) in enumerate(CASES.items()):
        credal = IntervalSet(torch.tensor(lower, dtype=torch.float64), torch.tensor(upper, dtype=torch.float64))
        total, aleatoric, epistemic = (float(value) for value in uncertainty(credal))
        ax = figure.add_axes((0.02 + 0.245 * k, 0.20, 0.21, 0.60), projection="ternary")
        plot_ternary(credal, ax)
        ax.set_title(title, fontsize=11, pad=22)
        middle = 0.02 + 0.245 * k + 0.105
        numbers = f"TU {total:.3f}   AU {aleatoric:.3f}   EU {epistemic:.3f}"
        figure.text(middle, 0.095, numbers, ha="center", fontsize=10.5)
        print(f"{title.replace(chr(10), ': '):34s}{total:8.3f}{aleatoric:8.3f}{epistemic:8.3f}")
    key = "filled: the credal set      red diamond: largest entropy, TU      green circle: smallest entropy, AU"
    figure.text(0.5, 0.01, key + "      grey: entropy in bits", ha="center", fontsize=9.5, color="0.35")
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    folder = Path(__file__).parent / "images"
    folder.mkdir(exist_ok=True)
    four_cases(folder / "uncertainty.png")
