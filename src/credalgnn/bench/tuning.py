"""Tuning by Optuna's TPE: only what the protocol allows decides, processes share a storage, and a kill costs nothing.

Trials are drawn in rounds of a fixed size, from a sampler seeded by the round: what is drawn depends neither on how
many processes there are nor on whether they were stopped on the way.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._files import Lock, locked, to_json, write
from ..graphs import Task
from ..methods import METHODS, ClassicalEnsemble
from ..methods.base import Protocol
from ..methods.neural import CredalFinal, Neural
from ..nn.training import Epoch, TrainingError
from .engines import Engine, EngineError, Unit
from .metrics import Evaluation
from .records import EXPERIMENT, RecordError, read_json
from .runs import SETTINGS, Models, Run, judge
from .spaces import Space, draw, points, size

if TYPE_CHECKING:
    import optuna

ROUND = 6  # trials drawn at a time
STARTUP = 10  # trials drawn at random before TPE begins
CHECKS = range(50, 1001, 50)  # epochs at which a trial may turn out hopeless
FEWEST = 8  # trials to compare with before one is given up
TRIAL_SEED = 1000  # the first trial's seed; results have seeds from 0 on
UNSEEN = 3600.0  # seconds for which a trial of somebody who cannot be seen from here is believed to be under way
BEST = "best.json"


def objective(run: Run, judged: Evaluation) -> float | None:
    """What a trial is worth on the validation nodes; larger is better. None if they cannot tell.

    The paper's protocol: accuracy (its F1) for vanilla GNNs and ensembles, and for the others the AUROC with which the
    headline score (EU) finds OOD validation nodes. Sealed, ID nodes alone decide: the likelihood of their classes, and
    for post-hoc methods, which do not change classes, how well the score finds the wrong ones, if there are any.
    """
    kind = METHODS[run.method]
    own = issubclass(kind, Neural | ClassicalEnsemble)
    headline = judged.scores[judged.headline]
    if run.protocol == "paper":
        return judged.metrics["accuracy"] if own and not issubclass(kind, CredalFinal) else headline["auroc"]
    return -(judged.metrics["nll"] or 0.0) if own else headline["misclassification_auroc"]


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
    """A point that a search has found, its value on the validation nodes, and the seed it was found with.

    Where the validation nodes cannot tell points apart, there is no value, and the defaults stay.
    """

    config: dict[str, Any]
    value: float | None
    seed: int


class Owners:
    """Who is at work on trials: each process holds the lock of a file, which the system frees when it dies."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.me = folder, uuid.uuid4().hex
        self._lock = Lock(folder / self.me)
        self._lock.take()

    @property
    def signature(self) -> tuple[str, float]:
        """Who begins a trial, and when, as all machines count."""
        return self.me, time.time()

    def alive(self, trial: optuna.trial.FrozenTrial) -> bool:
        """Whether somebody still works on a trial; who cannot be seen from here is believed to, for a while."""
        if "owner" not in trial.user_attrs:  # asked for, but not signed yet
            asked = trial.datetime_start
            return asked is not None and abs(datetime.now() - asked) < timedelta(minutes=1)
        owner, since = str(trial.user_attrs["owner"][0]), float(trial.user_attrs["owner"][1])
        if owner == self.me:
            return True
        if not (self.folder / owner).exists():  # on another machine, or in another folder
            return time.time() - since < UNSEEN
        lock = Lock(self.folder / owner)
        if not lock.take():
            return True
        lock.free()
        return False


@dataclass
class Search:
    """A study: ``plan(point, seed)`` makes a run of a point of the space, and ``trials`` of them are to be finished.

    ``digest`` stands for all that its trials depend on. ``prune`` says that the monitors of two points may be compared,
    so that hopeless ones can be given up. Trials that a dying worker or a full disk cost an earlier command are tried
    again while the search is open; what stands on a finished one does not change.
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
        self._once_failed: set[int] = set()
        if not self.is_finished or all(one.value is None for one in self.ended):
            self._once_failed = {one.number for one in self.study.get_trials(deepcopy=False) if _has_died(one)}

    def next_trials(self, most: int = ROUND) -> list[tuple[int, Unit]]:
        """Trials of the round to begin now, so many at most; none while what is left of it is under way."""
        with locked(self.owners.folder / "round", wait=True):  # others who share the folder wait their turn
            self._bury_the_dead()
            return self._ask(most)

    def _ask(self, most: int) -> list[tuple[int, Unit]]:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        ended = {one.user_attrs["seed"] for one in self.ended}
        number = next(n for n in itertools.count() if not ended.issuperset(self._seeds(n)) or not self._seeds(n))
        before = [one for one in self.ended if one.user_attrs["seed"] < TRIAL_SEED + number * ROUND]
        states = {one.user_attrs["seed"]: one.state for one in self._trials}
        todo = [seed for seed in self._seeds(number) if states.get(seed) in (None, TrialState.WAITING)]
        if any(seed not in states for seed in todo):
            for seed, point in zip(self._seeds(number), self._points(number, before), strict=True):
                if seed not in states:
                    self.study.enqueue_trial(point, user_attrs={"seed": seed})
        hurdles = self._hurdles(before) if self.prune else {}
        units = []
        for _ in todo[:most]:
            trial = self.study.ask()
            if "seed" not in trial.user_attrs:  # somebody with another folder and the same database was faster
                self.study.tell(trial, state=TrialState.FAIL)
                break
            with suppress(UpdateFinishedTrialError):  # taken for dead by such a one, before it was signed
                trial.set_user_attr("owner", self.owners.signature)
                run = self.plan(draw(self.space, trial), trial.user_attrs["seed"])
                self.asked[trial.number] = trial
                units.append((trial.number, Unit(try_point, run, (hurdles,))))
        return units

    def _seeds(self, number: int) -> range:
        """The seeds of a round's trials."""
        first = number * ROUND
        return range(TRIAL_SEED + min(first, self.trials), TRIAL_SEED + min(first + ROUND, self.trials))

    def _points(self, number: int, before: Sequence[optuna.trial.FrozenTrial]) -> list[dict[str, Any]]:
        """The points of a round: a function of what the rounds before it found, and of nothing else."""
        import optuna

        if self.is_finite:  # every point once, in order
            return list(points(self.space))[number * ROUND : (number + 1) * ROUND]
        sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=STARTUP, constant_liar=True)
        scratch = optuna.create_study(direction="maximize", sampler=sampler)
        scratch.add_trials(before)
        return [draw(self.space, scratch.ask()) for _ in self._seeds(number)]

    def tell(self, number: int, found: Mapping[str, Any]) -> None:
        """Keep what came of a trial, unless its owner was taken for dead and somebody else has it now."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial, value = self.asked.pop(number), found.get("value")
        notes = {name: found[name] for name in ("seen", "seconds", "error", "died") if name in found}
        if value is None and "value" in found:
            notes["untold"] = True
        with suppress(UpdateFinishedTrialError):
            for name, note in notes.items():
                trial.set_user_attr(name, note)
        if value is not None and np.isfinite(value):
            self.study.tell(trial, value, skip_if_finished=True)
        else:
            state = TrialState.PRUNED if "hopeless" in found else TrialState.FAIL
            self.study.tell(trial, state=state, skip_if_finished=True)

    @property
    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        """Trials of this search: not those lost by dead processes, nor what others put into a database.

        One that died counts for the command that saw it die, until another has tried it again.
        """
        trials = [
            one for one in self.study.get_trials(deepcopy=False)
            if "seed" in one.user_attrs and not one.user_attrs.get("lost") and one.number not in self._once_failed
        ]  # fmt: skip
        again = {one.user_attrs["seed"] for one in trials if one.state.is_finished() and not _has_died(one)}
        return [one for one in trials if not _has_died(one) or one.user_attrs["seed"] not in again]

    @property
    def ended(self) -> list[optuna.trial.FrozenTrial]:
        """Trials that came to an end, good or bad, in the order of their seeds."""
        ended = {one.user_attrs["seed"]: one for one in reversed(self._trials) if one.state.is_finished()}
        return [ended[seed] for seed in sorted(ended)]

    @property
    def is_finished(self) -> bool:
        return len(self.ended) >= self.trials

    def top(self, count: int, among: int | None = None) -> list[Best]:
        """The best points, among the first ``among`` trials if given; of equal ones those that were tried first."""
        from optuna.trial import TrialState

        ended = self.ended[:among]
        done = [one for one in ended if one.state == TrialState.COMPLETE]
        if not done and any(one.user_attrs.get("untold") for one in ended):
            return [Best({}, None, TRIAL_SEED)]
        if not done:
            errors = [one.user_attrs["error"] for one in ended if "error" in one.user_attrs]
            raise EngineError(
                f"{self.name}: none of {len(ended)} trials came to an end ({errors[-1] if errors else 'no error'})"
            )
        done.sort(key=lambda one: (-(one.value or 0.0), one.user_attrs["seed"]))
        return [Best(dict(one.params), float(one.value or 0.0), one.user_attrs["seed"]) for one in done[:count]]

    def _bury_the_dead(self) -> None:
        """Trials whose process died are marked as lost; their round then lacks them, and they are tried again."""
        from optuna.trial import TrialState

        for one in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not self.owners.alive(one):
                with suppress(RuntimeError, ValueError):  # somebody else was faster
                    self.storage.set_trial_user_attr(one._trial_id, "lost", True)
                    self.study.tell(one.number, state=TrialState.FAIL)

    def _hurdles(self, before: Sequence[optuna.trial.FrozenTrial]) -> dict[int, float]:
        """For every check the value below which three of four trials were; who is above it is given up."""
        curves = [{int(epoch): best for epoch, best in one.user_attrs.get("seen", {}).items()} for one in before]
        values = {check: [curve[check] for curve in curves if check in curve] for check in CHECKS}
        return {check: float(np.quantile(seen, 0.75)) for check, seen in values.items() if len(seen) >= FEWEST}


def _has_died(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial ended by what befell its process, not by what it found."""
    return bool(trial.user_attrs.get("died")) and trial.state.is_finished()


def carry_out(
    searches: Sequence[Search],
    engine: Engine,
    deadline: float | None = None,
    tell: Callable[[int, Search, Mapping[str, Any]], None] = lambda done, search, found: None,
) -> bool:
    """Finish all searches, side by side; whether there was time enough. ``tell`` hears how many trials have ended."""
    busy: dict[int, tuple[Search, int]] = {}
    while busy or not all(search.is_finished for search in searches):
        if deadline is not None and time.monotonic() >= deadline:
            return False
        for search in searches:
            if len(busy) < engine.slots:
                for number, unit in search.next_trials(engine.slots - len(busy)):
                    engine.start(unit)
                    busy[id(unit)] = search, number
        if not busy:
            time.sleep(0.2)  # others do what is left
            continue
        for result in engine.finished(timeout=0.5):
            if id(result.unit) not in busy:
                continue  # of an earlier stage
            search, number = busy.pop(id(result.unit))
            found = {"error": result.error, "died": True} if result.error is not None else result.value
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
    lock = _JournalLock(path, Lock(folder / ".journal"))
    lock.acquire()
    lines = path.read_bytes().splitlines() if path.exists() else []  # while nobody writes
    lock.release()
    try:
        for line in lines:
            json.loads(line)
        return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))  # type: ignore[arg-type]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise EngineError(
            f"{path}: damaged, and not by a kill; bring it back from a copy, or choose another --out"
        ) from None


class _JournalLock:
    """A lock for Optuna's journal that does not outlive its holder; Optuna's own waits 30 seconds for a dead one.

    A process killed while it wrote leaves half a line, which nobody could read past: who takes the lock mends it.
    """

    def __init__(self, journal: Path, lock: Lock) -> None:
        self._journal, self._lock = journal, lock

    def acquire(self) -> bool:
        held = self._lock.take(wait=True)
        if self._journal.exists() and self._journal.stat().st_size:
            with self._journal.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                whole = file.read(1) == b"\n"
            if not whole:
                os.truncate(self._journal, self._journal.read_bytes().rfind(b"\n") + 1)
        return held

    def release(self) -> None:
        self._lock.free()


def write_best(folder: Path, protocol: Protocol, task: Task, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Add what was found for the methods on a task, for ``bench --tuned`` and for people."""
    with locked(folder / ".best", wait=True):
        tables = _read_best(folder)["best"] if (folder / BEST).exists() else {}
        table = tables.get(task.name, {})
        if table.get("fingerprint") != task.fingerprint:  # other data, or another split
            table = {"fingerprint": task.fingerprint, "methods": {}}
        table["methods"].update(found)
        write(folder / BEST, to_json({"protocol": protocol, "best": {**tables, task.name: table}}))


def found_before(folder: Path, task: Task, method: str) -> dict[str, Any]:
    """The hyper-parameters that an earlier command has found in this folder for a method on this very task, if any."""
    table = _read_best(folder)["best"].get(task.name, {}) if (folder / BEST).exists() else {}
    if table.get("fingerprint") != task.fingerprint or method not in table["methods"]:
        return {}
    return dict(table["methods"][method]["config"])


def _read_best(folder: Path) -> dict[str, Any]:
    """What was found in a folder: the protocol, and for each data set its fingerprint and methods; checked."""
    found = read_json(folder / BEST, "what tuning found")
    try:
        for table in found["best"].values():
            if not isinstance(table["fingerprint"], str):
                raise TypeError
            if not all(isinstance(one["config"], dict) for one in table["methods"].values()):
                raise TypeError
    except (LookupError, TypeError, ValueError, AttributeError):
        raise RecordError(f"{folder / BEST}: damaged; delete it, and credalgnn tune makes it again") from None
    return found


def tuned(folder: Path, task: Task, protocol: Protocol) -> dict[str, dict[str, Any]]:
    """The hyper-parameters that ``tune`` has found for the methods on a task.

    ``config`` is the method's own, ``vanilla`` that of the vanilla GNNs it was tuned on, if it stands on some.
    """
    dataset = task.name
    if not (folder / BEST).exists():
        raise RecordError(f"{folder}: nothing was tuned here ({BEST} is missing); credalgnn tune writes it")
    if not (folder / EXPERIMENT).exists():
        raise RecordError(f"{folder}: no folder of credalgnn tune ({EXPERIMENT} is missing); give its --out")
    experiment = read_json(folder / EXPERIMENT, "an experiment")
    if experiment.get("kind") != "tune":
        raise RecordError(f"{folder}: not of credalgnn tune; the points of a reproduction belong to its own runs")
    setting, wanted = experiment.get("setting", SETTINGS[0]), SETTINGS[task.inductive]
    if setting != wanted:
        raise RecordError(
            f"{folder}: tuned in the {setting} setting, and not in the {wanted} one: tune again, or give --setting"
        )
    found = _read_best(folder)
    if found.get("protocol") != protocol:
        raise RecordError(
            f"{folder}: tuned by the {found.get('protocol')} protocol, and not by {protocol}: what may be looked at "
            "would differ; tune again, or give --protocol"
        )
    tables = found["best"]
    if dataset not in tables:
        raise RecordError(f"{folder}: nothing was tuned for {dataset}, only for {', '.join(tables)}")
    methods = dict(tables[dataset]["methods"])
    if not all(isinstance(one.get("vanilla"), dict) for one in methods.values()):
        raise RecordError(f"{folder / BEST}: damaged; delete it, and credalgnn tune makes it again")
    if tables[dataset]["fingerprint"] != task.fingerprint:
        raise RecordError(
            f"{folder}: {dataset} was tuned on other data or another split, whose validation nodes may be test nodes "
            "here"
        )
    return methods
