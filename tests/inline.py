"""An engine that does the work in the process of the test."""

from __future__ import annotations

from pathlib import Path

from credalgnn.experiments.engines import Engine, Result, Source, Unit
from credalgnn.experiments.execute import ModelCache


class Inline(Engine):
    """Does the work in this process: what is tested with it does not depend on who does the work."""

    def __init__(self, source: Source, models: Path) -> None:
        self.source, self.models = source, models
        self.waiting: list[Unit] = []

    @property
    def slots(self) -> int:
        return 1

    def start(self, unit: Unit) -> None:
        self.waiting.append(unit)

    def finished(self, timeout: float) -> list[Result]:
        unit = self.waiting.pop()
        try:
            return [
                Result(unit, unit.function(unit.run, self.source.task(unit.run), ModelCache(self.models), *unit.args))
            ]
        except Exception as error:
            return [Result(unit, None, f"{type(error).__name__}: {error}")]

    def close(self) -> None:
        self.waiting = []
