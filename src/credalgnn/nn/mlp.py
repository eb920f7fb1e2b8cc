"""A backbone that looks at no neighbour: the encoder of methods that send something else than latents along edges."""

from __future__ import annotations

from torch import Tensor, nn

from .backbones import NATIVE, Adjacency, Features, Stack, linear


class MLPLayer(nn.Module):
    """A linear layer of a node's own features; sparse ones are multiplied sparse."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()

    def forward(self, x: Features, edges: Adjacency) -> Tensor:
        return linear(x, self.lin.weight, self.lin.bias)


class MLP(Stack):
    """A multilayer perceptron.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = MLPLayer


NATIVE["mlp"] = MLP
