"""Kill commands at random moments, let them go on, and count what was lost; prints one JSON line for each command.

A script of its own: it forks before anything has started threads, so that a kill costs no second of imports.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba  # noqa: F401 (this and others: imported once, and not in every child)
import optuna
import pandas  # noqa: F401
import pyarrow.parquet
import sympy  # noqa: F401
import torch._dynamo  # noqa: F401
from safetensors import safe_open

import credalgnn.cli
import credalgnn.model.watching
from credalgnn.records.schema import RecordError, read_record
from own_graphs import write_tables

NOT_COMPARED = ("seconds", "peak_mib", "finished")


@dataclass
class Losses:
    """What kills have cost.

    Attributes:
        command: What was killed.
        kills: How often, while it was at work.
        finished: Chunks of work that were finished in the end: runs, trials, models, batches.
        lost: Finished chunks that were gone, or changed, after a kill or at the end.
        repeated: Finished chunks that were done again.
        damaged: Files under their final names that could not be read.
        wrong: Final results that differ from those of a command that nobody killed.
    """

    command: str
    kills: int = 0
    finished: int = 0
    lost: int = 0
    repeated: int = 0
    damaged: int = 0
    wrong: int = 0


def start(argv: list[str], log: Path) -> int:
    """The command in a child with a group of its own; what it says goes to a file."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os._exit(credalgnn.cli.main(argv))


def ended(child: int, seconds: float) -> int | None:
    """The exit code, if it ends in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def check(code: int | None, argv: list[str], log: Path) -> None:
    """Whether a command ended well: it did its work, or found that the killed one had just done all of it."""
    said = log.read_text()
    known = any(words in said for words in ("it has been counted", "holds a model already"))
    assert code == 0 or (code == 2 and known), (argv, code, said[-2000:])


def killed(argv: list[str], log: Path, seconds: float, order: random.Random) -> bool:
    """Whether the command was killed after so many seconds: alone, or with its workers. If not, it had ended well."""
    child = start(argv, log)
    code = ended(child, seconds)
    if code is not None:
        check(code, argv, log)
        return False
    if order.random() < 0.5:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        time.sleep(0.3)  # in which workers notice, and go
    else:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return True


def whole(argv: list[str], log: Path) -> float:
    """Seconds that the command takes if nobody kills it."""
    begin = time.monotonic()
    check(ended(start(argv, log), 600), argv, log)
    return time.monotonic() - begin


def crash(
    losses: Losses,
    kills: int,
    argv: Callable[[Path], list[str]],
    chunks: Callable[[Path, Losses], dict[str, Any]],
    place: Path,
    seed: int,
    prepare: Callable[[Path], None] = lambda folder: None,
) -> None:
    """Kill a command so often, in folder after folder, and compare each folder with that of an undisturbed one."""
    order, log = random.Random(seed), place / f"{losses.command}.log"
    prepare(place / "whole")
    seconds = whole(argv(place / "whole"), log)
    expected = chunks(place / "whole", losses)
    number = 0
    while losses.kills < kills:
        number += 1
        folder, said = place / f"{number}", place / f"{losses.command}-{number}.log"
        prepare(folder)
        before: dict[str, Any] = {}
        going = True
        while going and losses.kills < kills:
            going = killed(argv(folder), said, order.uniform(0.0, seconds), order)
            losses.kills += going
            after = chunks(folder, losses)
            losses.lost += sum(after.get(name) != value for name, value in before.items())
            before = after
        if going:
            whole(argv(folder), said)
        found = chunks(folder, losses)
        losses.lost += sum(found.get(name) != value for name, value in before.items())
        losses.finished += len(found)
        losses.wrong += found != expected
        text = said.read_text()
        assert "Traceback" not in text, text[-2000:]
        done = sum(line.startswith("[") for line in text.splitlines())
        losses.repeated += max(0, done - len(found)) if losses.command in ("bench", "tune") else 0
        shutil.rmtree(folder)


def records(folder: Path, losses: Losses) -> dict[str, Any]:
    """The runs that are finished, and what was found; tables of nodes are read as well."""
    found: dict[str, Any] = {}
    for path in folder.glob("runs/*/*/*.json"):
        try:
            record = read_record(path)  # its checksum is checked, which covers the time it took, too
            found[str(path.relative_to(folder))] = {k: v for k, v in record.items() if k not in NOT_COMPARED}
        except RecordError:
            losses.damaged += 1
    for path in folder.glob("nodes/**/*.parquet"):
        try:
            pyarrow.parquet.read_table(path)
        except (OSError, ValueError):
            losses.damaged += 1
    return found


def trials(folder: Path, losses: Losses) -> dict[str, Any]:
    """The trials that are finished, and their values; the last line of a journal may be cut, and is then mended."""
    journal = folder / "tuning.journal"
    if not journal.exists():
        return {}
    lines = journal.read_bytes().split(b"\n")[:-1]
    for line in lines:
        try:
            json.loads(line)
        except ValueError:
            losses.damaged += 1
    copy = folder / "copy.journal"
    copy.write_bytes(b"".join(line + b"\n" for line in lines))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(copy)))
    found = {}
    for study in storage.get_all_studies():
        for trial in storage.get_all_trials(study._study_id):
            if trial.state.is_finished() and not trial.user_attrs.get("lost"):
                found[f"{study.study_name} {trial.user_attrs['seed']}"] = [trial.value, trial.params]
    copy.unlink()
    return found


def model(folder: Path, losses: Losses) -> dict[str, Any]:
    """The model, if it is there: it then loads, and has these weights."""
    if not (folder / "model.json").exists():
        return {}
    try:
        credalgnn.load_model(folder)
    except Exception as error:
        print(f"{folder}: {error}", file=sys.stderr)
        losses.damaged += 1
        return {}
    return {"model": (folder / "model.safetensors").read_bytes().hex()}


def batches(folder: Path, losses: Losses) -> dict[str, Any]:
    """The batches that were watched, and the evidence that each brought."""
    path = folder / "watch.safetensors"
    if not path.exists():
        return {}
    try:
        with safe_open(path, "numpy") as file:
            state = json.loads(file.metadata()["watch"])
    except Exception as error:
        print(f"{path}: {error}", file=sys.stderr)
        losses.damaged += 1
        return {}
    return {str(each["batch"]): [each["evidence"], each["content"]] for each in state["batches"]}


def main(place: Path, seed: int, counts: dict[str, int]) -> None:
    """All commands, one after the other."""
    for name in counts:
        (place / name).mkdir(parents=True)
    os.chdir(place)
    write_tables(place / "tables", 200)
    write_tables(place / "new", 100, seed=5, name="m{:04d}".format)
    known = ["--nodes", "tables/nodes.csv", "--edges", "tables/edges.csv"]
    fit = ["fit", *known, "--label", "topic", "-m", "vanilla", "--set", "epochs=20"]
    assert ended(start([*fit, "--out", "model"], place / "fit.log"), 300) == 0
    small = ["--set", "epochs=3", "hidden=8", "--jobs", "1"]
    bench = ["bench", "-d", "digits", "-m", "vanilla", "--seeds", "3", "--predictions", "all", *small]
    tune = ["tune", "-d", "digits", "-m", "vanilla", "--trials", "7", *small]
    watch = ["--nodes", "new/nodes.csv", "--edges", "new/edges.csv"]
    todo: dict[str, tuple[Any, ...]] = {
        "bench": (lambda folder: [*bench, "--out", str(folder)], records),
        "tune": (lambda folder: [*tune, "--out", str(folder)], trials),
        "fit": (lambda folder: [*fit, "--out", str(folder)], model),
        "watch": (lambda folder: ["watch", str(folder), *watch], batches),
    }
    for name, count in counts.items():
        argv, chunks = todo[name]
        losses, begin = Losses(name), time.monotonic()
        more = {"prepare": lambda folder: shutil.copytree("model", folder)} if name == "watch" else {}
        crash(losses, count, argv, chunks, place / name, seed, **more)
        print(json.dumps({**asdict(losses), "seconds": round(time.monotonic() - begin)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]), json.loads(sys.argv[3]))
