"""The tables that a person with a graph of their own would have, made from a graph that has a name.

    python examples/to_tables.py computers --out shop

    shop/nodes.csv, shop/edges.csv    what is there today; 6 in 10 nodes of known classes have a label
    shop/later/nodes.csv, edges.csv   a tenth of all nodes, which come next week, without labels; their edges lead to
                                      each other and to nodes of today
    shop/truth.csv                    the class of every node, to check with afterwards

The classes that the data set's task leaves out are the strangers: none of their nodes is labelled, today or later, and
only truth.csv knows them. Who is labelled and who comes later is drawn with --seed, whatever a node's class.
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

LATER = 0.1  # the share of nodes that come next week
LABELLED = 0.6  # of today's nodes of known classes, the share that somebody has labelled


def to_tables(name: str, folder: Path, format: str = "csv", seed: int = 0) -> str:
    """Write the tables; returns what they hold, in words.

    Args:
        name: Of a graph: see ``credalgnn datasets``.
        folder: Where to; made if it is not there.
        format: Of the tables, ``csv`` or ``parquet``; the truth is always CSV.
        seed: Of who is labelled and who comes later.
    """
    task = cg.load_task(name)
    graph = task.graph
    classes = np.array(graph.class_names, dtype=object)[graph.labels.numpy()]
    classes[graph.labels.numpy() < 0] = None
    strangers = np.isin(graph.labels.numpy(), task.ood_classes)
    rng = np.random.default_rng(seed)
    later = rng.random(graph.num_nodes) < LATER
    shown = np.where((rng.random(graph.num_nodes) < LABELLED) & ~strangers & ~later, classes, None)

    digits = len(str(graph.num_nodes - 1))
    ids = np.array([f"{name[0]}{number:0{digits}d}" for number in range(graph.num_nodes)], dtype=object)
    values = graph.features.to_dense().numpy()
    if (values == values.round()).all():
        values = values.astype(np.int64)  # shorter in a text file, and as people write them
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
    known = [name for name in graph.class_names if name not in set(classes[strangers])]
    return (
        f"{folder}: {int((~later).sum()):,} nodes and {int((~touches).sum()):,} edges today, "
        f"{len(names)} columns of features; {len(nodes) - nodes['label'].null_count:,} nodes labelled: "
        f"{', '.join(known)}\n"
        f"{folder / 'later'}: {int(later.sum()):,} nodes and {int(touches.sum()):,} edges next week\n"
        f"never labelled: {', '.join(sorted(set(classes[strangers])))} "
        f"({int((strangers & ~later).sum()):,} nodes today, {int((strangers & later).sum()):,} next week)"
    )


def _write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", help="of a graph: credalgnn datasets lists them")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the tables")
    parser.add_argument("--format", choices=["csv", "parquet"], default="csv", help="parquet is smaller (default: csv)")
    parser.add_argument("--seed", type=int, default=0, help="of who is labelled and who comes later (default: 0)")
    args = parser.parse_args()
    try:
        print(to_tables(args.name, args.out, args.format, args.seed))
    except (GraphError, OSError) as error:
        sys.exit(f"to_tables: {error}")


if __name__ == "__main__":
    main()
