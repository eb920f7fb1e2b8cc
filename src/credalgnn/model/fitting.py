"""``fit``: a model from tables or a graph."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..graphs import Columns, Graph, GraphError, GraphWarning, Split, Task, node_numbers, stratified_split
from ..methods import Method, MethodError, Prediction
from ..methods.base import check_workers, room_for
from ..methods.calibration import KnownNodes
from ..methods.checkpoints import remove_checkpoints
from ..methods.large import budget_of, fits
from ..methods.parameters import has_seed
from ..methods.prediction import check_class_names
from ..methods.registry import Choice, MethodLike, choose
from ..runtime.memory import processors
from ..runtime.progress import Stages
from ..runtime.warn import collected_warnings, warn_caller
from .model import CHECKPOINTS, TUNING, Model, check_free
from .reading import Loaded, TableReader, read_to_fit
from .summary import PAGE, judged_part, sample_nodes, summarise, write_page_of

NAMES = ("train", "val", "calibration", "test")


def fit(
    data: Any,
    edges: Any = None,
    *,
    label: str = "label",
    id: str = "id",
    features: Sequence[str] | None = None,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    undirected: bool = False,
    split: str | None = None,
    delimiter: str | None = None,
    train: Tensor | None = None,
    val: Tensor | None = None,
    calibration: Tensor | None = None,
    method: MethodLike = "credal-coverage",
    settings: Mapping[str, Any] | None = None,
    tune: int = 0,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    memory: str | int | None = None,
    progress: bool | None = None,
    workers: int | None = None,
    address: str | None = None,
) -> Model:
    """Train a node classifier on your own graph that flags unfamiliar nodes.

    Args:
        data: Table of nodes (CSV, TSV or Parquet file, also ``.gz``; pyarrow table; data frame), ``Graph``, folder with
            ``nodes`` and ``edges`` files, packed graph, npz of ``Graph.save``, or file with the tensors of a PyG
            ``Data``.
        edges: Table of edges, if ``data`` is one of nodes.
        label: Column of nodes with the classes; empty where the class is unknown.
        id: Column of nodes with their ids.
        features: Columns of nodes that are features; None: all others. Text is encoded, numbers are scaled.
        source: Column of edges with the id of the node where an edge begins.
        target: Column of edges with the id of the node where it ends.
        weight: Column of edges with weights; None: ``weight``, if there is one.
        undirected: Take each edge both ways.
        split: Column of nodes with their part: train, val, calibration or test. Labelled nodes without one are split.
        delimiter: Delimiter of text files; None: detected.
        train: Nodes to train on, a mask or numbers; None: 60 % of the labelled ones, stratified by class.
        val: Nodes that decide when to stop; None: 20 %.
        calibration: Nodes that nothing is learnt from, for calibrated rates; None: 20 %.
        method: Name, import path, class or instance of a method.
        settings: Hyper-parameters, as in ``{"lr": 0.01}``.
        tune: Number of trials of a search by validation nodes before the fit; 0: none. The graph must fit in memory.
        seed: Seed of the split and of the method.
        out: Folder for the model and its page; None: nothing is written. While networks are trained, their states are
            kept there, at most twice a minute: after an interruption, the same call continues from them.
        memory: Memory budget, in bytes or as ``"4GiB"``; None: what is available. Of a graph that does not fit, the
            summary shows a sample of nodes, and there is no page.
        progress: Show stages on stderr; None: yes, with bars on a terminal.
        workers: Number of processes of a Ray cluster that train the network; None: this process alone.
        address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.

    Example:
        >>> model = cg.fit("nodes.csv", "edges.csv", label="topic", out="model/")
        >>> print(model)
    """
    folder = None if out is None else Path(out)
    clustered = workers is not None or address is not None
    if folder is not None:
        check_free(folder)
    if tune and folder is None:
        raise MethodError("`tune` keeps its trials in the model's folder: give `out`")
    if tune and clustered:
        raise MethodError(
            "`tune` searches on this machine alone: leave out `workers` and `address`, or search with "
            "cg.tune(..., engine='ray') and give the best hyper-parameters as `settings`"
        )
    budget = budget_of(memory)
    (choice,) = choose([method], settings or {}, with_baselines=False)
    template = configured(choice, seed)
    if clustered:
        check_workers(template, workers)
    reader = TableReader(Columns(id, label, features, source, target, weight), None, split, delimiter, undirected)
    stages = Stages(progress)
    with collected_warnings(stages.warn) as messages:
        loaded = _read(data, edges, reader, stages)
        graph = loaded.graph
        check_class_names(graph.class_names, template.is_credal)
        chosen = {name: nodes for name, nodes in zip(NAMES, (train, val, calibration), strict=False)
                  if nodes is not None}  # fmt: skip
        parts = complete_parts(graph, {**loaded.parts, **chosen}, seed)
        if tune:
            assert folder is not None
            template = _tuned(choice, graph, parts, tune, seed, folder / TUNING, budget, stages, progress)
        with stages("fit"):
            fitted = template.fit(
                graph,
                train=parts["train"],
                val=parts["val"],
                calibration=parts["calibration"],
                progress=progress,
                memory=memory,
                checkpoints=None if folder is None else folder / CHECKPOINTS,
                workers=workers,
                address=address,
            )
        prediction = _predicted(fitted, graph, parts, budget, seed, stages)
        summary = summarise(fitted, graph, parts, prediction)
    summary["warnings"] = messages
    summary["seconds"] = dict(stages.seconds)
    identified = {name: KnownNodes.of(graph, nodes) for name, nodes in parts.items() if name != "test"}
    model = Model(fitted, identified, loaded.reader, summary)
    if folder is not None:
        with stages("write"):
            _write(model, folder, graph, prediction, parts)
    return model


def _read(data: Any, edges: Any, reader: TableReader, stages: Stages) -> Loaded:
    with stages("read") as details:
        loaded = read_to_fit(data, edges, reader)
        graph = loaded.graph
        details.append(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features,")
        details.append(f"{int((graph.labels >= 0).sum()):,} labelled of {graph.num_classes} classes")
    return loaded


def _predicted(
    method: Method, graph: Graph, parts: Mapping[str, Tensor], memory: int | None, seed: int, stages: Stages
) -> Prediction:
    """Predict all nodes, or a sample of judged and of unlabelled ones if the graph does not fit in memory."""
    with stages("predict") as details:
        if fits(graph, len(method.class_names), memory):
            return method.predict(memory=memory)
        kinds = (parts[judged_part(parts)], (graph.labels < 0).nonzero().squeeze(-1))
        room = room_for(method, memory) // len(kinds)
        sample = torch.cat([sample_nodes(nodes, room, seed) for nodes in kinds]).sort().values
        details.append(f"{len(sample):,} nodes; credalgnn predict has all")
        return method.predict(nodes=sample, memory=memory)


def _write(model: Model, folder: Path, graph: Graph, prediction: Prediction, parts: Mapping[str, Tensor]) -> None:
    """Write the model, and its page if all nodes are predicted; what an interrupted ``fit`` left is removed."""
    (folder / PAGE).unlink(missing_ok=True)
    model.save(folder)
    remove_checkpoints(folder / CHECKPOINTS)
    if len(prediction.nodes) < graph.num_nodes or prediction.probabilities is None:
        return
    try:
        write_page_of(model, graph, prediction, folder, parts)
    except OSError as error:
        warn_caller(
            f"the model is in {folder}, and its page could not be written ({error.strerror or error}): "
            "credalgnn report makes it when there is room",
            UserWarning,
        )


def complete_parts(graph: Graph, chosen: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return the numbers of the nodes of each part; what is not chosen is split from the other labelled nodes.

    If no labelled node is left for calibration, half of the validation nodes calibrate and no longer decide when to
    stop.

    Args:
        graph: Graph with labels.
        chosen: Masks or node numbers by the name of a part.
        seed: Seed of the split.
    """
    parts = {}
    for name in NAMES:
        if name in chosen:
            numbers = torch.unique(node_numbers(chosen[name], name, graph.num_nodes))
            parts[name] = numbers[graph.labels[numbers] >= 0]  # PyG's masks include nodes without a label
    for one, first in enumerate(parts):
        for other in list(parts)[one + 1 :]:
            shared = parts[first][torch.isin(parts[first], parts[other])]
            if len(shared):
                raise GraphError(f"node {int(shared[0])} is in both {first} and {other}: parts must not overlap")
    if not bool((graph.labels >= 0).any()):
        raise GraphError("no node has a label: a classifier learns from labelled nodes")
    parts = stratified_split(graph.labels, parts, seed)
    if not len(parts["calibration"]) and len(parts["val"]) > 1:
        others = {"train": parts["train"], "test": parts.get("test", torch.empty(0, dtype=torch.int64))}
        labels = torch.full_like(graph.labels, -1)
        labels[parts["val"]] = graph.labels[parts["val"]]
        halves = stratified_split(labels, others, seed)
        parts |= {"val": halves["val"], "calibration": halves["calibration"]}
        warn_caller(
            "no labelled node is left for calibration, so half of the validation nodes calibrate and no longer decide "
            "when to stop; name calibration nodes to choose them",
            GraphWarning,
        )
    for name in ("train", "val", "calibration"):
        if not len(parts[name]):
            raise GraphError(
                f"no labelled node is left for {name}: label more nodes, or name fewer of them in the other parts"
            )
    return {name: parts[name] for name in NAMES if name in parts}


def configured(choice: Choice, seed: int) -> Method:
    """Return an unfitted method with its hyper-parameters, seed and components."""
    kind, config = choice.kind, dict(choice.config)
    if has_seed(kind):
        config.setdefault("seed", seed)
    declared = kind.components
    if declared is not None and choice.components:
        seeds = declared.seeds({**kind().get_params(deep=False), **config}, seed)
        models = [declared.kind(**{**choice.components, "seed": number}) for number in seeds]
        config[declared.parameter] = models if declared.size else models[0]
    return kind(**config)


def _tuned(
    choice: Choice,
    graph: Graph,
    parts: Mapping[str, Tensor],
    trials: int,
    seed: int,
    folder: Path,
    memory: int | None,
    stages: Stages,
    progress: bool | None,
) -> Method:
    """Return the method with the best hyper-parameters of a search that uses training and validation nodes only."""
    from ..experiments import tune

    kind = choice.kind
    below = kind.components.kind if kind.components is not None else None
    names = [below.name] if below is not None and below.search_space else []
    names += [choice.path] if kind.search_space else []
    if not names:
        raise MethodError(f"{kind.name} has nothing to tune: leave out tune")
    if not fits(graph, graph.num_classes, memory):
        raise MethodError(
            "trials of `tune` hold the whole graph, and this one does not fit in memory: leave out `tune` and give "
            "`settings`, or allow more `memory`"
        )
    jobs = None
    if memory is not None:  # each trial is a process with the whole graph
        counts = range(1, processors() + 1)
        jobs = max((count for count in counts if fits(graph, graph.num_classes, memory // count)), default=1)
    hidden = torch.cat([parts[name] for name in ("calibration", "test") if name in parts])
    task = Task.leave_out(graph, (), Split(parts["train"], parts["val"], hidden), name="graph")
    settings = {**choice.config, **choice.components}
    with stages("tune") as details:
        results = tune(task, names, out=folder, trials=trials, settings=settings, jobs=jobs, progress=progress)
        best = {name: result.config for name, result in results.best["graph"].items()}
        components = {**choice.components, **(best.get(below.name, {}) if below is not None else {})}
        config = {**choice.config, **best.get(kind.name, {})}
        details.append(", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in {**components, **config}.items()
        ))  # fmt: skip
    return configured(Choice(choice.path, config, components), seed)
