"""``credalgnn fit``, ``predict``, ``evaluate`` and ``watch`` from the shell, as clumsy hands type them."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

from credalgnn.cli import main
from credalgnn.graphs import GraphError
from credalgnn.methods import MethodError
from credalgnn.model import fit, load_model
from own_graphs import graph_of, write_tables

KILLS = Path(__file__).with_name("kills.py")
FIT = ["--label", "topic", "-m", "vanilla", "--set", "epochs=15"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables, and a model that was fitted from them."""
    folder = tmp_path_factory.mktemp("place")
    nodes, edges = write_tables(folder)
    assert main(["fit", "--nodes", str(nodes), "--edges", str(edges), *FIT, "--out", str(folder / "model")]) == 0
    return folder


@pytest.fixture
def here(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: the tables, the model, and new nodes that nobody has seen."""
    folder = Path(shutil.copytree(place, tmp_path / "here"))
    write_tables(folder / "new", 50, 5, "new{}".format)
    monkeypatch.chdir(folder)
    return folder


Typed = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def typed(here: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    """A line as it is typed: its exit code, and what it prints."""

    def run(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(line.split())
        except SystemExit as error:
            code = int(error.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


TABLES = "--nodes nodes.csv --edges edges.csv"
NEW = "--nodes new/nodes.csv --edges new/edges.csv"
QUICK = "--label topic -m vanilla --set epochs=15"


def refuses(typed: Typed, line: str, *words: str) -> None:
    """Exit code 2, one line of reason, nothing on stdout."""
    code, out, err = typed(line)
    *progress, reason = err.splitlines()
    assert (code, out) == (2, ""), (line, err)
    assert all(text.split()[0] in ("read", "predict", "fit", "!") for text in progress), err
    assert reason.startswith("credalgnn: "), err
    missing = [word for word in words if word not in reason]
    assert not missing, f"{missing} not in: {reason}"


# ---- what they print


def test_fit_tells_what_it_is_worth_on_one_screen_and_what_to_type_next(typed: Typed, here: Path) -> None:
    code, out, err = typed(f"fit {TABLES} {QUICK} --out other")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 110
    for word in (
        "accuracy",
        "calibration error",
        "classes in question",
        "Unfamiliar nodes among",
        "false alarms allowed",
    ):
        assert word in out
    assert [line.split()[0] for line in err.splitlines()] == ["read", "fit", "predict", "write"]
    (command,) = (line.removeprefix("Next: credalgnn ") for line in lines if line.startswith("Next: "))
    assert typed(command)[0] == 0  # it can be typed as it stands
    assert (here / "predictions.csv").is_file()
    assert (here / "other" / "report.html").is_file()


def test_predictions_are_the_same_as_text_and_as_parquet(typed: Typed, here: Path) -> None:
    for name in ("p.csv", "p.parquet", "P.CSV"):
        code, out, err = typed(f"predict model {NEW} --out {name} --false-alarms 0.1 --coverage 0.8")
        assert code == 0
        assert out.startswith(f"50 nodes predicted: {name}\n")
        assert [line.split()[0] for line in err.splitlines()] == ["read", "predict", "write"]
    assert (here / "p.csv").read_bytes() == (here / "P.CSV").read_bytes()
    table = pyarrow.parquet.read_table(here / "p.parquet")
    assert table.schema.metadata[b"credalgnn.schema"] == b"1"
    assert table.schema.metadata[b"credalgnn.false_alarms"] == b"0.1"
    with (here / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 50 == table.num_rows
    assert list(rows[0]) == table.column_names
    for row, other in zip(rows, table.to_pylist(), strict=True):
        for name, value in other.items():
            text = row[name]
            same = float(text) == value if isinstance(value, float) else text == str(value)
            assert same or (isinstance(value, bool) and text == str(value).lower()), (name, text, value)
    flagged = sum(row["unfamiliar"] == "true" for row in rows)
    assert f"\n{flagged} of 50 nodes ({2 * flagged:.1f} %) are flagged as unfamiliar" in f"\n{out}"


def test_predict_with_and_without_what_was_there_before(typed: Typed, here: Path) -> None:
    code, out, _ = typed(f"predict model {NEW} --out p.csv")
    assert code == 0
    assert "--context nodes.csv edges.csv" in out
    code, out, _ = typed(f"predict model {NEW} --out p.csv --context nodes.csv edges.csv")
    assert code == 0
    assert "--context" not in out
    assert out.startswith("50 nodes predicted: p.csv")
    code, out, _ = typed(f"predict model {TABLES} --out p.csv")
    assert code == 0
    assert "of which the model was fitted with" in out.splitlines()[0]
    (here / "whole").mkdir()
    shutil.copy("nodes.csv", "whole/nodes.csv"), shutil.copy("edges.csv", "whole/edges.csv")
    assert typed("predict model --graph whole --out q.csv")[0] == 0
    assert (here / "p.csv").read_bytes() == (here / "q.csv").read_bytes()


def test_a_model_of_a_graph_is_not_told_to_read_tables(typed: Typed, here: Path) -> None:
    graph_of(ids=range(300)).save("fitted.npz")
    graph_of(seed=3, ids=range(1000, 1300)).save("later.npz")
    graph_of(seed=3).save("nameless.npz")
    assert typed("fit --graph fitted.npz -m vanilla --set epochs=5 --out other")[0] == 0
    code, out, _ = typed("predict other --graph later.npz --out p.csv")
    assert code == 0
    assert "--context" not in out
    assert "give a graph that has the nodes of the fitted one" in out
    assert "not the graph that the model was fitted with" not in out
    code, out, err = typed("predict other --graph nameless.npz --out p.csv")
    assert code == 0
    assert "This is not the graph that the model was fitted with. Nodes that the model was fitted with cannot" in out
    code, out, err = typed("evaluate other --graph nameless.npz")
    assert code == 0
    assert err.startswith("! Nodes that the model was fitted with cannot be identified")
    code, out, err = typed("watch other --graph nameless.npz")
    assert code in (0, 3)
    assert err.startswith("! Nodes that the model was fitted with cannot be identified")
    code, out, _ = typed("predict other --graph fitted.npz --out p.csv")
    assert "not the graph" not in out
    assert "of which the model was fitted with" in out


def test_ids_stay_as_they_are_written(typed: Typed, here: Path) -> None:
    write_tables(here / "zeros", name="{:03d}".format)
    assert typed(f"fit --nodes zeros/nodes.csv --edges zeros/edges.csv {QUICK} --out zeros/model")[0] == 0
    line = "predict zeros/model --nodes zeros/nodes.csv --edges zeros/edges.csv --out p.csv"
    assert typed(f"{line} --ids 007 123")[0] == 0
    assert [row.split(",")[0] for row in (here / "p.csv").read_text().splitlines()[1:]] == ['"007"', '"123"']
    refuses(typed, f"{line} --ids 7", "there is no node 7")
    write_tables(here / "numbers", name="{}".format)
    assert typed(f"fit --nodes numbers/nodes.csv --edges numbers/edges.csv {QUICK} --out numbers/model")[0] == 0
    line = "predict numbers/model --nodes numbers/nodes.csv --edges numbers/edges.csv --out p.csv"
    assert typed(f"{line} --ids 7 123")[0] == 0
    assert [row.split(",")[0] for row in (here / "p.csv").read_text().splitlines()[1:]] == ["7", "123"]
    refuses(typed, f"{line} --ids 7 x", "there is no node x")
    refuses(typed, f"{line} --ids 99999999999999999999", "there is no node 99999999999999999999")
    refuses(typed, f"{line} --ids 9999999999999999999", "there is no node 9999999999999999999")
    write_tables(here / "long", name="12345678901234{:05d}".format)
    assert typed(f"fit --nodes long/nodes.csv --edges long/edges.csv {QUICK} --out long/model")[0] == 0
    line = "predict long/model --nodes long/nodes.csv --edges long/edges.csv --out p.csv"
    assert typed(f"{line} --ids 1234567890123400007")[0] == 0
    assert (here / "p.csv").read_text().splitlines()[1].split(",")[0] == "1234567890123400007"


def test_evaluate_says_what_was_judged(typed: Typed, here: Path) -> None:
    write_tables(here / "known", 80, 6, "known{}".format, unfamiliar_label="d", share=1.0)
    code, out, _ = typed("evaluate model --nodes known/nodes.csv --edges known/edges.csv --false-alarms 0.1")
    assert code == 0
    assert out.startswith("80 labelled nodes judged")
    for word in ("accuracy", "allowed 10 %", "unknown classes flagged", "AUROC of", "promised 95 %"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 100


def test_watch_keeps_count_and_exits_with_3_at_an_alarm(typed: Typed, here: Path) -> None:
    code, out, err = typed(f"watch model {NEW} --context nodes.csv edges.csv")
    assert code in (0, 3)
    assert out.startswith("batch 1 ")
    assert len(out.splitlines()) == 1
    refuses(typed, f"watch model {NEW}", "this is batch 1 again", "--reset")
    text = (here / "new" / "nodes.csv").read_text()
    for number in range(2, 12):
        lines = [line.split(",") for line in text.replace("new", f"odd{number}-").splitlines()]
        for fields in lines[1:]:
            fields[2:6] = [f"{0.02 * (number + index):.3f}" for index in range(4)]  # between all classes
        Path("odd.csv").write_text("\n".join(",".join(fields) for fields in lines) + "\n")
        code, out, err = typed("watch model --nodes odd.csv")
        assert code in (0, 3)
        assert out.startswith(f"batch {number} ")
        if code == 3:
            break
    assert code == 3
    assert "ALARM" in out
    assert err.splitlines()[-1].startswith("credalgnn: alarm: ")
    assert "watch.svg" in err
    assert typed("watch model --nodes odd.csv --reset")[1].startswith("batch 1 ")


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "watch"])
def test_help_has_an_example_that_parses(command: str, typed: Typed) -> None:
    code, out, _ = typed(f"{command} --help")
    assert code == 0
    example = out.split("example:\n")[1].replace("\\\n", " ").split()
    assert example[:2] == ["credalgnn", command]
    known = {word for word in out.split("example:")[0].replace(",", " ").split() if word.startswith("--")}
    assert {word for word in example if word.startswith("--")} <= known
    assert max(map(len, out.splitlines())) <= 100


def test_a_method_of_ones_own_is_named_again(typed: Typed, here: Path) -> None:
    code, out, _ = typed(f"fit {TABLES} --label topic -m mymodels:Mine --out own")
    assert code == 0
    assert "-m mymodels:Mine" in out
    code = subprocess.run(
        [sys.executable, "-m", "credalgnn", *f"predict own {NEW} --out p.csv".split()], capture_output=True, text=True
    )
    assert code.returncode == 2
    assert code.stderr.splitlines()[-1].endswith("(-m mymodels:Mine)")
    assert typed(f"predict own {NEW} --out p.csv -m mymodels:Mine")[0] == 0


# ---- clumsy hands


def test_tables_that_are_none(typed: Typed, here: Path) -> None:
    fit = f"{QUICK} --out other"
    Path("book.xlsx").write_bytes(b"PK")
    Path("empty.csv").write_text("")
    Path("header.csv").write_text("id,topic,w1\n")
    nodes = Path("nodes.csv").read_text()
    Path("twice.csv").write_text(nodes + nodes.splitlines()[1] + "\n")
    Path("stray.csv").write_text("source,target\nn0001,nobody\n")
    Path("none.csv").write_text("\n".join(",".join([*r.split(",")[:1], "", *r.split(",")[2:]]) if k else r
                                          for k, r in enumerate(nodes.splitlines())))  # fmt: skip
    Path("one.csv").write_text("\n".join(",".join([*r.split(",")[:1], "a" if r.split(",")[1] else "",
                                                   *r.split(",")[2:]]) if k else r
                                         for k, r in enumerate(nodes.splitlines())))  # fmt: skip
    for line, *words in (
        ("--nodes missing.csv --edges edges.csv", "missing.csv: no such file"),
        ("--nodes . --edges edges.csv", ".: a folder", "credalgnn pack"),
        ("--nodes nodes.csv --edges new", "new: a folder", "credalgnn pack"),
        ("--nodes book.xlsx --edges edges.csv", "book.xlsx", ".csv", ".parquet"),
        ("--nodes empty.csv --edges edges.csv", "empty.csv"),
        ("--nodes header.csv --edges edges.csv", "header.csv"),
        ("--nodes edges.csv --edges nodes.csv", "there is no column"),
        ("--nodes twice.csv --edges edges.csv", "n0000"),
        ("--nodes nodes.csv --edges stray.csv", "nobody"),
        ("--nodes none.csv --edges edges.csv", "label"),
        ("--nodes one.csv --edges edges.csv", "class"),
        ("--nodes nodes.csv", "--edges FILE"),
        ("--edges edges.csv", "--nodes FILE"),
        ("", "--nodes FILE", "--graph"),
        (f"{TABLES} --graph .", "leave out --nodes"),
        ("--graph missing.npz", "no such file"),
        ("--graph book.xlsx", "book.xlsx", ".npz"),
        (f"{TABLES} --id nothing", "nothing", "--id"),
        (f"{TABLES} --source nothing", "nothing", "--source"),
        (f"{TABLES} --weight nothing", "nothing", "--weight"),
        (f"{TABLES} --features nothing", "nothing"),
        (f"{TABLES} --features topic", "topic"),
        (f"{TABLES} --split kind", "kind", "train, val, calibration, test"),
        (f"{TABLES} --split nothing", "nothing"),
        (f"{TABLES} --label w1", "w1"),
        (f"{TABLES} --label nothing", "nothing", "--label"),
        (f"{TABLES} --delimiter ab", "single character"),
        (f"{TABLES} --delimiter ;", "--delimiter"),
        (f"{TABLES} --seed -1", "seed"),
        (f"{TABLES} --seed x", "--seed"),
        (f"{TABLES} --tune 0", "--tune"),
        (f"{TABLES} -m nothing", "unknown method", "nothing"),
        (f"{TABLES} --set nothing=1", "--set nothing=1"),
        (f"{TABLES} --set epochs=-1", "epochs"),
        (f"{TABLES} --set epochs", "NAME=VALUE"),
        (f"{TABLES} --nonsense", "--nonsense"),
    ):
        refuses(typed, f"fit {fit} {line}", *words)
        assert not Path("other").exists()


def test_places_that_are_none(typed: Typed, here: Path) -> None:
    refuses(typed, f"fit {TABLES} {QUICK} --out model", "holds a model already")
    refuses(typed, f"fit {TABLES} {QUICK} --out .", "holds other files")
    refuses(typed, f"fit {TABLES} {QUICK} --out nodes.csv", "is a file")
    refuses(typed, f"fit {TABLES} {QUICK} --out /proc/none", "/proc")
    refuses(typed, f"predict nowhere {NEW} --out p.csv", "no such folder")
    refuses(typed, f"predict new {NEW} --out p.csv", "no model in it")
    refuses(typed, f"predict nodes.csv {NEW} --out p.csv", "nodes.csv")
    refuses(typed, f"predict model {NEW} --out p.xlsx", ".csv or .parquet")
    refuses(typed, f"predict model {NEW} --out p", ".csv or .parquet")
    refuses(typed, f"predict model {NEW} --out new/nodes.csv", "overwrite")
    refuses(typed, f"predict model {NEW} --context nodes.csv edges.csv --out edges.csv", "overwrite")
    refuses(typed, f"predict model {NEW} --out /proc/none/p.csv", "/proc/none")
    Path("folder.csv").mkdir()
    refuses(typed, f"predict model {NEW} --out folder.csv", "is a folder")
    for name in ("model.json", "method.json", "parts.safetensors"):
        shutil.copytree("model", f"spoilt-{name}")
        Path(f"spoilt-{name}", name).write_text("{")
        for command in (f"predict spoilt-{name} {NEW} --out p.csv", f"watch spoilt-{name} {NEW}"):
            refuses(typed, command, name)
    assert not list(here.glob("p.*"))
    assert not list(here.glob(".p.*"))


def test_questions_that_have_no_answer(typed: Typed, here: Path) -> None:
    predict = f"predict model {NEW} --out p.csv"
    for rate in ("0", "1", "-0.1", "5", "nan", "x", "5%"):
        refuses(
            typed, f"{predict} --false-alarms {rate}" if rate != "-0.1" else f"{predict} --false-alarms=-0.1", "rate"
        )
    refuses(typed, f"{predict} --false-alarms 0.001", "needs 999 calibration nodes", "choose at least")
    refuses(typed, f"{predict} --coverage 0.999", "needs 999 calibration nodes", "choose at most")
    refuses(typed, f"evaluate model {NEW} --false-alarms 0.001", "needs 999 calibration nodes")
    refuses(typed, f"{predict} --ids new1 zzz", "there is no node zzz")
    refuses(typed, f"{predict} --context missing.csv edges.csv", "missing.csv: no such file")
    refuses(typed, f"{predict} --context a b c", "two files")
    refuses(typed, f"{predict} --graph .", "--graph")
    refuses(typed, f"evaluate model {TABLES}", "fitted with all labelled nodes")
    refuses(typed, f"watch model {NEW} --false-alarms 2", "rate")
    text = Path("new/nodes.csv").read_text()
    Path("less.csv").write_text("\n".join(",".join(line.split(",")[:5]) for line in text.splitlines()))
    refuses(typed, "predict model --nodes less.csv --out p.csv", "w4")
    Path("bare.csv").write_text("\n".join(",".join([*line.split(",")[:1], *line.split(",")[2:]])
                                          for line in text.splitlines()))  # fmt: skip
    refuses(typed, "evaluate model --nodes bare.csv", "no node has a label", "topic")
    assert typed("predict model --nodes bare.csv --out p.csv")[0] == 0  # a label is not needed to predict


def test_class_names_of_all_kinds(typed: Typed, here: Path) -> None:
    write_tables(here / "odd", classes=('"a,b"', '"c ""d"""', '"e\nf"'))
    tables = "--nodes odd/nodes.csv --edges odd/edges.csv"
    code, _, err = typed(f"fit {tables} {QUICK} --out odd/model")
    assert code == 0, err
    assert load_model("odd/model").class_names == ("a,b", 'c "d"', "e\nf")
    assert typed(f"predict odd/model {tables} --out p.csv")[0] == 0
    with Path("p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["class"] for row in rows} == {"a,b", 'c "d"', "e\nf"}
    assert len(rows) == 300
    write_tables(here / "bar", classes=("a|b", "c", "d"))
    refuses(
        typed, f"fit --nodes bar/nodes.csv --edges bar/edges.csv {QUICK} --out bar/model", "'a|b'", "rename the class"
    )


def test_few_labels_give_p_values_and_no_flags(typed: Typed, here: Path) -> None:
    write_tables(here / "few", 24, 1)
    tables = "--nodes few/nodes.csv --edges few/edges.csv"
    code, out, _ = typed(f"fit {tables} {QUICK} --out few/model")
    assert code == 0
    assert "too few to promise" in out
    code, out, _ = typed(f"predict few/model {NEW} --out p.csv")
    assert code == 0
    assert "No node is flagged" in out
    header = Path("p.csv").read_text().splitlines()[0]
    assert '"p_value"' in header
    assert '"unfamiliar"' not in header
    refuses(typed, f"predict few/model {NEW} --out p.csv --false-alarms 0.05", "needs 19 calibration nodes")
    assert typed(f"predict few/model {NEW} --out p.csv --false-alarms 0.5 --coverage 0.5")[0] == 0
    assert '"unfamiliar"' in Path("p.csv").read_text().splitlines()[0]


def test_what_is_said_of_tables_is_refused_where_a_whole_graph_is_given(typed: Typed, here: Path) -> None:
    graph_of().save("graph.npz")
    graph_of().pack("packed.cg")
    plain = {"x": graph_of().features, "edge_index": graph_of().edge_index, "y": graph_of().labels}
    torch.save(plain, "graph.pt")
    save_file(plain, "graph.safetensors")
    fit = "-m vanilla --set epochs=5"
    for graph in ("graph.npz", "packed.cg", "graph.pt", "graph.safetensors"):
        for option in ("--split part", "--undirected", "--label topic", "--features w1", "--weight w", "--id name",
                       "--source a", "--target b", "--delimiter ;"):  # fmt: skip
            name = option.split()[0].removeprefix("--")
            refuses(
                typed, f"fit --graph {graph} {fit} {option} --out other", f"{graph} is a whole graph, and {name} is"
            )
    refuses(
        typed, f"fit --graph graph.npz {fit} --split part --undirected --out other", "leave them out; its parts are"
    )
    assert typed(f"fit --graph packed.cg {fit} --out other")[0] == 0
    for command in ("predict other --out p.csv", "evaluate other", "watch other", "report other --out page"):
        line = f"{command} --graph packed.cg --context nodes.csv edges.csv"
        refuses(typed, line, "packed.cg is a whole graph, and --context is for tables")


def test_a_training_that_comes_to_nothing_ends_in_a_line(typed: Typed, here: Path) -> None:
    refuses(typed, f"fit {TABLES} --label topic -m vanilla --set lr=1e30 --out other", "the loss is nan", "lower lr")
    assert not Path("other").exists()


def test_after_a_full_disk_nothing_is_said_to_be_kept_that_is_not(
    typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    fit = f"fit {TABLES} {QUICK} --out other"
    monkeypatch.setattr("credalgnn.model.fitting.read_to_fit", full)
    monkeypatch.setattr("credalgnn.model.model.read_to_predict", full)
    for line in (fit, f"predict model {NEW} --out p.csv", f"evaluate model {NEW}", f"watch model {NEW}"):
        refuses(typed, line, "No space left on device; mend that, and give the same command again")
    refuses(typed, f"{fit} --tune 2", "No space left on device; finished runs are kept, and the same command goes on")


def test_warnings_of_a_fit_come_while_it_runs_and_stay_when_it_fails(
    typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its stage is over, in a line each; and in the summary, if there is one."""
    line = f"fit {TABLES} --label topic -m vanilla --memory 100MiB --out other"
    code, out, err = typed(f"{line} --set epochs=5")
    assert code == 0
    lines = [text.split(maxsplit=1) for text in err.splitlines()]
    assert [first for first, _ in lines] == ["read", "!", "fit", "predict", "write"]
    assert lines[1][1].startswith("vanilla: training on the whole graph at once takes about")
    assert "! vanilla: training on the whole graph" in out
    assert load_model("other").summary["warnings"] == [lines[1][1]]
    code, _, err = typed(f"{line}2 --set lr=1e30")
    assert code == 2
    assert [text.split()[0] for text in err.splitlines()] == ["read", "!", "credalgnn:"]


def test_warnings_of_others_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that hides them hides them, one that makes them errors does that, and all others are shown."""

    def warned(*_: object) -> None:
        warnings.warn("of somebody else", UserWarning, stacklevel=2)
        raise GraphError("no further")

    monkeypatch.setattr("credalgnn.model.fitting.read_to_fit", warned)
    for action, seen, raised in (("always", 1, GraphError), ("ignore", 0, GraphError), ("error", 0, UserWarning)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter(action)  # type: ignore[arg-type]
            with pytest.raises(raised):
                fit(graph_of(), progress=False)
        assert [str(each.message) for each in caught] == ["of somebody else"] * seen


def test_a_search_keeps_to_its_machine_and_its_memory(
    typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused where that cannot be; trials side by side are no more than memory has room for."""
    pytest.importorskip("optuna")
    fit = f"fit {TABLES} {QUICK} --out other --tune 2"
    refuses(typed, f"{fit} --engine ray --workers 2", "on this machine alone", "leave out --workers")
    refuses(typed, f"{fit} --memory 100MiB", "does not fit in memory: leave out --tune", "--set")
    assert not Path("other").exists()
    asked: list[object] = []

    def search(*_: object, jobs: int | None, **__: object) -> None:
        asked.append(jobs)
        raise MethodError("enough")

    monkeypatch.setattr("credalgnn.experiments.tune", search)
    monkeypatch.setattr("credalgnn.model.fitting.processors", lambda: 3)
    for memory in ("--memory 500MiB", "--memory 1000MiB", "--memory 9GiB", ""):
        refuses(typed, f"{fit} {memory}", "enough")
    assert asked == [1, 2, 3, None]  # 400 MiB are what each takes before anything is done


# ---- stopped on the way


def kills(place: Path, line: str) -> list[dict[str, object]]:
    """What each kill of a command left in a folder, and the run that was not killed."""
    place.mkdir(exist_ok=True)
    process = subprocess.run(
        [sys.executable, KILLS, place, *line.split()], capture_output=True, text=True, timeout=300, check=True
    )
    return [json.loads(text) for text in process.stdout.splitlines()]


def test_a_fit_that_is_killed_leaves_no_model_or_a_whole_one_and_the_same_command_works(here: Path) -> None:
    runs = kills(here / "killed", f"fit {NEW} --label topic -m vanilla --set epochs=2 --out killed")
    assert [run["code"] for run in runs] == [-signal.SIGKILL] * 6 + [2]  # five files and the page; there is a model
    for run in runs[:5]:
        assert "model.json" not in run["left"]
    parts = ["README.md", "method.json", "model.json", "model.safetensors", "parts.safetensors"]
    for run in runs[5:]:
        assert [name for name in run["left"] if not name.endswith(".part")] == parts  # all but the page
    assert load_model("killed").predict("new/nodes.csv").calibration is not None


@pytest.mark.slow
def test_a_prediction_or_a_watch_that_is_killed_leaves_nothing_half_written(here: Path) -> None:
    Path("out").mkdir()
    Path("out/p.csv").write_text("of yesterday")
    first, second = kills(here / "out", f"predict model {NEW} --out out/p.csv")
    assert first["code"] == -signal.SIGKILL
    assert second["code"] == 0
    assert len(Path("out/p.csv").read_text().splitlines()) == 51
    before, between, again = kills(here / "model", f"watch model {NEW}")
    assert before["code"] == between["code"] == -signal.SIGKILL
    assert "watch.safetensors" not in before["left"]
    assert "watch.safetensors" in between["left"]
    assert again["code"] == 2  # it was counted; only the picture was not made
    write_tables(here / "next", 50, 8, "next{}".format)
    assert main(["watch", "model", "--nodes", "next/nodes.csv"]) in (0, 3)
    bars = Path("model/watch.svg").read_text().count("<rect")
    assert bars == 2


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_stops_a_fit_is_told_so_in_a_line(stop: signal.Signals, code: int, here: Path) -> None:
    line = f"fit {TABLES} --label topic -m vanilla --set epochs=1000000 patience=1000000 --out stopped"
    process = subprocess.Popen(
        [sys.executable, "-m", "credalgnn", *line.split()], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("read")
    process.send_signal(stop)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert out == ""
    assert err.splitlines()[-1] == "credalgnn: stopped; no model was written"
    assert "Traceback" not in err
    assert not (here / "stopped").exists()


def test_a_page_that_finds_no_room_costs_no_model(typed: Typed, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("credalgnn.model.fitting.write_page_of", full)
        code, out, err = typed(f"fit {TABLES} {QUICK} --out other")
    assert code == 0
    assert "! the model is in other, and its page could not be written (No space left on device)" in err
    assert "report.html" not in out
    assert typed(f"report other {TABLES} --out other")[0] == 0


def test_a_folder_of_checkpoints_of_somebody_else_is_not_ours(typed: Typed, here: Path) -> None:
    theirs = here / "theirs" / "checkpoints" / "last.ckpt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("weeks of work")
    refuses(typed, f"fit {TABLES} {QUICK} --out theirs", "theirs holds other files (checkpoints)")
    assert theirs.read_text() == "weeks of work"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc")
def test_a_place_where_nothing_can_be_written_is_refused_before_any_work(typed: Typed) -> None:
    """Permissions would allow it."""
    refuses(typed, f"fit {TABLES} {QUICK} --out /proc/model", "/proc/model: nothing can be written there")


def test_large_features_of_a_graph_are_told_by_name(typed: Typed, here: Path) -> None:
    graph = graph_of()
    features = graph.features.clone()
    features[:, 1] = 5000.0 * features[:, 1].abs()
    graph.replace(features=features).save("large.npz")
    code, _, err = typed("fit --graph large.npz -m vanilla --set epochs=2 --out other")
    assert code == 0
    (line,) = [line for line in err.splitlines() if "large values" in line]
    assert line.startswith(f"! 1 of {graph.num_features} features have large values; feature 1 goes from ")
    assert "standardise features first" in line
    graph.save("usual.npz")
    assert "large values" not in typed("fit --graph usual.npz -m vanilla --set epochs=2 --out usual")[2]


def test_damaged_ids_of_a_packed_graph_are_one_line_before_training(typed: Typed, here: Path) -> None:
    graph = graph_of(ids=[f"n{number}" for number in range(300)])
    graph.pack("ids.cg")
    fit = "fit --graph ids.cg -m vanilla --set epochs=2 --out"
    assert typed(f"{fit} whole")[0] == 0
    path = Path("ids.cg/node_ids.npy")
    content = bytearray(path.read_bytes())
    for row in range(graph.num_nodes):
        content[128 + row * (len(content) - 128) // graph.num_nodes + 3] = 0x7F  # beyond all characters
    path.write_bytes(content)
    refuses(typed, f"{fit} other", "an id has characters that do not exist")
    assert not Path("other").exists()
    refuses(typed, "predict whole --graph ids.cg --out p.csv", "an id has characters that do not exist")
    assert not Path("p.csv").exists()


@pytest.mark.parametrize(
    "line",
    [
        f"predict model {NEW} --out loop/x.csv", f"predict model {NEW} --out loop", f"fit {TABLES} {QUICK} --out loop",
        f"fit {TABLES} {QUICK} --out loop/model", f"fit {TABLES} {QUICK} --out nodes.csv/model",
        f"report model {NEW} --out loop", "uncertainty bounds.csv --out loop/x.csv", 
        "bench -d digits -m degree --seeds 1 --out loop", "bench -d digits -m degree --seeds 1 --out nodes.csv/x",
        "tune -d digits -m vanilla --trials 1 --out loop", "reproduce -d chameleon --out loop",
        "probe -m degree --out loop", "leaderboard bench --out loop", "pack nodes.csv edges.csv --out loop",
        "pack nodes.csv edges.csv --out loop/graph.cg", f"predict model {NEW} --out x{'x' * 300}.csv",
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_written_is_refused_before_any_work(typed: Typed, line: str, here: Path) -> None:
    (here / "loop").symlink_to("loop")
    (here / "bounds.csv").write_text("lower_a,lower_b,upper_a,upper_b\n0.1,0.2,0.8,0.9\n")
    before = sorted(here.rglob("*"))
    refuses(typed, line)
    assert sorted(here.rglob("*")) == before


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="takes two users")
@pytest.mark.parametrize(
    "line", [f"predict model {NEW} --out theirs/x.csv", f"fit {TABLES} {QUICK} --out theirs/model"]
)
def test_a_folder_of_another_user_is_refused_before_any_work(line: str, here: Path) -> None:
    (here / "theirs").mkdir(mode=0o700)
    os.chown(here / "theirs", 65534, 65534)
    words = [
        "setpriv",
        "--bounding-set=-dac_override,-dac_read_search",
        sys.executable,
        "-m",
        "credalgnn",
        *line.split(),
    ]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=300, check=False)
    (error,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert "theirs" in error
    assert "Permission denied" in error
