"""Nothing changes unnoticed: whatever is written, one digit or byte of it changed, and what is done about it."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import credalgnn as cg
from credalgnn.cli import main
from credalgnn.experiments import runner
from credalgnn.experiments.best import read_best
from credalgnn.experiments.engines import EngineError
from credalgnn.experiments.storage import open_storage
from credalgnn.graphs import Graph, GraphError, Task, csbm, load_graph, load_task
from credalgnn.graphs.storage import read_arrays
from credalgnn.integrity import Check
from credalgnn.methods import MethodError, load_method
from credalgnn.model.watching import watch
from credalgnn.records.folder import read_nodes
from credalgnn.records.schema import RecordError, read_json, read_record
from credalgnn.runtime.files import BLANK, seal, sealed_with, to_json
from inline import Inline
from raw_files import write_reddit

FLIPS = 40  # digits, and as many bytes, of each kind of file
METHODS = ["vanilla", "energy", "degree"]
REFUSED = (RecordError, MethodError, GraphError, EngineError)

pytestmark = pytest.mark.filterwarnings("ignore::credalgnn.CredalWarning")


def task() -> Task:
    return Task.leave_out(with_ids(200, 0), [0], name="small")


def with_ids(nodes: int, seed: int) -> Graph:
    """A graph whose nodes have ids, no one of which another such graph has."""
    graph = csbm(nodes=nodes, classes=4, degree=6, features=8, signal=1.0, seed=seed)
    return graph.replace(node_ids=np.arange(nodes) + 1000 * seed)


def bench(out: Path) -> cg.Results:
    settings = {"epochs": 3, "hidden": 8}
    return cg.benchmark(task(), METHODS, seeds=2, out=out, settings=settings, predictions="all", progress=False)


def inline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runner, "make_engine", lambda name, address, jobs, source, models: Inline(source, models))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of everything that the package writes, by the calls that write it."""
    root = tmp_path_factory.mktemp("made")
    graph = task().graph
    with pytest.MonkeyPatch.context() as patch:
        inline(patch)
        bench(root / "results")
        cg.tune(task(), "vanilla", out=root / "tuning", trials=3, settings={"epochs": 2}, progress=False)
    cg.Vanilla(epochs=3, hidden=8).fit(task()).save(root / "method")
    settings = {"epochs": 3, "hidden": 8}
    model = cg.fit(graph, method="vanilla", settings=settings, out=root / "model", progress=False)
    watch(model, root / "model", with_ids(100, 1))
    graph.save(root / "graph.npz")
    write_reddit(root / "mirror")
    cg.load_graph("reddit2", mirror=root / "mirror", data_root=root / "cache")
    return root


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def named(path: Path) -> bytes:
    """Predictions as the record of their run names them."""
    run = Path(str(path).replace("/nodes/", "/runs/")).with_suffix(".json")
    return read_nodes(path, read_record(run)["predictions"])


KINDS: dict[str, Callable[[Path], Any]] = {
    "results/runs/small/vanilla/seed-001.json": read_record,
    "results/experiment.json": lambda path: read_json(path, "an experiment"),
    "results/nodes/small/vanilla/seed-000.parquet": named,
    "results/nodes/small/graph.parquet": read_nodes,
    "tuning/tuning.journal": lambda path: open_storage(path.parent),
    "tuning/best.json": lambda path: read_best(path.parent),
    "method/method.json": lambda path: load_method(path.parent),
    "method/model.safetensors": lambda path: load_method(path.parent),
    "model/model.json": lambda path: cg.load_model(path.parent),
    "model/method.json": lambda path: cg.load_model(path.parent),
    "model/model.safetensors": lambda path: cg.load_model(path.parent),
    "model/parts.safetensors": lambda path: cg.load_model(path.parent),
    "model/watch.safetensors": lambda path: found(path.parent),
    "graph.npz": load_graph,
    "cache/reddit2/graph.npz": lambda path: read_arrays(path, sealed=True),
}


def found(folder: Path) -> None:
    """What is not read back is verified by ``check`` alone."""
    if Check(folder).wrong:
        raise RecordError("damaged")


def flipped(content: bytes, seed: int) -> Iterator[bytes]:
    """One digit replaced by another, or one bit turned; but for the last byte, whose loss a kill may explain."""
    rng = random.Random(seed)
    digits = [place for place, byte in enumerate(content[:-1]) if 48 <= byte <= 57]
    for place in rng.sample(digits, min(FLIPS, len(digits))):
        other = rng.choice([digit for digit in range(48, 58) if digit != content[place]])
        yield content[:place] + bytes([other]) + content[place + 1 :]
    for _ in range(2 * FLIPS - min(FLIPS, len(digits))):
        place = rng.randrange(len(content) - 1)
        yield content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


@pytest.mark.parametrize("kind", KINDS)
def test_no_digit_and_no_bit_changes_unnoticed(kind: str, copy: Path) -> None:
    path, read = copy / kind, KINDS[kind]
    read(path)
    accepted, tried = [], 0
    for content in flipped(path.read_bytes(), 0):
        path.write_bytes(content)
        tried += 1
        try:
            read(path)
            accepted.append(content)
        except REFUSED:
            pass
    assert (len(accepted), tried) == (0, 2 * FLIPS)


def test_every_byte_of_a_graph_s_directory_counts(copy: Path) -> None:
    """Dates, attributes and other bytes that no reader of zip archives looks at, too."""
    path = copy / "graph.npz"
    with zipfile.ZipFile(path) as archive:
        begin = archive.start_dir
    content = path.read_bytes()
    for place in range(begin, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(GraphError, match=r"graph\.npz"):
            load_graph(path)


def test_arrays_of_a_graph_cannot_be_changed_removed_or_added(copy: Path) -> None:
    """The archive is whole and its own sums are right, but it is not the one that was saved."""
    path = copy / "graph.npz"
    with np.load(path) as file:
        arrays = dict(file)
    labels = arrays["labels"].copy()
    labels[3] = (labels[3] + 1) % 4
    for changed in (
        {**arrays, "labels": labels},
        {name: array for name, array in arrays.items() if name != "class_names"},
        {**arrays, "edge_weight": np.ones(arrays["edge_index"].shape[1], np.float32)},
        arrays,  # the same, without the checksum
    ):
        np.savez(path, **changed)
        with pytest.raises(GraphError, match="checksum does not fit; save the graph again"):
            load_graph(path)


def test_a_graph_that_another_program_made_needs_no_checksum(copy: Path) -> None:
    path = copy / "graph.npz"
    graph = load_graph(path)
    with np.load(path) as file:
        np.savez(path, **{**file, "format": np.array(1)})
    assert load_graph(path).fingerprint == graph.fingerprint


def test_weights_and_their_description_belong_together(copy: Path) -> None:
    cg.Vanilla(epochs=3, hidden=8, seed=1).fit(task()).save(copy / "other")
    for name in ("method.json", "model.safetensors"):
        mixed = Path(shutil.copytree(copy / "method", copy / f"mixed {name}"))
        shutil.copy(copy / "other" / name, mixed / name)
        with pytest.raises(MethodError, match="of another save"):
            load_method(mixed)


def test_predictions_of_another_seed_are_not_taken_for_these(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = copy / "results" / "nodes" / "small" / "vanilla"
    shutil.copy(nodes / "seed-001.parquet", nodes / "seed-000.parquet")
    assert main(["report", str(copy / "results")]) == 2
    assert "not the predictions that the record of this run names" in capsys.readouterr().err


# ---- records


def test_a_record_that_a_person_changes_is_refused_and_can_be_marked(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / "results" / "runs" / "small" / "vanilla" / "seed-000.json"
    record = json.loads(path.read_text())
    record["metrics"]["accuracy"] = 0.5
    path.write_text(json.dumps(record))
    assert main(["report", str(copy / "results")]) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert 'replace its checksum by "edited": "why"' in error
    assert len(error.splitlines()) == 1
    del record["checksum"]
    for reasons in ("", 7):
        path.write_text(json.dumps({**record, "edited": reasons}))
        assert main(["report", str(copy / "results")]) == 2
        assert "edited is missing or wrong" in capsys.readouterr().err
    path.write_text(json.dumps({**record, "edited": "the label of node 7 was wrong"}, indent=4))
    assert main(["report", str(copy / "results")]) == 0
    assert "E: was edited" in capsys.readouterr().out
    assert "its record was changed by hand" in (copy / "results" / "report.html").read_text()
    assert main(["check", str(copy / "results")]) == 0
    assert "edited   " in (listed := capsys.readouterr().out)
    assert "the label of node 7 was wrong" in listed


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("scores", "msp", "auroc"), 1.5), (("scores", "msp", "aupr"), -0.1), (("metrics", "accuracy"), 1.01),
        (("metrics", "nll"), -0.5), (("metrics", "brier"), 2.5), (("seconds", "fit"), -1.0), (("peak_mib",), -5.0),
        (("counts", "test_id"), -3), (("counts", "test_id"), 2.5), (("seed",), -1),
        (("curves", "histogram", "msp", "id", 0), -1), (("curves", "rejection", "msp", 0), 1.2),
        (("curves", "training", 0, 0), -1),
    ],
    ids=str,
)  # fmt: skip
def test_numbers_that_cannot_be_are_refused_whoever_vouches_for_them(
    place: tuple[Any, ...], value: float, copy: Path
) -> None:
    path = copy / "results" / "runs" / "small" / "vanilla" / "seed-000.json"
    record = json.loads(path.read_text())
    inner = record
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_bytes(to_json(record))
    with pytest.raises(RecordError, match=f"{place[0]} is missing or wrong"):
        read_record(path)


# ---- the journal


def test_a_value_in_the_journal_cannot_replace_the_best(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy / "tuning" / "tuning.journal"
    lines = path.read_bytes().splitlines(keepends=True)
    number = next(k for k, line in enumerate(lines) if b'"values":[' in line)
    log = json.loads(lines[number])
    log["values"] = [0.999999]
    forged = json.dumps(log, separators=(",", ":")).encode() + b"\n"
    for name, changed in {
        "changed": [*lines[:number], forged, *lines[number + 1 :]],
        "removed": [*lines[:number], *lines[number + 1 :]],
        "swapped": [*lines[: number - 1], lines[number], lines[number - 1], *lines[number + 1 :]],
        "doubled": [*lines[:number], lines[number], *lines[number:]],
    }.items():
        path.write_bytes(b"".join(changed))
        with pytest.raises(EngineError, match="damaged, and not by a kill"):
            open_storage(copy / "tuning")
        assert main(["check", str(copy / "tuning")]) == 1, name
        assert f"damaged  {path}: damaged after" in capsys.readouterr().out


def test_what_is_whole_of_a_journal_is_kept(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inline(monkeypatch)
    path = copy / "tuning" / "tuning.journal"
    content = path.read_bytes()
    place = len(content) * 2 // 3
    path.write_bytes(content[:place] + b"#" + content[place + 1 :])
    before = read_best(copy / "tuning")["best"]
    assert main(["check", "--repair", str(copy / "tuning")]) == 1
    assert content.startswith(path.read_bytes())
    assert 0 < path.stat().st_size < place
    assert (copy / "tuning" / "damaged" / "tuning.journal").stat().st_size == len(content)
    cg.tune(task(), "vanilla", out=copy / "tuning", trials=3, settings={"epochs": 2}, progress=False)
    assert read_best(copy / "tuning")["best"] == before  # trials are repeated, and choose the same
    capsys.readouterr()
    assert main(["check", str(copy / "tuning")]) == 0


# ---- credalgnn check


def test_whole_folders_are_whole(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("results", "tuning", "method", "model", "cache", "cache/reddit2", "graph.npz"):
        assert main(["check", str(made / name)]) == 0, capsys.readouterr().out
        assert "files checked: all as they were written" in capsys.readouterr().out


def test_a_folder_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt", tmp_path / "nowhere"):
        assert main(["check", str(place)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("kind", KINDS)
def test_damage_of_every_kind_is_listed_and_put_aside(
    kind: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, path = copy / kind.split("/")[0], copy / kind
    content = path.read_bytes()
    place = len(content) // 2
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    spoilt = path.read_bytes()
    assert main(["check", str(folder)]) == 1
    assert "damaged  " in capsys.readouterr().out
    assert path.read_bytes() == spoilt
    assert main(["check", "--repair", str(folder)]) == 1
    assert "the command that made them makes them again" in capsys.readouterr().out
    root = folder if folder.is_dir() else copy
    assert (root / "damaged" / path.relative_to(root)).read_bytes() == spoilt
    assert not path.exists() or path.name == "tuning.journal"


def test_what_is_missing_or_foreign_is_listed(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = copy / "results"
    gone = results / "nodes" / "small" / "vanilla" / "seed-000.parquet"
    gone.unlink()
    (results / "notes.txt").write_text("mine")
    stray = results / "nodes" / "small" / "energy" / "seed-007.parquet"
    shutil.copy(results / "nodes" / "small" / "energy" / "seed-000.parquet", stray)
    assert main(["check", str(results)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split(":")[0] for line in lines[:-1]) == sorted(
        [f"foreign  {results / 'notes.txt'}", f"foreign  {stray}", f"missing  {gone}"]
    )
    assert lines[-1].endswith("1 missing, 2 foreign")
    (copy / "model" / "parts.safetensors").unlink()
    assert main(["check", str(copy / "model")]) == 1
    assert f"missing  {copy / 'model' / 'parts.safetensors'}" in capsys.readouterr().out


def test_names_and_texts_of_files_do_not_reach_the_terminal_as_commands(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = copy / "results"
    path = results / "runs" / "small" / "vanilla" / "seed-000.json"
    record = json.loads(path.read_text())
    del record["checksum"]
    path.write_text(json.dumps({**record, "edited": "why \x1b[2J\nfake"}))
    (results / "notes\x1b]0;title\x07\nfake.txt").write_text("mine")
    misplaced = results / "runs" / "small" / "vanilla" / "seed-001.json"
    misplaced.write_bytes(to_json({**json.loads(misplaced.read_text()), "dataset": "\x1b[31mred"}))
    for words in (["check"], ["check", "--repair"]):
        main([*words, str(results)])
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        assert "\nfake" not in captured.out + captured.err
        assert r"\x1b[2J" in captured.out
        assert r"notes\x1b]0;title\x07\nfake.txt" in captured.out
    main(["check", str(results / "notes\x1b]0;title\x07\nfake.txt")])
    assert "\x1b" not in capsys.readouterr().err


def numbers(folder: Path) -> dict[str, Any]:
    """What time does not change of all records, and the predictions beside them."""
    plain = ("metrics", "scores", "curves", "config", "predictions")
    records = {path: read_record(path) for path in sorted(folder.glob("runs/*/*/*.json"))}
    tables = {str(path.relative_to(folder)): named(path) for path in folder.glob("nodes/*/*/*.parquet")}
    return {str(path.relative_to(folder)): [one[name] for name in plain] for path, one in records.items()} | tables


def test_a_repaired_folder_gets_the_same_numbers_again(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inline(monkeypatch)
    results, before = copy / "results", numbers(copy / "results")
    for name in (
        "runs/small/vanilla/seed-000.json", "nodes/small/energy/seed-001.parquet", "nodes/small/graph.parquet",
        "experiment.json",
    ):  # fmt: skip
        content = (results / name).read_bytes()
        (results / name).write_bytes(content.replace(b"0", b"1", 1) if b"0" in content else content + b"0")
    (results / "runs" / "small" / "degree" / "seed-001.json").write_bytes(b"")
    with pytest.raises(RecordError):
        bench(results)
    assert main(["check", "--repair", str(results)]) == 1
    assert main(["check", "--repair", str(results)]) == 1  # some is missing now
    bench(results)
    assert numbers(results) == before
    capsys.readouterr()
    assert main(["check", str(results)]) == 0, capsys.readouterr().out


def test_nothing_is_put_aside_while_somebody_works_there(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from credalgnn.records.folder import Folder

    path = copy / "results" / "nodes" / "small" / "graph.parquet"
    path.write_bytes(b"half")
    with Folder(copy / "results").occupied():
        assert main(["check", "--repair", str(copy / "results")]) == 2
    assert "another command works here" in capsys.readouterr().err
    assert path.read_bytes() == b"half"


# ---- cached graphs


def test_a_damaged_cache_heals_and_says_so(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever byte is wrong, also of the directory, where an array was removed, or of an older version."""
    path = copy / "cache" / "reddit2" / "graph.npz"
    content = path.read_bytes()
    place = {"mirror": copy / "mirror", "data_root": copy / "cache"}
    whole = load_task("reddit2", **place)
    assert capsys.readouterr().err == ""
    with zipfile.ZipFile(path) as archive:
        begin = archive.start_dir
    with np.load(path) as file:
        arrays = {name: array for name, array in file.items() if name != "roles"}
    spoilt = [
        content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]
        for at in (0, 300, *range(begin, len(content), 40))
    ]
    np.savez(path, **arrays)
    spoilt.append(path.read_bytes())  # another split would be drawn
    np.savez(path, **{**arrays, "format": np.array(1)})
    spoilt.append(path.read_bytes())
    for bad in spoilt:
        path.write_bytes(bad)
        assert load_task("reddit2", **place).fingerprint == whole.fingerprint
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert str(path) in error
        assert "made anew from the raw files" in error
        assert load_task("reddit2", data_root=copy / "cache").fingerprint == whole.fingerprint


# ---- durable


def test_files_are_on_the_disk_before_they_have_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that a command announces: its content first, then its name, then the folder that holds the name."""
    inline(monkeypatch)
    calls: list[tuple[str, str]] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        calls.append(("sync", os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    def renamed(source: Any, target: Any, **options: Any) -> None:
        calls.append((os.path.abspath(source), os.path.abspath(target)))
        replace(source, target, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", renamed)
    graph = task().graph
    settings = {"epochs": 2, "hidden": 8}
    model = cg.fit(graph, method="vanilla", settings=settings, out=tmp_path / "new" / "model", progress=False)
    watch(model, tmp_path / "new" / "model", with_ids(100, 1))
    for name in ("predictions.csv", "predictions.parquet"):
        model.predict().to_table()
        from credalgnn.model.predicting import predict_to

        predict_to(model, tmp_path / name, graph, progress=False)
    cg.benchmark(task(), "degree", seeds=1, out=tmp_path / "results", progress=False)
    cg.tune(task(), "vanilla", out=tmp_path / "tuning", trials=1, settings={"epochs": 2}, progress=False)
    graph.save(tmp_path / "graph.npz")
    written = {str(path) for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".")}
    written -= {path for path in written if "/.owners/" in path or "/.locks/" in path}
    appended = {str(tmp_path / "tuning" / "tuning.journal")}
    renames = {target: (number, source) for number, (source, target) in enumerate(calls) if source != "sync"}
    assert written - appended <= set(renames)
    for path in written - appended:
        number, source = renames[path]
        assert ("sync", source) in calls[:number], f"{path} is named before it is on the disk"
        assert ("sync", os.path.dirname(path)) in calls[number:], f"the name of {path} is not on the disk"
    for path in appended:
        assert ("sync", path) in calls
        assert ("sync", os.path.dirname(path)) in calls
    for folder in (tmp_path, tmp_path / "new", tmp_path / "results" / "runs" / "small"):  # hold folders that are new
        assert ("sync", str(folder)) in calls


def test_a_checksum_needs_a_place_and_stands_for_all_else() -> None:
    with pytest.raises(ValueError, match="no place"):
        seal(b"nothing")
    content = seal(f"{BLANK} and {BLANK}".encode())  # the last one is the file's own
    assert content.startswith(BLANK.encode())
    assert sealed_with(content) == content[-len(BLANK) :].decode()
    assert sealed_with(content.replace(b"and", b"And")) is None
    assert sealed_with(b"") is None
