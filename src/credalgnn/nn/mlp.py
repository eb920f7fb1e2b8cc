"""A backbone that looks at no neighbour: the encoder of methods that send something else than latents along edges."""

from __future__ import annotations

from .backbones import NATIVE, Stack
from .layers import LinearLayer


class MLP(Stack):
    """A multilayer perceptron.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = LinearLayer


NATIVE["mlp"] = MLP
