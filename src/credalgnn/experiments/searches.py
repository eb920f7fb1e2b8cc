"""The driver: searches side by side on an engine, stage by stage, until all are finished or the time is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

from ..graphs import Task
from .best import write_best
from .engines import Engine
from .search import Search, Studies

PATIENCE = 5.0  # seconds of waiting for others, after which a person is told for whom


class Progress(NamedTuple):
    """A trial is finished.

    Args:
        search: The name of its search.
        result: As ``Search.tell`` takes it.
        done: How many trials of all searches are finished.
        total: How many there will be.
    """

    search: str
    result: Mapping[str, Any]
    done: int
    total: int


class Experiment(Protocol):
    """Searches on one data set, in two stages: the second stands on what the first has chosen."""

    @property
    def task(self) -> Task:
        """What the searches are on."""

    @property
    def total(self) -> int:
        """How many trials there will be."""

    def stage(self, number: int) -> list[Search]:
        """The searches of stage 0 or 1.

        Args:
            number: Of the stage; the second is asked for when the first is finished.
        """

    def results(self) -> dict[str, dict[str, Any]]:
        """What was chosen for each method, for ``best.json``."""


def run_searches(
    searches: Sequence[Search],
    engine: Engine,
    deadline: float | None = None,
    on_trial: Callable[[int, Search, Mapping[str, Any]], None] = lambda done, search, result: None,
    on_wait: Callable[[str], None] = lambda message: None,
) -> bool:
    """Finish all searches, side by side.

    Args:
        searches: What is to be finished.
        engine: Does the trials.
        deadline: As ``time.monotonic`` counts; after it nothing is begun or waited for.
        on_trial: Called with the number of finished trials, the search and the result whenever a trial is finished.
        on_wait: Called with a line that says for whom, when nothing is left to do but to wait for others.

    Returns:
        Whether there was time enough.

    Raises:
        FolderVanished: The folder with the trials was deleted meanwhile.
    """
    with ExitStack() as stack:
        checks = [stack.enter_context(search.guarded()) for search in searches]
        busy: dict[int, tuple[Search, int]] = {}
        idle: float | None = None  # since when there is nothing to do; infinite once that is said
        while busy or not all(search.is_finished for search in searches):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            for search in searches:
                if len(busy) < engine.slots:
                    for number, unit in search.next_trials(engine.slots - len(busy)):
                        engine.start(unit)
                        busy[id(unit)] = search, number
            for search in searches:
                search.beat()
            if not busy:
                time.sleep(0.2)  # other processes do what is left
                idle = time.monotonic() if idle is None else idle
                if time.monotonic() - idle >= PATIENCE:
                    for search in searches:
                        for who in search.waits_for():
                            on_wait(f"{search.name}: waiting for {who}")
                            idle = math.inf
            else:
                idle = None
            results = engine.finished(timeout=0.5) if busy else []
            for check in checks:  # before the storage is written to, which would make it again
                check()
            for done in results:
                if id(done.unit) not in busy:
                    continue  # of an earlier stage
                search, number = busy.pop(id(done.unit))
                result = {"error": done.error, "died": True} if done.error is not None else done.value
                search.tell(number, result)
                on_trial(sum(min(len(each.finished), each.trials) for each in searches), search, result)
    return True


def search_all(
    parts: Sequence[Experiment],
    studies: Studies,
    engine: Engine,
    deadline: float | None = None,
    on_trial: Callable[[Progress], None] = lambda progress: None,
    on_wait: Callable[[str], None] = lambda message: None,
) -> bool:
    """Carry out the searches of all data sets side by side, and write ``best.json``.

    Args:
        parts: One experiment for each data set.
        studies: Where their trials are kept.
        engine: Does the trials.
        deadline: As ``time.monotonic`` counts; after it nothing is begun or waited for.
        on_trial: Called whenever a trial is finished.
        on_wait: Called with a line that says for whom, when nothing is left to do but to wait for others.

    Returns:
        Whether there was time enough; if not, nothing is written.
    """
    total, before = sum(part.total for part in parts), 0

    def tell(done: int, search: Search, result: Mapping[str, Any]) -> None:
        on_trial(Progress(search.name, result, before + done, total))

    for number in (0, 1):
        searches = [search for part in parts for search in part.stage(number)]
        if not run_searches(searches, engine, deadline, tell, on_wait):
            return False
        before += sum(search.trials for search in searches)
    for part in parts:
        write_best(studies.folder, studies.protocol, part.task, part.results())
    return True
