"""Hostile and damaged input from outside: one line, exit code 2, before memory or time is spent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import credalgnn as cg
import fuzzing
from bombs import npy, zipped
from credalgnn.cli import main
from credalgnn.experiments.engines import EngineError
from credalgnn.experiments.storage import open_storage
from credalgnn.graphs import GraphError
from credalgnn.methods import MethodError
from credalgnn.records.schema import RecordError
from credalgnn.runtime.files import to_json
from credalgnn.runtime.reading import Unreadable, parse_json, read_npz, read_parquet
from credalgnn.runtime.texts import markdown, printable, without_credentials
from own_graphs import graph_of, write_tables
from searches import Instant, finish, search, small_task

Typed = Callable[..., str]


@pytest.fixture(scope="module")
def benched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "out"
    cg.benchmark("digits", ["vanilla", "degree"], seeds=1, settings={"epochs": 2}, out=out, jobs=1, progress=False)
    return out


@pytest.fixture
def results(benched: Path, tmp_path: Path) -> Path:
    shutil.copytree(benched, tmp_path / "results")
    return tmp_path / "results"


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Typed:
    """What a command says that is refused: one line, nothing on stdout, exit code 2."""

    def run(*words: object) -> str:
        assert main([str(word) for word in words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("credalgnn: ")
        assert err.count("\n") == 1
        assert len(err) < 1000
        return err

    return run


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Something that must not wait for what never comes."""

    def late(*_: object) -> None:
        raise AssertionError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def record_of(folder: Path, method: str = "vanilla") -> Path:
    return folder / "runs" / "digits" / method / "seed-000.json"


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_bytes())
    change(content)
    path.write_bytes(to_json(content, allow_nan=True))  # with the checksum that an attacker would make, too


# Records and other JSON ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested more than"),
        (lambda text: b"\xef\xbb\xbf" + text, "no JSON"),
        (lambda text: text.decode().encode("utf-16"), "not UTF-8"),
        (lambda text: text.replace(b'"vanilla"', b'"\\ud800"', 1), "surrogate"),
    ],
    ids=["deep", "BOM", "UTF-16", "surrogate"],
)
def test_a_record_that_is_no_plain_json_is_one_line(
    damage: Callable[[bytes], bytes], words: str, results: Path, refused: Typed
) -> None:
    path = record_of(results)
    path.write_bytes(damage(path.read_bytes()))
    said = refused("report", results)
    assert words in said
    assert str(path) in said


def test_json_is_read_to_a_depth_and_with_whole_characters() -> None:
    assert parse_json(b'{"a": ["\\ud83d\\ude00", 1e5]}') == {"a": ["\U0001f600", 1e5]}
    assert parse_json(b"[" * 64 + b"]" * 64)
    for content in (b"[" * 65 + b"]" * 65, b'["\\udc00"]', b"[1", b"\xff", b'"' + b"\xed\xa0\x80" + b'"'):
        with pytest.raises(Unreadable):
            parse_json(content)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_or_a_folder_in_place_of_a_file_is_refused_at_once(kind: str, results: Path, tmp_path: Path) -> None:
    task = small_task()
    cg.Vanilla(epochs=1).fit(task, progress=False).save(tmp_path / "method")
    write_tables(tmp_path / "tables", 40)
    graph_of(40).save(tmp_path / "graph.npz")
    assert finish([search(tmp_path / "tuned", trials=1)], Instant())
    reads: list[tuple[Path, Callable[[], object], type[Exception]]] = [
        (record_of(results), lambda: cg.load_results(results), RecordError),
        (results / "experiment.json", lambda: cg.load_results(results), RecordError),
        (tmp_path / "method" / "method.json", lambda: cg.load_method(tmp_path / "method"), MethodError),
        (tmp_path / "method" / "model.safetensors", lambda: cg.load_method(tmp_path / "method"), MethodError),
        (tmp_path / "graph.npz", lambda: cg.load_graph(tmp_path / "graph.npz"), GraphError),
        (tmp_path / "tables" / "nodes.csv", lambda: cg.load_graph(tmp_path / "tables"), GraphError),
        (tmp_path / "tuned" / "tuning.journal", lambda: open_storage(tmp_path / "tuned"), EngineError),
    ]
    for path, read, error in reads:
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.mkdir()
        with within(20), pytest.raises(error):
            read()
        path.unlink() if kind == "pipe" else path.rmdir()
        path.write_bytes(content)


# Parquet ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["node", "label", "ood", "score_msp", "p_0"])
@pytest.mark.parametrize("damage", ["nulls", "text"])
def test_nulls_or_text_where_numbers_belong_are_one_line(
    column: str, damage: str, results: Path, refused: Typed
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = results / "nodes" / "digits" / "vanilla" / "seed-000.parquet"
    table = pq.read_table(path)
    place = table.column_names.index(column)
    values = table[column].to_pylist()
    other = [None, *values[1:]] if damage == "nulls" else [str(value) for value in values]
    kind = table[column].type if damage == "nulls" else pa.string()
    pq.write_table(table.set_column(place, column, pa.array(other, kind)), path)
    fuzzing.reseal_predictions(results)
    said = refused("report", results)
    assert column in said
    assert str(path) in said


# npz ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (npy("(281474976710656,)"), "bytes are no array"),
        (npy("(-1,)"), "bytes are no array"),
        (npy("(4,)", b"abcd", "|S1"), "only numbers and texts"),
        (npy("(1,)", bytes(16), "|V16"), "only numbers and texts"),
        (npy("(1,)", bytes(8), "|O"), "only numbers and texts"),
        (npy("(1,)", bytes(16), "<c16"), "only numbers and texts"),
        (npy("(1,)", b"\x02", "|b1"), "truth value"),
        (npy("(1,)", (0xD800).to_bytes(4, "little"), "<U1"), "no character"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 60_000, "no header"),
    ],
)
def test_arrays_that_are_not_what_they_say_are_refused(member: bytes, words: str, tmp_path: Path) -> None:
    path = zipped(tmp_path / "graph.npz", edge_index=member)
    with pytest.raises(GraphError, match=words):
        cg.load_graph(path)


def test_what_numpy_writes_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.normal(size=(3, 4)), "b": np.asfortranarray(rng.integers(9, size=(5, 2))), "c": np.array(7),
        "d": np.array(["x", "ünï"]), "e": np.zeros((0, 3), np.float32), "f": rng.normal(size=4).astype(">f4"),
        "g": np.array([True, False]), "h": np.array([], dtype="U1"),
    }  # fmt: skip
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        found = read_npz(tmp_path / "x.npz")
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype.isnative


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    script = Path(__file__).with_name("bombs.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path_factory.mktemp("bombs")], capture_output=True, text=True, check=True
    )
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deep.json", "RecordError: .*nested more than"),
        ("claim.npz", "GraphError: .* bytes are no array of shape"),
        ("bomb.npz", "GraphError: .* claim to unpack to .* numpy.savez"),
        ("zeros.npz", "read"),  # twenty megabytes of zeros, and a graph
        ("bomb.csv.gz", "GraphError: .* unpacks to far more"),
        ("rows.parquet", "GraphError: .* claim to hold"),
        ("texts.parquet", "GraphError: .* texts are far longer"),
        ("claim.pt", "GraphError: .* claims the shape"),
    ],
)
def test_no_file_takes_more_than_its_size_justifies(bombs: dict[str, list[Any]], name: str, words: str) -> None:
    import re

    size, seconds, grown, said = bombs[name]
    assert size < 2 << 20
    assert re.match(words, said), said
    assert seconds < 20
    assert grown < 100


@pytest.mark.parametrize("long", [False, True])
def test_texts_of_large_tables_are_read_in_parts(long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a text might stand in every row: all of them if they do not, and no more than allowed if they do."""
    monkeypatch.setattr("credalgnn.runtime.reading.ALWAYS", 1 << 16)
    ids = [f"node-{number}" for number in np.random.default_rng(0).permutation(20_000)]
    texts = ids + ["x" * 500] * 500_000 * long
    pq.write_table(pa.table({"id": texts}), tmp_path / "t.parquet", row_group_size=20_000)
    monkeypatch.setattr("credalgnn.runtime.reading.RATIO", 1000)
    asked = []
    real = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *words, **more: asked.append(1) or real(*words, **more))
    if long:
        with pytest.raises(Unreadable, match="lists or texts are far longer"):
            read_parquet(tmp_path / "t.parquet")
    else:
        assert read_parquet(tmp_path / "t.parquet")["id"].to_pylist() == ids
    assert asked


# Models -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("layers", 10_000_000), ("layers", 100_000), ("hidden", 10**9), ("hidden", 1_000_000), ("layers", 10**400)],
)
def test_sizes_in_a_method_are_bounded_before_anything_is_built(name: str, value: int, tmp_path: Path) -> None:
    cg.Vanilla(epochs=1).fit(small_task(), progress=False).save(tmp_path)
    edit(tmp_path / "method.json", lambda content: content["config"].update({name: value}))
    with within(10), pytest.raises(MethodError):
        cg.load_method(tmp_path)


def test_the_range_of_features_belongs_to_the_number_of_features(tmp_path: Path) -> None:
    cg.Vanilla(epochs=1).fit(small_task(), progress=False).save(tmp_path)
    edit(tmp_path / "method.json", lambda content: content.update(num_features=10**12))
    with within(10), pytest.raises(MethodError):
        cg.load_method(tmp_path)


def test_sparse_features_that_point_outside_are_refused(tmp_path: Path) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        starts, columns = torch.tensor([0, 1, 2]), torch.tensor([0, 10**9])
        x = torch.sparse_csr_tensor(starts, columns, torch.ones(2), (2, 3), check_invariants=False)
    with pytest.raises(GraphError, match="no sparse matrix"):
        cg.Graph(x, torch.tensor([[0], [1]]))


# The journal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        {"op_code": 99, "worker_id": "x"},
        {"op_code": 8, "worker_id": "x", "trial_id": 1, "user_attr": {"seed": "x"}},
        {"op_code": 8, "worker_id": "x", "trial_id": 1, "user_attr": {"owner": 7}},
        {"op_code": 6, "worker_id": "x", "trial_id": 1, "state": 77, "values": None},
        [],
    ],
)
def test_unknown_operations_in_a_journal_are_one_line(line: Any, tmp_path: Path) -> None:
    one = search(tmp_path, trials=2)
    one.next_trials(2)
    journal = tmp_path / "tuning.journal"
    journal.write_bytes(journal.read_bytes() + json.dumps(line).encode() + b"\n")
    with pytest.raises(EngineError, match="damaged, and not by a kill"):
        open_storage(tmp_path)


# Options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["-" * 50_000 + "1", "[" * 50_000, "(" * 900, "{1:" * 300, "9" * 900])
def test_what_a_parser_chokes_on_is_one_line(value: str, tmp_path: Path, refused: Typed) -> None:
    with within(30):
        refused("bench", "-d", "digits", "-m", "vanilla", "--out", tmp_path / "out", "--set", f"lr={value}")


def test_passwords_are_never_shown(tmp_path: Path, refused: Typed) -> None:
    for url in (
        "postgresql://me:s3cret@127.0.0.1:1/db",
        "nosuch://me:s3cret@host/db?sslpassword=s3cret",
        "mysql://me:s3c%72et/s3cret@host",
    ):
        out = tmp_path / "out"
        said = refused("tune", "-d", "digits", "-m", "vanilla", "--trials", 1, "--out", out, "--storage", url)
        assert "--storage" in said
        assert "s3" not in said
        assert not [path for path in out.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
    assert (
        without_credentials("see https://token@host/a and https://host/b")
        == "see https://***@host/a and https://host/b"
    )


# Links --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    ["runs", "nodes/digits", "models", ".locks", "runs/digits/degree/seed-000.json", ".lock", "experiment.json"],
)
def test_links_inside_a_folder_of_results_are_refused(
    place: str, results: Path, tmp_path: Path, refused: Typed
) -> None:
    outside, link = tmp_path / "outside", results / place
    if link.exists():
        link.rename(outside)
    else:
        outside.mkdir()
    link.symlink_to(outside)
    before = sorted(outside.rglob("*"))
    said = refused("bench", "-d", "digits", "-m", "vanilla", "--seeds", 2, "--set", "epochs=2", "--out", results)
    assert "a link" in said
    assert place.split("/")[-1] in said
    assert sorted(outside.rglob("*")) == before


def test_the_folder_itself_may_be_a_link(tmp_path: Path, results: Path) -> None:
    (tmp_path / "link").symlink_to(results)
    words = ["bench", "-d", "digits", "-m", "vanilla", "--seeds", "1", "--set", "epochs=2", "--jobs", "1"]
    assert main([*words, "--out", str(tmp_path / "link")]) == 0


# Texts of others ----------------------------------------------------------------------------------------------------


def test_texts_of_a_record_reach_no_table_as_commands(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "<img src=x onerror=alert(1)> [a](javascript:b) \\input{x} \x1b[2J"

    def change(content: dict[str, Any]) -> None:
        content["marks"] = [evil]
        content["class_names"][0] = evil
        content["scores"][evil] = content["scores"]["msp"]
        content["curves"]["roc"][evil] = content["curves"]["roc"]["msp"]

    edit(record_of(results), change)
    assert main(["report", str(results)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    table, tex = (results / "table.md").read_text(), (results / "table.tex").read_text()
    for text in (table, tex, (results / "report.html").read_text()):
        assert "\x1b[2J" not in text
    assert "<img" not in table
    assert "[a](" not in table
    assert "<img" not in (results / "report.html").read_text()
    assert "\\input{" not in tex


def test_texts_are_shown_as_they_are() -> None:
    assert printable("a\x1b[31m\tb\n\u202e") == "a\\x1b[31m\tb\n\\u202e"
    assert markdown("a|b\n<i> & `c`") == "a\\|b &lt;i&gt; &amp; \\`c\\`"


# Every kind of file -------------------------------------------------------------------------------------------------

SAMPLE = ("record", "method.json", "Graph.save", "nodes.csv")


def test_damaged_files(tmp_path: Path) -> None:
    """A sample of what test_slow_fuzz does a thousand times, with every kind of file."""
    counts = fuzzing.run(SAMPLE, 8, tmp_path)
    assert {name: one["other"] for name, one in counts.items() if one["other"]} == {}
    assert all(one["refused"] for one in counts.values())
