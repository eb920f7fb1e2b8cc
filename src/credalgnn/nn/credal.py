"""The credal layer (Equation 2), and the loss that trains it (Equation "loss" of the paper's appendix)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from .layers import Features, linear

Activation: TypeAlias = Literal["identity", "softplus", "sigmoid"]

MIDPOINTS: dict[str, Callable[[Tensor], Tensor]] = {"identity": lambda x: x, "sigmoid": torch.sigmoid}
HALF_LENGTHS: dict[str, Callable[[Tensor], Tensor]] = {"softplus": nn.functional.softplus, "sigmoid": torch.sigmoid}


class JointLinear(nn.Module):
    """A linear layer on concatenated latents, ``[z0 | z1 | ...] W^T + b``, computed as ``z0 W0^T + z1 W1^T + ... + b``.

    The concatenation is never in memory, and a sparse z0 is multiplied sparse.

    Args:
        in_channels: Width of each latent, or of the only one.
        out_channels: Units.
        features_first: Whether the first of several latents is the features z0.
    """

    def __init__(self, in_channels: int | Sequence[int], out_channels: int, features_first: bool = True) -> None:
        super().__init__()
        self.features_first = features_first
        self.widths = [in_channels] if isinstance(in_channels, int) else list(in_channels)
        self.weight = nn.Parameter(torch.empty(out_channels, sum(self.widths)))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise each latent's block as a ``torch.nn.Linear``, but the block of z0 among others as zero.

        Raw features, often thousands, then enter only as far as training needs them.
        """
        for number, (weight, width) in enumerate(zip(self._blocks(self.widths), self.widths, strict=True)):
            is_features = number == 0 and self.features_first and len(self.widths) > 1
            bound = 0.0 if is_features else width**-0.5
            nn.init.uniform_(weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def _blocks(self, widths: Sequence[int]) -> tuple[Tensor, ...]:
        """Return the columns of the weight for each latent."""
        return torch.split(self.weight, list(widths), 1)

    def forward(self, latents: Features | Sequence[Features]) -> Tensor:
        """Return the output ``[N, out_channels]``.

        Args:
            latents: One latent, or several that are read side by side.
        """
        parts: Sequence[Features] = latents if isinstance(latents, Sequence) else [latents]
        widths = [part.shape[1] for part in parts]
        if sum(widths) != self.weight.shape[1]:
            raise ValueError(f"latents of widths {widths} for a layer of {self.weight.shape[1]} inputs")
        blocks = [block.contiguous() for block in self._blocks(widths)]  # whose gradients torch finds ten times faster
        out = linear(parts[0], blocks[0], self.bias)
        for part, block in zip(parts[1:], blocks[1:], strict=True):
            out = out + linear(part, block)
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.widths}, {self.weight.shape[0]})"


class CredalHead(nn.Module):
    """Midpoint ``m = g(W z + b)`` and half-length ``h = g'(W' z + b') >= 0`` of each class's interval (Equation 2).

    Returns the logits' bounds ``(m - h, m + h)``; ``credalgnn.interval_softmax`` (Equation 3) makes probability
    intervals of them. ``g`` is the identity and ``g'`` softplus. The paper's authors used a sigmoid for both, which is
    there as an option. It caps both bounds, whatever the training does: m and h in [0, 1] leave q_L at most
    ``e / (e + C - 1)``, which is 0.09 for 30 classes, and q_U at most ``e^2 / (e^2 + (C - 1) / e)``, which is 0.41, and
    ``e^2 / (e^2 + C - 1)``, which is 0.20, wherever the other classes' lower logits are not below 0.

    Args:
        in_channels: Width of each latent, or of the only one.
        num_classes: C.
        midpoint: ``g``: ``"identity"`` or another of ``MIDPOINTS``.
        half_length: ``g'``: ``"softplus"`` or another of ``HALF_LENGTHS``.
        half_length_decay: A weight decay (L2, as Adam has it) of W' alone, on top of the optimiser's: half-lengths then
            differ from node to node as far as the data ask for it, and do not close wherever latents are large.
        latents: The numbers of the latents that it reads, of those that it is given; None: all of them.
    """

    def __init__(
        self,
        in_channels: int | Sequence[int],
        num_classes: int,
        midpoint: Activation = "identity",
        half_length: Activation = "softplus",
        half_length_decay: float = 0.0,
        latents: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        for name, choice, options in (("midpoint", midpoint, MIDPOINTS), ("half_length", half_length, HALF_LENGTHS)):
            if choice not in options:
                raise ValueError(f"unknown {name} {choice!r}: choose {' or '.join(options)}")
        self.midpoint, self.half_length, self.half_length_decay = midpoint, half_length, half_length_decay
        self.widths = [in_channels] if isinstance(in_channels, int) else list(in_channels)
        self.latents = None if latents is None else list(latents)
        read = self.widths if self.latents is None else [self.widths[number] for number in self.latents]
        self.linear = JointLinear(read, 2 * num_classes, features_first=self.latents is None or self.latents[0] == 0)
        self._init_half_lengths()
        if half_length_decay:
            self.weight.register_hook(self._add_decay)  # type: ignore[no-untyped-call]

    @property
    def weight(self) -> Tensor:
        """W above W', ``[2 C, D]``."""
        return self.linear.weight

    @property
    def bias(self) -> Tensor:
        """b before b', ``[2 C]``."""
        return self.linear.bias

    def reset_parameters(self) -> None:
        """Initialise as ``JointLinear``, with b' = 0.1: softplus half-lengths begin at 0.75, wide enough to narrow."""
        self.linear.reset_parameters()
        self._init_half_lengths()

    def _add_decay(self, gradient: Tensor) -> Tensor:
        """Add the decay of W' to the gradient: W and W' are one tensor, so the optimiser cannot."""
        half = len(gradient) // 2
        pulled = gradient[half:] + self.half_length_decay * self.weight.detach()[half:]
        return torch.cat([gradient[:half], pulled])

    def _init_half_lengths(self) -> None:
        nn.init.constant_(self.bias[len(self.bias) // 2 :], 0.1)

    def forward(self, latents: Features | Sequence[Features]) -> tuple[Tensor, Tensor]:
        """Return lower and upper logits ``[N, C]``.

        Args:
            latents: One latent, or several that are read side by side.
        """
        if self.latents is not None and isinstance(latents, Sequence):
            latents = [latents[number] for number in self.latents]
        m, h = self.linear(latents).chunk(2, -1)
        m, h = MIDPOINTS[self.midpoint](m), HALF_LENGTHS[self.half_length](h)
        return m - h, m + h

    def __repr__(self) -> str:
        inputs, classes = self.linear.widths, len(self.bias) // 2
        return f"CredalHead({inputs}, {classes}, midpoint={self.midpoint!r}, half_length={self.half_length!r})"


def check_delta(delta: float) -> None:
    if not 0.0 < delta <= 1.0:
        raise ValueError(f"delta must be above 0 and at most 1, not {delta}: it is the share of hard nodes")


def dro_loss(log_lower: Tensor, log_upper: Tensor, target: Tensor, delta: float) -> Tensor:
    """Return the mean CE of q_U over all nodes, plus the mean CE of q_L over the worst ``delta * N`` (Equation "loss").

    Args:
        log_lower: Logarithms of the lower probabilities ``[N, C]`` (``log_interval_softmax``).
        log_upper: Logarithms of the upper probabilities.
        target: The classes ``[N]``.
        delta: The share of the hardest nodes, above 0 and at most 1. Where ``delta * N`` is no whole number it is
            rounded down, but never to zero.
    """
    check_delta(delta)
    optimistic = -log_upper.gather(1, target[:, None]).squeeze(1)
    pessimistic = -log_lower.gather(1, target[:, None]).squeeze(1)
    count = max(1, int(delta * len(target) + 1e-9))  # 0.1 * 30 is 3, and 0.7 * 10 is 7
    return optimistic.mean() + pessimistic.topk(count, sorted=False).values.mean()
