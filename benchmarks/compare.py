"""Speed and memory of this checkout relative to another one: training steps, a large graph, start of the command.

    python benchmarks/compare.py --base PATH                               # some minutes
    python benchmarks/compare.py --base PATH --parts steps --datasets coauthor chameleon
    python benchmarks/compare.py --base PATH --parts twin --nodes 11000000 --memory 3GiB

Ratios are now / base, medians over measurements that take turns within one run; on a busy machine only CPU time and
memory mean anything. Steps are CPU milliseconds of an epoch in one thread (forward, backward, Adam, monitor), the least
of a fit. The twin is the graph of benchmarks/twin.py; each of its stages is a process of its own. Public names only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

# This process imports no more than that: peaks of processes that it starts would begin with its own.

ROOT = Path(__file__).resolve().parents[1]
BACKBONES = ("gcn", "sage", "gin", "gat", "gatv2", "gpr", "mlp")
METHODS = ("vanilla", "credal-lj")
SYNTHETIC = ("dense", "sparse")
EDGES_A_NODE = 14
LIMIT = 1.03


# In a process of one checkout


def graph_of(name: str) -> Any:
    """A task of 5,000 nodes and 50,000 edges with 256 dense, or 2,000 sparse features."""
    import numpy as np

    import credalgnn as cg

    rng = np.random.default_rng(0)
    nodes, width = 5_000, 256 if name == "dense" else 2_000
    labels = rng.integers(6, size=nodes)
    x = rng.standard_normal((nodes, width), dtype=np.float32) + 0.2 * (np.arange(width) % 6 == labels[:, None])
    if name == "sparse":
        x *= rng.random((nodes, width)) < 0.02
    edges = rng.integers(nodes, size=(2, 10 * nodes))
    return cg.Task.leave_out(cg.Graph(x.astype(np.float32), edges, labels), [0], name=name)


def template(method: str, **options: Any) -> Any:
    import credalgnn as cg

    if method == "credal-coverage":
        return cg.CredalCoverage(model=cg.Vanilla(**options), seed=0)
    return cg.METHODS[method](seed=0, **options)


def epochs_of(task: Any, method: str, batch: bool, backbone: str) -> float:
    """The least CPU milliseconds of an epoch of a fit."""
    times = [time.process_time()]
    options: dict[str, Any] = {"backbone": backbone, "epochs": 5 if batch else 15, "patience": 15}
    if batch:
        options["batch_size"] = 1024
    template(method, **options).fit(task, progress=False, on_epoch=lambda line: times.append(time.process_time()))
    return 1e3 * min(end - begin for begin, end in pairwise(times[1:]))


def whole(task: Any, method: str, predict: bool) -> float:
    """CPU milliseconds of a fit, or of a prediction of all nodes."""
    begin = time.process_time()
    fitted = template(method, epochs=2).fit(task, progress=False)
    if predict:
        begin = time.process_time()
        for _ in range(3):
            fitted.predict()
        return 1e3 * (time.process_time() - begin) / 3
    return 1e3 * (time.process_time() - begin)


def serve() -> None:
    """Measure what lines of stdin ask for, a JSON list each, and print the numbers."""
    import warnings

    import torch

    import credalgnn as cg

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tasks: dict[str, Any] = {}
    for line in sys.stdin:
        kind, dataset, mirror, *rest = json.loads(line)
        if dataset not in tasks:
            tasks[dataset] = graph_of(dataset) if dataset in SYNTHETIC else cg.load_task(dataset, mirror=mirror)
        measure: Callable[..., float] = {"epoch": epochs_of, "whole": whole}[kind]
        print(measure(tasks[dataset], *rest), flush=True)


def stage(name: str, folder: str, memory: str) -> None:
    """One stage of the large graph: a network or coverage is fitted for an epoch, then all nodes are predicted."""
    import warnings

    import torch

    import credalgnn as cg

    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    graph = cg.load_graph(Path(folder) / "twin.cg")
    method = template(name, epochs=1).fit(graph, memory=memory, progress=False)
    chunks = getattr(method, "predict_chunks", None) or method.predict_pieces  # the name in older checkouts
    count = sum(len(part.nodes) for part in chunks())
    assert count == graph.num_nodes


# In the process that compares


class Checkout:
    """A checkout, and how processes are started in it."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.environment = {**os.environ, "PYTHONPATH": str(self.path / "src")}

    @contextmanager
    def server(self) -> Iterator[Callable[..., float]]:
        """A process that measures, one question after the other."""
        environment = {**self.environment, "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--serve"], env=environment, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None

            def measure(*question: Any) -> float:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    raise SystemExit(f"{self.path}: {question} failed")
                return float(answer)

            yield measure
            process.stdin.close()

    def run(self, *words: str) -> tuple[float, float, float]:
        """Seconds, CPU seconds and peak MiB of a Python process."""
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *words], env=self.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            raise SystemExit(f"{self.path}: {' '.join(words)} failed: {errors[-2000:]}")
        return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def take_turns(base: Callable[[], Any], now: Callable[[], Any], turns: int) -> list[tuple[Any, Any]]:
    """Measurements of both, alternating which comes first."""
    pairs = []
    for turn in range(turns):
        if turn % 2:
            later = now()
            pairs.append((base(), later))
        else:
            pairs.append((base(), now()))
    return pairs


def row(what: str, unit: str, pairs: list[tuple[float, float]]) -> float:
    """Print medians of both and of their ratio, which is returned."""
    ratio = statistics.median(now / base for base, now in pairs)
    before, after = (statistics.median(column) for column in zip(*pairs, strict=True))
    mark = f" > {LIMIT}" if ratio > LIMIT else ""
    print(f"| {what} | {before:,.2f} {unit} | {after:,.2f} {unit} | {ratio:.3f}{mark} |", flush=True)
    return ratio


def heading(what: str) -> None:
    print(f"\n| {what} | base | now | now / base |\n|---|---:|---:|---:|", flush=True)


def compare_steps(base: Checkout, now: Checkout, args: argparse.Namespace) -> None:
    heading("CPU time, one thread")
    ratios = []
    with base.server() as of_base, now.server() as of_now:

        def measured(what: str, *question: Any) -> None:
            for measure in (of_base, of_now):
                measure(*question)  # warm up: compile, make operators
            pairs = take_turns(lambda: of_base(*question), lambda: of_now(*question), args.turns)
            ratios.append(row(what, "ms", pairs))

        for dataset in args.datasets:
            for backbone in args.backbones:
                for method in METHODS:
                    for batch in (False, True):
                        what = f"{dataset} {backbone} {method} {'mini-batch' if batch else 'full-batch'}"
                        measured(what, "epoch", dataset, args.mirror, method, batch, backbone)
            for method in METHODS:
                measured(f"{dataset} {method} prediction", "whole", dataset, args.mirror, method, True)
    print(f"| all: median of ratios | | | {statistics.median(ratios):.3f} |")


def compare_twin(base: Checkout, now: Checkout, args: argparse.Namespace) -> None:
    edges = args.edges or EDGES_A_NODE * args.nodes
    heading(f"twin: {args.nodes:,} nodes, {edges:,} edges, memory {args.memory}")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        write = f"import sys, pathlib; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import twin; "
        write += f"twin.write_shards(pathlib.Path({name!r}), {args.nodes}, {edges})"
        now.run("-c", write)
        pack = ["-m", "credalgnn", "pack", f"{folder}/nodes", f"{folder}/edges", "--out", f"{folder}/twin.cg"]
        pack += ["--dtype", "float16", "--memory", args.memory]

        def packed(checkout: Checkout) -> tuple[float, float, float]:
            now.run("-c", f"import shutil; shutil.rmtree({name!r} + '/twin.cg', ignore_errors=True)")
            return checkout.run(*pack)

        stages: dict[str, Callable[[Checkout], tuple[float, float, float]]] = {"pack": packed}
        for method in ("credal-lj", "credal-coverage"):
            words = [str(Path(__file__).resolve()), "--stage", method, name, args.memory]
            stages[method] = lambda checkout, words=words: checkout.run(*words)  # type: ignore[misc]
        for about, measure in stages.items():
            pairs = take_turns(lambda m=measure: m(base), lambda m=measure: m(now), args.twin_turns)  # type: ignore[misc]
            for at, (what, unit) in enumerate((("time", "s"), ("CPU time", "s"), ("peak memory", "MiB"))):
                row(f"{about}: {what}", unit, [(one[at], other[at]) for one, other in pairs])


def compare_start(base: Checkout, now: Checkout, args: argparse.Namespace) -> None:
    heading("start")
    for what, words in {
        "credalgnn --help": ["-m", "credalgnn", "--help"],
        "credalgnn fit --help": ["-m", "credalgnn", "fit", "--help"],
        "import credalgnn": ["-c", "import credalgnn"],
        "from credalgnn import CredalLJ": ["-c", "from credalgnn import CredalLJ"],
    }.items():
        for checkout in (base, now):
            checkout.run(*words)  # byte code is written
        pairs = take_turns(lambda w=words: base.run(*w)[1], lambda w=words: now.run(*w)[1], 2 * args.turns)  # type: ignore[misc]
        row(f"{what} (CPU)", "s", pairs)


def compare_size(base: Checkout, now: Checkout, args: argparse.Namespace) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from structure import measure

    heading("size")
    before, after = (measure(checkout.path / "src" / "credalgnn", trace=False) for checkout in (base, now))
    for name, (value, _) in before.items():
        ratio = after[name][0] / value if value else float("nan")
        print(f"| {name} | {value:,g} | {after[name][0]:,g} | {ratio:.3f} |")


PARTS = {"size": compare_size, "start": compare_start, "steps": compare_steps, "twin": compare_twin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, help="the checkout to compare with")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--turns", type=int, default=3, help="measurements of steps, each (default: %(default)s)")
    parser.add_argument("--datasets", nargs="+", default=list(SYNTHETIC), help="names, or (default) dense, sparse")
    parser.add_argument("--backbones", nargs="+", default=list(BACKBONES), choices=list(BACKBONES))
    parser.add_argument("--mirror", help="folder with raw files of data sets (default: $CREDALGNN_MIRROR)")
    parser.add_argument("--nodes", type=int, default=40_000, help="of the large graph (default: %(default)s)")
    parser.add_argument("--edges", type=int, help="of the large graph (default: 14 a node)")
    parser.add_argument("--memory", default="1GiB", help="for the large graph (default: %(default)s)")
    parser.add_argument("--twin-turns", type=int, default=2, help="runs of each stage (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="for the large graph (default: the system's temporary folder)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--stage", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
    elif args.stage:
        stage(*args.stage)
    elif args.base is None:
        parser.error("--base PATH is needed: git worktree add PATH COMMIT makes one")
    else:
        begin = time.perf_counter()
        for part in args.parts:
            PARTS[part](Checkout(args.base), Checkout(ROOT), args)
        print(f"\n{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
