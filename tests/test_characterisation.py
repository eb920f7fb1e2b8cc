"""Every method gives the results stored in characterisation.json: predictions, metrics and saved tensors.

Regenerate the file, and say in the commit why results change::

    python benchmarks/characterise.py --write tests/characterisation.json

Bits are compared where versions and processor are those of the file; elsewhere, rounded summary numbers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import credalgnn

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "benchmarks" / "characterise.py"
STORED = json.loads((ROOT / "tests" / "characterisation.json").read_text())


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module, which leaves the environment of this process unchanged."""
    spec = importlib.util.spec_from_file_location("characterise", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
            patch.setenv(name, "1")
        spec.loader.exec_module(module)
    return module


PARTS = {"first": r"^csbm/(full|batch|packed)/", "others": r"^(?!csbm/(full|batch|packed)/)"}


@pytest.mark.parametrize("part", PARTS)
def test_results_are_those_stored(part: str, script: ModuleType, tmp_path: Path) -> None:
    present = tmp_path / "present.json"
    command = [sys.executable, "-W", "ignore", SCRIPT, "--write", present, "--only", PARTS[part]]
    environment = {**os.environ, "PYTHONPATH": str(Path(credalgnn.__file__).parents[1])}
    subprocess.run(command, env=environment, check=True)
    now = json.loads(present.read_text())
    stored = {key: entry for key, entry in STORED["entries"].items() if re.search(PARTS[part], key)}
    exact = now["environment"] == STORED["environment"]
    lines = script.differences(stored, now["entries"], exact)
    assert not lines, "\n".join(
        [f"{len(lines)} differences, {'bits' if exact else 'summary numbers'} compared:", *lines]
    )


def test_a_changed_result_is_noticed(script: ModuleType) -> None:
    old = {"csbm/full/vanilla": {"score0": ["a1", 0.5, 0.1], "classes": ["b2"]}}
    close = {"csbm/full/vanilla": {"score0": ["a3", 0.5001, 0.1], "classes": ["b4"]}}
    far = {"csbm/full/vanilla": {"score0": ["a3", 0.51, 0.1], "classes": ["b2"]}}
    refused = {"csbm/full/vanilla": {"all": ["refused"]}}
    assert script.differences(old, old) == []
    assert len(script.differences(old, close)) == 2
    assert script.differences(old, close, exact=False) == []
    assert len(script.differences(old, far, exact=False)) == 1
    assert len(script.differences(old, refused, exact=False)) == 3
    assert len(script.differences(old, {}, exact=False)) == 1
