"""The contract for anyone's classes: what keeps it passes, and each way to break it is named with its remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from credalgnn import Graph, MethodError, Prediction, Task, Vanilla, load_task
from credalgnn.graphs import Dataset, GraphError, Loaded, Split, csbm
from credalgnn.methods import Components, Method, TrainingData, Uniform
from credalgnn.methods.prediction import Predictor
from credalgnn.runtime.context import Context
from credalgnn.testing import check_dataset, check_method
from mymodels import Mine

fields = dataclass(kw_only=True, eq=False)


def test_a_method_that_keeps_the_contract() -> None:
    state = torch.random.get_rng_state()
    assert check_method(Mine) is None
    check_method(Mine(temperature=0.5, seed=3), load_task("digits"))
    check_method(Mine, Task.leave_out(csbm(nodes=120, classes=4, features=8), [0], inductive=True))
    assert torch.equal(torch.random.get_rng_state(), state)


@fields
class Base(Mine):
    """All that is broken below is in one place each.

    Args:
        temperature: Of the softmax over the distances.
        seed: Of the projection.
    """

    name = "broken"


class NotDecorated(Base):
    """A field that is none."""

    share: float = 0.5


class OwnConstructor(Base):
    """Not a dataclass at all."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        self.share = share


@dataclass(eq=False)
class Positional(Base):
    """By position.

    Args:
        share: Of something.
    """

    share: float = 0.5


@dataclass(kw_only=True)
class Comparable(Base):
    """Compared by values."""


@fields
class Undocumented(Base):
    share: float = 0.5


@fields
class HalfDocumented(Base):
    """Documented, but for its own hyper-parameter."""

    share: float = 0.5


@fields
class NeedsArgument(Base):
    """Has no default.

    Args:
        share: Of something.
    """

    share: float


@fields
class Rewrites(Base):
    """Changes what it is given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.temperature *= 2


@fields
class LooseComponents(Base):
    """Stands on something that goes nowhere."""

    components = Components("model", Vanilla)


@fields
class TypoInSpace(Base):
    """Tunes what it has not."""

    search_space = {"temprature": (0.1, 1.0)}  # noqa: RUF012


@fields
class BadSpace(Base):
    """Tunes to what it refuses."""

    search_space = {"temperature": Uniform(-1.0, 1.0)}  # noqa: RUF012

    def _check(self) -> None:
        if self.temperature < 0:
            raise MethodError("temperature must be at least 0")


@fields
class BadObjective(Base):
    """Tuned by a metric that does not exist."""

    objectives = {"sealed": "acuracy", "paper": "auroc"}  # type: ignore[dict-item] # noqa: RUF012


class Changed(Base):
    """What it predicts is changed."""

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        predict = super()._predictor(graph, context)
        return lambda nodes: replace(predict(nodes), **self._changes(predict(nodes)))

    def _changes(self, made: Prediction) -> dict[str, Any]:
        raise NotImplementedError


@fields
class OtherScores(Changed):
    """Scores of another name."""

    def _changes(self, made: Prediction) -> dict[str, Any]:
        return {"scores": {"distances": made.score}, "headline": "distances"}


@fields
class OtherHeadline(Changed):
    """Judged by its second score."""

    score_names = ("other", "distance")

    def _changes(self, made: Prediction) -> dict[str, Any]:
        return {"scores": {"distance": made.score, "other": made.score}}


@fields
class SinglePrecision(Changed):
    """Scores in float32."""

    def _changes(self, made: Prediction) -> dict[str, Any]:
        return {"scores": {"distance": made.score.float()}}


@fields
class TwoColumns(Changed):
    """Two numbers for each node."""

    def _changes(self, made: Prediction) -> dict[str, Any]:
        return {"scores": {"distance": torch.stack([made.score, made.score], -1)}}


@fields
class NotFinite(Changed):
    """A score that is no number."""

    def _changes(self, made: Prediction) -> dict[str, Any]:
        return {"scores": {"distance": made.score.where(made.nodes != 3, torch.nan)}}


@fields
class NoDistributions(Changed):
    """Probabilities that sum to two."""

    def _changes(self, made: Prediction) -> dict[str, Any]:
        assert made.probabilities is not None
        return {"probabilities": 2 * made.probabilities}


@fields
class OtherClasses(Changed):
    """Classes of its own."""

    def _changes(self, made: Prediction) -> dict[str, Any]:
        return {"class_names": ("a", "b", "c")}


@fields
class NotCredal(Base):
    """Says that it predicts credal sets."""

    is_credal = True


@fields
class DependsOnNodes(Base):
    """Scores that depend on which nodes are asked for."""

    def _predictor(self, graph: Graph, context: Context) -> Predictor:
        predict = super()._predictor(graph, context)

        def relative(nodes: Tensor) -> Prediction:
            made = predict(nodes)
            return replace(made, scores={"distance": made.score - made.score.mean()})

        return relative


@fields
class GlobalSeed(Base):
    """RngScope from torch's global generator."""

    def _fit(self, training: TrainingData, context: Context) -> None:
        super()._fit(training, context)
        self.means_ = self.means_ + 0.1 * torch.randn_like(self.means_)


@fields
class GlobalNumpySeed(Base):
    """RngScope from NumPy's global generator."""

    def _fit(self, training: TrainingData, context: Context) -> None:
        super()._fit(training, context)
        self.means_ = self.means_ * np.random.rand()  # noqa: NPY002


@fields
class Peeks(Base):
    """Looks at test labels."""

    def fit(self, data: Any, **options: Any) -> Any:
        super().fit(data, **options)
        if isinstance(data, Task):
            self.means_ = self.means_ + data.graph.labels[data.split.test[:7]].float().mean()
        return self


@fields
class NotSelf(Base):
    """Does not return itself."""

    def fit(self, data: Any, **options: Any) -> Any:
        super().fit(data, **options)


@fields
class Eager(Base):
    """Predicts whatever it is asked for."""

    def predict(self, graph: Graph | None = None, nodes: Tensor | None = None) -> Any:
        return super().predict(graph, nodes) if self.is_fitted else None


@fields
class AnyFeatures(Base):
    """Predicts whatever features there are."""

    def predict(self, graph: Graph | None = None, nodes: Tensor | None = None) -> Prediction:
        if graph is not None and graph.num_features > self.num_features:
            graph = graph.replace(features=graph.features[:, : self.num_features])
        return super().predict(graph, nodes)


@fields
class Forgetful(Base):
    """Saves half of what it learns."""

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        self.means_ = state["means_"]


@fields
class Rounding(Base):
    """Saves less than it knows."""

    def _state(self) -> dict[str, Tensor]:
        return {name: tensor.half() for name, tensor in super()._state().items()}

    def _load_state(self, state: Mapping[str, Tensor]) -> None:
        super()._load_state({name: tensor.float() for name, tensor in state.items()})


@fields
class NotJson(Base):
    """A hyper-parameter that no record can hold.

    Args:
        share: Of something.
    """

    share: complex = 1j


@fields
class Incomplete(Method):
    """Nothing but a name."""

    name, score_names = "incomplete", ("score",)


@fields
class Nameless(Mine):
    """A name that is no folder."""

    name = "../mine"


@fields
class Taken(Mine):
    """Another's name."""

    name = "vanilla"


@fields
class Scoreless(Mine):
    """No scores."""

    score_names = ()


DATACLASS = "decorate the class with @dataclass(kw_only=True, eq=False)"
BROKEN: list[tuple[type, str, str]] = [
    (NotDecorated, "share is annotated, but is no hyper-parameter", DATACLASS),
    (OwnConstructor, "its constructor takes 'share', which is no field", "write no __init__"),
    (Positional, "'share' can be passed by position", DATACLASS),
    (Comparable, "compare by value", DATACLASS),
    (Undocumented, "has no docstring", "higher = less certain"),
    (HalfDocumented, "hyper-parameter 'share' is not documented", "'Args:'"),
    (NeedsArgument, "cannot be constructed without arguments", "a default"),
    (Rewrites, "clone() has other hyper-parameters", "in _fit"),
    (LooseComponents, "its components are passed as 'model'", "a field whose default is None"),
    (TypoInSpace, "search_space names 'temprature'", "temperature"),
    (BadSpace, "search_space has temperature=-1.0, which is refused", "leave it out"),
    (BadObjective, "objective 'acuracy' is no metric", "accuracy"),
    (OtherScores, "predicts the scores distances", "declare score_names = ('distances',)"),
    (OtherHeadline, "its headline is distance", "first in score_names"),
    (SinglePrecision, "score distance is not finite in float64", ".double()"),
    (TwoColumns, "score distance has the shape [120, 2]", "[120]"),
    (NotFinite, "not all outputs are finite", "scaled"),
    (NoDistributions, "probabilities are no distributions", "the sum 1"),
    (OtherClasses, "its classes are not those of the task", "self.class_names"),
    (NotCredal, "does not predict credal sets", "is_credal = False"),
    (DependsOnNodes, "score distance of some nodes differs", "predict the whole graph"),
    (GlobalSeed, "differs when it is fitted again", "self.seed"),
    (GlobalNumpySeed, "differs when it is fitted again", "self.seed"),
    (Peeks, "depends on test labels", "arguments of _fit"),
    (NotSelf, "fit does not return the method itself", "override _fit"),
    (Eager, "predicts before it was fitted", "override _predict"),
    (AnyFeatures, "predicts a graph with other features", "override _predict"),
    (Forgetful, "cannot predict once it is saved and loaded", "_load_state"),
    (Rounding, "saved and loaded, its score distance differs", "_state"),
    (NotJson, "not JSON serializable", "hyper-parameters that JSON can hold"),
    (Incomplete, "does not override _fit, _predict", "docs/extend.md"),
    (Nameless, "needs a name of letters", 'name = "mine"'),
    (Taken, "'vanilla' is that of a built-in method", "another one"),
    (Scoreless, "must declare its scores", "score_names ="),
    (dict, "is no class derived from credalgnn.Method", ""),
]


@pytest.mark.parametrize(("kind", "problem", "remedy"), BROKEN, ids=[kind.__name__ for kind, *_ in BROKEN])
def test_a_broken_method_is_told_what_is_wrong(kind: type, problem: str, remedy: str) -> None:
    with pytest.raises((AssertionError, MethodError)) as caught:
        check_method(kind)
    message = str(caught.value)
    assert problem in message
    assert remedy in message
    assert kind.__name__ in message or isinstance(caught.value, MethodError)
    assert "\n" not in message


def test_a_class_that_nobody_can_import() -> None:
    @fields
    class Local(Mine):
        """Inside a function."""

        name = "local"

    with pytest.raises(AssertionError, match=r"Local: cannot be imported.*top level of a module"):
        check_method(Local)


def test_data_sets_that_keep_the_contract(tmp_path: Path) -> None:
    graph = csbm(60, 3).replace(class_names=["cat", "dog", "owl"])
    graph.save(tmp_path / "pets.npz")
    check_dataset("csbm")
    check_dataset(tmp_path / "pets.npz", ["owl"])
    check_dataset(graph, ())
    check_dataset(lambda: graph, "cat", split_seed=3)
    check_dataset(Task.leave_out(graph, [0]))
    check_dataset(Dataset("pets", lambda: Loaded(graph, [Split.random(60, 5)]), ood_classes=[1]))


def drawn() -> Callable[[], Graph]:
    generator = np.random.default_rng(0)
    return lambda: csbm(60, 3, seed=int(generator.integers(1000)))


def resplit() -> Callable[[], Task]:
    generator = np.random.default_rng(0)
    return lambda: Task.leave_out(csbm(60, 3), [0], split_seed=int(generator.integers(1000)))


def one_sided() -> Task:
    """A split whose test part has nodes of known classes only."""
    graph = csbm(60, 3)
    known, left_out = (graph.labels > 0).nonzero().squeeze(1), (graph.labels == 0).nonzero().squeeze(1)
    return Task.leave_out(graph, [0], Split(known[:20], torch.cat([known[20:30], left_out]), known[30:]))


@pytest.mark.parametrize(
    ("dataset", "problem"),
    [
        (drawn(), "made twice, the graph differs: seed"),
        (resplit(), "made twice, the task differs: let split_seed alone decide"),
        (one_sided, "the part test_ood has no node: change the split"),
        (lambda: csbm(60, 3).replace(class_names=["a", "b", "c", "d"]), "no node is of class 'd'"),
        (lambda: "graph", "must be a Graph, a Loaded or a Task, not str"),
        (lambda: 1 // 0, "ZeroDivisionError"),
        (Dataset("my graph", lambda: csbm(60, 3)), "name is not safe for a folder"),
        (7, "must be a name, Dataset, Graph, Task or a function that makes one, not int"),
        ("csmb", "did you mean csbm"),
    ],
)
def test_a_broken_data_set_is_told_what_is_wrong(dataset: Any, problem: str) -> None:
    values = callable(dataset) and not isinstance(dataset, Dataset)
    with pytest.raises((AssertionError, GraphError)) as caught:
        check_dataset(dataset, None if dataset is one_sided or not values or "task" in problem else [0])
    assert problem in str(caught.value)
