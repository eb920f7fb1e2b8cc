"""Graph neural networks that return every layer's latent (Equation 4 of the paper).

GCN, SAGE, GIN, GAT and GATv2 equal PyG's models with the same weights; GPR is for heterophilic graphs. Any other PyG
model runs through ``PyGBackbone``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from .adjacency import Adjacency as Adjacency
from .adjacency import drop_edges
from .layers import Features as Features
from .layers import GATLayer, GATv2Layer, GCNLayer, GINLayer, LinearLayer, SAGELayer
from .layers import linear as linear
from .sparse import SparseMatrix

BackboneFactory: TypeAlias = Callable[..., nn.Module]

_OUTPUTS: ContextVar[list[Tensor]] = ContextVar("_OUTPUTS")  # of layers in the forward pass of this thread


class BackboneError(ValueError):
    """A backbone does not support what is needed; the message says why and what to do."""


class Stack(nn.Module):
    """Layers with ReLU and dropout after each: the base class of native backbones, which set ``layer``.

    A layer is constructed with its widths, called with features (perhaps sparse) and an ``Adjacency``, and has
    ``reset_parameters``. A subclass may set another ``activation``, which may work in place.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of layers.
        out_channels: Units of the last layer, which then gives bare logits, as in PyG; None: it is like the others.
        dropout: Probability of dropping a unit, in training.

    Example:
        >>> class Wide(Stack):
        ...     layer = SAGELayer
        ...     activation = staticmethod(torch.nn.functional.gelu)
    """

    layer: Callable[..., nn.Module]
    activation: Callable[[Tensor], Tensor] = staticmethod(torch.relu_)

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = [in_channels] + [hidden_channels] * num_layers
        widths[-1] = hidden_channels if out_channels is None else out_channels
        self.widths, self.dropout, self.bare = tuple(widths[1:]), dropout, out_channels is not None
        self.convs = nn.ModuleList(self._make_layer(*pair) for pair in pairwise(widths))

    def _make_layer(self, in_channels: int, out_channels: int) -> nn.Module:
        return type(self).layer(in_channels, out_channels)

    @property
    def is_deterministic(self) -> bool:
        """True if training and evaluation compute the same."""
        return self.dropout == 0.0

    def reset_parameters(self) -> None:
        for conv in self.convs:
            conv.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """Return the latents z1 .. zL of all nodes.

        Args:
            x: Features ``[N, F]``, dense or sparse.
            edges: The edges, or their ``edge_index``.
        """
        if isinstance(edges, Tensor):
            edges = Adjacency.from_index(edges, len(x))
        latents: list[Tensor] = []
        for number, conv in enumerate(self.convs, 1):
            z = conv(latents[-1] if latents else x, edges.layer(len(self.convs) - number))
            latents.append(self.activated(z, number))
        return latents

    def activated(self, z: Tensor, number: int) -> Tensor:
        """Apply ReLU and dropout to the output of a layer (1 is the first), perhaps in place; not to bare logits."""
        if self.bare and number == len(self.convs):
            return z
        return nn.functional.dropout(self.activation(z), self.dropout, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layers={len(self.convs)}, widths={list(self.widths)}, dropout={self.dropout})"


class GCN(Stack):
    """Graph convolutional network, equal to ``torch_geometric.nn.models.GCN``.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = GCNLayer


class SAGE(Stack):
    """GraphSAGE with mean aggregation, equal to ``torch_geometric.nn.models.GraphSAGE``.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = SAGELayer


class GIN(Stack):
    """Graph isomorphism network (Xu et al. 2019), as ``torch_geometric.nn.models.GIN``; two linear maps a layer.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = GINLayer


class GAT(Stack):
    """Graph attention network (Velickovic et al. 2018) with one head, equal to ``torch_geometric.nn.models.GAT``.

    Dropout also drops weights of edges. Edge weights are refused.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer: Callable[..., nn.Module] = GATLayer

    def _make_layer(self, in_channels: int, out_channels: int) -> nn.Module:
        return type(self).layer(in_channels, out_channels, self.dropout)

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        if isinstance(edges, Adjacency) and edges.is_weighted:
            raise _weights_refused(self)
        return super().forward(x, edges)


class GATv2(GAT):
    """GAT whose ranking of neighbours depends on the node (Brody et al. 2022): PyG's GAT with ``v2=True``.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = GATv2Layer


class GPR(Stack):
    """GPR-GNN (Chien et al. 2021): a multilayer perceptron, whose result H is then spread as ``sum_k g_k A^k H``.

    A is the normalised adjacency with self-loops. The weights g_k, of either sign, are learnt: neighbours may count
    against a node, as they do on heterophilic graphs. They begin as those of personalised PageRank,
    ``alpha (1 - alpha)^k``, and the last as ``(1 - alpha)^steps``. The last latent is the spread one, without a ReLU;
    those before it are the perceptron's. With a linear head it is GPR-GNN with one more layer in its perceptron: a
    linear map may as well come after spreading.

    Differences from the original: it spreads classes, which is less work, but gives no latents. The g_k have no weight
    decay there.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Layers of the perceptron.
        out_channels: Units of its last layer, which then has no ReLU; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
        steps: Number of spreading steps.
        alpha: Teleport probability of the initial PageRank.
    """

    layer = LinearLayer

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        steps: int = 10,
        alpha: float = 0.1,
    ) -> None:
        super().__init__(in_channels, hidden_channels, num_layers, out_channels, dropout)
        self.hops, self.alpha = steps, alpha
        self.weights = nn.Parameter(torch.empty(steps + 1))
        self._init_weights()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._init_weights()

    def _init_weights(self) -> None:
        with torch.no_grad():
            self.weights.copy_((1.0 - self.alpha) ** torch.arange(self.hops + 1))
            self.weights[:-1] *= self.alpha

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        if isinstance(edges, Tensor):
            edges = Adjacency.from_index(edges, len(x))
        *latents, z = super().forward(x, edges)
        spread = self.weights[0] * z
        for weight in self.weights[1:]:
            z = edges.matrix("normalized") @ z
            spread = spread + weight * z
        return [*latents, spread]


class PyGBackbone(nn.Module):
    """Any PyG model, called as ``module(x, edge_index)``: its latents are the outputs of its message-passing layers.

    Weighted edges are passed as ``edge_weight=...``, or refused if the model has no such argument. ReLU is applied to
    each latent, as between layers; a layer inside another layer does not count. The model runs as PyG runs it, edge by
    edge and on dense features, slower than native backbones.

    Args:
        module: Model with at least one message-passing layer.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        from torch_geometric.nn import MessagePassing

        self.module = module
        layers = [layer for layer in module.modules() if isinstance(layer, MessagePassing)]
        inner = {part for layer in layers for part in layer.modules() if part is not layer}
        self.layers = [layer for layer in layers if layer not in inner]  # a list: they are registered in the module
        for layer in self.layers:
            layer.register_forward_hook(_record_output)
        if not layers:
            raise ValueError(f"{type(module).__name__} has no message-passing layer, so it cannot be a backbone")

    @property
    def supports_edge_weight(self) -> bool:
        """Support of edge weights, declared as in PyG's models or by an argument of ``forward``."""
        declared = getattr(self.module, "supports_edge_weight", None)
        if declared is not None:
            return bool(declared)
        return "edge_weight" in inspect.signature(self.module.forward).parameters

    def reset_parameters(self) -> None:
        """Reset the model's weights."""
        self.module.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """Return the latents z1 .. zL of all nodes.

        Args:
            x: Features ``[N, F]``, dense or sparse.
            edges: The edges, or their ``edge_index``.
        """
        dense = x.to_dense() if isinstance(x, SparseMatrix) else x
        if not isinstance(edges, Adjacency):
            edges = Adjacency.from_index(edges, len(dense))
        weights = {} if edges.edge_weight is None else {"edge_weight": edges.edge_weight}
        if weights and not self.supports_edge_weight:
            raise _weights_refused(self.module)
        outputs: list[Tensor] = []
        token = _OUTPUTS.set(outputs)
        try:
            self.module(dense, edges.edge_index, **weights)
        finally:
            _OUTPUTS.reset(token)
        return [output.relu() for output in outputs]

    def __repr__(self) -> str:
        return f"PyGBackbone({self.module!r})"


def _weights_refused(model: nn.Module) -> BackboneError:
    return BackboneError(
        f"the backbone {type(model).__name__} takes no edge weights: choose gcn, gin, gpr or sage, or drop the weights "
        "with graph.unweighted()"
    )


def _record_output(layer: nn.Module, inputs: object, output: Tensor) -> None:
    """Forward hook; a no-op outside of ``PyGBackbone.forward``."""
    _OUTPUTS.get([]).append(output)


class MLP(Stack):
    """A multilayer perceptron, without message passing.

    Args:
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = LinearLayer


class EdgeDropping(nn.Module):
    """A backbone that drops other edges in each forward pass of training (DropEdge), and none in evaluation.

    Args:
        backbone: Computes the latents z1 .. zL.
        probability: Probability of dropping an edge, below 1.
    """

    def __init__(self, backbone: nn.Module, probability: float) -> None:
        super().__init__()
        self.backbone, self.probability = backbone, probability

    def forward(self, x: Features, edges: Adjacency) -> list[Tensor]:
        latents: list[Tensor] = self.backbone(x, drop_edges(edges, self.probability) if self.training else edges)
        return latents


@contextmanager
def dropped_units(layers: Sequence[nn.Module], probability: float, generator: torch.Generator) -> Iterator[None]:
    """Drop units of the layers' outputs inside, the same for all nodes, and scale up the others.

    Before a ReLU that is the same as after it. A mask is drawn each time that a layer is called.

    Args:
        layers: Modules that return ``[N, units]``, and that no other thread calls meanwhile.
        probability: Probability of dropping a unit, below 1.
        generator: On the CPU, so that all devices draw the same.
    """

    def mask(layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
        keep = torch.rand(output.shape[-1], generator=generator) >= probability
        return output * (keep.to(output) / (1.0 - probability))

    handles = [layer.register_forward_hook(mask, prepend=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


# By the name a user types.
NATIVE: dict[str, BackboneFactory] = {
    "gat": GAT, "gatv2": GATv2, "gcn": GCN, "gin": GIN, "gpr": GPR, "mlp": MLP, "sage": SAGE,
}  # fmt: skip


def make_backbone(
    name: str | BackboneFactory, in_channels: int, hidden_channels: int, num_layers: int, dropout: float
) -> nn.Module:
    """Return a backbone by name, or made by a function.

    Args:
        name: ``gcn``, ``sage``, ``gin``, ``gat``, ``gatv2``, ``gpr``, ``mlp``, a model of
            ``torch_geometric.nn.models`` (``edgecnn``, ..), or a function of the other four parameters that returns a
            module, called as ``module(x, edge_index)``.
        in_channels: Number of features.
        hidden_channels: Units of a hidden layer.
        num_layers: Number of message-passing layers.
        dropout: Probability of dropping a unit, in training.
    """
    factory = name if not isinstance(name, str) else NATIVE.get(name.lower()) or pyg_model(name)
    try:
        module = factory(
            in_channels=in_channels, hidden_channels=hidden_channels, num_layers=num_layers, dropout=dropout
        )
    except (TypeError, AssertionError) as error:
        text = "give a function of in_channels, hidden_channels, num_layers and dropout that makes it"
        raise ValueError(f"backbone {name!r} cannot be made ({error}): {text}") from None
    return module if isinstance(module, Stack) else PyGBackbone(module)


def pyg_model(name: str) -> Callable[..., nn.Module]:
    """Return the model of ``torch_geometric.nn.models`` with this name, case ignored."""
    from torch_geometric.nn import models
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    available: dict[str, Callable[..., nn.Module]] = {
        key.lower(): each
        for key, each in vars(models).items()
        if isinstance(each, type) and issubclass(each, BasicGNN) and each is not BasicGNN
    }
    if name.lower() not in available:
        names = ", ".join([*NATIVE, *sorted(set(available) - {*NATIVE, "graphsage"})])
        raise ValueError(f"unknown backbone {name!r}: choose one of {names}, or give a function that makes one")
    return available[name.lower()]


def message_layers(backbone: nn.Module) -> list[nn.Module]:
    """Return the layers of a backbone whose outputs become its latents."""
    return list(backbone.convs) if isinstance(backbone, Stack) else cast(PyGBackbone, backbone).layers


def widths_of(backbone: nn.Module, num_features: int) -> list[int]:
    """Return the widths of the latents z1 .. zL; of a PyG model from a forward pass on two nodes."""
    if isinstance(backbone, Stack):
        return list(backbone.widths)
    was_training = backbone.training
    with torch.no_grad():
        latents = backbone.eval()(torch.zeros(2, num_features), torch.tensor([[0, 1], [1, 0]]))
    backbone.train(was_training)
    return [z.shape[1] for z in latents]
