"""best.json: what was chosen, for bench --tuned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from credalgnn.experiments.best import read_tuned, write_best
from credalgnn.records.schema import RecordError
from credalgnn.runtime.files import to_json
from searches import as_found, small_task, tuned_by_hand


def test_what_is_written_can_be_used(tmp_path: Path) -> None:
    folder = tuned_by_hand(tmp_path / "out", small_task(), vanilla={"lr": 0.1, "hidden": 64})
    write_best(folder, "sealed", small_task(), as_found(knn={"k": 5}))  # by another command, later
    assert read_tuned(folder, small_task(), "sealed") == as_found(vanilla={"lr": 0.1, "hidden": 64}, knn={"k": 5})
    write_best(folder, "sealed", small_task(), as_found(knn={"k": 10}))
    assert read_tuned(folder, small_task(), "sealed")["knn"]["config"] == {"k": 10}
    with pytest.raises(RecordError, match="tuned with protocol=sealed"):
        read_tuned(folder, small_task(), "paper")
    with pytest.raises(RecordError, match="only for small"):
        read_tuned(folder, replace(small_task(), name="other"), "sealed")
    with pytest.raises(RecordError, match="other data or another split"):
        read_tuned(folder, small_task(1), "sealed")
    with pytest.raises(RecordError, match=r"best\.json is missing"):
        read_tuned(tmp_path / "nowhere", small_task(), "sealed")
    with pytest.raises(RecordError, match="tuned with setting=transductive, not inductive"):
        read_tuned(folder, replace(small_task(), inductive=True), "sealed")
    (folder / "experiment.json").write_bytes(to_json({"kind": "reproduce"}))
    with pytest.raises(RecordError, match="not of a search"):
        read_tuned(folder, small_task(), "sealed")


def test_what_is_tuned_on_other_data_takes_the_place_of_what_was(tmp_path: Path) -> None:
    """Points found on a graph that has changed since are not mixed with those of the new one."""
    folder = tuned_by_hand(tmp_path / "out", small_task(0), vanilla={"lr": 0.1}, knn={"k": 5})
    write_best(folder, "sealed", small_task(1), as_found(vanilla={"lr": 0.2}))
    assert read_tuned(folder, small_task(1), "sealed") == as_found(vanilla={"lr": 0.2})
    with pytest.raises(RecordError, match="other data or another split"):
        read_tuned(folder, small_task(0), "sealed")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"protocol": "sealed"}', '{"protocol": "sealed", "best": 3}',
     '{"protocol": "sealed", "best": {"small": {}}}', '{"protocol": "sealed", "best": {"small": 3}}',
     '{"protocol": "sealed", "best": {"small": {"fingerprint": "FINGERPRINT"}}}'],
)  # fmt: skip
def test_a_damaged_best_is_refused(content: str, tmp_path: Path) -> None:
    folder = tuned_by_hand(tmp_path / "out", small_task())
    for sealed in (False, True):
        text = content.replace("FINGERPRINT", small_task().fingerprint).encode()
        if sealed and text.startswith(b"{"):
            text = to_json(json.loads(text))
        (folder / "best.json").write_bytes(text)
        with pytest.raises(RecordError):
            read_tuned(folder, small_task(), "sealed")
