"""Tables of nodes and edges, as a user's own graph would have them, made from a data set.

    python examples/to_tables.py computers --out shop

    shop/nodes.csv, shop/edges.csv    of today; 6 in 10 nodes of known classes have a label
    shop/later/nodes.csv, edges.csv   of next week: a tenth of all nodes, without labels; their edges lead to each
                                      other and to nodes of today
    shop/truth.csv                    the class of every node, to evaluate with

The classes that the data set's task leaves out are unknown: none of their nodes is labelled, and only truth.csv has
their classes. Labelled nodes and nodes of next week are drawn with --seed, independently of the class.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import credalgnn as cg
from credalgnn.graphs import GraphError

LATER = 0.1  # share of the nodes of next week
LABELLED = 0.6  # share of the labelled nodes among today's nodes of known classes


def to_tables(name: str, folder: Path, format: str = "csv", seed: int = 0) -> str:
    """Write the tables and return a description of them.

    Args:
        name: Name of a data set: see ``credalgnn datasets``.
        folder: Folder of the tables, created if missing.
        format: Format of the tables, ``csv`` or ``parquet``; truth.csv is always CSV.
        seed: Seed of the labelled nodes and of those of next week.
    """
    task = cg.load_task(name)
    graph = task.graph
    classes = np.array(graph.class_names, dtype=object)[graph.labels.numpy()]
    classes[graph.labels.numpy() < 0] = None
    unknown = np.isin(graph.labels.numpy(), task.ood_classes)
    rng = np.random.default_rng(seed)
    later = rng.random(graph.num_nodes) < LATER
    shown = np.where((rng.random(graph.num_nodes) < LABELLED) & ~unknown & ~later, classes, None)

    digits = len(str(graph.num_nodes - 1))
    ids = np.array([f"{name[0]}{number:0{digits}d}" for number in range(graph.num_nodes)], dtype=object)
    values = graph.features.to_dense().numpy()
    if (values == values.round()).all():
        values = values.astype(np.int64)  # shorter in a text file
    names = graph.feature_names or [f"x{k:0{len(str(values.shape[1] - 1))}d}" for k in range(values.shape[1])]
    columns = {"id": ids, "label": pa.array(shown, pa.string()), **dict(zip(names, values.T, strict=True))}
    nodes = pa.table(columns)
    source, target = graph.edge_index.numpy()
    edges = pa.table({"source": ids[source], "target": ids[target]})
    touches = later[source] | later[target]

    (folder / "later").mkdir(parents=True, exist_ok=True)
    _write(nodes.filter(pa.array(~later)), folder / f"nodes.{format}")
    _write(edges.filter(pa.array(~touches)), folder / f"edges.{format}")
    _write(nodes.filter(pa.array(later)).drop_columns("label"), folder / "later" / f"nodes.{format}")
    _write(edges.filter(pa.array(touches)), folder / "later" / f"edges.{format}")
    _write(pa.table({"id": ids, "label": pa.array(classes, pa.string())}), folder / "truth.csv")
    known = [name for name in graph.class_names if name not in set(classes[unknown])]
    return (
        f"{folder}: {int((~later).sum()):,} nodes and {int((~touches).sum()):,} edges today, "
        f"{len(names)} columns of features; {len(nodes) - nodes['label'].null_count:,} nodes labelled: "
        f"{', '.join(known)}\n"
        f"{folder / 'later'}: {int(later.sum()):,} nodes and {int(touches.sum()):,} edges next week\n"
        f"never labelled: {', '.join(sorted(set(classes[unknown])))} "
        f"({int((unknown & ~later).sum()):,} nodes today, {int((unknown & later).sum()):,} next week)"
    )


def _write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", help="name of a data set: credalgnn datasets lists them")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the tables")
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv", help="parquet is smaller (default: csv)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all that is drawn (default: 0)")
    args = parser.parse_args()
    try:
        print(to_tables(args.name, args.out, args.format, args.seed))
    except (GraphError, OSError) as error:
        sys.exit(f"to_tables: {error}")


if __name__ == "__main__":
    main()
