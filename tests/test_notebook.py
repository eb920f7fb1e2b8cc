"""The notebook runs from top to bottom, and finds what its text says."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: the dev extra has it")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: the dev extra has it")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: the dev extra has it")

pytestmark = pytest.mark.slow  # half a minute; what it calls has tests of its own

NOTEBOOK = Path(__file__).parents[1] / "examples" / "own_graph.ipynb"
SOURCES = Path(__file__).parents[1] / "src"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the cells of code print and show, in their order."""
    home = tmp_path_factory.mktemp("home")
    notebook = nbformat.read(NOTEBOOK, 4)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(home / name.lower()))  # nothing of the person who runs the tests plays a part
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")
        place = {"metadata": {"path": str(home)}}
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def percent(text: str, words: str) -> float:
    found = re.search(re.escape(words) + r"\D*?([\d.]+) ?%", text)
    assert found, f"{words!r} is not in what was printed"
    return float(found[1])


def test_strangers_are_found_and_false_alarms_are_few(outputs: list[Any]) -> None:
    text = "".join(output["text"] for output in outputs if output["output_type"] == "stream")
    # Beyond 5 %: three standard errors, of 161 calibration nodes and of the nodes that are counted.
    assert percent(text, "by mistake:") < 5.0 + 3 * 2.1
    assert percent(text, "other new digits that are flagged:") < 5.0 + 3 * 2.6
    assert percent(text, "\n8s and 9s that are flagged:") > 85.0
    assert percent(text, "new 8s and 9s that are flagged:") > 80.0
    assert "calibrated in the same graph: True" in text


def test_it_shows_tables_and_a_picture_and_no_warning(outputs: list[Any]) -> None:
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/png") == 1
    assert kinds.count("text/html") >= 2
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]


def test_the_file_holds_no_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, 4).cells
    assert any(cell.cell_type == "code" for cell in cells)
    for cell in cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
