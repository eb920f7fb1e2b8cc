from dataclasses import dataclass

import torch

from credalgnn.methods import Method, Prediction, Uniform


@dataclass(kw_only=True, eq=False)
class Mine(Method):
    """The nearest class mean in a random projection of the features.

    Args:
        temperature: Of the softmax over the distances.
        seed: Of the projection.
    """

    temperature: float = 1.0
    seed: int = 0
    name, score_names = "mine", ("distance",)
    search_space = {"temperature": Uniform(0.1, 10.0)}  # noqa: RUF012

    def _fit(self, training, context):
        graph, train = training.view.graph, training.view.train
        self.map_ = torch.randn(graph.num_features, 8, generator=torch.Generator().manual_seed(self.seed))
        z, labels = graph.features.to_dense()[train] @ self.map_, graph.labels[train]
        self.means_ = torch.stack([z[labels == k].mean(0) for k in range(training.view.num_classes)])

    def _predictor(self, graph, context):
        z = graph.features.to_dense() @ self.map_

        def predict(nodes):
            distances = torch.cdist(z[nodes], self.means_).double()
            p = (-distances / self.temperature).softmax(-1)
            return Prediction(nodes, {"distance": distances.amin(-1)}, "distance", self.class_names, p)

        return predict
