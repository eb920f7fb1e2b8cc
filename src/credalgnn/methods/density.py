"""Post-hoc scores by distances and densities of latents: Mahalanobis, k nearest neighbours, JLDE, GEBM."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import SparseMatrix
from ..nn.backbones import Adjacency, Features
from ..nn.layers import rows_of
from ..nn.sparse import check_csr
from ..runtime.context import Context
from ..runtime.errors import translated
from .base import Outputs
from .inputs import inputs
from .neighbours import NeighbourBank, Search, check_search
from .parameters import ABOVE_0, AT_LEAST_0, AT_LEAST_1, FRACTION, Options
from .posthoc import PostHoc
from .prediction import MethodError
from .training_data import TrainingData

ROWS = 1 << 16  # nodes whose distances are computed at a time
FLOOR = 1e-3  # least variance of a class in any direction, relative to the mean variance of all training latents
INTERVAL = 0.95  # share of nodes whose logits and distances are brought to the same scale
EXACT = 1024  # columns up to which the scatter matrix is materialised; wider latents are left to Lanczos
_CSR = ("starts", "columns", "values", "shape")


@dataclass(kw_only=True, eq=False)
class Mahalanobis(PostHoc):
    """Mahalanobis distance to the nearest class mean, with one covariance for all classes (Lee et al. 2018).

    The original's ensemble over layers, whose weights need OOD nodes, is left out.

    Args:
        layer: Number of the latent: 0 the features, -1 the last (default).
        epsilon: Size of the original's input step towards that class, default 0 (none).

    Example:
        >>> Mahalanobis(layer=0).fit(task).predict().score
    """

    layer: int = -1
    epsilon: float = 0.0

    name = "mahalanobis"
    works_by_chunks = True
    score_names = ("distance",)
    search_space = {"epsilon": (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)}
    constraints = {"epsilon": AT_LEAST_0}

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        outputs = self.model_._outputs(view.graph, context)
        count = len(outputs.latents)
        if not -count <= self.layer < count:
            raise MethodError(f"layer {self.layer} does not exist: the latents are 0 (features) to {count - 1}")
        with translated(ValueError, lambda error: MethodError(f"mahalanobis: {error}")):
            self.gaussians_ = fit_gaussians(
                self._latent(outputs, view.train), view.graph.labels[view.train], view.num_classes
            )

    def _latent(self, outputs: Outputs, nodes: Tensor) -> Tensor:
        """Dense rows of the scored latent."""
        z = rows_of(outputs.latents[self.layer], nodes)
        return z.to_dense() if isinstance(z, SparseMatrix) else z

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        if self.epsilon:
            outputs = self._nudged(graph, self.epsilon, lambda outputs: -self._distance(outputs))

        def score(nodes: Tensor) -> Tensor:
            parts = (self._latent(outputs, part) for part in torch.split(nodes, ROWS))
            return torch.cat([gaussian_distance(self.gaussians_, part) for part in parts])

        return score

    def _distance(self, outputs: Outputs) -> Tensor:
        return gaussian_distance(self.gaussians_, self._latent(outputs, torch.arange(len(outputs.logits))))

    def _state(self) -> dict[str, Tensor]:
        return self.gaussians_._asdict()

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.gaussians_ = Gaussians(**state)


class Gaussians(NamedTuple):
    """Class means ``[C, D]`` and shared precision ``[D, D]`` of class-conditional Gaussians."""

    means: Tensor
    precision: Tensor


def fit_gaussians(latents: Tensor, labels: Tensor, num_classes: int) -> Gaussians:
    """Fit class-conditional Gaussians with one covariance (Lee et al.) to latents ``[N, D]`` by maximum likelihood.

    Latents after a ReLU rarely span their space, so the covariance is usually singular: as in the original, its
    pseudo-inverse is used, and directions in which training nodes do not vary (by float32's precision) are ignored.
    """
    width = latents.shape[1]
    counts = torch.bincount(labels, minlength=num_classes)
    if not bool((counts > 0).all()):
        raise ValueError(f"class {int((counts == 0).nonzero()[0])} has no training node")
    means = torch.zeros(num_classes, width, dtype=torch.float64)
    covariance = torch.zeros(width, width, dtype=torch.float64)
    chunks = list(zip(torch.split(latents, ROWS), torch.split(labels, ROWS), strict=True))
    for z, classes in chunks:
        means.index_add_(0, classes, z.double())
    means /= counts[:, None]
    for z, classes in chunks:
        centred = z.double() - means[classes]
        covariance += centred.t() @ centred
    values, vectors = torch.linalg.eigh(covariance / len(latents))
    varying = values > width * torch.finfo(torch.float32).eps * values[-1]
    if not bool(varying.any()) or values[-1] <= 0:
        raise ValueError("the latents of each class are all equal: their covariance is zero and gives no distance")
    basis = vectors[:, varying]
    return Gaussians(means, basis / values[varying] @ basis.t())


def gaussian_distance(gaussians: Gaussians, latents: Tensor) -> Tensor:
    """Return the smallest squared Mahalanobis distance of latents ``[N, D]`` to a class mean."""
    means, precision = (part.to(latents.device) for part in gaussians)
    return torch.cat([_nearest(means, precision, rows.double()) for rows in torch.split(latents, ROWS)])


def _nearest(means: Tensor, precision: Tensor, z: Tensor) -> Tensor:
    distances = [(((z - mean) @ precision) * (z - mean)).sum(-1) for mean in means]
    return torch.stack(distances, -1).amin(-1)


@dataclass(kw_only=True, eq=False)
class KNN(PostHoc):
    """Mean distance to the ``k`` nearest training nodes in the last latent.

    Above ``neighbours.EXACT_UP_TO`` training nodes neighbours are approximate, with the recall in ``recall``; ``fit``
    tunes the search on training nodes alone.

    Args:
        k: Number of neighbours, default 10.
        kth: Use the k-th distance, as the original (Sun et al. 2022), instead of the mean of k; default False.
        normalize: Scale vectors to length 1 first, as the original; default False.

    Example:
        >>> KNN(k=20).fit(task).predict().score
    """

    k: int = 10
    kth: bool = False
    normalize: bool = False

    name = "knn"
    works_by_chunks = True
    score_names = ("distance",)
    search_space = {"k": (1, 10, 20, 50, 100, 200, 500, 1000, 3000, 5000)}
    limited_by_training = ("k",)
    constraints = {"k": AT_LEAST_1}
    joint: ClassVar[bool] = False

    @property
    def recall(self) -> float | None:
        """Share of the true neighbours found for training nodes, as measured in ``fit``; None if exact."""
        return self.bank_.recall if self.is_fitted else None

    @property
    def notes(self) -> tuple[str, ...]:
        if self.recall is None:
            return super().notes
        return *super().notes, f"Neighbours are approximate: recall about {100 * self.recall:.0f} %."

    def _fit(self, training: TrainingData, context: Context) -> None:
        count = len(training.view.train)
        if self.k > count:
            raise MethodError(f"k={self.k}, but there are {count} training nodes: lower k")
        check_search(count)
        super()._fit(training, context)
        self.bank_.prepare(self.k)

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        latents = self._space(self.model_._outputs(view.graph, context).latents)
        self.bank_ = NeighbourBank([rows_of(z, view.train) for z in latents], self.normalize)

    def _space(self, latents: list[Features]) -> list[Features]:
        return latents if self.joint else latents[-1:]

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        latents = self._space(outputs.latents)
        return lambda nodes: self.bank_.distance([rows_of(z, nodes) for z in latents], self.k, self.kth)

    def _state(self) -> dict[str, Tensor]:
        state = {} if self.bank_.search is None else {"search": self.bank_.search.tensor()}
        for number, part in enumerate(self.bank_.parts):
            if isinstance(part, Tensor):
                state[f"bank.{number}"] = part
            else:
                arrays = part.starts, part.columns, part.values, torch.tensor(part.shape)
                state.update({f"bank.{number}.{name}": t for name, t in zip(_CSR, arrays, strict=True)})
        return state

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        parts: list[Features] = []
        for number in range(len({name.split(".")[1] for name in state if name.startswith("bank.")})):
            if f"bank.{number}" in state:
                parts.append(state[f"bank.{number}"])
                continue
            starts, columns, values, shape = (state[f"bank.{number}.{name}"] for name in _CSR)
            rows, width = shape.tolist()
            parts.append(check_csr(SparseMatrix(starts, columns, values, (rows, width))))
        if any(len(part.shape) != 2 or len(part) != len(parts[0]) for part in parts):
            raise ValueError("the latents of training nodes differ in their number of rows")
        self.bank_ = NeighbourBank(parts, self.normalize)
        if "search" in state:
            self.bank_.search = Search.from_tensor(state["search"])


@dataclass(kw_only=True, eq=False)
class KNNLJ(KNN):
    """``KNN`` in the joint latent ``[z0 | z1 | .. | zL]``: the paper's ablation without a credal layer.

    Example:
        >>> KNNLJ(k=20).fit(task).predict().score
    """

    name = "knn-lj"
    search_space = {"k": (5, 10, 20, 50, 100, 200)}
    joint = True


@dataclass(kw_only=True, eq=False)
class JLDE(KNN):
    """Joint latent density estimation (Fuchsgruber et al. 2025), a kNN density in a projected joint latent.

    Each latent z_l, the features z0 among them, is projected onto the leading principal components of the training
    nodes, ``u_l = P_l^T (z_l - mean)``, and the score is the distance of ``[u_0 | u_1 | .. | u_L]`` to the nearest
    training nodes: a higher distance means a lower kNN density. The joint space matters where neighbours belong to
    other classes, since no single layer then has the information of all.

    Latents keep their scale, and the mean distance to k neighbours is used, as in the authors' code. Differences from
    it: there, components are those of all nodes, enough for 95 % of the variance, and k is 5. Fewer components suit the
    method better where there are many features (``benchmarks/published.py``).

    Args:
        dimensions: Principal components of each latent, at most; default 32.

    Example:
        >>> JLDE(dimensions=16).fit(task).predict().score
    """

    dimensions: int = 32

    name = "jlde"
    works_by_chunks = False
    search_space = {"dimensions": (8, 16, 32, 64), "k": (1, 5, 10, 20, 50, 100)}
    constraints = {"dimensions": AT_LEAST_1}

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        latents = [rows_of(z, view.train) for z in self.model_._outputs(view.graph, context).latents]
        self.projections_ = [fit_projection(z, self.dimensions) for z in latents]
        projected = [project(z) for project, z in zip(self.projections_, latents, strict=True)]
        self.bank_ = NeighbourBank(projected, self.normalize)

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        def score(nodes: Tensor) -> Tensor:
            latents = zip(self.projections_, outputs.latents, strict=True)
            return self.bank_.distance([project(rows_of(z, nodes)) for project, z in latents], self.k, self.kth)

        return score

    def _state(self) -> dict[str, Tensor]:
        state = super()._state()
        for number, projection in enumerate(self.projections_):
            state.update({f"projection.{number}.{name}": t for name, t in projection._asdict().items()})
        return state

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        super()._load_state({name: tensor for name, tensor in state.items() if not name.startswith("projection.")})
        count = len({name.split(".")[1] for name in state if name.startswith("projection.")})
        self.projections_ = [
            Projection(*(state[f"projection.{number}.{name}"] for name in Projection._fields))
            for number in range(count)
        ]


class Projection(NamedTuple):
    """Principal components: orthonormal directions in columns ``[D, q]`` and projected mean ``[q]``, float64."""

    basis: Tensor
    centre: Tensor

    def __call__(self, latent: Features) -> Tensor:
        """Centred components ``[N, q]``, float64, of latents ``[N, D]``."""
        return (latent @ self.basis if isinstance(latent, SparseMatrix) else latent.double() @ self.basis) - self.centre


def fit_projection(latent: Features, dimensions: int) -> Projection:
    """Leading principal components of latents ``[N, D]``, at most ``dimensions``; sparse latents stay sparse."""
    count, width = latent.shape
    if isinstance(latent, SparseMatrix):
        mean = latent.t().map(Tensor.double).row_sums() / count
    else:
        mean = latent.double().mean(0)
    if width <= EXACT:
        values, vectors = torch.linalg.eigh(_scatter(latent, mean))
        values, vectors = values.flip(0)[:dimensions], vectors.flip(1)[:, :dimensions]
    else:
        values, vectors = _lanczos(latent, mean, min(dimensions, count - 1, width - 1))
    varying = values > values[:1] * width * torch.finfo(torch.float32).eps
    basis = vectors[:, varying].contiguous()
    return Projection(basis, mean @ basis)


def _scatter(latent: Features, mean: Tensor) -> Tensor:
    """Centred scatter matrix ``[D, D]``."""
    if isinstance(latent, Tensor):
        centred = latent.double() - mean
        return centred.t() @ centred
    from scipy.sparse import csr_matrix

    arrays = latent.values.double().numpy(), latent.columns.numpy(), latent.starts.numpy()
    rows = csr_matrix(arrays, shape=latent.shape)
    return torch.from_numpy((rows.T @ rows).toarray()) - len(latent) * torch.outer(mean, mean)


def _lanczos(latent: Features, mean: Tensor, dimensions: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues, largest first, and eigenvectors of the scatter matrix, which is never materialised."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    count, width = latent.shape
    if dimensions < 1:
        return torch.zeros(0, dtype=torch.float64), torch.zeros(width, 0, dtype=torch.float64)
    rows: Any = latent.map(Tensor.double) if isinstance(latent, SparseMatrix) else latent.double()
    columns = rows.t()

    def scatter(vector: Any) -> Any:
        x = torch.from_numpy(np.ascontiguousarray(vector, dtype=np.float64).reshape(-1, 1))
        return ((columns @ (rows @ x)).squeeze(1) - count * mean * (mean @ x)).numpy()

    operator = LinearOperator((width, width), matvec=scatter, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(width)  # fixed, so that the same latents give the same bits
    values, vectors = eigsh(operator, k=dimensions, v0=start)
    order = np.argsort(-values)
    return torch.from_numpy(values[order].copy()), torch.from_numpy(vectors[:, order].copy())


class Scale(NamedTuple):
    """Class means and variances ``[C, D]``, and intervals of distances and logits ``[2, C]`` to align scales."""

    means: Tensor
    variances: Tensor
    distances: Tensor
    logits: Tensor


@dataclass(kw_only=True, eq=False)
class GEBM(PostHoc):
    """Graph energy-based model (Fuchsgruber et al. 2024): energies at three scales, regularised by class Gaussians.

    Each class has a Gaussian with a diagonal covariance in the last latent. Its squared Mahalanobis distance d_c is
    mapped linearly to the scale of the logits l_c, by the intervals of the middle 95 % of all nodes, and subtracted
    from the evidence. Gaussians and intervals are those of the network on the graph; l and d are those of the same
    network with self-loops alone for edges, so that only diffusion mixes a node with others::

        e_c = l_c - weight * scaled(d_c)
        independent = -T logsumexp(e / T)                      the node alone
        local       = diffused(independent)                    its neighbours' energies
        group       = -T logsumexp(diffused(e) / T)            its neighbours' evidence
        score       = independent + local + group              or their logsumexp

    with ``x <- alpha x + (1 - alpha) mean of x over a node and its in-neighbours``, repeated, as diffusion. Without the
    Gaussians a ReLU network's energy falls without bound far away from all data.

    Differences from the authors' code: it removes all edges instead of leaving self-loops, which is the same for GCN;
    SAGE would lose the half of each layer that reads neighbours. Latents after a ReLU often do not vary at all within a
    class, so variances here are at least a thousandth of the mean variance of all. For directed edges, it takes the
    mean over out-neighbours. It adds the three energies; both aggregations are available here.

    Args:
        weight: Weight of the Gaussians, default 1; 0 for none.
        alpha: Share that a node keeps in a step of diffusion, default 0.5.
        steps: Steps of diffusion, default 10.
        temperature: T, above 0, default 1.
        aggregation: ``"sum"`` (default) or ``"logsumexp"``.

    Example:
        >>> GEBM(weight=0.5).fit(task).predict().score
    """

    weight: float = 1.0
    alpha: float = 0.5
    steps: int = 10
    temperature: float = 1.0
    aggregation: Literal["sum", "logsumexp"] = "sum"

    name = "gebm"
    score_names = ("energy",)
    uses_unlabelled = True
    search_space = {
        "weight": (0.0, 0.5, 1.0, 2.0),
        "alpha": (0.2, 0.5, 0.8),
        "steps": (2, 5, 10),
        "aggregation": ("sum", "logsumexp"),
    }
    constraints = {
        "temperature": ABOVE_0,
        "weight": AT_LEAST_0,
        "alpha": FRACTION,
        "steps": AT_LEAST_0,
        "aggregation": Options("sum", "logsumexp"),
    }

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        outputs = self.model_._outputs(view.graph, context)
        z, labels = _dense(outputs)[view.train].double(), view.graph.labels[view.train]
        means, variances = _moments(z, labels, view.num_classes)
        distances = _interval(_distances(_dense(outputs), means, variances))
        self.scale_ = Scale(means, variances, distances, _interval(outputs.logits.double()))

    def _scorer(self, graph: Graph, outputs: Outputs, context: Context) -> Callable[[Tensor], Tensor]:
        alone = self.model_._outputs(graph.cached(_without_neighbours), context)
        means, variances, (near, far), (low, high) = self.scale_
        distance = _distances(_dense(alone), means, variances)
        scaled = (distance - near) / (far - near).clamp_min(torch.finfo(torch.float64).tiny) * (high - low) + low
        evidence = alone.logits.double() - self.weight * scaled
        edges = inputs(graph)[1]
        independent = self._energy(evidence)
        local = diffused(independent[:, None], edges, self.alpha, self.steps).squeeze(1)
        group = self._energy(diffused(evidence, edges, self.alpha, self.steps))
        scales = torch.stack([independent, local, group])
        energies = scales.sum(0) if self.aggregation == "sum" else scales.logsumexp(0)
        return lambda nodes: energies[nodes]

    def _energy(self, evidence: Tensor) -> Tensor:
        return -self.temperature * (evidence / self.temperature).logsumexp(-1)

    def _state(self) -> dict[str, Tensor]:
        return self.scale_._asdict()

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.scale_ = Scale(**state)


def _without_neighbours(graph: Graph) -> Graph:
    """Nodes of a graph with self-loops alone for edges."""
    return graph.replace(edge_index=torch.arange(graph.num_nodes).expand(2, -1))


def diffused(values: Tensor, edges: Adjacency, alpha: float, steps: int) -> Tensor:
    """Repeat ``x <- alpha x + (1 - alpha) mean of x over a node and its in-neighbours`` on rows ``[N, C]``."""
    root = edges.degree.cpu().double().sqrt()[:, None]
    receives = root > 0  # False where all of a node's edges have weight 0
    for _ in range(steps):
        mean = (edges.matrix("normalized") @ (root * values)) / root  # D^-1 (A + I) x
        values = torch.where(receives, alpha * values + (1.0 - alpha) * mean, values)
    return values


def _dense(outputs: Outputs) -> Tensor:
    """Last latent as a dense tensor; without layers it is the features, which may be sparse."""
    last = outputs.latents[-1]
    return last if isinstance(last, Tensor) else last.to_dense()


def _moments(z: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Means and variances of each class ``[C, D]``."""
    counts = torch.bincount(labels, minlength=num_classes).double()[:, None]
    sums = z.new_zeros(num_classes, z.shape[1])
    means = sums.index_add(0, labels, z) / counts
    variances = sums.index_add(0, labels, (z - means[labels]).square()) / counts
    floor = FLOOR * z.var(0, correction=0).mean()
    return means, variances.clamp_min(float(floor.clamp_min(torch.finfo(torch.float64).tiny)))


def _distances(latent: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Squared Mahalanobis distances to all classes ``[N, C]``."""
    z = latent.double()
    return torch.stack([((z - m).square() / v).sum(1) for m, v in zip(means, variances, strict=True)], 1)


def _interval(values: Tensor) -> Tensor:
    """Ends of the interval that holds the middle ``INTERVAL`` of each column's values, ``[2, C]``."""
    cut = (1.0 - INTERVAL) / 2
    inner = values.sort(0).values[int(cut * len(values)) : max(1, int((1.0 - cut) * len(values)))]
    return torch.stack([inner[0], inner[-1]])
