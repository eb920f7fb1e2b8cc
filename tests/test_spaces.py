"""Search spaces: the paper's ranges and choices, points and draws."""

from __future__ import annotations

import json
import math

import numpy as np
import optuna
import pytest

from credalgnn.experiments.search import Scale, draw, points, size, space_of
from credalgnn.methods import METHODS, MethodError
from credalgnn.methods.parameters import Uniform
from searches import ENDLESS, ENSEMBLES, FINITE, NETWORK, SPACES


@pytest.mark.parametrize("scale", ["uniform", "log"])
@pytest.mark.parametrize("method", NETWORK)
def test_networks_have_the_papers_space(method: str, scale: Scale) -> None:
    """Its ranges and choices; what is drawn evenly there may be drawn evenly in its logarithm."""
    space, log = dict(space_of(method, 10_000, scale)), scale == "log"
    delta = space.pop("delta", None)
    assert space == {
        "lr": Uniform(1e-5, 1e-1, log=log),
        "hidden": (64, 128, 256),
        "layers": (2, 3),
        "weight_decay": Uniform(1e-7, 1e-1, log=log),
        "backbone": ("gcn", "sage"),
    }
    assert delta == (None if method == "vanilla" else Uniform(0.5, 1.0, log=False))


@pytest.mark.parametrize("method", ENSEMBLES)
def test_ensembles_have_two_to_fifteen_members(method: str) -> None:
    assert dict(space_of(method, 10_000, "uniform")) == {"size": (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)}


def test_knn_lj_has_the_papers_k() -> None:
    assert dict(space_of("knn-lj", 10_000, "log")) == {"k": (5, 10, 20, 50, 100, 200)}


@pytest.mark.parametrize("nodes", [5, 96, 100, 871, 4999, 5000])
@pytest.mark.parametrize("method", ["knn", "knn-lj"])
def test_k_is_never_above_the_training_nodes(method: str, nodes: int) -> None:
    wanted = tuple(k for k in SPACES[method]["k"] if k <= nodes)  # type: ignore[union-attr]
    assert space_of(method, nodes, "uniform")["k"] == wanted
    assert wanted
    assert len(SPACES[method]["k"]) >= len(wanted)  # type: ignore[arg-type]


def test_methods_without_a_space_are_refused() -> None:
    without = [name for name in METHODS if name not in SPACES]
    assert sorted(without) == ["credal-coverage", "degree", "feature-sum", "temperature"]
    for name in without:
        with pytest.raises(MethodError, match=f"{name} has nothing to tune"):
            space_of(name, 1000, "log")


@pytest.mark.parametrize("method", [name for name in SPACES if math.isfinite(size(SPACES[name]))])
def test_points_are_all_of_a_finite_space_and_each_can_be_used(method: str) -> None:
    space = SPACES[method]
    found = list(points(space))
    assert len(found) == size(space) == math.prod(len(values) for values in space.values())  # type: ignore[arg-type]
    assert len({json.dumps(point, sort_keys=True) for point in found}) == len(found)
    for point in found:
        assert set(point) == set(space)
        assert all(point[name] in space[name] for name in space)  # type: ignore[operator]
        METHODS[method](**point)


def test_size() -> None:
    assert size(FINITE) == 16
    assert size({"k": (1, 2)}) == 2
    assert size(ENDLESS) == math.inf
    assert all(math.isinf(size(SPACES[name])) for name in NETWORK)


def test_draws_stay_within_the_space_and_reach_all_of_it() -> None:
    space = SPACES["credal-lj"]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = [draw(space, study.ask()) for _ in range(200)]
    for name, one in space.items():
        values = [point[name] for point in found]
        if isinstance(one, Uniform):
            assert one.low <= min(values) <= max(values) <= one.high
            assert abs(np.mean(values) - (one.low + one.high) / 2) < 0.1 * (one.high - one.low)  # even, not in its log
        else:
            assert set(values) == set(one)
        assert all(list(point) == list(space) for point in found)
    METHODS["credal-lj"](**found[0])
