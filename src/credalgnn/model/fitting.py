"""``fit``: from a person's tables or graph to a model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..experiments import tune as search
from ..graphs import Columns, Graph, Split, Task
from ..methods import Method, MethodError
from ..methods.base import room_for
from ..methods.checkpoints import remove_checkpoints
from ..methods.choices import Choice, MethodLike, choose
from ..methods.known_nodes import KnownNodes
from ..methods.large import budget_of, fits
from ..methods.parameters import has_seed
from ..methods.prediction_table import check_class_names
from ..methods.workers import check_workers
from ..runtime.memory import processors
from ..runtime.progress import Stages
from .folder import CHECKPOINTS, PAGE, TUNING, check_free
from .model import Model
from .page import title_of, write_page_of
from .parts import parts_of
from .reading import TableReader, to_learn
from .summary import judged_part, sample_nodes, summarise


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
    progress: bool = True,
    workers: int | None = None,
    address: str | None = None,
) -> Model:
    """Learn the classes of the nodes of one's own graph, and what is like nothing that is labelled.

    Args:
        data: A table of nodes (CSV, TSV or Parquet file, also ``.gz``; pyarrow table; data frame), a ``Graph``, a
            folder with ``nodes`` and ``edges`` files, a packed graph, an npz of ``Graph.save``, or a file with the
            tensors of a PyG ``Data``.
        edges: A table of edges, where ``data`` is one of nodes.
        label: The column of nodes with the classes; empty where nobody knows.
        id: The column of nodes that says what a node is called.
        features: The columns that are features; None: all others. Text is encoded, numbers are scaled.
        source: The column of edges with the id of the node that an edge comes from.
        target: The column of edges with the id of the node that it goes to.
        weight: The column of edges with weights; None: ``weight``, if there is one.
        undirected: Edges have no direction: each is taken both ways.
        split: The column of nodes that says train, val, calibration or test; empty: dealt, if it has a label.
        delimiter: Of text files; None: found.
        train: Nodes to train on, a mask or numbers; None: dealt.
        val: Nodes that decide when to stop; None: dealt.
        calibration: Nodes that nothing is learnt from, for the promise; None: dealt.
        method: A name, an import path, a class or a template.
        settings: Hyper-parameters: ``{"lr": 0.01}``.
        tune: So many trials of a search by validation nodes alone, first; of a graph that fits in memory.
        seed: Of the deal of nodes and of the method.
        out: The folder for the model and its page; None: it is kept nowhere. While networks are trained, their states
            are kept there, behind an epoch and twice a minute at the most: the same call goes on from them, if this
            one is stopped.
        memory: How much memory may be used, in bytes or as ``"4GiB"``; None: what is available. Of a graph that does
            not fit, some nodes are looked at for the summary, and there is no page.
        progress: Show how far it is, on stderr.
        workers: Train the network with so many processes of a Ray cluster; None: this process alone.
        address: ``HOST:PORT`` of the cluster; None: that of ``RAY_ADDRESS``, or the one that Ray finds.
    """
    folder = None if out is None else Path(out)
    if folder is not None:
        check_free(folder)
    if tune and folder is None:
        raise MethodError("tune= keeps its trials in the model's folder: say where, out=...")
    if tune and (workers is not None or address is not None):
        raise MethodError(
            "tune= tries hyper-parameters on this machine alone: leave out workers, or search with credalgnn tune "
            "--engine ray and give what it finds as settings (--set)"
        )
    budget = budget_of(memory)
    (choice,) = choose([method], settings or {}, with_baselines=False)
    template = made(choice, seed)
    if workers is not None or address is not None:
        check_workers(template, workers)
    reader = TableReader(Columns(id, label, features, source, target, weight), None, split, delimiter, undirected)
    stages = Stages(progress)
    with _noted(stages.warn) as messages:
        with stages("read") as said:
            loaded = to_learn(data, edges, reader)
            graph = loaded.graph
            said.append(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features,")
            said.append(f"{int((graph.labels >= 0).sum()):,} labelled of {graph.num_classes} classes")
        given = {"train": train, "val": val, "calibration": calibration}
        given = {**loaded.parts, **{name: nodes for name, nodes in given.items() if nodes is not None}}
        check_class_names(graph.class_names, template.is_credal)
        parts = parts_of(graph, given, seed)
        if tune:
            if not fits(graph, graph.num_classes, budget):
                raise MethodError(
                    "trials of tune= hold the whole graph, and this one does not fit in memory: leave tune out, and "
                    "set hyper-parameters (--set), or allow more memory"
                )
            assert folder is not None
            with stages("tune") as said:
                template, value = _tuned(choice, graph, parts, tune, seed, folder / TUNING, budget, progress)
                said.append(value)
        known = {name: KnownNodes.of(graph, nodes) for name, nodes in parts.items() if name != "test"}
        with stages("fit"):
            fitted = template.fit(
                graph,
                train=parts["train"],
                val=parts["val"],
                calibration=parts["calibration"],
                progress=None if progress else False,
                memory=memory,
                checkpoints=None if folder is None else folder / CHECKPOINTS,
                workers=workers,
                address=address,
            )
        whole = fits(graph, len(fitted.class_names), budget)
        with stages("predict") as said:
            looked_at = None if whole else _some(graph, parts, room_for(fitted, budget), seed)
            prediction = fitted.predict(nodes=looked_at, memory=budget)
            if looked_at is not None:
                said.append(f"{len(looked_at):,} nodes; credalgnn predict has all")
        summary = summarise(fitted, graph, parts, prediction)
    summary["warnings"] = messages
    summary["seconds"] = dict(stages.seconds)
    model = Model(fitted, known, loaded.reader, summary)
    if folder is not None:
        with stages("write"):
            (folder / PAGE).unlink(missing_ok=True)  # of a fit that was stopped
            model.save(folder)
            remove_checkpoints(folder / CHECKPOINTS)
            if whole and prediction.probabilities is not None:
                try:
                    write_page_of(model, graph, prediction, folder / PAGE, parts, title=title_of(folder, graph))
                except OSError as error:
                    warnings.warn(
                        f"the model is in {folder}, and its page could not be written ({error.strerror or error}): "
                        "credalgnn report makes it when there is room",
                        stacklevel=2,
                    )
    return model


def _some(graph: Graph, parts: Mapping[str, Tensor], room: int, seed: int) -> Tensor:
    """Nodes of a large graph that tell what a model is worth: some that it is judged on, and some without a label."""
    kinds = (parts[judged_part(parts)], (graph.labels < 0).nonzero().squeeze(-1))
    return torch.cat([sample_nodes(nodes, room // len(kinds), seed) for nodes in kinds]).sort().values


def made(choice: Choice, seed: int) -> Method:
    """A method, not fitted yet, with what is set for it and for what it stands on.

    Args:
        choice: What was chosen.
        seed: Of all of it.
    """
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
    progress: bool,
) -> tuple[Method, str]:
    """The method with the best of some trials; neither calibration nor test nodes are looked at."""
    kind = choice.kind
    names = [kind.components.kind.name] if kind.components is not None and kind.components.kind.search_space else []
    names += [choice.path] if kind.search_space else []
    if not names:
        raise MethodError(f"{kind.name} has nothing to tune: leave out tune")
    hidden = torch.cat([parts[name] for name in ("calibration", "test") if name in parts])
    task = Task.leave_out(graph, (), Split(parts["train"], parts["val"], hidden), name="graph")
    settings = {**choice.config, **choice.components}
    jobs = None if memory is None else _side_by_side(graph, memory)
    results = search(task, names, out=folder, trials=trials, settings=settings, jobs=jobs, progress=progress)
    best = {name: result.config for name, result in results.best["graph"].items()}
    components, config = dict(choice.components), dict(choice.config)
    if kind.components is not None:
        components.update(best.get(kind.components.kind.name, {}))
    config.update(best.get(kind.name, {}))
    texts = [f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in
             {**components, **config}.items()]  # fmt: skip
    return made(Choice(choice.path, config, components), seed), ", ".join(texts)


def _side_by_side(graph: Graph, memory: int) -> int:
    """How many trials, each in a process of its own, memory has room for; at the most one a core."""
    counts = range(1, processors() + 1)
    return max((count for count in counts if fits(graph, graph.num_classes, memory // count)), default=1)


@contextmanager
def _noted(tell: Callable[[str], None]) -> Iterator[list[str]]:
    """Warnings of this package as lines, each once, told as they come and kept; others stay as they are."""
    messages: list[str] = []
    before, show = list(warnings.filters), warnings.showwarning

    def note(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
        if category.__module__.startswith("credalgnn."):
            text = " ".join(str(message).split())
            if text not in messages:
                messages.append(text)
                tell(text)
            return
        with warnings.catch_warnings():
            warnings.filters[:], warnings.showwarning = before, show  # type: ignore[index]
            warnings.warn_explicit(message, category, filename, lineno)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        yield messages
