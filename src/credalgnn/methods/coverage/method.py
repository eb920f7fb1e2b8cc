"""CredalCoverage: credal sets that are wide where labels never were (docs/coverage.md)."""

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
from ..base import CHUNK, chosen_nodes, open_graph
from ..known_nodes import KnownNodes
from ..parameters import ABOVE_0, SEED
from ..posthoc import OnModel
from ..prediction import MethodError, Prediction, Predictor, SplitPredictor
from ..scratch import rows_at
from ..temperature import cautious_temperature
from ..training_data import TrainingData
from .descriptions import Array, Describer, described
from .explain import NAMED, SIMILAR, Explanation, Reason, most_similar, nearest, neighbours_of, reasons_for, usual_share
from .model import FOLDS, Coverage, Diagnosis, SizeRange, StoredModels, estimate
from .ood_score import OODScore

FEW = 50  # new nodes that are too few to estimate coverage anew
STEEPNESS = 4.0  # power of the relative coverage in the number of labels near a node
MOST = 1.0 - 1e-6  # the largest share of log2 C that EU may be; at 1 all classes would become alike
TYPICAL = 2_000  # descriptions of training nodes that are kept, to say what is usual and what is strange
JUDGED = 100_000  # validation nodes, at the most, that temperature and strangeness are judged by
LOOKED_AT = 10_000  # nodes whose widths are part of the diagnosis


@dataclass(kw_only=True, eq=False, repr=False)
class CredalCoverage(OnModel):
    """Credal sets as wide as labels are rare: midpoints of a vanilla GNN, half-lengths from label coverage.

    Coverage is the probability that a node is labelled, given what it looks like, estimated without having been told
    about the node (``model.estimate``). With the relative coverage q(v), n(v) = min(q(v), 1)^4 T / C (with its corner
    rounded off: half of T / C at q = 1) is the number of labels of a class near the node, T / C being the average
    number of a class's labels, and ``s / (s + n)`` (Walley's imprecise
    Dirichlet model) the share of log2 C bits that its epistemic uncertainty is. The half-length of the interval softmax
    (Equation 3) is the one that gives the credal set just this epistemic uncertainty. As far as coverage is not to be
    trusted, because it has no skill on nodes it was not told about, what else makes a node strange widens the set: the
    entropy of the point prediction, and other evidence if that tells known classes that are pretended to be strangers
    (``strangeness``). A node of another graph that is smaller or larger than any node of ``fit`` was is covered by no
    label (``extremes``). Classes are those of the vanilla GNN.

    Of validation nodes only the labels are read, for early stopping and temperature of the midpoints; for coverage they
    are unlabelled, like test nodes.

    Args:
        model: What gives the midpoints: any method that classifies. A fitted one is shared with whoever else holds it;
            of a template, ``fit`` fits a clone (``model_``). By default a vanilla GNN with ``seed``.
        seed: Of the folds and trees, and of the model if none is given.
        strength: Walley's s: at so many labels of a class near a node half of the ignorance is gone.
        reestimate: Estimate coverage anew on a graph other than the fitted one, with its training nodes against all
            its nodes. Training nodes are known again by their ``node_ids``. Without ids, with less than half of the
            training nodes or with fewer than 50 others in it, the models of ``fit`` serve.
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
        logits = self._logits(graph, context)
        self.temperature_ = cautious_temperature(logits(val), graph.labels[val])
        self.labels_ = len(view.train) / view.num_classes  # a class, on average
        self.describer_, rows = described(graph, self.seed, context.memory)
        self.extremes_ = SizeRange.of(self.describer_, rows)
        labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        labelled[view.train] = True
        self.models_: StoredModels | None = None
        self.coverage_ = self._held_out = Coverage(np.zeros(graph.num_nodes), Diagnosis.of_nothing(labelled))
        if _enough(labelled):
            self.coverage_, self.models_, self._held_out = estimate(
                rows, labelled, self.seed, graph, context.progress, context.cluster, context.memory
            )
        kept = view.train[:: len(view.train) // TYPICAL + 1]
        self.rows_ = torch.from_numpy(rows_at(rows, kept.numpy()))
        entropy = self._entropy(graph, logits)
        self.strangeness_ = OODScore.fit(
            self.rows_.numpy(), graph.labels[kept].numpy(), rows_at(rows, val.numpy()), entropy[val.numpy()], self.seed
        )
        self.doubt_ = entropy if self.strangeness_ is None else self.strangeness_(rows, entropy)
        self.train_ = KnownNodes.of(graph, view.train)
        self._cache.get("descriptions", (graph.content, context.memory), lambda: rows)  # `reasons` needs them
        others = (~labelled).nonzero().squeeze(-1)
        some = others[:: len(others) // LOOKED_AT + 1]
        midpoints = logits(some) / self.temperature_
        widest = widen(midpoints, self._bits(some, self.coverage_, self.doubt_)).width.amax(-1)
        self.widths_ = widest.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=widest.dtype))

    def coverage(self, graph: Graph | None = None, *, memory: str | int | None = None) -> Tensor:
        """Relative coverage q of all nodes of the fitted graph or of another one, float64 ``[N]``.

        About 1 where labels are as dense as where they are dense, about 0 where they never were.

        Args:
            graph: By default the fitted one.
            memory: See ``predict``.
        """
        return torch.from_numpy(self._coverage(*open_graph(self, graph, memory))[0].log_relative).exp()

    def explain(self, node: int, graph: Graph | None = None, *, memory: str | int | None = None) -> Explanation:
        """Why the credal set of a node is wide or narrow: print it, or read its fields.

        Args:
            node: The node's number.
            graph: Its graph; by default the fitted one.
            memory: See ``predict``.
        """
        graph, context = open_graph(self, graph, memory)
        if not isinstance(node, int | np.integer) or not 0 <= node < graph.num_nodes:
            raise MethodError(f"there is no node {node}: the graph has the nodes 0..{graph.num_nodes - 1}")
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
            reasons=self._reasons(rows[[node]])[0],
            neighbours=len(near),
            labelled_neighbours=int(labelled[near].sum()) if bool(labelled.any()) else None,
            usual_share=usual_share(graph, labelled),
            least_covered=tuple((other, min(1.0, math.exp(relative[other]))) for other in weakest),
            labelled_similar=int(labelled[similar].sum()) if bool(labelled.any()) else None,
            similar=len(similar),
        )

    def reasons(self, nodes: Tensor, graph: Graph | None = None, *, memory: str | int | None = None) -> list[str]:
        """For each of some nodes, in a few words, what makes it unlike labelled ones; "" where nothing does.

        Args:
            nodes: A mask or node numbers.
            graph: Their graph; by default the fitted one.
            memory: See ``predict``.
        """
        graph, context = open_graph(self, graph, memory)
        chosen = chosen_nodes(graph, nodes).numpy()
        return [
            "; ".join([str(reason) for reason in reasons if reason.is_unusual][:NAMED])
            for reasons in self._reasons(rows_at(self._rows(graph, context), chosen))
        ]

    def nearest_labelled(
        self, nodes: Tensor, graph: Graph | None = None, *, memory: str | int | None = None
    ) -> Tensor | None:
        """The training nodes that are most like some nodes ``[n, 5]``; None where none is known in the graph.

        Args:
            nodes: A mask or node numbers.
            graph: Their graph; by default the fitted one.
            memory: See ``predict``.
        """
        graph, context = open_graph(self, graph, memory)
        chosen = chosen_nodes(graph, nodes)
        labelled = self._labelled(graph).nonzero().squeeze(-1)
        if not len(labelled):
            return None
        return nearest(self._rows(graph, context), chosen, labelled)

    def _reasons(self, rows: Array) -> list[tuple[Reason, ...]]:
        if self.models_ is None:
            return [()] * len(rows)
        return reasons_for(self.models_, self.describer_, rows, self.rows_.numpy())

    def _labelled(self, graph: Graph) -> Tensor:
        """Which nodes of a graph are the training nodes, as far as that can be known."""
        labelled = torch.zeros(graph.num_nodes, dtype=torch.bool)
        numbers = self.train_.numbers_in(graph)
        labelled[numbers[numbers >= 0]] = True
        return labelled

    @property
    def diagnosis(self) -> dict[str, float] | None:
        """What the coverage model knows, measured on nodes it was not told about; and how wide the intervals became.

        ``auroc`` and ``log_loss`` (``base_log_loss``: of knowing nothing) of "labelled or not", ``trust`` in it,
        ``uncovered``, the estimated share of unlabelled nodes that labels never reached, and quantiles over unlabelled
        nodes of the widest interval.
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
        logits = self._logits(graph, context)
        doubt = self._doubt(graph, logits, context)

        def read(nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            missing = -torch.from_numpy(coverage.log_relative)[nodes]
            return logits(nodes) / self.temperature_, self._bits(nodes, coverage, doubt), missing

        return SplitPredictor(read, partial(_widened, class_names=self.class_names), alike)

    @torch.no_grad()
    def _logits(self, graph: Graph, context: Context) -> Callable[[Tensor], Tensor]:
        """The midpoints before temperature, of nodes: logits, or logarithms of probabilities that decide classes."""
        if self.model_.has_outputs and not self.model_.is_credal:
            known = self.model_._outputs(graph, context).logits
            return lambda nodes: known[nodes].double()
        predict = self.model_._predictor(graph, context)

        def logarithms(nodes: Tensor) -> Tensor:
            with torch.no_grad():
                probabilities = predict(nodes).probabilities
            if probabilities is None:
                raise MethodError(f"{type(self.model_).__name__} predicts no classes, so it can give no midpoints")
            return probabilities.double().clamp_min(torch.finfo(torch.float64).tiny).log()

        return logarithms

    def _bits(self, nodes: Tensor, coverage: Coverage, doubt: Array) -> Tensor:
        """The epistemic uncertainty that the credal sets of nodes are to have."""
        covered = torch.from_numpy(coverage.covered(nodes.numpy()))
        uncovered = self.strength / (self.strength + self.labels_ * covered**STEEPNESS)
        most = math.log2(len(self.class_names))
        doubted = (1.0 - coverage.diagnosis.trust) * torch.from_numpy(doubt)[nodes]
        return (1.0 - (1.0 - uncovered) * (1.0 - doubted)).clamp(0.0, MOST) * most

    def _rows(self, graph: Graph, context: Context) -> Array:
        """The descriptions of a graph's nodes."""
        key = graph.content, context.memory
        return self._cache.get("descriptions", key, lambda: self.describer_(graph, memory=context.memory))

    def _entropy(self, graph: Graph, logits: Callable[[Tensor], Tensor]) -> Array:
        """Of the point predictions, as a share of log2 C."""
        share = np.empty(graph.num_nodes)
        for part in torch.split(torch.arange(graph.num_nodes), CHUNK):
            share[part.numpy()] = scores.entropy(logits(part) / self.temperature_).numpy()
        share /= math.log2(len(self.class_names))
        return share

    def _doubt(self, graph: Graph, logits: Callable[[Tensor], Tensor], context: Context) -> Array:
        """What widens sets where coverage is not to be trusted: how strange nodes are, or the entropy."""
        if graph.content == self.train_.content:
            return self.doubt_

        def make() -> Array:
            entropy, strange = self._entropy(graph, logits), self.strangeness_
            return entropy if strange is None else strange(self._rows(graph, context), entropy)

        return self._cache.get("doubt", (graph.content, context.path), make)

    def _coverage(self, graph: Graph, context: Context) -> tuple[Coverage, bool]:
        """Coverage of the nodes of a graph: as found in ``fit``, estimated anew, or by the models of ``fit``.

        With it, whether it was found alike for calibration nodes and others: the models of ``fit`` were told that
        calibration nodes are not labelled.
        """
        if graph.content == self.train_.content:
            return self.coverage_, True

        def make() -> tuple[Coverage, bool]:
            labelled = self._labelled(graph)
            if self.reestimate and self._can_estimate(labelled):
                # Described as this graph shows its nodes: by what was learnt from the nodes of `fit`, or in the smaller
                # graph, training nodes would be told from all others by that alone.
                describer, rows = described(graph, self.seed, context.memory)
                new = estimate(rows, labelled, self.seed, graph, jobs=context.cluster, memory=context.memory)
                return self.extremes_.clip(new.coverage, describer, rows), True
            rows, result = self._rows(graph, context), Coverage(np.zeros(graph.num_nodes), self.coverage_.diagnosis)
            if self.models_ is not None:
                result = self.models_(rows, context.cluster)
            return self.extremes_.clip(result, self.describer_, rows), False

        key = graph.content, graph.ids_digest, self.reestimate, context.path  # the ids tell which are training nodes
        return self._cache.get("coverage", key, make)

    def _can_estimate(self, labelled: Tensor) -> bool:
        """Whether a graph has enough training nodes, and enough others."""
        count = int(labelled.sum())
        return len(labelled) - count >= FEW and 2 * count >= len(self.train_.nodes) and _enough(labelled)

    def _state(self) -> dict[str, Tensor]:
        tensors = {f"describer.{name}": getattr(self.describer_, name) for name in Describer.FIELDS}
        if self.models_ is not None:
            arrays = self.models_.state()
            tensors.update({f"models.{name}": torch.tensor(array) for name, array in arrays.items()})
        if self.strangeness_ is not None:
            for name in OODScore.FITTED:
                tensors[f"strangeness.{name}"] = torch.from_numpy(getattr(self.strangeness_, name))
        tensors["extremes"] = torch.from_numpy(np.stack([self.extremes_.low, self.extremes_.high]))
        tensors["doubt"] = torch.from_numpy(self.doubt_)
        tensors["coverage"] = torch.from_numpy(self.coverage_.log_relative)
        tensors["diagnosis"] = torch.tensor(list(asdict(self.coverage_.diagnosis).values()), dtype=torch.float64)
        tensors["numbers"] = torch.tensor([self.temperature_, self.labels_], dtype=torch.float64)
        return {**tensors, **self.train_.state(), "rows": self.rows_, "widths": self.widths_}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.describer_ = Describer(**{name: state[f"describer.{name}"] for name in Describer.FIELDS})
        models = {name.removeprefix("models."): t.numpy() for name, t in state.items() if name.startswith("models.")}
        self.models_ = StoredModels.from_state(models) if models else None
        diagnosis = Diagnosis(*state["diagnosis"].tolist())
        self.coverage_ = Coverage(state["coverage"].numpy(), diagnosis)
        self.temperature_, self.labels_ = state["numbers"].tolist()
        self.train_ = KnownNodes.from_state(state)
        self.rows_, self.widths_, self.doubt_ = state["rows"], state["widths"], state["doubt"].numpy()
        self.extremes_ = SizeRange(*state["extremes"].numpy())
        self.strangeness_ = None
        if any(name.startswith("strangeness.") for name in state):
            fitted = (state[f"strangeness.{name}"].numpy() for name in OODScore.FITTED)
            self.strangeness_ = OODScore(self.rows_.numpy(), *fitted)


def _widened(
    nodes: Tensor, midpoints: Tensor, bits: Tensor, missing: Tensor, class_names: tuple[str, ...]
) -> Prediction:
    """The prediction of credal sets around midpoints that are as wide as epistemic uncertainty is to be."""
    result = Prediction.of_credal(nodes, widen(midpoints, bits), class_names)
    point = midpoints.softmax(-1)  # calibrated, in the set, and with the same classes
    return replace(result, scores={**result.scores, "coverage": missing}, probabilities=point)


def _enough(labelled: Tensor) -> bool:
    """Whether there are two labelled nodes, and two others, a fold."""
    count = int(labelled.sum())
    return min(count, len(labelled) - count) >= 2 * FOLDS
