"""A thousand damaged files of every kind that is read: each gives a right answer or one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

import fuzzing


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzzing.kinds())
def test_a_thousand_damaged_files(
    name: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    material = tmp_path_factory.getbasetemp() / "material"
    material.mkdir(exist_ok=True)
    counts = fuzzing.run([name], fuzzing.FILES, Path(material))[name]
    with capsys.disabled():
        print(f"\n{fuzzing.row(name, fuzzing.FILES, counts)}")
    assert counts["other"] == []
    assert counts["same"] + counts["valid"] + counts["refused"] == fuzzing.FILES
    assert counts["grown"] < fuzzing.GROWTH
