"""The tables of ``examples/to_tables.py``, held against the graph that they were made from."""

from __future__ import annotations

import importlib.util
import math
from collections import Counter
from pathlib import Path
from types import ModuleType

import pandas as pd
import pyarrow.parquet
import pytest

import credalgnn as cg

SCRIPT = Path(__file__).parents[1] / "examples" / "to_tables.py"
FILES = ("nodes.csv", "edges.csv", "later/nodes.csv", "later/edges.csv", "truth.csv")


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("to_tables", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


SCRIPT_MODULE = load_script()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    SCRIPT_MODULE.to_tables("digits", folder)
    return folder


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, pd.DataFrame]:
    return {name: pd.read_csv(folder / name, dtype={"id": str, "label": str}) for name in FILES}


def pairs(table: pd.DataFrame) -> Counter[tuple[str, str]]:
    return Counter(zip(table["source"], table["target"], strict=True))


def test_every_node_comes_today_or_later_with_its_features(tables: dict[str, pd.DataFrame]) -> None:
    graph = cg.load_graph("digits")
    today, later, truth = tables["nodes.csv"], tables["later/nodes.csv"], tables["truth.csv"]
    assert not set(today["id"]) & set(later["id"])
    assert set(today["id"]) | set(later["id"]) == set(truth["id"])
    assert truth["label"].tolist() == [graph.class_names[k] for k in graph.labels.tolist()]
    both = pd.concat([today.drop(columns="label"), later]).set_index("id").loc[truth["id"]]
    assert (both.to_numpy() == graph.features.numpy()).all()
    spread = math.sqrt(len(truth) * 0.1 * 0.9)
    assert abs(len(later) - 0.1 * len(truth)) < 4 * spread


def test_labels_are_true_and_strangers_have_none(tables: dict[str, pd.DataFrame]) -> None:
    merged = tables["nodes.csv"][["id", "label"]].merge(tables["truth.csv"], on="id", suffixes=("", "_true"))
    labelled, known = merged[merged["label"].notna()], merged[~merged["label_true"].isin(["8", "9"])]
    assert (labelled["label"] == labelled["label_true"]).all()
    assert set(labelled["label"]) == set("01234567")
    assert abs(len(labelled) - 0.6 * len(known)) < 4 * math.sqrt(len(known) * 0.6 * 0.4)
    assert "label" not in tables["later/nodes.csv"]


def test_no_edge_is_lost_and_none_of_today_knows_tomorrow(tables: dict[str, pd.DataFrame]) -> None:
    graph, ids = cg.load_graph("digits"), tables["truth.csv"]["id"].tolist()
    expected = Counter((ids[a], ids[b]) for a, b in graph.edge_index.T.tolist())
    today, later = pairs(tables["edges.csv"]), pairs(tables["later/edges.csv"])
    assert today + later == expected
    new = set(tables["later/nodes.csv"]["id"])
    assert not any(a in new or b in new for a, b in today)
    assert all(a in new or b in new for a, b in later)
    assert any((a in new) != (b in new) for a, b in later)  # they hang on nodes of today


def test_the_seed_decides_and_parquet_holds_the_same(folder: Path, tmp_path: Path) -> None:
    SCRIPT_MODULE.to_tables("digits", tmp_path / "again", seed=0)
    SCRIPT_MODULE.to_tables("digits", tmp_path / "other", seed=1)
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    assert (tmp_path / "other" / "nodes.csv").read_bytes() != (folder / "nodes.csv").read_bytes()
    SCRIPT_MODULE.to_tables("digits", tmp_path / "wide", format="parquet")
    for name in ("nodes", "later/edges"):
        stored = pyarrow.parquet.read_table(tmp_path / "wide" / f"{name}.parquet").to_pandas()
        text = pd.read_csv(folder / f"{name}.csv", dtype={"label": str})
        assert stored.fillna("").to_dict("list") == text.fillna("").to_dict("list")


def test_an_unknown_name_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["to_tables.py", "nobody", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"to_tables: there is no data set 'nobody'"):
        SCRIPT_MODULE.main()
    assert not (tmp_path / "out").exists()
