"""Small files that claim to be large, and what their readers take; run as a process, which bounds its own memory."""

from __future__ import annotations

import gzip
import json
import resource
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ALWAYS = 32 << 20  # bytes that any file may unpack to: less than outside of tests, so that bombs are soon made
MEMORY = 300 << 20  # bytes of address space above what is used before


def npy(shape: str, data: bytes = b"", kind: str = "<f4") -> bytes:
    """An array in numpy's format whose header says anything."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def zipped(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def zeros(path: Path, count: int) -> Path:
    """A packed array of so many zeros, written without ever being in memory."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("features.npy", "w", force_zip64=True) as stream:
            stream.write(npy(f"({count},)"))
            for _ in range(count * 4 // (1 << 22)):
                stream.write(bytes(1 << 22))
        archive.writestr("edge_index.npy", npy("(2, 0)", kind="<i8"))
    return path


def write(folder: Path) -> None:
    """All of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    from own_graphs import graph_of

    (folder / "deep.json").write_bytes(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    zipped(folder / "claim.npz", edge_index=npy("(281474976710656,)"), format=npy("()", b"\1\0\0\0", "<i4"))
    zeros(folder / "bomb.npz", 12 << 20)
    with gzip.open(folder / "bomb.csv.gz", "wb", 1) as file:
        file.write(b"id,topic,w\n")
        for _ in range(50):
            file.write(b"1,a,0\n" * (1 << 17))
    constant = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), ["a"])])
    with pq.ParquetWriter(folder / "rows.parquet", pa.schema([("id", constant.type)])) as writer:
        block = pa.table({"id": pa.chunked_array([constant.chunk(0)] * 1000)})
        for _ in range(10):
            writer.write_table(block)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), ["x" * 10_000])
    pq.write_table(pa.table({"id": texts}), folder / "texts.parquet", store_schema=False)
    values = {"x": torch.zeros(1, 1).expand(1 << 20, 1 << 10), "edge_index": torch.zeros(2, 1, dtype=torch.int64)}
    torch.save(values, folder / "claim.pt")
    graph_of(40).save(folder / "graph.npz")
    genuine = graph_of(2_500, share=0.0)
    arrays = {"labels": genuine.labels.numpy(), "edge_index": genuine.edge_index.numpy()}
    np.savez_compressed(
        folder / "zeros.npz", format=np.array(1), features=np.zeros((2_500, 2000), np.float32),
        class_names=np.array(["a"]), shape=np.array([2_500, 2000]), **arrays,
    )  # fmt: skip


def read(folder: Path) -> dict[str, list[Any]]:
    """For each its size on disk, the seconds that it took to read, the growth of memory in MiB and what was said."""
    from credalgnn.graphs import Columns, load_graph, read_source, read_tables
    from credalgnn.records.schema import read_record
    from credalgnn.runtime import reading

    reading.ALWAYS = ALWAYS
    load_graph(folder / "graph.npz")  # what is imported on the way is not theirs
    readers: dict[str, Callable[[Path], object]] = {
        "deep.json": read_record,
        "claim.npz": load_graph,
        "bomb.npz": load_graph,
        "zeros.npz": load_graph,
        "bomb.csv.gz": lambda path: read_tables(path, folder / "none.csv", Columns()),
        "rows.parquet": lambda path: read_tables(path, folder / "none.csv", Columns()),
        "texts.parquet": lambda path: read_tables(path, folder / "none.csv", Columns()),
        "claim.pt": read_source,
    }
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY,) * 2)
    found: dict[str, list[Any]] = {}
    for name, reader in readers.items():
        before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        try:
            reader(folder / name)
            said = "read"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        found[name] = [(folder / name).stat().st_size, time.monotonic() - begin, grown, said]
    return found


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    print(json.dumps(read(Path(sys.argv[1]))))
