"""Damaged files of every kind that is read, and the real readers: each gives a right answer or one clear line.

``python tests/fuzzing.py`` prints the table of counts; a process a kind, with a bound on memory and on time.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import gzip
import hashlib
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILES = 1000  # of each kind
SECONDS = 20  # that one file may take
MEMORY = 1 << 30  # bytes of address space that readers may take above what they have when they begin
GROWTH = 256  # MiB that memory may grow by while they are read: what any file may unpack to
TOKENS = [
    b"[" * 3000, b'{"a":' * 3000, b"-" * 3000, b"\xef\xbb\xbf", b"\xff\xfe", b"\x00" * 40, b"\xff" * 8, b"NaN", b"9e99",
    b"9" * 400, b"-1", b"null", b'"\\ud800"', b"\\ud800", b"<script>", b"\x1b[2J", b"\r\n", b"\n", b",", b'"', b"\x7f",
    (2**62).to_bytes(8, "little"), (2**31 - 1).to_bytes(4, "little"), (2**40).to_bytes(8, "little"), b"'descr': '|O'",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, [], {}, "", "x", "\x1b[31m<b>", -1, 0, 10_000_000, 10**30, 1e308, -0.5, float("nan"), [[[[]]]],
    {"a": {}}, ["x"], "9" * 50, "../../x", [None, None],
]  # fmt: skip


class Kind(NamedTuple):
    """A kind of file: what it is made of, how it is read, and how it is damaged.

    Args:
        make: Writes what is read into a folder; the file that is damaged.
        read: The real reader, given that folder; what it returns is compared by its ``repr``.
        damage: Besides what can be done to any bytes, what makes another file of the kind.
        mend: What an attacker mends after the damage, such as sums.
    """

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    damage: Callable[[bytes, random.Random], bytes] | None = None
    mend: Callable[[Path], None] = lambda folder: None


# Damage ---------------------------------------------------------------------------------------------------------------


def damaged(content: bytes, rng: random.Random, special: Callable[[bytes, random.Random], bytes] | None) -> bytes:
    """The same content with something wrong with it."""
    if special is not None and rng.random() < 0.5:
        return special(content, rng)
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 4, 40, 400)))
        kind = rng.randrange(7)
        if kind == 0:
            for _ in range(rng.randint(1, 8)):
                if data:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at:at] = data[at:end]
        elif kind == 3:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            digits = [place for place, byte in enumerate(data[:20_000]) if 48 <= byte < 58]
            if digits:
                data[rng.choice(digits)] = 48 + rng.randrange(10)
        elif kind == 5:
            del data[at:end]
        else:
            data[at:end] = bytes(end - at)
    return bytes(data)


def other_json(content: bytes, rng: random.Random) -> bytes:
    """One value of JSON replaced by another, or left out, or under another name."""
    value = json.loads(content)
    return _json(_changed(value, rng), rng)


def _json(value: Any, rng: random.Random) -> bytes:
    text = json.dumps(value, indent=1)
    if rng.random() < 0.05:
        text = text.replace('"', '"\\ud800', 1 + rng.randrange(4))
    return text.encode(rng.choice(("utf-8",) * 20 + ("utf-16", "utf-8-sig")))


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key, what = rng.choice(list(value)), rng.random()
        if what < 0.1:
            return {name: each for name, each in value.items() if name != key}
        if what < 0.15:
            return {rng.choice(("x", "", key.upper())) if name == key else name: each for name, each in value.items()}
        return {name: _changed(each, rng) if name == key else each for name, each in value.items()}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        if rng.random() < 0.1:
            return value[:place] + value[place + 1 :]
        return [_changed(each, rng) if number == place else each for number, each in enumerate(value)]
    if isinstance(value, int | float) and rng.random() < 0.3:
        return value * rng.choice((-1, 2, 10**6, 1e300))
    return rng.choice(VALUES)


def other_lines(content: bytes, rng: random.Random) -> bytes:
    """Lines of JSON, of which one is another, or stands elsewhere, twice or not at all."""
    lines = content.splitlines()
    place, what = rng.randrange(len(lines)), rng.random()
    if what < 0.6:
        lines[place] = json.dumps(_changed(json.loads(lines[place]), rng)).encode()
    elif what < 0.8:
        lines.insert(rng.randrange(len(lines)), lines[place])
    else:
        del lines[place]
    return b"\n".join(lines) + b"\n"


def _other_array(array: np.ndarray[Any, Any], rng: random.Random) -> np.ndarray[Any, Any]:
    what = rng.randrange(9)
    if what == 0:
        return array.astype(rng.choice(["S8", "U3", "f2", "c8", "i1", "u8", ">i4", "M8[s]", "?"]))
    if what == 1:
        return array[: len(array) // 2] if array.ndim else array[None]
    if what == 2:
        return array.reshape(-1)
    if what == 3:
        return np.zeros(array.shape, [("a", "i4"), ("b", "f8")])
    if what == 4:
        return np.array([{"a": 1}], dtype=object)
    if what == 5 and array.dtype.kind in "iuf" and array.size:
        changed = array.copy()
        changed.reshape(-1)[rng.randrange(array.size)] = rng.choice((-1 if array.dtype.kind != "u" else 1, 100, 127, 0))
        return changed
    if what == 6 and array.dtype.kind == "f" and array.size:
        changed = array.copy()
        changed.reshape(-1)[rng.randrange(array.size)] = rng.choice((np.nan, np.inf, -1.0))
        return changed
    if what == 7 and array.dtype.kind in "iu" and array.size:
        changed = array.astype(np.int64)
        changed.reshape(-1)[rng.randrange(array.size)] = rng.choice((2**62, -(2**62), 2**31, 10**7))
        return changed
    return np.concatenate([array, array]) if array.ndim else np.array("x")


def other_npz(content: bytes, rng: random.Random) -> bytes:
    """An archive of arrays with another one among them, with right sums, or with a header that claims too much."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name, what = rng.choice(list(members)), rng.random()
    if what < 0.1:
        del members[name]
    elif what < 0.25:
        members[name] = damaged(members[name], rng, None)
    elif what < 0.4:
        shape = rng.choice(["(281474976710656,)", "(1099511627776, 32)", "(-1,)", "(3, 0, 9)", "(2, 2, 2)"])
        members[name] = _header(members[name], "shape", shape)
    else:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                changed = _other_array(np.load(io.BytesIO(members[name]), allow_pickle=False), rng)
            except (ValueError, TypeError):
                changed = np.array("x")
            np.save(buffer, changed, allow_pickle=True)
        members[name] = buffer.getvalue()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return packed.getvalue()


def _header(member: bytes, field: str, value: str) -> bytes:
    """An array with another shape in its header."""
    end = 10 + int.from_bytes(member[8:10], "little")
    text = member[10:end].decode("latin1")
    begin, _, rest = text.partition(f"'{field}': (")
    text = f"{begin}'{field}': {value}{rest.partition(')')[2]}".rstrip() + "\n"
    return member[:8] + len(text).to_bytes(2, "little") + text.encode() + member[end:]


def other_zip(content: bytes, rng: random.Random) -> bytes:
    """An archive of torch with damage inside a member, and right sums."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in members if name.endswith("data.pkl")) if rng.random() < 0.6 else rng.choice([*members])
    members[name] = damaged(members[name], rng, None)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return packed.getvalue()


def other_parquet(content: bytes, rng: random.Random) -> bytes:
    """A table with a column of another type, with nulls, twice, or none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content))
    place, what = rng.randrange(table.num_columns), rng.random()
    column, name = table.column(place).to_pylist(), table.column_names[place]
    if what < 0.2:
        table = table.set_column(place, name, pa.array([str(each) for each in column]))
    elif what < 0.4:
        holed = [None if rng.random() < 0.3 else each for each in column]
        table = table.set_column(place, name, pa.array(holed, table.column(place).type))
    elif what < 0.5:
        table = table.drop_columns(name)
    elif what < 0.6:
        table = table.set_column(place, rng.choice(("x", "\x1b[31m", "node", "id")), table.column(place))
    elif what < 0.7:
        table = table.set_column(place, name, pa.nulls(len(column)))
    elif what < 0.8:
        table = table.slice(0, rng.randrange(len(column)))
    elif what < 0.9:
        numbers = [rng.choice((2**62, -(2**62), -1, 7)) for _ in column]
        table = table.set_column(place, name, pa.array(numbers, pa.int64()))
    else:
        table = table.set_column(place, name, pa.array([[1, None]] * len(column)))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def other_tensors(content: bytes, rng: random.Random) -> bytes:
    """Tensors of which one is another, or another header."""
    from safetensors.numpy import load, save

    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    if rng.random() < 0.3:
        text = _json(_changed(header, rng), rng)
        return len(text).to_bytes(8, "little") + text + content[8 + length :]
    arrays, name = dict(load(content)), rng.choice([key for key in header if key != "__metadata__"])
    about = header.get("__metadata__")
    if rng.random() < 0.1:
        del arrays[name]
    else:
        changed = _other_array(arrays[name], rng)
        if changed.dtype.kind in "fiu" and changed.dtype.isnative:
            arrays[name] = np.ascontiguousarray(changed)
    if about is not None and rng.random() < 0.3:
        about = {
            key: text if key == "checksum" else _json(_changed(json.loads(text), rng), rng).decode("utf-8", "ignore")
            for key, text in about.items()
        }
    return bytes(save(arrays, about))


def other_table(content: bytes, rng: random.Random) -> bytes:
    """A CSV file with another field."""
    lines = content.decode().splitlines()
    place = rng.choice((0, rng.randrange(len(lines))))
    fields = lines[place].split(",")
    fields[rng.randrange(len(fields))] = rng.choice(
        ("", "x", "nan", "inf", "-1", "1e999", '"', "\x00", "9" * 30, "a,b", "id")
    )
    lines[place] = ",".join(fields)
    return "\n".join(lines).encode(rng.choice(("utf-8", "utf-8", "utf-8", "utf-16", "utf-8-sig")))


def other_gz(content: bytes, rng: random.Random) -> bytes:
    """A packed CSV file with another field."""
    return gzip.compress(other_table(gzip.decompress(content), rng))


# Kinds ----------------------------------------------------------------------------------------------------------------


def _bench(folder: Path, name: str) -> Path:
    import credalgnn as cg

    material = Path(os.environ["FUZZ_MATERIAL"]) / "bench"
    if not material.exists():
        cg.benchmark(
            "digits", ["vanilla", "degree"], seeds=1, settings={"epochs": 2}, out=material, progress=False, jobs=1
        )
    shutil.copytree(material, folder, dirs_exist_ok=True)
    return next(folder.glob(name))


def _report(folder: Path) -> object:
    import credalgnn as cg

    cg.write_report(folder, folder.parent / "out")
    page = (folder.parent / "out" / "report.html").read_bytes()
    assert b"<script>alert" not in page
    return hashlib.sha256(page).hexdigest()


def _identity(folder: Path) -> object:
    from credalgnn.records.folder import Folder

    about = json.loads((Path(os.environ["FUZZ_MATERIAL"]) / "bench" / "experiment.json").read_bytes())
    kept = {name: value for name, value in about.items() if name not in ("format", "credalgnn", "checksum")}
    return Folder.open(folder, kept)


def _journal(folder: Path) -> Path:
    from searches import Instant, finish, search

    material = Path(os.environ["FUZZ_MATERIAL"]) / "journal"
    if not material.exists():
        assert finish([search(material, trials=8)], Instant())
    shutil.copytree(material, folder, dirs_exist_ok=True)
    return folder / "tuning.journal"


def _search(folder: Path) -> object:
    from searches import search

    found = search(folder, trials=8)
    return found.top(3) if found.is_finished else [number for number, _ in found.next_trials(2)]


def _best(folder: Path) -> Path:
    from searches import small_task, tuned_by_hand

    tuned_by_hand(folder, small_task(), vanilla={"lr": 0.1}, knn={"k": 3})
    return folder / "best.json"


def _tuned(folder: Path) -> object:
    from credalgnn.experiments.best import earlier_config, read_tuned
    from searches import small_task

    return read_tuned(folder, small_task(), "sealed"), earlier_config(folder, small_task(), "vanilla")


def _method(name: str, file: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from credalgnn.methods import METHODS
        from searches import small_task

        material = Path(os.environ["FUZZ_MATERIAL"]) / name
        if not material.exists():
            options = {} if name == "credal-coverage" else {"epochs": 2}
            kind = METHODS[name]
            if kind.components is not None:
                vanilla = METHODS["vanilla"](epochs=2, hidden=8).fit(small_task(), progress=False)
                kind(model=vanilla).fit(small_task(), progress=False).save(material)
            else:
                kind(**options).fit(small_task(), progress=False).save(material)
        shutil.copytree(material, folder, dirs_exist_ok=True)
        return folder / file

    return make


def _load_method(folder: Path) -> object:
    from credalgnn import load_method
    from searches import small_task

    return load_method(folder, any_task=True).predict(small_task().graph).score.tolist()


def reseal(path: Path) -> None:
    """As if the checksum that stands in a file were made of what the file now is."""
    from credalgnn.runtime.files import BLANK, PREFIX, seal

    content = path.read_bytes()
    place = content.rfind(PREFIX.encode())
    if place >= 0:
        path.write_bytes(seal(content[:place] + BLANK.encode() + content[place + len(BLANK) :]))


def reseal_zip(path: Path) -> None:
    """The same for an archive, whose checksum is its comment."""
    from credalgnn.runtime.files import BLANK, seal_zip

    with suppress(Exception), path.open("r+b") as file:  # one that is too damaged stays as it is
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = BLANK.encode()
        seal_zip(file)


def reseal_predictions(folder: Path) -> None:
    """The same for predictions, which the record of their run names."""
    from credalgnn.runtime.files import sealed_with, to_json

    table = next(folder.glob("nodes/digits/vanilla/*.parquet"))
    record = next(folder.glob("runs/digits/vanilla/*.json"))
    reseal(table)
    record.write_bytes(to_json({**json.loads(record.read_bytes()), "predictions": sealed_with(table.read_bytes())}))


def _chain(folder: Path) -> None:
    """Give every line of the journal the checksum that belongs there now."""
    from credalgnn.runtime.files import checksum

    before, lines = "", []
    for line in (folder / "tuning.journal").read_bytes().splitlines():
        try:
            fields = {name: value for name, value in json.loads(line).items() if name != "checksum"}
            body = json.dumps(fields, separators=(",", ":"))[:-1].encode()
        except (ValueError, AttributeError, RecursionError):
            lines.append(line + b"\n")
            continue
        before = checksum(before.encode() + body)
        lines.append(body + f',"checksum":"{before}"}}\n'.encode())
    (folder / "tuning.journal").write_bytes(b"".join(lines))


def _sum_weights(folder: Path) -> None:
    """As if the weights were those that the method was saved with."""
    from credalgnn.runtime.files import checksum, to_json

    weights = (folder / "model.safetensors").read_bytes()
    with suppress(ValueError, TypeError, RecursionError, AttributeError):
        config = json.loads((folder / "method.json").read_bytes())
        if "weights" in config:
            config["weights"] = checksum(weights)
        (folder / "method.json").write_bytes(to_json(config))


def _model(file: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import credalgnn as cg
        from credalgnn.model.watching import watch
        from own_graphs import write_tables

        material = Path(os.environ["FUZZ_MATERIAL"]) / "model"
        if not material.exists():
            nodes, edges = write_tables(material / "first", 120, seed=1, name="m{:04d}".format)
            model = cg.fit(nodes, edges, label="topic", method=cg.Vanilla(epochs=2))
            model.save(material / "model")
            watch(model, material / "model", nodes, edges)
            write_tables(material, 120)
        shutil.copytree(material, folder, dirs_exist_ok=True)
        return folder / "model" / file

    return make


def _load_model(folder: Path) -> object:
    import credalgnn as cg

    model = cg.load_model(folder / "model")
    result = model.predict(folder / "nodes.csv", folder / "edges.csv")
    return str(model), result.flag_unfamiliar(false_alarms=0.1).tolist()


def _watch(folder: Path) -> object:
    import credalgnn as cg
    from credalgnn.model.watching import watch

    found = watch(cg.load_model(folder / "model"), folder / "model", folder / "nodes.csv", folder / "edges.csv")
    return found.evidence, found.nodes


def _sum_model(folder: Path) -> None:
    from credalgnn.runtime.files import checksum, to_json

    _sum_weights(folder / "model")
    place = folder / "model" / "model.json"
    with suppress(ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError):
        config = json.loads(place.read_bytes())
        for name in config["sums"]:
            config["sums"][name] = checksum((folder / "model" / name).read_bytes())
        place.write_bytes(to_json(config))


def _saved(folder: Path) -> Path:
    from own_graphs import graph_of

    graph_of(40, ids=[f"n{k}" for k in range(40)]).save(folder / "graph.npz")
    return folder / "graph.npz"


def _source(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from credalgnn.graphs.sources import GraphParts, read_source

        found = read_source(folder / name)
        assert isinstance(found, GraphParts)
        return found.graph.fingerprint, {part: nodes.tolist() for part, nodes in found.parts.items()}

    return read


def _tensors(folder: Path) -> dict[str, Any]:
    import torch

    from own_graphs import graph_of

    graph, mask = graph_of(40), torch.arange(40) < 20
    values = {"x": graph.features.to_dense(), "edge_index": graph.edge_index, "y": graph.labels}
    return {**values, "train_mask": mask, "val_mask": ~mask}


def _pt(folder: Path) -> Path:
    import torch

    torch.save(_tensors(folder), folder / "graph.pt")
    return folder / "graph.pt"


def _safetensors(folder: Path) -> Path:
    from safetensors.torch import save_file

    save_file(_tensors(folder), folder / "graph.safetensors")
    return folder / "graph.safetensors"


def _csv(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from own_graphs import write_tables

        write_tables(folder, 40)
        return folder / name

    return make


def _parquet(folder: Path) -> Path:
    import pyarrow.csv
    import pyarrow.parquet as pq

    from own_graphs import write_tables

    for path in write_tables(folder, 40):
        pq.write_table(pyarrow.csv.read_csv(path), path.with_suffix(".parquet"))
        path.unlink()
    return folder / "nodes.parquet"


def _tables(folder: Path) -> object:
    from credalgnn.graphs import Columns, read_source, read_tables

    found = read_source(folder)
    return read_tables(*found, Columns(label="topic")).graph.fingerprint  # type: ignore[misc]


def _raw(name: str, write: Callable[[Path], Any], file: str, cached: bool = False) -> Kind:
    def make(folder: Path) -> Path:
        write(folder / "mirror")
        if cached:
            read(folder)
            shutil.rmtree(folder / "mirror")
            (folder / "mirror").mkdir()
            return folder / "data" / name / "graph.npz"
        return folder / "mirror" / file

    def read(folder: Path) -> object:
        from credalgnn.graphs.datasets.files import File
        from credalgnn.graphs.datasets.registry import find_dataset

        dataset = find_dataset(name)
        files = {path: File("http://127.0.0.1:9/") for path in dataset.files}  # any content, and no network
        loaded = dataclasses.replace(dataset, files=files).load(mirror=folder / "mirror", data_root=folder / "data")
        return loaded.graph.fingerprint, [
            [split.train.tolist(), split.val.tolist(), split.test.tolist()] for split in loaded.splits or []
        ]

    endings = {"npz": other_npz, "json": other_json, "gz": other_gz}
    if cached:
        return Kind(make, read, other_npz, lambda folder: reseal_zip(folder / "data" / name / "graph.npz"))
    return Kind(make, read, endings.get(file.rpartition(".")[2]))


def sealed(
    make: Callable[[Path], Path], read: Callable[[Path], object], damage: Callable[[bytes, random.Random], bytes]
) -> Kind:
    """A kind whose checksum stands in the file itself."""
    made: dict[str, Path] = {}

    def make_it(folder: Path) -> Path:
        path = make(folder)
        made["file"] = path.relative_to(folder)
        return path

    return Kind(make_it, read, damage, lambda folder: reseal(folder / made["file"]))


def kinds() -> dict[str, Kind]:
    """Every kind of file that is read."""
    from raw_files import write_arxiv, write_patents
    from raw_more import write_geom_gcn, write_heterophilous, write_wiki_cs
    from raw_planetoid import write_gnn_benchmark, write_planetoid

    method, weights = "method.json", "model.safetensors"
    cora, computers = "Cora/raw/ind.cora.", "Computers/raw/amazon_electronics_computers.npz"
    return {
        "record": sealed(lambda folder: _bench(folder, "runs/digits/vanilla/*.json"), _report, other_json),
        "experiment.json": sealed(lambda folder: _bench(folder, "experiment.json"), _identity, other_json),
        "predictions": Kind(
            lambda folder: _bench(folder, "nodes/digits/vanilla/*.parquet"), _report, other_parquet, reseal_predictions
        ),
        "graph.parquet": sealed(lambda folder: _bench(folder, "nodes/digits/graph.parquet"), _report, other_parquet),
        "journal": Kind(_journal, _search, other_lines, _chain),
        "best.json": sealed(_best, _tuned, other_json),
        "method.json": sealed(_method("vanilla", method), _load_method, other_json),
        "model.safetensors": Kind(_method("vanilla", weights), _load_method, other_tensors, _sum_weights),
        "method.json (knn)": sealed(_method("knn", method), _load_method, other_json),
        "weights of knn": Kind(_method("knn", weights), _load_method, other_tensors, _sum_weights),
        "weights of credal-coverage": Kind(
            _method("credal-coverage", weights), _load_method, other_tensors, _sum_weights
        ),
        "model.json": Kind(_model("model.json"), _load_model, other_json, _sum_model),
        "parts.safetensors": Kind(_model("parts.safetensors"), _load_model, other_tensors, _sum_model),
        "watch.safetensors": sealed(_model("watch.safetensors"), _watch, other_tensors),
        "Graph.save": Kind(_saved, _source("graph.npz"), other_npz, lambda folder: reseal_zip(folder / "graph.npz")),
        "graph in the cache": _raw("computers", write_gnn_benchmark, "", cached=True),
        "nodes.csv": Kind(_csv("nodes.csv"), _tables, other_table),
        "edges.csv": Kind(_csv("edges.csv"), _tables, other_table),
        "nodes.parquet": Kind(_parquet, _tables, other_parquet),
        "graph.pt": Kind(_pt, _source("graph.pt"), other_zip),
        "graph.safetensors": Kind(_safetensors, _source("graph.safetensors"), other_tensors),
        "raw: allx of Planetoid": _raw("cora", write_planetoid, cora + "allx"),
        "raw: graph of Planetoid": _raw("cora", write_planetoid, cora + "graph"),
        "raw: npz of gnn-benchmark": _raw("computers", write_gnn_benchmark, computers),
        "raw: npz of heterophilous": _raw(
            "roman-empire", lambda root: write_heterophilous(root, "roman_empire"), "roman_empire/raw/roman_empire.npz"
        ),
        "raw: text of Geom-GCN": _raw(
            "actor", lambda root: write_geom_gcn(root, "Actor", "film", True), "Actor/raw/out1_node_feature_label.txt"
        ),
        "raw: JSON of Wiki-CS": _raw("wiki-cs", write_wiki_cs, "WikiCS/raw/data.json"),
        "raw: csv.gz of arXiv": _raw("arxiv", write_arxiv, "arxiv/raw/node-feat.csv.gz"),
        "raw: mat of patents": _raw("patents", write_patents, "patents/raw/snap_patents.mat"),
    }


# Running --------------------------------------------------------------------------------------------------------------


def work(name: str, count: int, place: Path) -> dict[str, Any]:
    """Read so many damaged files of a kind in this process; what became of them."""
    import torch

    from credalgnn.experiments.engines import EngineError
    from credalgnn.graphs import GraphError
    from credalgnn.methods import MethodError
    from credalgnn.records.schema import RecordError

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kind = kinds()[name]
    whole, folder = place / "whole", place / "folder"
    whole.mkdir(parents=True)
    target = kind.make(whole).relative_to(whole)
    content = (whole / target).read_bytes()
    shutil.copytree(whole, folder)
    expected = repr(kind.read(folder))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    counts: dict[str, Any] = {"same": 0, "valid": 0, "refused": 0, "other": []}
    for number in range(count):
        rng = random.Random(f"{name} {number}")
        (place.parent / "last").write_text(f"{name} {number}")
        shutil.rmtree(folder)
        shutil.rmtree(place / "out", ignore_errors=True)
        shutil.copytree(whole, folder)
        (folder / target).write_bytes(damaged(content, rng, kind.damage))
        if rng.random() < 0.7:
            kind.mend(folder)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            same = repr(kind.read(folder)) == expected
            counts["same" if same else "valid"] += 1
        except (RecordError, GraphError, MethodError, EngineError) as error:
            text = str(error)
            if "\n" in text.strip() or len(text) > 1000 or not text:
                counts["other"].append(f"{number}: not one line: {text[:300]!r}")
            counts["refused"] += 1
        except BaseException as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)
            ours = [line for line in where if "credalgnn" in line.filename] or list(where)
            lines = " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(ours[-4:]))
            counts["other"].append(f"{number}: {type(error).__name__}: {str(error)[:150]} @ {lines}")
        faulthandler.cancel_dump_traceback_later()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    return {**counts, "grown": grown}


def run(names: Sequence[str], count: int, material: Path) -> dict[str, dict[str, Any]]:
    """The same for some kinds in a process of its own; one that dies has met something else than an answer or a line.

    Args:
        names: Of the kinds.
        count: How many files of each.
        material: A folder for what files are made of, which others may share.
    """
    with tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "FUZZ_MATERIAL": str(material), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--files", str(count), "--place", place, "--kinds", *names]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode == 0:
            found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
            return found
        last = (Path(place) / "last").read_text() if (Path(place) / "last").exists() else "none"
        died = f"{last}: the process died ({done.returncode}): {done.stderr[-1500:]}"
        return {name: {"same": 0, "valid": 0, "refused": 0, "other": [died], "grown": 0} for name in names}


HEAD = ("file", "files", "as before", "changed, and valid", "one line", "other", "memory grew by MiB")


def row(name: str, count: int, counts: dict[str, Any]) -> str:
    """A row of the table."""
    numbers = [count, counts["same"], counts["valid"], counts["refused"], len(counts["other"]), counts["grown"]]
    return f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Damaged files of every kind, and what the readers say to them.")
    parser.add_argument("--files", type=int, default=FILES, help="of each kind")
    parser.add_argument("--kinds", nargs="+", default=list(kinds()), help="only these")
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)  # where the process of some kinds works
    args = parser.parse_args()
    if args.place is not None:
        found = {name: work(name, args.files, args.place / str(n)) for n, name in enumerate(args.kinds)}
        print(json.dumps(found))
        return
    print(f"| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 1)}")
    with tempfile.TemporaryDirectory() as material:
        for name in args.kinds:
            counts = run([name], args.files, Path(material))[name]
            print(row(name, args.files, counts), flush=True)
            for other in counts["other"][:8]:
                print(f"  {other}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
