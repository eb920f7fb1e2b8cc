"""A picture of what was watched, as SVG: text, so that it can lie beside the model."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH, LEFT, RIGHT = 760, 70, 20
TOP, HEIGHT, GAP, SMALL = 40, 220, 50, 100  # of the two plots, in pixels
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}.axis{stroke:#8a919c}"
    ".line{stroke:#0b62b8;fill:none;stroke-width:2}"
    ".alarm{stroke:#b3261e;stroke-dasharray:6 4}.bar{fill:#0b62b8}.over{fill:#b3261e}"
    "@media(prefers-color-scheme:dark){svg{background:#14171b}text{fill:#e6e9ee}.line{stroke:#7db7ff}.bar{fill:#7db7ff}"
    ".alarm{stroke:#ff8a80}.over{fill:#ff8a80}}"
)


def svg_of(evidence: Sequence[float], small: Sequence[float], alarm: float) -> str:
    """Evidence by batch above, the share of small p-values below.

    Args:
        evidence: Logarithm to the base of 10 of the evidence after each batch.
        small: The share of p-values of at most 0.05 in each batch.
        alarm: Logarithm to the base of 10 of the evidence at which there is an alarm.
    """
    low, high = min(-1.0, *evidence), max(alarm + 1.0, *evidence)
    count = len(evidence)
    inner = WIDTH - LEFT - RIGHT

    def x(k: int) -> float:
        return LEFT + inner * (k + 0.5) / count

    def y(value: float) -> float:
        return TOP + HEIGHT * (high - value) / (high - low)

    base = TOP + HEIGHT + GAP + SMALL
    most = max(0.2, *small)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {base + 40}" width="{WIDTH}" role="img" '
        'aria-label="Evidence that what comes has changed, batch after batch">',
        f"<style>{_STYLE}</style>",
        f'<text x="{LEFT}" y="20">Evidence that something has changed (alarm at the dashed line)</text>',
    ]
    step = max(1, round((high - low) / 6))
    for power in range(int(low), int(high) + 1, step):
        parts.append(f'<text x="{LEFT - 8}" y="{y(power) + 4:.1f}" text-anchor="end">{_power(power)}</text>')
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT + 4}" y1="{y(power):.1f}" y2="{y(power):.1f}"/>')
    parts.append(f'<line class="alarm" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(alarm):.1f}" y2="{y(alarm):.1f}"/>')
    points = " ".join(f"{x(k):.1f},{y(value):.1f}" for k, value in enumerate(evidence))
    parts.append(f'<polyline class="line" points="{points}"/>')
    if count <= 60:
        parts += [f'<circle class="bar" cx="{x(k):.1f}" cy="{y(v):.1f}" r="3"/>' for k, v in enumerate(evidence)]
    parts.append(
        f'<text x="{LEFT}" y="{base - SMALL - 12}">Share of nodes with a p-value up to 0.05 (expected: 5 %)</text>'
    )
    width = max(1.0, 0.7 * inner / count)
    for k, value in enumerate(small):
        height = SMALL * value / most
        kind = "over" if value > 0.1 else "bar"
        parts.append(
            f'<rect class="{kind}" x="{x(k) - width / 2:.1f}" y="{base - height:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}"/>'
        )
    level = base - SMALL * 0.05 / most
    parts.append(f'<line class="alarm" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    for k in range(0, count, max(1, count // 10)):
        parts.append(f'<text x="{x(k):.1f}" y="{base + 18}" text-anchor="middle">{k + 1}</text>')
    parts.append(f'<text x="{LEFT + inner / 2:.0f}" y="{base + 36}" text-anchor="middle">batch</text>')
    return "\n".join([*parts, "</svg>", ""])


def _power(power: int) -> str:
    return f"{10**power:,}" if 0 <= power <= 4 else f"1e{power}"
