"""Tuning by Optuna's TPE: only what the protocol allows decides, processes share a storage, and a kill costs nothing.

Trials are drawn in rounds of a fixed size, from a sampler seeded by the round: what is drawn depends neither on how
many processes there are nor on whether they were stopped on the way.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..graphs import Task
from ..methods import METHODS, ClassicalEnsemble
from ..methods.base import Protocol
from ..methods.neural import CredalFinal, Neural
from ..nn.training import Epoch, TrainingError
from .engines import Engine, EngineError, Unit
from .files import Lock, locked, to_json, write
from .metrics import Evaluation
from .records import EXPERIMENT, RecordError, read_json
from .runs import Models, Run, judge
from .spaces import Space, draw, points, size

if TYPE_CHECKING:
    import optuna

ROUND = 6  # trials drawn at a time
STARTUP = 10  # trials drawn at random before TPE begins
CHECKS = range(50, 1001, 50)  # epochs at which a trial may turn out hopeless
FEWEST = 8  # trials to compare with before one is given up
TRIAL_SEED = 1000  # the first trial's seed; results have seeds from 0 on
UNSEEN = timedelta(hours=1)  # how long a trial of somebody who cannot be seen from here is believed to be under way
BEST = "best.json"


def objective(run: Run, judged: Evaluation) -> float:
    """What a trial is worth on the validation nodes; larger is better.

    The paper's protocol: accuracy (its F1) for vanilla GNNs and ensembles, and for the others the AUROC with which the
    headline score (EU) finds OOD validation nodes. Sealed, ID nodes alone decide: the likelihood of their classes, and
    for post-hoc methods, which do not change classes, how well the score finds the wrong ones.
    """
    kind = METHODS[run.method]
    own = issubclass(kind, Neural | ClassicalEnsemble)
    headline = judged.scores[judged.headline]
    if run.protocol == "paper":
        value = judged.metrics["accuracy"] if own and not issubclass(kind, CredalFinal) else headline["auroc"]
    else:
        value = -(judged.metrics["nll"] or 0.0) if own else headline["misclassification_auroc"]
    return float("nan") if value is None else value


class Hopeless(Exception):
    """A trial is worse than most others at the same epoch, and given up."""


class Watch:
    """Follows the best value of a trial's monitor (lower is better) and gives up where it is above a hurdle."""

    def __init__(self, hurdles: Mapping[int, float]) -> None:
        self.hurdles = hurdles
        self.best = float("inf")
        self.seen: dict[int, float] = {}

    def __call__(self, line: Epoch) -> None:
        if line.epoch:  # the untrained weights are never kept
            self.best = min(self.best, line.monitor)
        if line.epoch in CHECKS:
            self.seen[line.epoch] = self.best
            if self.best > self.hurdles.get(line.epoch, float("inf")):
                raise Hopeless


def try_point(run: Run, task: Task, models: Models, hurdles: Mapping[int, float]) -> dict[str, Any]:
    """Fit and judge one point on the validation nodes; a training that fails is a result, too."""
    watch, begin = Watch(hurdles), time.perf_counter()
    found: dict[str, Any] = {}
    try:
        found["value"] = objective(run, judge(run, task, models, watch))
    except Hopeless:
        found["hopeless"] = True
    except TrainingError as error:
        found["error"] = str(error)
    return {**found, "seen": watch.seen, "seconds": round(time.perf_counter() - begin, 3)}


class Best(NamedTuple):
    """A point that a search has found, its value on the validation nodes, and the seed it was found with."""

    config: dict[str, Any]
    value: float
    seed: int


class Owners:
    """Who is at work on trials: each process holds the lock of a file, which the system frees when it dies."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.me = folder, uuid.uuid4().hex
        self._lock = Lock(folder / self.me)
        self._lock.take()

    def alive(self, owner: str | None, since: datetime | None) -> bool:
        """Whether the owner of a trial still works on it; one that cannot be seen from here is believed to."""
        if owner is None:  # asked for, but not signed yet
            return since is not None and datetime.now() - since < timedelta(minutes=1)
        if owner == self.me:
            return True
        if not (self.folder / owner).exists():  # on another machine, or in another folder
            return since is not None and datetime.now() - since < UNSEEN
        lock = Lock(self.folder / owner)
        if not lock.take():
            return True
        lock.free()
        return False


@dataclass
class Search:
    """A study: ``plan(point, seed)`` makes a run of a point of the space, and ``trials`` of them are to be finished.

    ``digest`` stands for all that its trials depend on. ``prune`` says that the monitors of two points may be compared,
    so that hopeless ones can be given up.
    """

    name: str
    digest: str
    space: Space
    trials: int
    plan: Callable[[dict[str, Any], int], Run]
    storage: optuna.storages.BaseStorage
    owners: Owners
    prune: bool = False
    asked: dict[int, optuna.Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import optuna

        self.is_finite = size(self.space) <= self.trials
        self.trials = int(min(self.trials, size(self.space)))
        self.study = optuna.create_study(
            study_name=f"{self.name} {self.digest}", storage=self.storage, direction="maximize", load_if_exists=True
        )

    def next_round(self) -> list[tuple[int, Unit]]:
        """Trials to do now; none while one's own are under way, or others do what is left."""
        if self.asked:
            return []
        with locked(self.owners.folder / "round", wait=True):  # others who share the folder wait their turn
            return self._drawn()

    def _drawn(self) -> list[tuple[int, Unit]]:
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        self._bury_the_dead()
        known, ended = self.study.get_trials(deepcopy=False), len(self.ended)
        others = sum(one.state == TrialState.RUNNING for one in known)
        count = min(ROUND - ended % ROUND, self.trials - ended - others)
        if count <= 0:
            return []
        if self.is_finite:  # every point once, in order
            tried = [_point(one) for one in known if not one.user_attrs.get("lost")]
            for point in [point for point in points(self.space) if point not in tried][:count]:
                self.study.enqueue_trial(point)
        self.study.sampler = TPESampler(seed=ended // ROUND, n_startup_trials=STARTUP)
        hurdles = self._hurdles() if self.prune else {}
        used = {one.user_attrs.get("seed") for one in known if not one.user_attrs.get("lost")}
        fresh = (seed for seed in itertools.count(TRIAL_SEED) if seed not in used)
        units = []
        for _ in range(count):
            trial = self.study.ask()
            trial.set_user_attr("owner", self.owners.me)
            seed = trial.user_attrs["seed"] if "seed" in trial.user_attrs else next(fresh)
            trial.set_user_attr("seed", seed)
            self.asked[trial.number] = trial
            units.append((trial.number, Unit(try_point, self.plan(draw(self.space, trial), seed), (hurdles,))))
        return units

    def tell(self, number: int, found: Mapping[str, Any]) -> None:
        """Keep what came of a trial."""
        from optuna.trial import TrialState

        trial = self.asked.pop(number)
        for name in ("seen", "seconds", "error"):
            if name in found:
                trial.set_user_attr(name, found[name])
        value = found.get("value", float("nan"))
        if np.isfinite(value):
            self.study.tell(trial, value)
        else:
            self.study.tell(trial, state=TrialState.PRUNED if "hopeless" in found else TrialState.FAIL)

    @property
    def ended(self) -> list[optuna.trial.FrozenTrial]:
        """Trials that came to an end, good or bad; not those whose process died."""
        trials = self.study.get_trials(deepcopy=False)
        return [one for one in trials if one.state.is_finished() and not one.user_attrs.get("lost")]

    @property
    def is_finished(self) -> bool:
        return len(self.ended) >= self.trials

    def top(self, count: int, among: int | None = None) -> list[Best]:
        """The best points, among the first ``among`` trials if given; of equal ones those that were tried first."""
        from optuna.trial import TrialState

        ended = self.ended[:among]
        done = [one for one in ended if one.state == TrialState.COMPLETE]
        if not done:
            errors = [one.user_attrs["error"] for one in ended if "error" in one.user_attrs]
            raise EngineError(f"{self.name}: none of {len(ended)} trials came to an end ({errors[-1:] or 'no error'})")
        done.sort(key=lambda one: (-(one.value or 0.0), one.number))
        return [Best(_point(one), float(one.value or 0.0), one.user_attrs["seed"]) for one in done[:count]]

    def _bury_the_dead(self) -> None:
        """Trials whose process died are marked as lost, and their points enqueued again with the same seed."""
        from optuna.trial import TrialState

        for one in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not self.owners.alive(one.user_attrs.get("owner"), one.datetime_start):
                try:
                    self.storage.set_trial_user_attr(one._trial_id, "lost", True)
                    self.study.tell(one.number, state=TrialState.FAIL)
                except (RuntimeError, ValueError):  # somebody else was faster
                    continue
                if len(one.params) == len(self.space) and "seed" in one.user_attrs:
                    self.study.enqueue_trial(_point(one), user_attrs={"seed": one.user_attrs["seed"]})

    def _hurdles(self) -> dict[int, float]:
        """For every check the value below which three of four trials were; who is above it is given up."""
        whole = self.ended[: len(self.ended) // ROUND * ROUND]  # a round that was stopped half-way judges nobody
        curves = [{int(epoch): best for epoch, best in one.user_attrs.get("seen", {}).items()} for one in whole]
        values = {check: [curve[check] for curve in curves if check in curve] for check in CHECKS}
        return {check: float(np.quantile(seen, 0.75)) for check, seen in values.items() if len(seen) >= FEWEST}


def _point(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    """A trial's parameters, also while it waits for its turn."""
    return dict(trial.params or trial.system_attrs.get("fixed_params", {}))


def carry_out(
    searches: Sequence[Search],
    engine: Engine,
    deadline: float | None = None,
    tell: Callable[[int, Search, Mapping[str, Any]], None] = lambda done, search, found: None,
) -> bool:
    """Finish all searches, side by side; whether there was time enough. ``tell`` hears how many trials have ended."""
    waiting: deque[tuple[Search, int, Unit]] = deque()
    busy: dict[int, tuple[Search, int]] = {}
    while busy or not all(search.is_finished for search in searches):
        if deadline is not None and time.monotonic() >= deadline:
            return False
        if len(waiting) < engine.slots:
            for search in searches:
                waiting.extend((search, number, unit) for number, unit in search.next_round())
        while waiting and len(busy) < engine.slots:
            search, number, unit = waiting.popleft()
            engine.start(unit)
            busy[id(unit)] = search, number
        if not busy:
            time.sleep(0.2)  # others do what is left
            continue
        for result in engine.finished(timeout=0.5):
            if id(result.unit) not in busy:
                continue  # of an earlier stage
            search, number = busy.pop(id(result.unit))
            found = {"error": result.error} if result.error is not None else result.value
            search.tell(number, found)
            tell(sum(min(len(one.ended), one.trials) for one in searches), search, found)
    return True


def open_storage(folder: Path, url: str | None = None) -> optuna.storages.BaseStorage:
    """Where trials are kept: a journal in the folder, which processes and machines that see it share, or a database."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if url is not None:
        try:
            return optuna.storages.RDBStorage(url)
        except Exception as error:  # whatever the driver of the database raises
            words = " ".join(str(error).split())
            raise EngineError(f"--storage {url}: cannot be opened ({words:.200})") from None
    path = folder / "tuning.journal"
    lock = _JournalLock(Lock(folder / ".journal"))
    lock.acquire()
    try:  # a process killed while it wrote leaves half a line, which nobody would read past
        if path.exists() and not (content := path.read_bytes()).endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
    finally:
        lock.release()
    return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))  # type: ignore[arg-type]


class _JournalLock:
    """A lock for Optuna's journal that does not outlive its holder; Optuna's own waits 30 seconds for a dead one."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def acquire(self) -> bool:
        return self._lock.take(wait=True)

    def release(self) -> None:
        self._lock.free()


def write_best(folder: Path, protocol: Protocol, task: Task, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Add what was found for the methods on a task, for ``bench --tuned`` and for people."""
    with locked(folder / ".best", wait=True):
        known = read_json(folder / BEST, "what tuning found") if (folder / BEST).exists() else {"best": {}}
        table = known["best"].setdefault(task.name, {"fingerprint": task.fingerprint, "methods": {}})
        table["methods"].update(found)
        write(folder / BEST, to_json({"protocol": protocol, "best": known["best"]}))


def tuned(folder: Path, task: Task, protocol: Protocol) -> dict[str, dict[str, Any]]:
    """The hyper-parameters that ``tune`` has found for the methods on a task.

    ``config`` is the method's own, ``vanilla`` that of the vanilla GNNs it was tuned on, if it stands on some.
    """
    dataset = task.name
    if not (folder / BEST).exists():
        raise RecordError(f"{folder}: nothing was tuned here ({BEST} is missing); credalgnn tune writes it")
    if read_json(folder / EXPERIMENT, "an experiment").get("kind") != "tune":
        raise RecordError(f"{folder}: not of credalgnn tune; the points of a reproduction belong to its own runs")
    found = read_json(folder / BEST, "what tuning found")
    if found.get("protocol") != protocol:
        raise RecordError(
            f"{folder}: tuned by the {found.get('protocol')} protocol, and not by {protocol}: what may be looked at "
            "would differ; tune again, or give --protocol"
        )
    if dataset not in found["best"]:
        raise RecordError(f"{folder}: nothing was tuned for {dataset}, only for {', '.join(found['best'])}")
    if found["best"][dataset]["fingerprint"] != task.fingerprint:
        raise RecordError(
            f"{folder}: {dataset} was tuned on other data or another split, whose validation nodes may be test nodes "
            "here"
        )
    methods: dict[str, dict[str, Any]] = found["best"][dataset]["methods"]
    return methods
