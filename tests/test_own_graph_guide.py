"""docs/own-graph.md as a reader follows it: every command and every block of Python, in order, on a small graph."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from credalgnn.cli import main
from credalgnn.graphs import Dataset, Graph
from credalgnn.graphs.datasets.synthetic import csbm
from test_examples import SCRIPT_MODULE

GUIDE = (Path(__file__).parents[1] / "docs" / "own-graph.md").read_text()
STEPS = re.findall(r"^```(sh|python)\n(.*?)^```", GUIDE, flags=re.S | re.M)


def shop() -> Graph:
    """Four classes that are easily told apart, the last of which the task leaves out."""
    graph = csbm(nodes=900, classes=4, signal=3.0, seed=1)
    return graph.replace(class_names=["Monitors", "Tablets", "Webcams", "Laptops"])


SHOP = Dataset("shop", shop, ood_classes=["Laptops"], description="goods bought together")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The folder in which the guide was followed, and the exit code of each command."""
    folder, codes = tmp_path_factory.mktemp("guide"), {}
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind, text in STEPS:
            if kind == "python":
                exec(text, names)
                continue
            for line in text.splitlines():
                words = shlex.split(line)
                if words[:2] == ["python", "examples/to_tables.py"]:
                    assert words[2:] == ["computers", "--out", "runs/shop"]
                    SCRIPT_MODULE.to_tables("test_own_graph_guide:SHOP", folder / "runs" / "shop")
                elif words[0] == "cd":
                    patch.chdir(words[1])
                else:
                    assert words[0] == "credalgnn"
                    codes[line] = main(words[1:])
    return folder / "runs" / "shop", codes


def test_every_command_works_as_typed(followed: tuple[Path, dict[str, int]]) -> None:
    folder, codes = followed
    assert [shlex.split(line)[1] for line in codes] == ["fit", "predict", "predict", "evaluate", "watch"]
    for line, code in codes.items():
        # Unfamiliar nodes are in the batch, so there is an alarm, as the guide says.
        assert code == (3 if "watch" in line else 0), line
    for name in ("today.csv", "later.csv"):
        assert (folder / name).read_text().startswith('"id","class","probability",')


def test_the_folder_holds_the_files_that_the_guide_lists(followed: tuple[Path, dict[str, int]]) -> None:
    folder, _ = followed
    table = GUIDE.partition("| file | holds |")[2].partition("\n\n")[0]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, flags=re.M) for name in re.findall(r"`(.*?)`", row)}
    there = {path.name for path in (folder / "model").iterdir() if not path.name.startswith(".")}
    assert listed == there


def test_the_columns_that_the_guide_explains_are_there(followed: tuple[Path, dict[str, int]]) -> None:
    header = (followed[0] / "today.csv").read_text().partition("\n")[0].replace('"', "").split(",")
    table = GUIDE.partition("| column |")[2].partition("\n\n")[0]
    explained = [
        name for row in re.findall(r"^\| (`.*?) \|", table, flags=re.M) for name in re.findall(r"`(.*?)`", row)
    ]
    assert len(explained) > 8
    assert {re.sub("_.*", "_", name) if name[:5] in ("lower", "upper") else name for name in header} == {
        "id", *(name.removesuffix("...") for name in explained)
    }  # fmt: skip
