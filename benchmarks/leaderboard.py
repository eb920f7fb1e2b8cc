"""The leaderboard of docs/results, whole: every method on every graph that is here, each condition a command.

    make bench-leaderboard                                   # all of it; goes on where it was stopped
    python benchmarks/leaderboard.py --only one-split        # the seven graphs that people use, transductive

It runs ``credalgnn bench`` for each line of ``STAGES`` and then ``credalgnn leaderboard`` over all their folders, and
prints every command before it starts and its minutes afterwards. Ten seeds, but for what takes longest: ensembles have
three on the larger graphs, and everything has fewer where a row of ``STAGES`` says so.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from credalgnn import METHODS

SMALL, LARGER = ["chameleon", "squirrel", "cora", "citeseer"], ["pubmed", "coauthor", "computers"]
MADE = ["digits", "csbm"]
ENSEMBLES = [name for name in METHODS if name.endswith("-ensemble")]
SINGLE = [name for name in METHODS if name not in ENSEMBLES]
GROWS = ["--setting", "inductive"]

STAGES: dict[str, list[tuple[str, list[str], list[str], int, list[str]]]] = {  # folder, graphs, methods, seeds, options
    "one-split": [
        ("small", SMALL, list(METHODS), 10, []),
        ("larger", LARGER, SINGLE, 10, []),
        ("larger-ensembles", LARGER, ENSEMBLES, 3, []),
    ],
    "made": [("made", MADE, list(METHODS), 10, [])],
    "splits": [("splits", SMALL[:2], list(METHODS), 10, ["--vary-split"])],
    "grown": [
        ("grown", SMALL + MADE, list(METHODS), 10, GROWS),
        ("grown-larger", LARGER, list(METHODS), 1, GROWS),
    ],
    "arxiv": [("arxiv", ["arxiv-structure"], list(METHODS), 1, [])],
}


def credalgnn(*words: str) -> int:
    """Run a command of the shell, and say what it took; gives its exit code."""
    command = ["credalgnn", *words]
    print("$ " + " ".join(command), flush=True)
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", *command], stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wall = time.perf_counter() - begin
    failed = f", exit code {done.returncode}" if done.returncode else ""
    print(f"  {wall / 60:.1f} minutes, {processor / 60:.1f} of processor time{failed}", flush=True)
    return done.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(STAGES), choices=list(STAGES), metavar="STAGE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("runs/leaderboard"))
    args = parser.parse_args()
    codes = []
    for name in args.only:
        for folder, graphs, methods, seeds, options in STAGES[name]:
            words = ["-d", *graphs, "-m", *methods, "--seeds", str(seeds), *options, "--predictions", "none"]
            codes.append(credalgnn("bench", *words, "--jobs", str(args.jobs), "--out", str(args.out / folder)))
    folders = [str(args.out / row[0]) for rows in STAGES.values() for row in rows if (args.out / row[0]).exists()]
    codes.append(credalgnn("leaderboard", *folders, "--out", str(args.out / "page")))
    raise SystemExit(max(codes))  # what failed is tried again by the same command


if __name__ == "__main__":
    main()
