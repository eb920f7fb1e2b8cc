"""A fit that is stopped goes on: with the same result, nothing trained twice, and never from another one's state."""

from __future__ import annotations

import functools
import importlib
import linecache
import math
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import credalgnn as cg
from credalgnn.cli import main
from credalgnn.graphs import Graph, csbm
from credalgnn.methods import ClassicalEnsemble, CredalLJ, Energy, Method, Vanilla, checkpoints
from credalgnn.methods.base import parts_of
from credalgnn.methods.checkpoints import Checkpoint, CheckpointWarning, packed, unpacked
from credalgnn.nn import GCN, TrainingError
from credalgnn.runtime.files import sealed_with

SHORT: dict[str, Any] = {"hidden": 8, "epochs": 12, "patience": 12, "dropout": 0.3}


class Stopped(BaseException):
    """What Ctrl-C is."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return csbm(200, 3, seed=2)


@pytest.fixture(autouse=True)
def all_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr(checkpoints, "BRIEF", 0.0)


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The process ends when it has kept so many states."""
    once, left = Checkpoint.write, [count]

    def write(self: Checkpoint, content: bytes) -> None:
        once(self, content)
        left[0] -= 1
        if not left[0]:
            raise Stopped

    monkeypatch.setattr(Checkpoint, "write", write)


def networks(method: Method) -> list[Method]:
    inner = [each for part in parts_of(method).values() for each in networks(part)]
    return [*([method] if method.history_ else []), *inner]


def assert_same(one: Method, other: Method) -> None:
    pairs = list(zip(networks(one), networks(other), strict=True))
    assert pairs
    for ours, theirs in pairs:
        assert ours.history_ == theirs.history_
        for name, tensor in ours._state().items():
            assert torch.equal(tensor, theirs._state()[name]), name


def test_a_state_is_the_same_when_it_is_read_again() -> None:
    state = {
        "numbers": [1, 2.5, -math.inf, True], 7: {"deeper": {"rows": torch.rand(3, 2).t()}},
        "kinds": [torch.tensor(3, dtype=torch.int64), torch.zeros(2, dtype=torch.uint8), torch.ones(1).half()],
        "ended": False,
    }  # fmt: skip
    found = unpacked(packed(state))
    torch.testing.assert_close(found, state, rtol=0, atol=0)
    assert list(found) == list(state)
    assert unpacked(packed({"läuft": ("noch", None)})) == {"läuft": ["noch", None]}
    assert math.isnan(unpacked(packed([math.nan]))[0])


def test_no_byte_of_a_state_changes_unnoticed() -> None:
    content = packed({"curve": [[0, 1.0, 2.0]], "weights": torch.arange(5.0), "ended": True})
    assert sealed_with(content)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        assert sealed_with(bytes(changed)) is None


@pytest.mark.parametrize(
    ("method", "kept"),
    [
        (Vanilla(**SHORT), 7),
        (CredalLJ(**SHORT, batch_size=32, fanouts=[3, 2]), 7),
        (Vanilla(**{**SHORT, "patience": 1}), 2),
        (Energy(model=Vanilla(**SHORT)), 5),
        (ClassicalEnsemble(members=[Vanilla(**SHORT, seed=seed) for seed in (0, 1)]), 20),  # 13 are of the first one
    ],
    ids=["whole", "batches", "patience", "below", "members"],
)
def test_a_fit_goes_on_with_the_same_result(
    method: Method, kept: int, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    whole = method.clone().fit(graph)
    with monkeypatch.context() as patched:
        stop_after(patched, kept)
        with pytest.raises(Stopped):
            method.clone().fit(graph, checkpoints=tmp_path)
    shown: list[int] = []
    capsys.readouterr()
    again = method.clone().fit(graph, checkpoints=tmp_path, on_epoch=lambda line: shown.append(line.epoch))
    assert_same(again, whole)
    done = kept - 13 if len(networks(whole)) == 2 else kept
    assert shown[0] == done  # an epoch ends with what is kept
    said = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in said] == (
        ["was trained already"] * (len(networks(whole)) - 1)
        + [f"continues from epoch {done - 1}, where it was stopped"]
    )


@pytest.mark.parametrize("kept", range(1, 15))
def test_a_learning_rate_that_falls_is_part_of_the_state(
    kept: int, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is stopped: before a fall, just behind one, and while the next one is waited for."""
    monkeypatch.setattr("credalgnn.nn.training.PLATEAU", 8)  # two epochs
    rates: list[float] = []
    step = torch.optim.Adam.step

    def seen(self: torch.optim.Adam, *args: Any, **options: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args, **options)

    monkeypatch.setattr(torch.optim.Adam, "step", seen)
    method = Vanilla(hidden=8, epochs=14, patience=14, batch_size=32, lr=0.5, dropout=0.3)
    whole = method.clone().fit(graph)
    falls = {number // 4 for number in range(1, len(rates)) if rates[number] < rates[number - 1]}
    assert len(falls) >= 3
    with monkeypatch.context() as patched:
        stop_after(patched, kept)
        with pytest.raises(Stopped):
            method.clone().fit(graph, checkpoints=tmp_path)
    assert_same(method.clone().fit(graph, checkpoints=tmp_path, progress=False), whole)


def test_what_is_trained_already_is_not_trained_again(graph: Graph, tmp_path: Path) -> None:
    shown: list[Any] = []
    first = Vanilla(**SHORT).fit(graph, checkpoints=tmp_path)
    again = Vanilla(**SHORT).fit(graph, checkpoints=tmp_path, on_epoch=shown.append, progress=False)
    assert_same(first, again)
    assert not shown


def test_nobody_goes_on_from_another_state(graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of other hyper-parameters, classes, seeds, labels, nodes, edges or features."""
    train, val = torch.arange(0, 100), torch.arange(100, 150)
    labels = graph.labels.clone()
    labels[3] = (labels[3] + 1) % 3
    others: list[tuple[type[Method], dict[str, Any], Graph, torch.Tensor]] = [
        (Vanilla, {}, graph, train),
        (Vanilla, {"lr": 0.02}, graph, train),
        (Vanilla, {"seed": 1}, graph, train),
        (Vanilla, {"batch_size": 50}, graph, train),
        (CredalLJ, {}, graph, train),
        (Vanilla, {}, graph.replace(labels=labels), train),
        (Vanilla, {}, graph, train[1:]),
        (Vanilla, {}, graph.replace(features=graph.features + 1e-6), train),
        (Vanilla, {}, graph.replace(edge_index=graph.edge_index[:, 1:]), train),
    ]
    for kind, options, data, nodes in others:
        kind(**{**SHORT, **options}).fit(data, train=nodes, val=val, checkpoints=tmp_path)
    assert len(list(tmp_path.iterdir())) == len(others)
    assert capsys.readouterr().err == ""


class Maker:
    """What its method makes may hang on what it knows."""

    def make(self, in_channels: int, hidden_channels: int, num_layers: int, dropout: float) -> GCN:
        return GCN(in_channels, hidden_channels, num_layers, dropout=dropout)


MINE = """
from dataclasses import dataclass
FACTOR = WEIGHT
from credalgnn.methods import Vanilla
from credalgnn.nn import GCN
@dataclass(kw_only=True, eq=False)
class Mine(Vanilla):
    name = "mine"
    def _training_loss(self, output, labels):
        return FACTOR * super()._training_loss(output, labels)
def narrow(in_channels, hidden_channels, num_layers, dropout):
    return GCN(in_channels, hidden_channels, num_layers, dropout=dropout)
"""


def test_nobody_goes_on_from_the_state_of_other_code(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes and functions of one's own that have changed since have the names that they had."""
    folder, options = tmp_path / "kept", {**SHORT, "epochs": 3}
    for number, weight in enumerate(("1.0", "2.0")):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "mymethod.py").write_text(MINE.replace("WEIGHT", weight))
        with monkeypatch.context() as patched:
            patched.syspath_prepend(place)
            patched.delitem(sys.modules, "mymethod", raising=False)
            mine = importlib.import_module("mymethod")
            linecache.clearcache()
            mine.Mine(**options).fit(graph, checkpoints=folder)
            Vanilla(backbone=mine.narrow, **options).fit(graph, checkpoints=folder)
            sys.modules.pop("mymethod")
    assert len(list(folder.iterdir())) == 4

    def within(in_channels: int, hidden_channels: int, num_layers: int, dropout: float) -> GCN:
        return GCN(in_channels, hidden_channels, num_layers, dropout=dropout)

    for backbone in (within, functools.partial(GCN), Maker().make):
        with pytest.warns(CheckpointWarning, match="its code is in no file, so that its training cannot be saved"):
            Vanilla(backbone=backbone, **options).fit(graph, checkpoints=folder)
    assert len(list(folder.iterdir())) == 4


def test_nobody_goes_on_from_the_state_of_another_version(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in ("before", "after"):
        monkeypatch.setattr(checkpoints, "package_code", lambda code=code: code)
        Vanilla(**SHORT).fit(graph, checkpoints=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        (("# why", "# because"), True),
        (('"""Return it."""', '"""Something else."""'), True),
        (("(a, b)", "(\n    a,\n    b\n)"), True),
        (("a + 1", "a + 2"), False),
        (("rate = 0.5", "rate = 0.25"), False),
        (("return a", "return b"), False),
    ],
)
def test_comments_and_docstrings_discard_no_state(changed: tuple[str, str], same: bool, tmp_path: Path) -> None:
    source = '"""Module."""\nrate = 0.5  # why\ndef f(a, b):\n    """Return it."""\n    b = a + 1\n    return a\n'
    assert changed[0] in source
    for number, text in enumerate((source, source.replace(*changed))):
        (tmp_path / str(number) / "nn").mkdir(parents=True)
        (tmp_path / str(number) / "nn" / "layers.py").write_text(text)
        (tmp_path / str(number) / "cli.py").write_text(f"print({number})")
    before, after = (checkpoints.package_code(tmp_path / str(number)) for number in range(2))
    assert (before == after) is same


def test_a_whole_state_of_something_else_is_refused(graph: Graph, tmp_path: Path) -> None:
    Vanilla(**SHORT).fit(graph, checkpoints=tmp_path)
    (path,) = tmp_path.iterdir()
    state = unpacked(path.read_bytes())
    for changed in ({"model": {}}, {"best": "x", "curve": [[1, 2]]}, {"rng": {"cpu": torch.zeros(3)}}):
        path.write_bytes(packed({**state, "ended": False, **changed}))
        with pytest.raises(TrainingError, match=r"the checkpoint is not of this training .*remove the folder"):
            Vanilla(**SHORT).fit(graph, checkpoints=tmp_path)


def test_a_damaged_state_is_said_and_trained_anew(graph: Graph, tmp_path: Path) -> None:
    whole = Vanilla(**SHORT).fit(graph, checkpoints=tmp_path)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    for damaged in (
        b"",
        content[:100],
        content[:-1],
        content[: len(content) // 2] + b"?" + content[len(content) // 2 :],
    ):
        path.write_bytes(damaged)
        with pytest.warns(CheckpointWarning, match="cannot be used .*: vanilla seed 0 is trained anew"):
            assert_same(Vanilla(**SHORT).fit(graph, checkpoints=tmp_path), whole)
        assert sealed_with(path.read_bytes())


def test_a_training_goes_on_where_nothing_can_be_kept(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(CheckpointWarning, match=r"cannot be written \(.*\): if this process is stopped"):
        Vanilla(**SHORT).fit(graph, checkpoints=tmp_path / "file" / "folder")


def test_little_is_kept_of_what_takes_no_time(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a brief training; of a longer one its end, and what was there each half minute."""
    now = [0.0]
    monkeypatch.setattr(checkpoints, "EVERY", 30.0)
    monkeypatch.setattr(checkpoints, "BRIEF", 2.0)
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: now[0])
    checkpoint = Checkpoint(tmp_path / "state", "it")
    times = []
    for second in (0.0, 1.0, 29.0, 30.0, 31.0, 59.0, 61.0):
        now[0] = second
        checkpoint.save(lambda: {"epoch": 1}, ended=False)
        if (tmp_path / "state").exists():
            times.append(second)
            (tmp_path / "state").unlink()
    assert times == [30.0, 61.0]
    assert checkpoint.is_due(ended=True)
    brief = Checkpoint(tmp_path / "state", "it")
    now[0] += 1.5
    brief.save(lambda: {"epoch": 1}, ended=True)
    assert not (tmp_path / "state").exists()


KILLED = """
import os, signal, sys
from credalgnn.graphs import csbm
from credalgnn.methods import Vanilla, checkpoints
checkpoints.EVERY = 0.0
def show(line):
    if line.epoch == 9:
        os.kill(os.getpid(), signal.SIGKILL)
options = {"hidden": 8, "epochs": 12, "patience": 12, "dropout": 0.3}
Vanilla(**options).fit(csbm(200, 3, seed=2), checkpoints=sys.argv[1], on_epoch=show)
"""


def test_a_killed_process_is_gone_on_from_by_another(graph: Graph, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    shown: list[int] = []
    again = Vanilla(**SHORT).fit(graph, checkpoints=tmp_path, on_epoch=lambda line: shown.append(line.epoch))
    assert shown == [9, 10, 11, 12]
    assert_same(again, Vanilla(**SHORT).fit(graph))


def test_the_same_command_goes_on_and_leaves_a_model(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph.pack(tmp_path / "graph.cg")
    out = tmp_path / "model"
    command = ["fit", "--graph", str(tmp_path / "graph.cg"), "--out", str(out), "-m", "vanilla"]
    command += ["--set", *(f"{name}={value}" for name, value in SHORT.items())]

    def stopped(self: Checkpoint, content: bytes) -> None:
        write(self, content)
        if unpacked(content)["curve"][-1][0] == 6:
            raise KeyboardInterrupt

    write = Checkpoint.write
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write", stopped)
        assert main(command) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "credalgnn: stopped; no model was written; the same command goes on from the training that was kept"
    assert [path.name for path in out.iterdir()] == ["checkpoints"]
    assert main(command) == 0
    assert "vanilla seed 0: continues from epoch 6, where it was stopped" in capsys.readouterr().err.splitlines()
    assert not (out / "checkpoints").exists()
    assert main(["check", str(out)]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(cg.load_model(out).method, cg.fit(graph, method=Vanilla(**SHORT), progress=False).method)
