"""What the network costs: one model trained and one graph predicted by two machines, on networks of several speeds.

    python benchmarks/network.py                       # as root, with iproute2: ip and tc
    python benchmarks/network.py --epoch 4 --latents 36 --answers 70      # and a table of papers100M, see below

The machines are two nodes of a Ray cluster, pinned to one processor each, in a network namespace whose loopback has a
token bucket (``tc ... tbf``): all that they say to each other goes through it, and is counted there. Each rate is a
process of its own. The graph is a small twin of papers100M (``twin.py``) with more labels.

With the seconds that ``twin.py`` prints for credal-lj (an epoch, latents and answers of all nodes, on one machine), a
table says what papers100M would take on 1, 4 and 16 such machines. Its assumptions:

- work grows with edges and nodes, ten times the twin's, and is shared evenly; the first and the last layer of the
  network are as wide as here (64);
- of a pass over the training nodes, every batch is shared, and its gradients go around once (ring: twice their bytes);
- of each layer, every machine fetches what all nodes send, but for its own part; latents of all nodes and then their
  predictions come to the machine that asks, one after another, and are written there, as fast as here;
- links are full duplex, every machine's own, and reach ``--efficiency`` of their rate.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import twin
from twin import bytes_of, write_shards

NODES, EDGES, TRAIN = 111_059_956, 1_615_685_872, 1_207_179  # of papers100M
WIDTH, LAYERS = 64, 2
GBIT = 1e9 / 8
BATCH = 1024


def stage(folder: Path, epochs: int, batch: int) -> None:
    """Train and predict on a cluster of two nodes, in this process; prints seconds and bytes."""
    import ray
    from ray.cluster_utils import Cluster

    import credalgnn as cg

    small = {"num_cpus": 1, "object_store_memory": 2 * 10**9}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    second = cluster.add_node(**small)
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    for number, node in enumerate((cluster.head_node, second)):
        pin(node.all_processes["raylet"][0].process.pid, number % (os.cpu_count() or 1))
    graph = cg.load_graph(folder / "twin.cg")
    found: dict[str, float] = {}
    for workers in (1, 2):
        method = cg.CredalLJ(epochs=epochs, patience=epochs, batch_size=batch)
        seen: list[tuple[float, int]] = []

        def look(line: object, seen: list[tuple[float, int]] = seen) -> None:
            seen.append((time.perf_counter(), sent()))

        method.fit(graph, workers=workers, progress=False, on_epoch=look)
        (begin, before), (end, after) = seen[1], seen[-1]  # the first epoch compiles
        found |= {f"epoch{workers}": (end - begin) / (epochs - 1), f"bytes{workers}": (after - before) / (epochs - 1)}
    method._cache = type(method._cache)()  # what fit has found of this graph is to be found again
    begin, before = time.perf_counter(), sent()
    for _ in method.predict_chunks(workers=2):
        pass
    found |= {"predict": time.perf_counter() - begin, "predict_bytes": sent() - before}
    found["parameters"] = sum(each.numel() for each in method.module_.parameters())
    print(json.dumps(found), flush=True)
    ray.shutdown()
    cluster.shutdown()


def pin(process: int, processor: int) -> None:
    """Let a process, and all that it has started and will start, use one processor only."""
    import psutil

    above = psutil.Process(process)
    for each in (above, *above.children(recursive=True)):
        each.cpu_affinity([processor])


def sent() -> int:
    """Bytes that have gone through the loopback of this network namespace."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def measured(folder: Path, rate: str, epochs: int, batch: int) -> dict[str, float]:
    """What ``stage`` prints in a network of its own."""
    name = f"credalgnn-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    inside = ["ip", "netns", "exec", name]
    try:
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        if rate != "none":
            bucket = ["rate", rate, "burst", "512kb", "latency", "400ms"]
            subprocess.run([*inside, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", *bucket], check=True)
        with tempfile.TemporaryDirectory(prefix="cg") as temporary:
            settings = {
                "RAY_TMPDIR": temporary, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled",
            }  # fmt: skip
            command = [*inside, sys.executable, "-W", "ignore", __file__, "--stage", "--folder", str(folder)]
            done = subprocess.run(
                [*command, "--epochs", str(epochs), "--batch", str(batch)], env={**os.environ, **settings},
                stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def extrapolated(args: argparse.Namespace, parameters: float) -> None:
    """The table of papers100M."""
    growth = EDGES / args.twin_edges
    print(f"\npapers100M, {args.link:g} Gbit/s, {args.efficiency:.0%} of it used; hours of work + hours of network\n")
    print("| machines | a pass over the training nodes | latents of all nodes | answers | together |")
    print("|---:|---:|---:|---:|---:|")
    speed = args.link * GBIT * args.efficiency
    batches = TRAIN / args.batch
    for machines in (1, 4, 16):
        others = (machines - 1) / machines
        work = {
            "train": args.epoch / 200 * batches / machines,
            "latents": args.latents * growth / machines,
            "answers": args.answers * growth * (args.written + (1 - args.written) / machines),
        }
        rows = 4.0 * NODES * WIDTH * LAYERS
        network = {
            "train": batches * 2 * others * 4 * parameters / speed,
            "latents": (rows + rows) * others / speed,  # what nodes send, and the latents to the one that asks
            "answers": NODES * args.row * others / speed,
        }
        cells = [f"{work[part] / 3600:.2f} + {network[part] / 3600:.2f}" for part in work]
        total = (sum(work.values()) + sum(network.values())) / 3600
        print(f"| {machines} | {' | '.join(cells)} | {total:.1f} h |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rates", nargs="+", default=["none", "1gbit", "100mbit"], help="as tc names them; none: no limit"
    )
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=2_600_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=BATCH, help="training nodes of a batch (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("runs/network"))
    parser.add_argument("--epoch", type=float, help="of twin.py, seconds")
    parser.add_argument("--latents", type=float, help="likewise")
    parser.add_argument("--answers", type=float, help="likewise")
    parser.add_argument("--twin-edges", type=float, default=160e6)
    parser.add_argument("--written", type=float, default=0.3, help="share of the answers' time that is writing")
    parser.add_argument("--row", type=float, default=264.0, help="bytes of a node's prediction (8 classes)")
    parser.add_argument("--link", type=float, default=10.0, help="Gbit/s of a machine's network")
    parser.add_argument("--efficiency", type=float, default=0.7)
    parser.add_argument("--stage", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stage:
        stage(args.folder, args.epochs, args.batch)
        return
    if os.geteuid() or shutil.which("tc") is None or shutil.which("ip") is None:
        raise SystemExit("a slow network is made by ip and tc (iproute2), as root")
    if not (args.folder / "twin.cg").exists():
        twin.LABELLED = 0.6  # so that an epoch has many batches
        write_shards(args.folder, args.nodes, args.edges)
        command = ["-m", "credalgnn", "pack", f"{args.folder}/nodes", f"{args.folder}/edges"]
        subprocess.run([sys.executable, *command, "--out", f"{args.folder}/twin.cg", "--dtype", "float16"], check=True)
    print(f"{args.nodes:,} nodes, {args.edges:,} edges ({bytes_of(args.folder / 'twin.cg') / 2**20:,.0f} MiB)\n")
    print("| network | epoch, one worker: s | two: s | times faster | MB | predict: s | MB |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    found: dict[str, float] = {}
    for rate in args.rates:
        found = measured(args.folder.resolve(), rate, args.epochs, args.batch)
        one, two = found["epoch1"], found["epoch2"]
        cells = (one, two, one / two, found["bytes2"] / 1e6, found["predict"], found["predict_bytes"] / 1e6)
        print(f"| {rate} | {' | '.join(f'{cell:,.2f}' for cell in cells)} |", flush=True)
    if None not in (args.epoch, args.latents, args.answers):
        extrapolated(args, found["parameters"])


if __name__ == "__main__":
    main()
