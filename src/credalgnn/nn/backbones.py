"""Graph neural networks that return every layer's latent (Equation 4 of the paper).

GCN, SAGE, GIN, GAT and GATv2 equal PyG's models of the same weights; GPR is for graphs whose neighbours differ. Any
other PyG model runs through ``PyGBackbone``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from itertools import pairwise
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn

from .adjacency import Adjacency as Adjacency
from .adjacency import Sample as Sample
from .layers import Features as Features
from .layers import GATLayer, GATv2Layer, GCNLayer, GINLayer, LinearLayer, SAGELayer
from .layers import linear as linear
from .sparse import SparseMatrix

BackboneFactory: TypeAlias = Callable[..., nn.Module]

_SEEN: ContextVar[list[Tensor]] = ContextVar("_SEEN")  # outputs of layers in the forward pass of this thread


class BackboneError(ValueError):
    """A backbone cannot do what is asked; the message says why and what to do."""


class Stack(nn.Module):
    """Layers with ReLU and dropout after each: the base of native backbones, which name their ``layer``.

    A layer is made with its widths, called with features (perhaps sparse) and an ``Adjacency``, and has
    ``reset_parameters``. A subclass may have another ``activation``, which may work in place.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: How many layers.
        out_channels: Units of the last layer, which then gives bare logits, as PyG's do; None: it is like the others.
        dropout: Probability of dropping a unit, in training.
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
        self.convs = nn.ModuleList(self._made(*pair) for pair in pairwise(widths))

    def _made(self, in_channels: int, out_channels: int) -> nn.Module:
        return type(self).layer(in_channels, out_channels)

    @property
    def is_deterministic(self) -> bool:
        """Whether training and evaluation compute the same."""
        return self.dropout == 0.0

    def reset_parameters(self) -> None:
        for conv in self.convs:
            conv.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """The latents z1 .. zL of all nodes.

        Args:
            x: Features ``[N, F]``, dense or sparse.
            edges: The edges, or their ``edge_index``.
        """
        if isinstance(edges, Tensor):
            edges = Adjacency(edges, len(x))
        latents: list[Tensor] = []
        for number, conv in enumerate(self.convs, 1):
            z = conv(latents[-1] if latents else x, edges.before(len(self.convs) - number))
            latents.append(self.activated(z, number))
        return latents

    def activated(self, z: Tensor, number: int) -> Tensor:
        """What becomes of a layer's output: ReLU and dropout, but of a bare last layer nothing.

        Args:
            z: The output; may be changed in place.
            number: Of the layer, 1 for the first.
        """
        if self.bare and number == len(self.convs):
            return z
        return nn.functional.dropout(self.activation(z), self.dropout, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layers={len(self.convs)}, widths={list(self.widths)}, dropout={self.dropout})"


class GCN(Stack):
    """Graph convolutional network, equal to ``torch_geometric.nn.models.GCN``.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Message-passing layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = GCNLayer


class SAGE(Stack):
    """GraphSAGE with mean aggregation, equal to ``torch_geometric.nn.models.GraphSAGE``.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Message-passing layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = SAGELayer


class GIN(Stack):
    """Graph isomorphism network (Xu et al. 2019), equal to ``torch_geometric.nn.models.GIN``; also with edge weights.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Message-passing layers, each with a perceptron of two.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
    """

    layer = GINLayer


class GAT(Stack):
    """Graph attention network (Velickovic et al. 2018) with one head, equal to ``torch_geometric.nn.models.GAT``.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Message-passing layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, and in each layer the weight of an edge, in training.
    """

    layer: Callable[..., nn.Module] = GATLayer

    def _made(self, in_channels: int, out_channels: int) -> nn.Module:
        return type(self).layer(in_channels, out_channels, self.dropout)

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """The latents z1 .. zL of all nodes.

        Args:
            x: Features ``[N, F]``, dense or sparse.
            edges: The edges, or their ``edge_index``; weighted ones are refused, as attention has no place for weights.
        """
        if isinstance(edges, Adjacency) and edges.edge_weight is not None:
            raise _weights_refused(self)
        return super().forward(x, edges)


class GATv2(GAT):
    """The same with scores that rank neighbours anew for each node (Brody et al. 2022): PyG's GAT with ``v2=True``.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Message-passing layers.
        out_channels: Units of the last layer, which then gives bare logits; None: it is hidden like the others.
        dropout: Probability of dropping a unit, and in each layer the weight of an edge, in training.
    """

    layer = GATv2Layer


class GPR(Stack):
    """GPR-GNN (Chien et al. 2021): a multilayer perceptron, whose result H is then spread as ``sum_k g_k A^k H``.

    A is the normalised adjacency with self-loops. The weights g_k, of either sign, are learnt: neighbours may count
    against a node, as they do on heterophilic graphs. They begin as those of personalised PageRank,
    ``alpha (1 - alpha)^k``, and the last as ``(1 - alpha)^steps``. The last latent is the spread one, without a ReLU;
    those before it are the perceptron's. With a linear head it is GPR-GNN with one more layer in its perceptron: a
    linear map may as well come after spreading.

    Differences from the original: it spreads classes, which is less work; latents are wanted here. Its g_k have no
    weight decay.

    Args:
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Layers of the perceptron.
        out_channels: Units of its last layer, which then has no ReLU; None: it is hidden like the others.
        dropout: Probability of dropping a unit, in training.
        steps: How far nodes are spread.
        alpha: Of the PageRank that the weights begin with.
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
        self._begin()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._begin()

    def _begin(self) -> None:
        with torch.no_grad():
            self.weights.copy_((1.0 - self.alpha) ** torch.arange(self.hops + 1))
            self.weights[:-1] *= self.alpha

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """The latents z1 .. zL of all nodes.

        Args:
            x: Features ``[N, F]``, dense or sparse.
            edges: The edges, or their ``edge_index``.
        """
        if isinstance(edges, Tensor):
            edges = Adjacency(edges, len(x))
        *latents, z = super().forward(x, edges)
        spread = self.weights[0] * z
        for weight in self.weights[1:]:
            z = edges.normalized @ z
            spread = spread + weight * z
        return [*latents, spread]


class PyGBackbone(nn.Module):
    """Any PyG model, called as ``module(x, edge_index)``: its latents are the outputs of its message-passing layers.

    Where edges have weights, it is called as ``module(x, edge_index, edge_weight=...)``, and refused if it cannot be.

    ReLU is applied to each, as between layers; a layer inside another layer does not count. It runs as PyG runs it,
    edge by edge and on dense features, without what makes native backbones fast here.

    Args:
        module: The model; one without a message-passing layer is refused.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        from torch_geometric.nn import MessagePassing

        self.module = module
        found = [layer for layer in module.modules() if isinstance(layer, MessagePassing)]
        inner = {part for layer in found for part in layer.modules() if part is not layer}
        self.layers = [layer for layer in found if layer not in inner]  # a list: they are registered in the module
        for layer in self.layers:
            layer.register_forward_hook(_keep)
        if not found:
            raise ValueError(f"{type(module).__name__} has no message-passing layer, so it cannot be a backbone")

    @property
    def supports_edge_weight(self) -> bool:
        """Whether the model uses edge weights: it says so itself, as PyG's do, or by an argument of its forward."""
        declared = getattr(self.module, "supports_edge_weight", None)
        if declared is not None:
            return bool(declared)
        return "edge_weight" in inspect.signature(self.module.forward).parameters

    def reset_parameters(self) -> None:
        """Draw the model's weights anew."""
        self.module.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """The latents z1 .. zL of all nodes.

        Args:
            x: Features ``[N, F]``, dense or sparse.
            edges: The edges, or their ``edge_index``.
        """
        dense = x.to_dense() if isinstance(x, SparseMatrix) else x
        if not isinstance(edges, Adjacency):
            edges = Adjacency(edges, len(dense))
        weights = {} if edges.edge_weight is None else {"edge_weight": edges.edge_weight}
        if weights and not self.supports_edge_weight:
            raise _weights_refused(self.module)
        seen: list[Tensor] = []
        token = _SEEN.set(seen)
        try:
            self.module(dense, edges.edge_index, **weights)
        finally:
            _SEEN.reset(token)
        return [output.relu() for output in seen]

    def __repr__(self) -> str:
        return f"PyGBackbone({self.module!r})"


def _weights_refused(model: nn.Module) -> BackboneError:
    return BackboneError(
        f"the backbone {type(model).__name__} takes no edge weights: choose gcn, gin, gpr or sage, or drop the weights "
        "with graph.unweighted()"
    )


def _keep(layer: nn.Module, inputs: object, output: Tensor) -> None:
    """What a layer calls with its output; outside of ``PyGBackbone`` nobody asks for it."""
    _SEEN.get([]).append(output)


# By the name a user types.
NATIVE: dict[str, BackboneFactory] = {"gat": GAT, "gatv2": GATv2, "gcn": GCN, "gin": GIN, "gpr": GPR, "sage": SAGE}


def make_backbone(
    name: str | BackboneFactory, in_channels: int, hidden_channels: int, num_layers: int, dropout: float
) -> nn.Module:
    """A backbone, by name or made by a function.

    Args:
        name: ``gcn``, ``sage``, ``gin``, ``gat``, ``gatv2``, ``gpr``, a model of ``torch_geometric.nn.models``
            (``edgecnn``, ..), or a function of the other four parameters that makes a module, to be called as
            ``module(x, edge_index)``.
        in_channels: Features of a node.
        hidden_channels: Units of a hidden layer.
        num_layers: Message-passing layers.
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
    """The model of ``torch_geometric.nn.models`` with this name, whatever its case."""
    from torch_geometric.nn import models
    from torch_geometric.nn.models.basic_gnn import BasicGNN

    known: dict[str, Callable[..., nn.Module]] = {
        word.lower(): made
        for word, made in vars(models).items()
        if isinstance(made, type) and issubclass(made, BasicGNN) and made is not BasicGNN
    }
    if name.lower() not in known:
        names = ", ".join([*NATIVE, *sorted(set(known) - {*NATIVE, "graphsage"})])
        raise ValueError(f"unknown backbone {name!r}: choose one of {names}, or give a function that makes one")
    return known[name.lower()]


def message_layers(backbone: nn.Module) -> list[nn.Module]:
    """The layers of a backbone whose outputs become its latents."""
    return list(backbone.convs) if isinstance(backbone, Stack) else cast(PyGBackbone, backbone).layers


def widths_of(backbone: nn.Module, num_features: int) -> list[int]:
    """The widths of the latents z1 .. zL, found on a graph of two nodes where the backbone does not say them."""
    if isinstance(backbone, Stack):
        return list(backbone.widths)
    was_training = backbone.training
    with torch.no_grad():
        latents = backbone.eval()(torch.zeros(2, num_features), torch.tensor([[0, 1], [1, 0]]))
    backbone.train(was_training)
    return [z.shape[1] for z in latents]
