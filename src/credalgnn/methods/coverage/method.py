"""CredalCoverage: credal sets that are wide where there were no labels (docs/coverage.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ...graphs import Graph
from ...runtime.context import Context
from ...sets import widen
from .. import scores
from ..base import CHUNK, Method, chosen_nodes, open_graph
from ..calibration import KnownNodes
from ..inputs import rows_at
from ..parameters import ABOVE_0, SEED
from ..posthoc import OnModel
from ..prediction import MethodError, Prediction, Predictor, SplitPredictor
from ..temperature import cautious_temperature
from ..training_data import TrainingData
from .descriptions import Array, Describer, described
from .explain import NAMED, SIMILAR, Explanation, most_similar, nearest, neighbours_of, reasons_for, usual_share
from .model import FOLDS, Coverage, Diagnosis, SizeRange, StoredModels, estimate
from .ood_score import OODScore

FEW = 50  # least number of unlabelled nodes for a new estimate of coverage
STEEPNESS = 4.0  # power of the relative coverage in the number of labels near a node
MOST = 1.0 - 1e-6  # largest share of log2 C for EU; at 1 all classes would become equal
TYPICAL = 2_000  # stored descriptions of training nodes, at most, for explanations and the OOD score
JUDGED = 100_000  # validation nodes, at most, for temperature and OOD score
LOOKED_AT = 10_000  # nodes, at most, whose widths are part of the diagnosis


@dataclass(kw_only=True, eq=False, repr=False)
class CredalCoverage(OnModel):
    """Credal sets whose width depends on label coverage: midpoints of a GNN, half-lengths from coverage.

    Coverage is the probability that a node is labelled given its description, cross-fitted (``model.estimate``). With
    the relative coverage q(v), n(v) = min(q(v), 1)^4 T / C (smoothed at the corner: half of T / C at q = 1) is the
    number of labels of a class near the node, T / C being the average number of a class's labels, and ``s / (s + n)``
    (Walley's imprecise Dirichlet model) is the node's epistemic uncertainty as a share of log2 C bits. The half-length
    of the interval softmax (Equation 3) is chosen to give the credal set this epistemic uncertainty. To the extent that
    coverage has no skill on held-out nodes, the OOD score widens the set instead: the entropy of the point prediction,
    and other evidence if that detects left-out known classes (``ood_score``). Nodes of another graph outside the size
    range of the nodes in ``fit`` have no coverage (``SizeRange``). Classes are those of the model.

    Of validation nodes only the labels are read, for early stopping and the temperature of the midpoints; for coverage
    they are unlabelled, like test nodes.

    Args:
        model: Any method that classifies; it gives the midpoints. A fitted one is shared with its other holders; of a
            template, ``fit`` fits a clone (``model_``). Default None: a vanilla GNN with ``seed``.
        seed: Seed of the folds and trees, and of the default model; default 0.
        strength: Walley's s, the number of labels of a class near a node that halves ignorance; default 10.
        reestimate: On a graph other than the fitted one, estimate coverage of its training nodes against all its nodes;
            training nodes are identified by ``node_ids``. Without ids, with less than half of the training nodes or
            fewer than 50 others, the models of ``fit`` are used. Default True.

    Example:
        >>> method = CredalCoverage().fit(task)
        >>> method.predict().epistemic
        >>> print(method.explain(17))
    """

    strength: float = 10.0
    reestimate: bool = True

    name = "credal-coverage"
    score_names = ("EU", "AU", "TU", "coverage")
    uses_unlabelled = True
    is_credal = True
    works_by_chunks = True
    constraints = {"strength": ABOVE_0, "seed": SEED}

    def _prepare(self, training: TrainingData, context: Context) -> None:
        view = training.view
        graph = view.val_graph
        val = view.val[:: len(view.val) // JUDGED + 1]
        logits = _log_midpoints(self.model_, graph, context)
        self.temperature_ = cautious_temperature(logits(val), graph.labels[val])
        self.labels_ = len(view.train) / view.num_classes  # per class, on average
        self.describer_, rows = described(graph, self.seed, context.memory)
        self.sizes_ = SizeRange.of(self.describer_, rows)
        labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        labelled[view.train] = True
        self.models_: StoredModels | None = None
        self.coverage_ = self._held_out = Coverage(np.zeros(graph.num_nodes), Diagnosis.of_nothing(labelled))
        if _enough(labelled):
            self.coverage_, self.models_, self._held_out = estimate(
                rows, labelled, self.seed, graph, context.progress, context.cluster, context.memory
            )
        typical = view.train[:: len(view.train) // TYPICAL + 1]
        self.rows_ = torch.from_numpy(rows_at(rows, typical.numpy()))
        entropy = _entropy(graph, logits, self.temperature_, view.num_classes)
        self.ood_score_ = OODScore.fit(
            self.rows_.numpy(),
            graph.labels[typical].numpy(),
            rows_at(rows, val.numpy()),
            entropy[val.numpy()],
            self.seed,
        )
        self.doubt_ = entropy if self.ood_score_ is None else self.ood_score_(rows, entropy)
        self.train_ = KnownNodes.of(graph, view.train)
        self._cache.get("descriptions", (graph.content, context.memory), lambda: rows)  # for `reasons`
        others = (~labelled).nonzero().squeeze(-1)
        sample = others[:: len(others) // LOOKED_AT + 1]
        midpoints = logits(sample) / self.temperature_
        widest = widen(midpoints, self._bits(sample, self.coverage_, self.doubt_)).width.amax(-1)
        self.widths_ = widest.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=widest.dtype))

    def coverage(self, graph: Graph | None = None, *, memory: str | int | None = None) -> Tensor:
        """Return the relative coverage q of all nodes of a graph, float64 ``[N]``.

        About 1 where labels are frequent, about 0 where there were none.

        Args:
            graph: Graph, default the fitted one.
            memory: Memory budget, see ``predict``.
        """
        return torch.from_numpy(self._coverage(*open_graph(self, graph, memory))[0].log_relative).exp()

    def explain(self, node: int, graph: Graph | None = None, *, memory: str | int | None = None) -> Explanation:
        """Explain the width of a node's credal set; ``print`` the result, or read its fields.

        Args:
            node: Node number.
            graph: Graph of the node, default the fitted one.
            memory: Memory budget, see ``predict``.
        """
        graph, context = open_graph(self, graph, memory)
        if not isinstance(node, int | np.integer) or not 0 <= node < graph.num_nodes:
            raise MethodError(f"node {node} does not exist: the graph has the nodes 0..{graph.num_nodes - 1}")
        (coverage, _), rows = self._coverage(graph, context), self._rows(graph, context)
        with torch.no_grad():
            prediction = self._predictor(graph, context)(torch.tensor([node]))
        assert prediction.credal is not None
        labelled = self._labelled(graph)
        near = neighbours_of(graph, node)
        relative = coverage.log_relative
        weakest = near[np.argsort(relative[near.numpy()], kind="stable")[:NAMED]].tolist()
        similar = most_similar(rows, node, SIMILAR)
        covered = float(coverage.covered(np.array([node]))[0])
        return Explanation(
            node=node,
            predicted=self.class_names[int(prediction.classes[0])],
            width=float(prediction.credal.width.amax()),
            coverage=min(1.0, math.exp(relative[node])),
            labels_near=self.labels_ * covered**STEEPNESS,
            trust=coverage.diagnosis.trust,
            reasons=reasons_for(self.models_, self.describer_, rows[[node]], self.rows_.numpy())[0],
            neighbours=len(near),
            labelled_neighbours=int(labelled[near].sum()) if bool(labelled.any()) else None,
            usual_share=usual_share(graph, labelled),
            least_covered=tuple((other, min(1.0, math.exp(relative[other]))) for other in weakest),
            labelled_similar=int(labelled[similar].sum()) if bool(labelled.any()) else None,
            similar=len(similar),
        )

    def reasons(self, nodes: Tensor, graph: Graph | None = None, *, memory: str | int | None = None) -> list[str]:
        """Return for each node, in a few words, how it differs from labelled nodes; "" where it does not.

        Args:
            nodes: Mask or node numbers.
            graph: Graph of the nodes, default the fitted one.
            memory: Memory budget, see ``predict``.
        """
        graph, context = open_graph(self, graph, memory)
        rows = rows_at(self._rows(graph, context), chosen_nodes(graph, nodes).numpy())
        return [
            "; ".join([str(reason) for reason in reasons if reason.is_unusual][:NAMED])
            for reasons in reasons_for(self.models_, self.describer_, rows, self.rows_.numpy())
        ]

    def nearest_labelled(
        self, nodes: Tensor, graph: Graph | None = None, *, memory: str | int | None = None
    ) -> Tensor | None:
        """Return the training nodes most similar to each node ``[n, 5]``; None if the graph has none that are known.

        Args:
            nodes: Mask or node numbers.
            graph: Graph of the nodes, default the fitted one.
            memory: Memory budget, see ``predict``.
        """
        graph, context = open_graph(self, graph, memory)
        chosen = chosen_nodes(graph, nodes)
        labelled = self._labelled(graph).nonzero().squeeze(-1)
        if not len(labelled):
            return None
        return nearest(self._rows(graph, context), chosen, labelled)

    def _labelled(self, graph: Graph) -> Tensor:
        """Mask of the training nodes that can be identified in a graph."""
        labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        numbers = self.train_.numbers_in(graph)
        labelled[numbers[numbers >= 0]] = True
        return labelled

    @property
    def diagnosis(self) -> dict[str, float] | None:
        """Skill of the coverage model on held-out nodes, and quantiles of interval widths; None before ``fit``.

        ``auroc`` and ``log_loss`` (``base_log_loss``: of the base rate) of "labelled or not", ``trust`` in it,
        ``uncovered``, the estimated share of unlabelled nodes that labels never reached, and quantiles (10, 50, 90 %)
        over unlabelled nodes of the widest interval.
        """
        if not self.is_fitted:
            return None
        widths = dict(zip(("width_10", "width_50", "width_90"), self.widths_.tolist(), strict=True))
        return {**asdict(self.coverage_.diagnosis), **widths}

    def __repr__(self) -> str:
        message = f"CredalCoverage(seed={self.seed}, strength={self.strength:g}, reestimate={self.reestimate})"
        if not self.is_fitted:
            return message
        low, middle, high = self.widths_.tolist()
        widths = f"widest interval {low:.2f} / {middle:.2f} / {high:.2f} (10, 50, 90 % of unlabelled nodes)"
        return f"{message}: {self.coverage_.diagnosis}; {widths}"

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        coverage, alike = (self._held_out, False) if context.held_out else self._coverage(graph, context)
        logits = _log_midpoints(self.model_, graph, context)
        doubt = self._doubt(graph, logits, context)

        def read(nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            missing = -torch.from_numpy(coverage.log_relative)[nodes]
            return logits(nodes) / self.temperature_, self._bits(nodes, coverage, doubt), missing

        return SplitPredictor(read, partial(_widened, class_names=self.class_names), alike)

    def _bits(self, nodes: Tensor, coverage: Coverage, doubt: Array) -> Tensor:
        """Epistemic uncertainty of the credal sets of nodes, in bits."""
        covered = torch.from_numpy(coverage.covered(nodes.numpy()))
        uncovered = self.strength / (self.strength + self.labels_ * covered**STEEPNESS)
        most = math.log2(len(self.class_names))
        doubted = (1.0 - coverage.diagnosis.trust) * torch.from_numpy(doubt)[nodes]
        return (1.0 - (1.0 - uncovered) * (1.0 - doubted)).clamp(0.0, MOST) * most

    def _rows(self, graph: Graph, context: Context) -> Array:
        """Descriptions of a graph's nodes, cached."""
        key = graph.content, context.memory
        return self._cache.get("descriptions", key, lambda: self.describer_(graph, memory=context.memory))

    def _doubt(self, graph: Graph, logits: Callable[[Tensor], Tensor], context: Context) -> Array:
        """Score that widens sets where coverage has no skill: the OOD score, or the entropy; cached."""
        if graph.content == self.train_.content:
            return self.doubt_

        def make() -> Array:
            entropy = _entropy(graph, logits, self.temperature_, len(self.class_names))
            return entropy if self.ood_score_ is None else self.ood_score_(self._rows(graph, context), entropy)

        return self._cache.get("doubt", (graph.content, context.path), make, size=2)

    def _coverage(self, graph: Graph, context: Context) -> tuple[Coverage, bool]:
        """Coverage of the nodes of a graph, cached: from ``fit``, estimated anew, or by the models of ``fit``.

        The flag is True if calibration nodes and others were treated alike; the models of ``fit`` were trained with
        calibration nodes as unlabelled ones.
        """
        if graph.content == self.train_.content:
            return self.coverage_, True

        def make() -> tuple[Coverage, bool]:
            labelled = self._labelled(graph)
            count = int(labelled.sum())
            enough = len(labelled) - count >= FEW and 2 * count >= len(self.train_.nodes) and _enough(labelled)
            if self.reestimate and enough:
                # Descriptions come from this graph alone. With descriptions from the graph of `fit`, training nodes
                # would differ from all others by that alone.
                describer, rows = described(graph, self.seed, context.memory)
                estimated = estimate(rows, labelled, self.seed, graph, jobs=context.cluster, memory=context.memory)
                return self.sizes_.clip(estimated.coverage, describer, rows), True
            rows, result = self._rows(graph, context), Coverage(np.zeros(graph.num_nodes), self.coverage_.diagnosis)
            if self.models_ is not None:
                result = self.models_(rows, context.cluster)
            return self.sizes_.clip(result, self.describer_, rows), False

        key = graph.content, graph.ids_digest, self.reestimate, context.path  # ids identify training nodes
        return self._cache.get("coverage", key, make, size=2)

    def _state(self) -> dict[str, Tensor]:
        state = {f"describer.{name}": getattr(self.describer_, name) for name in Describer.FIELDS}
        if self.models_ is not None:
            arrays = self.models_.state()
            state.update({f"models.{name}": torch.tensor(array) for name, array in arrays.items()})
        if self.ood_score_ is not None:
            for name in OODScore.FITTED:
                state[f"ood_score.{name}"] = torch.from_numpy(getattr(self.ood_score_, name))
        state["sizes"] = torch.from_numpy(np.stack([self.sizes_.low, self.sizes_.high]))
        state["doubt"] = torch.from_numpy(self.doubt_)
        state["coverage"] = torch.from_numpy(self.coverage_.log_relative)
        state["diagnosis"] = torch.tensor(list(asdict(self.coverage_.diagnosis).values()), dtype=torch.float64)
        state["numbers"] = torch.tensor([self.temperature_, self.labels_], dtype=torch.float64)
        return {**state, **self.train_.state(), "rows": self.rows_, "widths": self.widths_}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.describer_ = Describer(**{name: state[f"describer.{name}"] for name in Describer.FIELDS})
        models = {name.removeprefix("models."): t.numpy() for name, t in state.items() if name.startswith("models.")}
        self.models_ = StoredModels.from_state(models) if models else None
        diagnosis = Diagnosis(*state["diagnosis"].tolist())
        self.coverage_ = Coverage(state["coverage"].numpy(), diagnosis)
        self.temperature_, self.labels_ = state["numbers"].tolist()
        self.train_ = KnownNodes.from_state(state)
        self.rows_, self.widths_, self.doubt_ = state["rows"], state["widths"], state["doubt"].numpy()
        self.sizes_ = SizeRange(*state["sizes"].numpy())
        self.ood_score_ = None
        if any(name.startswith("ood_score.") for name in state):
            arrays = (state[f"ood_score.{name}"].numpy() for name in OODScore.FITTED)
            self.ood_score_ = OODScore(self.rows_.numpy(), *arrays)


def _widened(
    nodes: Tensor, midpoints: Tensor, bits: Tensor, missing: Tensor, class_names: tuple[str, ...]
) -> Prediction:
    """Prediction of credal sets around midpoints with this epistemic uncertainty."""
    result = Prediction.of_credal(nodes, widen(midpoints, bits), class_names)
    point = midpoints.softmax(-1)  # calibrated, inside the set, and with the same classes
    return replace(result, scores={**result.scores, "coverage": missing}, probabilities=point)


@torch.no_grad()
def _log_midpoints(model: Method, graph: Graph, context: Context) -> Callable[[Tensor], Tensor]:
    """Function from nodes to midpoints before temperature: logits, or logarithms of probabilities."""
    if model.has_outputs and not model.is_credal:
        logits = model._outputs(graph, context).logits
        return lambda nodes: logits[nodes].double()
    predict = model._predictor(graph, context)

    def log_probabilities(nodes: Tensor) -> Tensor:
        with torch.no_grad():
            probabilities = predict(nodes).probabilities
        if probabilities is None:
            raise MethodError(f"model must predict classes to give midpoints; {type(model).__name__} predicts none")
        return probabilities.double().clamp_min(torch.finfo(torch.float64).tiny).log()

    return log_probabilities


def _entropy(graph: Graph, logits: Callable[[Tensor], Tensor], temperature: float, num_classes: int) -> Array:
    """Entropy of the point predictions of all nodes, as a share of log2 C."""
    share = np.empty(graph.num_nodes)
    for nodes in torch.split(torch.arange(graph.num_nodes), CHUNK):
        share[nodes.numpy()] = scores.entropy(logits(nodes) / temperature).numpy()
    share /= math.log2(num_classes)
    return share


def _enough(labelled: Tensor) -> bool:
    """Test for two labelled and two other nodes per fold."""
    count = int(labelled.sum())
    return min(count, len(labelled) - count) >= 2 * FOLDS
