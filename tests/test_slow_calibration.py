"""What calibration promises, over many divisions: of fitted models, end to end."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import credalgnn as cg
from credalgnn.graphs import Split
from credalgnn.methods.calibration import calibration_nodes_for

pytestmark = pytest.mark.slow

SEEDS, DIVISIONS = 3, 300


@pytest.mark.parametrize("name", ["digits", "csbm"])
def test_false_alarms_and_coverage_are_as_promised(name: str) -> None:
    """Calibration nodes and others of known classes are drawn anew, for several fits; fit knows neither's labels."""
    task = cg.load_task(name)
    known = torch.tensor([k for k in range(task.graph.num_classes) if k not in task.ood_classes])
    labels = torch.where(torch.isin(task.graph.labels, known), task.graph.labels, -1)
    number = torch.full((task.graph.num_classes,), -1).index_copy(0, known, torch.arange(len(known)))
    labels = torch.where(labels >= 0, number[labels.clamp_min(0)], -1)
    names = [task.graph.class_names[k] for k in known.tolist()]
    graph = cg.Graph(task.graph.features, task.graph.edge_index, labels, class_names=names)
    alarms: dict[float, list[float]] = {rate: [] for rate in (0.01, 0.05, 0.1, 0.2)}
    hits: dict[float, list[float]] = {coverage: [] for coverage in (0.8, 0.9, 0.95)}
    for seed in range(SEEDS):
        split = Split.random(graph.num_nodes, seed)
        train, val, rest = (part[labels[part] >= 0] for part in (split.train, split.val, split.test))
        fitted = cg.CredalCoverage(seed=seed).fit(graph, train=train, val=val, calibration=rest)
        prediction = fitted.predict(nodes=rest)
        whole = prediction.calibration
        assert torch.equal(whole.scores, prediction.score)
        random = np.random.default_rng(seed)
        for _ in range(DIVISIONS):
            held = torch.from_numpy(random.permutation(len(rest)) < len(rest) // 2)
            parts = (whole.scores[held], whole.classes[held], whole.nonconformity[held])
            divided = replace(
                prediction, calibration=replace(whole, scores=parts[0], classes=parts[1], nonconformity=parts[2])
            )
            for rate, found in alarms.items():
                if calibration_nodes_for(false_alarms=rate) > int(held.sum()):
                    continue  # csbm has too few nodes for one in a hundred
                found.append(float(divided.flag_unfamiliar(rate)[~held].double().mean()))
            for coverage, found in hits.items():
                kept = divided.sets(coverage).gather(1, labels[rest][:, None]).squeeze(1)
                found.append(float(kept[~held].double().mean()))
    alarms = {rate: found for rate, found in alarms.items() if found}
    assert len(alarms) >= 3
    for rate, found in alarms.items():
        assert np.mean(found) <= rate + 2 * np.std(found) / math.sqrt(len(found)), (rate, np.mean(found))
        assert np.mean(found) >= 0.3 * rate  # a promise that is kept by never saying anything is none
    for coverage, found in hits.items():
        assert np.mean(found) >= coverage - 2 * np.std(found) / math.sqrt(len(found)), (coverage, np.mean(found))
