"""Graph neural networks that return every layer's latent (Equation 4 of the paper).

GCN and SAGE equal PyG's models of the same weights, and transform before they aggregate: ``A (X W)`` in place of
``(A X) W`` is the same product and far less work when features are wide. Any other PyG model runs through
``PyGBackbone``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn

from .sparse import SparseMatrix

Features: TypeAlias = Tensor | SparseMatrix
BackboneFactory: TypeAlias = Callable[..., nn.Module]


class Adjacency:
    """The edges of a graph, and the normalised operators made of them, each once and only when asked for.

    Rows are targets: ``A[target, source]``. An edge that stands there twice counts twice. Where edges were drawn from a
    larger graph, ``counts`` says how many of its edges each stands for, and ``degree`` is that of the larger graph.
    """

    def __init__(
        self, edge_index: Tensor, num_nodes: int, counts: Tensor | None = None, degree: Tensor | None = None
    ) -> None:
        self.edge_index, self.num_nodes, self.counts = edge_index, num_nodes, counts
        if degree is not None:
            self.__dict__["degree"] = degree

    @cached_property
    def mean(self) -> SparseMatrix:
        """The average over in-neighbours; the row of a node without any is empty."""
        source, target = self.edge_index.cpu()
        degree = torch.bincount(target, minlength=self.num_nodes).float()
        return self._operator(source, target, 1.0 / degree[target])

    @cached_property
    def degree(self) -> Tensor:
        """In-edges of each node, with one self-loop whatever loops the graph has."""
        source, target = self.edge_index
        return torch.bincount(target[source != target], minlength=self.num_nodes) + 1

    @cached_property
    def normalized(self) -> SparseMatrix:
        """``D^-1/2 (A + I) D^-1/2`` with one self-loop a node, whatever loops the graph has; D counts in-edges."""
        source, target = self.edge_index.cpu()
        others, loops = source != target, torch.arange(self.num_nodes)
        scale = self.degree.cpu().float().rsqrt()
        values = scale[source] * scale[target] * (1.0 if self.counts is None else self.counts.cpu())
        source, target = torch.cat([source[others], loops]), torch.cat([target[others], loops])
        return self._operator(source, target, torch.cat([values[others], scale.square()]))

    def _operator(self, source: Tensor, target: Tensor, values: Tensor) -> SparseMatrix:
        matrix = SparseMatrix.from_coo(target, source, values, (self.num_nodes, self.num_nodes))
        return matrix.to(self.edge_index.device)


def linear(x: Features, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x W^T + b`` for dense and sparse x."""
    if isinstance(x, Tensor):
        return nn.functional.linear(x, weight, bias)
    product = x @ weight.t()
    return product if bias is None else product.add_(bias)


class GCNLayer(nn.Module):
    """Kipf and Welling's convolution; parameters named as in PyG's ``GCNConv``."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, edges: Adjacency) -> Tensor:
        return (edges.normalized @ linear(x, self.lin.weight)).add_(self.bias)


class SAGELayer(nn.Module):
    """GraphSAGE with the mean of in-neighbours; parameters named as in PyG's ``SAGEConv``."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin_l = nn.Linear(in_channels, out_channels)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False)

    def reset_parameters(self) -> None:
        self.lin_l.reset_parameters()
        self.lin_r.reset_parameters()

    def forward(self, x: Features, edges: Adjacency) -> Tensor:
        neighbours = edges.mean @ linear(x, self.lin_l.weight)
        return neighbours.add_(linear(x, self.lin_r.weight, self.lin_l.bias))


class _Stack(nn.Module):
    """Layers with ReLU and dropout after each. With ``out_channels`` the last layer gives bare logits, as PyG's do."""

    layer: Callable[[int, int], nn.Module]

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
        self.convs = nn.ModuleList(type(self).layer(*pair) for pair in pairwise(widths))
        self.widths, self.dropout, self.bare = tuple(widths[1:]), dropout, out_channels is not None

    @property
    def is_deterministic(self) -> bool:
        """Whether training and evaluation compute the same."""
        return self.dropout == 0.0

    def reset_parameters(self) -> None:
        for conv in self.convs:
            conv.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """The latents z1 .. zL of all nodes."""
        if isinstance(edges, Tensor):
            edges = Adjacency(edges, len(x))
        latents: list[Tensor] = []
        for number, conv in enumerate(self.convs, 1):
            z = conv(latents[-1] if latents else x, edges)
            if not (self.bare and number == len(self.convs)):
                z = nn.functional.dropout(z.relu_(), self.dropout, self.training)
            latents.append(z)
        return latents

    def __repr__(self) -> str:
        return f"{type(self).__name__}(layers={len(self.convs)}, widths={list(self.widths)}, dropout={self.dropout})"


class GCN(_Stack):
    """Graph convolutional network, equal to ``torch_geometric.nn.models.GCN``."""

    layer = GCNLayer


class SAGE(_Stack):
    """GraphSAGE with mean aggregation, equal to ``torch_geometric.nn.models.GraphSAGE``."""

    layer = SAGELayer


class PyGBackbone(nn.Module):
    """Any PyG model, called as ``module(x, edge_index)``: its latents are the outputs of its message-passing layers.

    ReLU is applied to each, as between layers; a layer inside another layer does not count. It runs as PyG runs it,
    edge by edge and on dense features, without what makes ``GCN`` and ``SAGE`` fast here.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        from torch_geometric.nn import MessagePassing

        self.module = module
        self._seen: list[Tensor] = []
        inner: set[nn.Module] = set()
        layers = [layer for layer in module.modules() if isinstance(layer, MessagePassing)]
        for layer in layers:
            inner.update(part for part in layer.modules() if part is not layer)
        for layer in layers:
            if layer not in inner:
                layer.register_forward_hook(self._keep)
        if not layers:
            raise ValueError(f"{type(module).__name__} has no message-passing layer, so it cannot be a backbone")

    def _keep(self, layer: nn.Module, inputs: object, output: Tensor) -> None:
        self._seen.append(output)

    def reset_parameters(self) -> None:
        self.module.reset_parameters()  # type: ignore[operator]

    def forward(self, x: Features, edges: Adjacency | Tensor) -> list[Tensor]:
        """The latents z1 .. zL of all nodes."""
        dense = x.to_dense() if isinstance(x, SparseMatrix) else x
        self._seen.clear()
        self.module(dense, edges.edge_index if isinstance(edges, Adjacency) else edges)
        latents = [output.relu() for output in self._seen]
        self._seen.clear()
        return latents

    def __repr__(self) -> str:
        return f"PyGBackbone({self.module!r})"


NATIVE: dict[str, BackboneFactory] = {"gcn": GCN, "sage": SAGE}  # by the name a user types


def make_backbone(
    name: str | BackboneFactory, in_channels: int, hidden_channels: int, num_layers: int, dropout: float
) -> nn.Module:
    """A backbone by name: ``gcn``, ``sage``, a model of ``torch_geometric.nn.models`` (``gat``, ``gin``, ...), or made
    by a function of these four names, to be called as ``module(x, edge_index)``."""
    factory = name if not isinstance(name, str) else NATIVE[name] if name in NATIVE else pyg_model(name)
    try:
        module = factory(
            in_channels=in_channels, hidden_channels=hidden_channels, num_layers=num_layers, dropout=dropout
        )
    except (TypeError, AssertionError) as error:
        words = "give a function of in_channels, hidden_channels, num_layers and dropout that makes it"
        raise ValueError(f"backbone {name!r} cannot be made ({error}): {words}") from None
    return module if isinstance(module, _Stack) else PyGBackbone(module)


def pyg_model(name: str) -> Callable[..., nn.Module]:
    """The class of ``torch_geometric.nn.models`` with this name, whatever its case."""
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


def widths_of(backbone: nn.Module, num_features: int) -> list[int]:
    """The widths of the latents z1 .. zL, found on a graph of two nodes where the backbone does not say them."""
    if isinstance(backbone, _Stack):
        return list(backbone.widths)
    was_training = backbone.training
    with torch.no_grad():
        latents = backbone.eval()(torch.zeros(2, num_features), torch.tensor([[0, 1], [1, 0]]))
    backbone.train(was_training)
    return [z.shape[1] for z in latents]
