"""Graphs and files: named data sets, packed graphs, and the check of folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runtime.memory import in_units
from ..runtime.texts import one_line, printable
from .common import UserError, need, user_errors, warnings_as_lines


def datasets(*, mirror: Path | None = None, data_root: Path | None = None) -> None:
    """List the data sets that have a name, and whether they are on this disk.

    Args:
        mirror: folder with raw files in PyG's layout, searched first
        data_root: cache folder of graphs
    """
    from ..graphs import DATASETS, GraphError, dataset_names, find_dataset

    names = dataset_names()
    width = max(map(len, names))
    print(f"{'name':{width}s} {'nodes':>10s} {'edges':>11s} {'classes':>7s} {'homophily':>9s}  on disk")
    for name in names:
        try:
            dataset = find_dataset(name)
            size, place = dataset.summary(data_root), dataset.place(mirror, data_root)
        except GraphError as error:
            if name in DATASETS:  # the mirror is wrong; a plug-in that cannot be loaded must not hide the others
                raise UserError(error) from None
            print(f"{name:{width}s} cannot be loaded: {one_line(str(error))}")
            continue
        numbers = " " * 40
        if size is not None:
            share = size.homophily if isinstance(size.homophily, str) else f"{size.homophily:.2f}"
            numbers = f"{size.nodes:10,d} {size.edges:11,d} {size.classes:7d} {share:>9s}"
        print(f"{name:{width}s} {numbers}  {place:24s} {dataset.description}")
    print("\nGraphs that are not on disk are shown with published numbers; credalgnn describe NAME fetches them.")


def describe(
    name: str,
    *,
    ood_classes: Sequence[int | str] | None = None,
    split_seed: int = 0,
    mirror: Path | None = None,
    data_root: Path | None = None,
) -> None:
    """Describe a graph and its task, beside the paper's counts.

    Args:
        name: name of a data set, packed graph, file of Graph.save, folder with tables, or package.module:name
        ood_classes: classes to leave out, by number or name
        split_seed: public split, or seed of a random one
        mirror: folder with raw files in PyG's layout, searched first
        data_root: cache folder of graphs
    """
    with user_errors():
        _describe(name, ood_classes, split_seed, mirror, data_root)


def _describe(
    name: str, ood_classes: Sequence[int | str] | None, split_seed: int, mirror: Path | None, data_root: Path | None
) -> None:
    from ..graphs import find_dataset, load_graph, load_task, paper_table

    packed = find_dataset(name).source == f"packed: {name}"
    if packed and ood_classes is None:  # which names no classes
        graph = load_graph(name)
        size = sum(file.stat().st_size for file in Path(name).iterdir())
        print(printable(str(graph.describe())))
        print(f"{'on disk':15s} {in_units(size)}\n{'fingerprint':15s} {graph.fingerprint}")
        return
    task = load_task(name, split_seed, ood_classes, mirror=mirror, data_root=data_root)
    print(printable(str(task.graph.describe())))
    left_out = ", ".join(task.graph.class_names[k] for k in task.ood_classes) or "none"
    print(f"{'left out':15s} {printable(left_out)}\n{'fingerprint':15s} {task.fingerprint}\n")
    paper = next((row for row in paper_table() if row["dataset"] == name), None)
    ours = {
        "nodes": task.graph.num_nodes,
        "edges": task.graph.num_edges,
        "classes": task.graph.num_classes,
    } | task.counts
    print(f"{'':15s} {'here':>12s}" + (f"{'paper':>12s}" if paper else ""))
    for key, value in ours.items():
        print(f"{key:15s} {value:12,d}" + (f"{paper[key]:12,d}" if paper else ""))
    if paper and ours["edges"] != paper["edges"] == (pairs := task.graph.num_pairs):
        print(f"\nThe paper counts the edges of {name} as pairs of nodes, whatever their direction: {pairs:,}.")


def pack(nodes: Path, edges: Path, *, no_labels: bool = False, **options: Any) -> None:
    """Pack tables that need not fit into memory into a graph on disk.

    Tables of nodes and edges are CSV or Parquet files, or folders of such shards, taken in the order of their names. A
    packed graph is opened, not loaded: wherever a graph goes, its folder goes. If packing is stopped, the same command
    goes on.

    Args:
        nodes: file with a row per node, or a folder of such files
        edges: file with a row per edge, or a folder of such files
        no_labels: there are no labels
        out: folder to make, as in graph.cg
        id: column with ids of nodes
        label: column with classes
        features: columns with numbers, or a Parquet column of lists of numbers (default: all others)
        split: column of nodes with train, val, calibration or test, for credalgnn fit
        undirected: take each edge in both directions, once each
        dtype: float32 or float16, in which features are kept
        memory: memory budget, as 4GiB or 500MB (default: half of what is available)
    """
    need("pyarrow", "credalgnn pack")
    from ..graphs import pack
    from ..runtime.progress import stage_bars

    if no_labels:
        options["label"] = None
    with user_errors(), warnings_as_lines(), stage_bars() as progress:
        packed = pack(nodes, edges, **options, progress=progress)
    if not packed.seconds:
        print(f"{packed.path}: packed already from these tables; nothing to do")
    print(f"{'nodes':10s} {packed.nodes:,}\n{'edges':10s} {packed.edges:,}\n{'on disk':10s} {in_units(packed.bytes)}")
    if packed.seconds:
        each = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in packed.seconds.items())
        print(f"{'seconds':10s} {sum(packed.seconds.values()):.1f} ({each})")


def check(folder: Path, *, repair: bool = False) -> int:
    """Verify the files of results, a model, a saved method or cached graphs by their checksums.

    What is damaged, missing or foreign is listed; the exit code is 1 if there is any.

    Args:
        folder: folder of results, of a model (credalgnn fit), of a saved method or of cached graphs (--data-root), a
            packed graph, or a file of Graph.save
        repair: move damaged files into DIR/damaged, so that the command that made them makes them again
    """
    if not folder.exists():
        raise UserError(f"{folder}: no such folder")
    if any(folder.glob("**/tuning.journal")):
        need("optuna", "credalgnn check")
    with user_errors():
        from ..integrity import Check

        result = Check(folder)
        for finding in result.findings:
            reason = f": {finding.reason}" if finding.reason else ""
            print(f"{finding.kind:8s} {_line(finding.path)}{_line(reason)}")
        moved = result.repair() if repair else []
    counts = {kind: sum(each.kind == kind for each in result.wrong) for kind in ("damaged", "missing", "foreign")}
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count) or "all as they were written"
    print(f"{result.checked} files checked: {summary}")
    if moved:
        files = "1 file" if len(moved) == 1 else f"{len(moved)} files"
        print(f"{files} moved into {_line(folder / 'damaged')}: the command that made them makes them again")
    elif counts["damaged"] and not repair:
        print(f"credalgnn check --repair {_line(folder)} puts them aside; the command that made them makes them again")
    return 1 if result.wrong else 0


def _line(text: object) -> str:
    """Return a text out of files, or their names, that a terminal shows in one line and does not obey."""
    return printable(str(text)).replace("\n", "\\n")
