"""Hand-made methods whose AU and EU have known answers to a probe; importable by the processes that do the work."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import credalgnn as cg
from credalgnn.graphs import csbm_graph_posterior
from credalgnn.methods.prediction import Predictor
from credalgnn.methods.training_data import TrainingData
from credalgnn.runtime.context import Context


def dense(graph: cg.Graph) -> Tensor:
    matrix = graph.features
    return (matrix.to_dense() if matrix.layout == torch.sparse_csr else matrix).double()


@dataclass(kw_only=True, eq=False)
class Distance(cg.Method):
    """EU is the true distance to the nearest training node's features; AU never changes."""

    name, score_names = "distance-eu", ("EU", "AU")

    def _fit(self, training: TrainingData, context: Context) -> None:
        self.seen_ = dense(training.view.graph)[training.view.train]
        self.labels_ = training.view.graph.labels[training.view.train]

    def _distances(self, graph: cg.Graph, nodes: Tensor) -> Tensor:
        return torch.cdist(dense(graph)[nodes], self.seen_)

    def _scores(self, graph: cg.Graph, nodes: Tensor) -> dict[str, Tensor]:
        nearest = self._distances(graph, nodes).amin(-1)
        return {"EU": nearest, "AU": torch.full_like(nearest, 0.5)}

    def _predictor(self, graph: cg.Graph, context: Context) -> Predictor:
        return lambda nodes: cg.Prediction(nodes, self._scores(graph, nodes), "EU", self.class_names)


@dataclass(kw_only=True, eq=False)
class Disagreement(Distance):
    """AU is the share of the five nearest training nodes that contradict the others; EU never changes."""

    name = "disagreement-au"

    def _scores(self, graph: cg.Graph, nodes: Tensor) -> dict[str, Tensor]:
        near = self.labels_[self._distances(graph, nodes).topk(5, largest=False).indices]
        share = 1.0 - (near == near.mode(-1).values[:, None]).double().mean(-1)
        return {"EU": torch.full_like(share, 0.5), "AU": share}


@dataclass(kw_only=True, eq=False)
class Mirror(Distance):
    """AU is EU with its sign changed: two names for one number."""

    name = "mirror"

    def _scores(self, graph: cg.Graph, nodes: Tensor) -> dict[str, Tensor]:
        nearest = self._distances(graph, nodes).amin(-1)
        return {"EU": nearest, "AU": 10.0 - nearest}


@dataclass(kw_only=True, eq=False)
class Constant(Distance):
    """Says the same of every node."""

    name = "constant"

    def _scores(self, graph: cg.Graph, nodes: Tensor) -> dict[str, Tensor]:
        one = torch.ones(len(nodes), dtype=torch.float64)
        return {"EU": one, "AU": one}


@dataclass(kw_only=True, eq=False)
class Truth(Distance):
    """AU is the entropy of the true posterior of csbm, whose most probable class is predicted."""

    name = "truth"
    homophily: float = 0.4
    known_nodes: int = 750  # of known classes, labelled or not

    def _fit(self, training: TrainingData, context: Context) -> None:
        super()._fit(training, context)
        train = training.view.train
        shares = (1.0, *[1.0 - len(train) / self.known_nodes] * 3)
        found = csbm_graph_posterior(homophily=self.homophily, known=train, unknown_share=shares)
        kept = found.probabilities[:, 1:]
        self.posterior_ = (kept / kept.sum(-1, keepdim=True)).nan_to_num(1.0 / 3.0)  # a node that is surely an OOD node

    def _predictor(self, graph: cg.Graph, context: Context) -> Predictor:
        def predict(nodes: Tensor) -> cg.Prediction:
            p = self.posterior_[nodes]
            doubt = -torch.xlogy(p, p).sum(-1) / torch.log(torch.tensor(2.0, dtype=torch.float64))
            scores = {"EU": torch.ones_like(doubt), "AU": doubt}
            return cg.Prediction(nodes, scores, "EU", self.class_names, p, cg.IntervalSet(p, p))

        return predict
