"""Characterisation of every method through public names: hashes of predictions, metrics, saved tensors and records.

    python benchmarks/characterise.py --base PATH                          # differences from another checkout
    python benchmarks/characterise.py --base PATH --only 'csbm/full/.*lj'  # of some entries
    python benchmarks/characterise.py --base PATH --ray                    # also on a local Ray cluster
    python benchmarks/characterise.py --write tests/characterisation.json  # for the test

A restructured package must give the same bits in one thread. Each entry ``task/setting/method`` maps a quantity to a
hash of its bits and to rounded summary numbers, which another machine or torch version reproduces approximately.
Settings: ``full`` (batches, chunks, other graphs, saving included), ``batch`` (sampled neighbourhoods), ``packed``
(memory-mapped, small memory budget), ``inductive``, ``graph`` (calibration nodes), ``weighted`` and ``weighted-batch``
(sparse features, weighted edges), ``backbone-NAME``, ``experiment`` (benchmark, tune, probe, tables of one's own),
``ray``. Words of messages and names of scores are not compared.
"""

# ruff: noqa: E402  # threads are counted when libraries are imported

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
import torch

import credalgnn as cg

ROOT = Path(__file__).resolve().parents[1]
SMALL: dict[str, Any] = {"hidden": 16, "epochs": 5, "patience": 5, "dropout": 0.2, "samples": 3}
TASKS = ("csbm", "digits")
BACKBONES = ("gat", "gatv2", "gcn", "gin", "gpr", "mlp", "sage")
QUICK = r"^(?!csbm/experiment/(bench|tune|probe)|(csbm|custom)/(?!full).*/credal-coverage)"
RAY_METHODS = ("vanilla", "credal-lj", "classical-ensemble", "energy", "credal-coverage")
REL, ABS = 1e-3, 1e-5  # tolerances of summary numbers between machines
Entry = dict[str, list[Any]]


class Names:
    """Public names that differ between checkouts: this script must run on the one before a renaming and the one after.

    Delete the older one of each pair once nobody compares with a checkout that has it.
    """

    @staticmethod
    def predict_chunks(method: Any, *args: Any, size: int, **options: Any) -> Iterator[Any]:
        predict = getattr(method, "predict_chunks", None) or method.predict_pieces
        known = inspect.signature(predict).parameters
        name = next(name for name in ("size", "chunk_size", "nodes_per_chunk", "max_nodes") if name in known)
        return predict(*args, **{name: size}, **options)  # type: ignore[no-any-return]

    @staticmethod
    def works_by_chunks(kind: Any) -> bool:
        return bool(getattr(kind, "works_by_chunks", getattr(kind, "works_by_pieces", False)))

    @staticmethod
    def flags(prediction: Any, **options: Any) -> Any:
        return (getattr(prediction, "flag_unfamiliar", None) or prediction.strangers)(**options)

    @staticmethod
    def load(kind: Any, folder: str) -> Any:
        return next(
            getattr(place, name)(folder)
            for place, name in ((cg, "load_method"), (kind, "load"), (cg, "load"))
            if hasattr(place, name)
        )


def described(value: Any) -> list[Any]:
    """Hash of the bits of an array (type and shape included) or of plain values, and its mean and spread."""
    if isinstance(value, torch.Tensor):
        value = value.detach().to_dense().numpy() if value.layout != torch.strided else value.detach().numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        about = f"{value.dtype} {value.shape}".encode()
        digest = hashlib.sha256(about + np.ascontiguousarray(value).tobytes()).hexdigest()[:12]
        if value.dtype.kind != "f" or not value.size:
            return [digest]
        finite = value[np.isfinite(value)].astype(np.float64)
        return (
            [digest, *(float(f"{number:.6g}") for number in (finite.mean(), finite.std()))] if len(finite) else [digest]
        )
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return [hashlib.sha256(text.encode()).hexdigest()[:12]]


def flat(value: Any) -> list[Any]:
    """The values in nested mappings and sequences, without keys."""
    if isinstance(value, Mapping):
        return [each for part in value.values() for each in flat(part)]
    if isinstance(value, list | tuple):
        return [each for part in value for each in flat(part)]
    return [value]


def numbers(value: Any) -> np.ndarray:
    """The numbers in nested mappings and sequences as an array, in which NaN stands for None."""
    kept = [np.nan if each is None else float(each) for each in flat(value) if not isinstance(each, str)]
    return np.array(kept, dtype=np.float64)


def of_prediction(prediction: Any, prefix: str = "") -> Entry:
    """Everything numeric that a prediction says. Scores are numbered: their names may change, not their order."""
    found: dict[str, Any] = {f"score{at}": score for at, score in enumerate(prediction.scores.values())}
    found["nodes"] = prediction.nodes
    if prediction.probabilities is not None:
        found |= {"probabilities": prediction.probabilities, "classes": prediction.classes}
    if prediction.credal is not None:
        found |= {"lower": prediction.credal.lower, "upper": prediction.credal.upper, "gap": prediction.gap}
    if prediction.calibration is not None:
        found["p_values"] = prediction.p_values
        found["flags"] = Names.flags(prediction, false_alarms=0.1)
        found["flags_fdr"] = Names.flags(prediction, fdr=0.3)
        if prediction.probabilities is not None:
            found["sets"] = prediction.sets(0.8)
    return {prefix + name: described(value) for name, value in found.items()}


def of_chunks(chunks: Iterator[Any], prefix: str) -> Entry:
    """Of predictions put together, the quantities that are the same however nodes are divided among them."""
    parts = list(chunks)
    found: dict[str, Any] = {
        f"score{at}": torch.cat([list(part.scores.values())[at] for part in parts])
        for at in range(len(parts[0].scores))
    }
    found["nodes"] = torch.cat([part.nodes for part in parts])
    if parts[0].probabilities is not None:
        found["probabilities"] = torch.cat([part.probabilities for part in parts])
    if parts[0].credal is not None:
        found["lower"] = torch.cat([part.credal.lower for part in parts])
        found["upper"] = torch.cat([part.credal.upper for part in parts])
    return {prefix + name: described(value) for name, value in found.items()}


def of_saved(method: Any, graph: Any) -> Entry:
    """Contents of the saved tensors, names and order aside, and what the loaded method predicts."""
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as folder:
        method.save(folder)
        tensors = load_file(Path(folder) / "model.safetensors").values()
        loaded = Names.load(type(method), folder)
        saved = {"saved": described(" ".join(sorted(described(tensor)[0] for tensor in tensors)))}
        return saved | {"loaded": of_prediction(loaded.predict(graph))["score0"]}


def attempt(entry: Entry, name: str, compute: Callable[[], Entry]) -> None:
    """Add what is computed, or that the package refuses it: with which words is nothing to be compared."""
    try:
        entry |= compute()
    except (cg.MethodError, cg.GraphError, ValueError) as error:
        if os.environ.get("SHOW_REFUSALS"):
            print(name, type(error).__name__, error, file=sys.stderr)
        entry[name] = ["refused"]


def made(name: str, **network: Any) -> Any:
    """A small template of a method, and of the networks that it stands on."""
    kind = cg.METHODS[name]
    known = inspect.signature(kind).parameters
    options = {option: value for option, value in {**SMALL, **network}.items() if option in known}
    base = {option: value for option, value in {**SMALL, **network}.items() if option != "samples"}
    if "members" in known:
        options = {"members": [cg.Vanilla(**{**base, "seed": seed}) for seed in range(2)]}
    elif "model" in known:
        options["model"] = cg.Vanilla(**base)
    if "seed" in known:
        options["seed"] = 0
    return kind(**options)


def custom_graph(nodes: int = 400, seed: int = 3) -> Any:
    """Sparse features, weighted edges, some of them twice, loops, and nodes without edges."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=nodes)
    x = rng.normal(size=(nodes, 60)).astype(np.float32) + 0.3 * (np.arange(60) % 4 == labels[:, None])
    x *= rng.random((nodes, 60)) < 0.1
    edges = rng.integers(0, nodes - 5, (2, 5 * nodes))
    edges = np.concatenate([edges, edges[:, :40], np.tile(np.arange(0, nodes, 9), (2, 1))], 1)
    return cg.Graph(x, edges, labels, edge_weight=rng.random(edges.shape[1]).astype(np.float32))


class Inputs:
    """Tasks and graphs, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Any:
        about, _, kind = name.partition(":")
        if kind == "inductive":
            return cg.load_task(about, inductive=True)
        if kind == "packed":
            return cg.Task.leave_out(self[about].graph.pack(self.folder / f"{about}.cg"), [0, 1], name=about)
        if kind == "labelled":  # every third node has no label, nor has any node of the first class
            graph = self[about].graph
            labels = torch.where(torch.arange(graph.num_nodes) % 3 == 0, -1, graph.labels - 1)
            return cg.Graph(graph.features, graph.edge_index, labels)
        if name == "custom":
            return cg.Task.leave_out(custom_graph(), [0], name="custom")
        return cg.load_task(name)


def full(task: Any, name: str) -> Entry:
    method = made(name).fit(task, progress=False)
    prediction = method.predict()
    entry = of_prediction(prediction)
    judged = cg.evaluate(prediction, task)
    entry["metrics"] = described(numbers(list(judged.metrics.values())))
    entry["score_metrics"] = described(numbers(list(judged.scores.values())))
    entry["curves"] = described(numbers(judged.curves))
    entry["history"] = described(numbers([list(epoch) for epoch in getattr(method, "history_", ())]))
    if prediction.credal is not None and hasattr(prediction, "classify"):
        entry["classify"] = described(torch.stack([prediction.classify(by) for by in ("lower", "upper")]))
    some = torch.arange(5, task.graph.num_nodes, 7)
    attempt(entry, "some", lambda: of_prediction(method.predict(nodes=some), "some."))
    attempt(entry, "chunks", lambda: of_chunks(Names.predict_chunks(method, size=300), "chunks."))
    attempt(entry, "other", lambda: of_prediction(method.predict(_other(task)), "other."))
    attempt(entry, "saved", lambda: of_saved(method, task.graph))
    entry["again"] = of_prediction(method.predict())["score0"]  # nothing above changes the method
    attempt(entry, "memory", lambda: of_prediction(method.predict(memory="1MiB"), "memory."))
    return entry


def _other(task: Any) -> Any:
    """Another graph with the same features: without every fifth edge, and with other features."""
    edges = task.graph.edge_index
    kept = edges[:, torch.arange(edges.shape[1]) % 5 > 0]
    return cg.Graph(task.graph.features * 0.9, kept, class_names=task.graph.class_names)


def batch(task: Any, name: str) -> Entry:
    method = made(name, batch_size=64, fanouts=[5, 4]).fit(task, progress=False)
    return of_prediction(method.predict())


def packed(task: Any, name: str) -> Entry:
    method = made(name, batch_size=128, epochs=3).fit(task, memory="2MiB", progress=False)
    entry = of_chunks(Names.predict_chunks(method, memory="2MiB", size=300), "chunks.")
    attempt(entry, "whole", lambda: of_prediction(method.predict(memory="2MiB")))
    return entry


def inductive(task: Any, name: str) -> Entry:
    method = made(name).fit(task, progress=False)
    prediction = method.predict()
    judged = cg.evaluate(prediction, task)
    return of_prediction(prediction) | {"metrics": described(numbers([judged.metrics, judged.scores]))}


def graph(data: Any, name: str) -> Entry:
    method = made(name).fit(data, progress=False)
    entry = of_prediction(method.predict())
    attempt(entry, "saved", lambda: of_saved(method, data))
    return entry


def weighted(task: Any, name: str) -> Entry:
    return of_prediction(made(name).fit(task, progress=False).predict())


def weighted_batch(task: Any, name: str) -> Entry:
    method = made(name, batch_size=32).fit(task, progress=False)
    return of_chunks(Names.predict_chunks(method, size=90), "chunks.")


def backbone(kind: str) -> Callable[[Any, str], Entry]:
    def compute(task: Any, name: str) -> Entry:
        entry = of_prediction(made(name, backbone=kind).fit(task, progress=False).predict())

        def sampled() -> Entry:
            method = made(name, backbone=kind, batch_size=64).fit(task, progress=False)
            return of_chunks(Names.predict_chunks(method, size=300), "batch.")

        attempt(entry, "batch", sampled)
        return entry

    return compute


def bench(task: Any, name: str) -> Entry:
    """Records of a benchmark: every number but those of time and memory."""
    settings = {"epochs": 5, "hidden": 16}
    entry: Entry = {}
    for about, options in (
        ("sealed", {}), ("paper", {"protocol": "paper"}), ("inductive", {"setting": "inductive", "vary_split": True}),
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            made = cg.benchmark(
                "csbm", ["vanilla", "credal-lj", "energy", "gnnsafe"], seeds=2, settings=settings, jobs=1, out=folder,
                progress=False, **options,
            )  # fmt: skip
            records = sorted(made.records, key=lambda record: (record["method"], record["seed"]))
            values = [numbers([record["metrics"], record["scores"]]) for record in records]
            entry[f"{about}.records"] = described(np.concatenate(values))
            entry[f"{about}.identity"] = described([[r["method"], r["seed"], r["status"]] for r in records])
            tables = sorted(Path(folder).rglob("*.parquet"))
            entry[f"{about}.nodes"] = described(" ".join(described(_columns(path))[0] for path in tables))
    return entry


def _columns(path: Path) -> list[Any]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    return [described(np.asarray(column.combine_chunks()))[0] for column in table.columns]


def tune(task: Any, name: str) -> Entry:
    with tempfile.TemporaryDirectory() as folder:
        settings = {"epochs": 5, "hidden": 16}
        outcome = cg.tune(
            "csbm", ["vanilla", "credal-lj"], out=folder, trials=3, settings=settings, jobs=1, progress=False
        )
        best = [
            [*map(str, sorted(each.config.items())), each.value, each.seed] for each in outcome.best["csbm"].values()
        ]
        return {"best": described(best)}


def probe(task: Any, name: str) -> Entry:
    with tempfile.TemporaryDirectory() as folder:
        settings = {"epochs": 3, "hidden": 8}
        outcome = cg.probe(
            "csbm", ["credal-lj"], out=folder, seeds=1, quick=True, settings=settings, jobs=1, progress=False
        )
        values = [[r["metrics"], r["scores"]] for r in sorted(outcome.records, key=lambda r: json.dumps(r["probe"]))]
        return {"records": described(numbers(values))}


def tables(task: Any, name: str) -> Entry:
    """One's own graph: tables with text and numbers, fit, save, load, predict for later tables."""
    rng = np.random.default_rng(5)
    entry: Entry = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for about, count in (("now", 300), ("later", 90)):
            kind = rng.integers(3, size=count)
            lines = [
                f"n{i},{'' if i % 3 == 0 else 'abc'[k]},{rng.normal() + k:.4f},{'red' if rng.random() < k / 3 else ''}"
                for i, k in enumerate(kind)
            ]
            (place / f"{about}-nodes.csv").write_text("\n".join(["id,label,size,colour", *lines]) + "\n")
            ends = rng.integers(count, size=(4 * count, 2))
            (place / f"{about}-edges.csv").write_text(
                "\n".join(["source,target,weight", *(f"n{a},n{b},{rng.random():.3f}" for a, b in ends)]) + "\n"
            )
        for method in ("credal-coverage", "vanilla"):
            files = [place / "now-nodes.csv", place / "now-edges.csv"]
            later = [place / "later-nodes.csv", place / "later-edges.csv"]
            model = cg.fit(*files, method=made(method), progress=False, undirected=True)
            entry |= of_prediction(model.predict(), f"{method}.")
            entry |= of_prediction(model.predict(*later), f"{method}.later.")
            model.save(place / method)
            loaded = getattr(cg, "load_model", None) or cg.Model.load
            entry |= of_prediction(loaded(place / method).predict(*later), f"{method}.loaded.")
    return entry


EXPERIMENTS = {"bench": bench, "tune": tune, "probe": probe, "tables": tables}


def plan() -> dict[str, tuple[Callable[[Any, str], Entry], str, str]]:
    """By key of an entry: how it is computed, and of which input and method."""
    chosen: dict[str, tuple[Callable[[Any, str], Entry], str, str]] = {}
    for name, kind in cg.METHODS.items():
        for about in TASKS:
            chosen[f"{about}/full/{name}"] = (full, about, name)
        chosen[f"csbm/batch/{name}"] = (batch, "csbm", name)
        chosen[f"csbm/inductive/{name}"] = (inductive, "csbm:inductive", name)
        chosen[f"csbm/graph/{name}"] = (graph, "csbm:labelled", name)
        chosen[f"custom/weighted/{name}"] = (weighted, "custom", name)
        chosen[f"custom/weighted-batch/{name}"] = (weighted_batch, "custom", name)
        if Names.works_by_chunks(kind):
            chosen[f"csbm/packed/{name}"] = (packed, "csbm:packed", name)
    for kind_of in BACKBONES:
        for name in ("vanilla", "credal-lj"):
            for about in ("csbm", "custom"):
                chosen[f"{about}/backbone-{kind_of}/{name}"] = (backbone(kind_of), about, name)
    for name, compute in EXPERIMENTS.items():
        chosen[f"csbm/experiment/{name}"] = (compute, "", name)
    return chosen


def compute(*patterns: str) -> dict[str, Entry]:
    """All entries whose key matches every pattern."""
    torch.set_num_threads(1)
    entries: dict[str, Entry] = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = Inputs(Path(folder))
        for key, (function, about, name) in plan().items():
            if all(re.search(pattern, key) for pattern in patterns):
                torch.manual_seed(0)
                begin = time.perf_counter()
                entries[key] = {}
                attempt(entries[key], "all", lambda f=function, a=about, n=name: f(inputs[a] if a else None, n))  # type: ignore[misc]
                if os.environ.get("SHOW_SECONDS"):
                    print(f"{time.perf_counter() - begin:6.2f} {key}", file=sys.stderr)
    return entries


def compute_on_cluster(address: str, only: str) -> dict[str, Entry]:
    """Fits by one process of a Ray cluster, and predictions with its help."""
    torch.set_num_threads(1)
    entries = {}
    task = cg.load_task("csbm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in RAY_METHODS:
            if re.search(only, f"csbm/ray/{name}"):
                method = made(name, batch_size=64, epochs=3).fit(task, workers=1, address=address, progress=False)
                entry = of_prediction(method.predict())
                if Names.works_by_chunks(type(method)):
                    chunks = Names.predict_chunks(method, size=300, workers=1, address=address)
                    entry |= of_chunks(chunks, "chunks.")
                entries[f"csbm/ray/{name}"] = entry
    return entries


def environment() -> dict[str, str]:
    """Versions and the processor's capability, on which bits depend."""
    import scipy
    import sklearn

    return {
        "torch": torch.__version__, "numpy": np.__version__, "scipy": scipy.__version__, "sklearn": sklearn.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(), "threads": "1",
    }  # fmt: skip


def differences(old: dict[str, Entry], new: dict[str, Entry], exact: bool = True) -> list[str]:
    """Every quantity that differs: in its bits, or by more than the tolerances in its summary numbers."""
    lines = []
    for key in dict.fromkeys([*old, *new]):
        if key not in old or key not in new:
            lines.append(f"{key}: only {'before' if key in old else 'now'}")
            continue
        for name in dict.fromkeys([*old[key], *new[key]]):
            before, now = old[key].get(name), new[key].get(name)
            if before == now:
                continue
            if before is None or now is None:
                lines.append(f"{key} {name}: only {'now' if before is None else 'before'}")
            elif exact or len(before) != len(now):
                lines.append(f"{key} {name}: {_shown(before)} before, {_shown(now)} now")
            elif not np.allclose(before[1:], now[1:], rtol=REL, atol=ABS):
                lines.append(f"{key} {name}: {before[1:]} before, {now[1:]} now")
    return lines


def _shown(value: list[Any]) -> str:
    return f"{value[0][:8]} {' '.join(map(str, value[1:]))}".strip()


def as_text(entries: dict[str, Entry]) -> str:
    """JSON with one entry a line."""
    lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items()]
    about = json.dumps(environment())
    return f'{{"environment": {about},\n "entries": {{\n' + ",\n".join(lines) + "\n}}\n"


def run(checkout: Path, only: str, ray: bool) -> subprocess.Popen[str]:
    """This script for a checkout, in a process of its own."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(Path(__file__).resolve()),
        "--only",
        only,
        *(["--ray"] if ray else []),
    ]
    environ = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    return subprocess.Popen([*command, "--write", "-"], env=environ, text=True, stdout=subprocess.PIPE)


def finished(process: subprocess.Popen[str]) -> dict[str, Entry]:
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit("the computation failed")
    return json.loads(output)["entries"]  # type: ignore[no-any-return]


def results_of_base(base: Path, only: str, ray: bool) -> dict[str, Entry]:
    """Results for the base checkout, kept in the temporary folder until a file of it or this script changes."""
    digest = hashlib.sha256(f"{only} {ray} {environment()}".encode() + Path(__file__).read_bytes())
    for path in sorted((base / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    kept = Path(tempfile.gettempdir()) / f"credalgnn-characterise-{os.getuid()}-{digest.hexdigest()[:16]}.json"
    if not kept.exists():
        entries = finished(run(base, only, ray))
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(entries))
        partial.replace(kept)
    return json.loads(kept.read_text())  # type: ignore[no-any-return]


def on_ray(only: str) -> dict[str, Entry]:
    """The part that needs a cluster, with a local one that ends with it."""
    sys.path.insert(0, str(ROOT / "tests"))
    from ray_cluster import Machine  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        try:
            path = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
            machine.environment["PYTHONPATH"] = os.pathsep.join([*path, str(ROOT / "src")])
            process = machine.python(
                "-W", "ignore", str(Path(__file__).resolve()), "--only", only, "--cluster", machine.address
            )
            output, errors = process.communicate()
            if process.returncode:
                raise SystemExit(f"the computation on a cluster failed: {errors[-3000:]}")
            return json.loads(output.splitlines()[-1])  # type: ignore[no-any-return]
        finally:
            machine.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, help="another checkout: print differences, exit code 1 if there are any")
    parser.add_argument("--only", default="", metavar="REGEX", help="only entries whose key matches")
    parser.add_argument("--ray", action="store_true", help="also with a local Ray cluster")
    parser.add_argument("--write", metavar="FILE", help="write the entries that the test compares, or - for all")
    parser.add_argument("--cluster", metavar="ADDRESS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cluster:
        print(json.dumps(compute_on_cluster(args.cluster, args.only)))
        return
    if args.base:
        begin = time.perf_counter()
        process = run(ROOT, args.only, args.ray)
        before = results_of_base(args.base.resolve(), args.only, args.ray)
        now = finished(process)
        lines = differences(before, now)
        quantities = sum(map(len, now.values()))
        print("\n".join([*lines, f"{len(lines)} of {quantities} quantities in {len(now)} entries differ"]))
        print(f"{time.perf_counter() - begin:.0f} s")
        raise SystemExit(1 if lines else 0)
    entries = compute(args.only, QUICK if args.write not in (None, "-") else "")
    if args.ray:
        entries |= on_ray(args.only)
    text = as_text(entries)
    if args.write in (None, "-"):
        print(text, end="")
    else:
        Path(args.write).write_text(text)


if __name__ == "__main__":
    main()
