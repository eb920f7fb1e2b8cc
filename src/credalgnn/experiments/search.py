"""One search: trials are asked for in rounds, told to a shared storage, and survive the death of who works on them.

Points are drawn by Optuna's TPE in rounds of a fixed size, from a sampler seeded by the round: what is drawn depends
neither on how many processes there are nor on whether they were stopped on the way. No point of a finite space is
tried twice, and one that has no more points than there are trials is tried point by point.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graphs import Task
from ..methods import find_method
from ..methods.parameters import Space
from ..methods.training_data import EvalProtocol
from ..runtime.files import locked
from .best import Best
from .engines import EngineError, Unit
from .objective import CHECKS, try_point
from .plan import Run
from .space import Scale, draw, points, size
from .storage import BEAT, JOURNAL, OWNERS, Owners, open_storage
from .vanished import guarded

if TYPE_CHECKING:
    import optuna

ROUND = 6  # trials drawn at a time
STARTUP = 10  # trials drawn at random before TPE begins
FEWEST = 8  # trials to compare with before one is pruned
TRIAL_SEED = 1000  # the first trial's seed; results have seeds from 0 on


@dataclass
class Search:
    """A search of a space, of which a number of trials are to be finished.

    Trials that a dying worker or a full disk cost an earlier command are tried again while the search is open; what
    stands on a finished one does not change.

    Args:
        name: The search's name, for people.
        digest: Stands for all that its trials depend on; with the name it identifies the study in the storage.
        space: What is searched.
        trials: How many trials are to be finished. If a finite space has no more points, each of them is tried: once,
            but for points that an older version has tried twice.
        plan: ``plan(point, seed)`` makes a run of a point of the space.
        storage: Where trials are kept.
        owners: Who works on them.
        prune: Whether the monitors of two points may be compared, so that hopeless trials can be pruned.
        asked: Trials that this process has begun and not told yet, by their numbers.
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

        self.study = optuna.create_study(
            study_name=f"{self.name} {self.digest}", storage=self.storage, direction="maximize", load_if_exists=True
        )
        self._failed_before: set[int] = set()
        self._beat = time.monotonic()
        self.is_exhaustive = size(self.space) <= self.trials
        if self.is_exhaustive:
            repeated = len(self.finished) - len({_key(_point(trial)) for trial in self.finished})
            self.trials = int(size(self.space)) + repeated
        if not self.is_finished or all(trial.value is None for trial in self.finished):
            self._failed_before = {trial.number for trial in self.study.get_trials(deepcopy=False) if _has_died(trial)}

    def next_trials(self, most: int = ROUND) -> list[tuple[int, Unit]]:
        """Trials of the round to begin now; none while what is left of it is under way.

        Args:
            most: How many to begin at most.

        Returns:
            The trials' numbers, for ``tell``, and the work to do.
        """
        with locked(self.owners.folder / "round", wait=True):  # others who share the folder wait their turn
            self._mark_lost_trials()
            return self._ask(most)

    def _ask(self, most: int) -> list[tuple[int, Unit]]:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        finished = {trial.user_attrs["seed"] for trial in self.finished}
        number = next(n for n in itertools.count() if not finished.issuperset(self._seeds(n)) or not self._seeds(n))
        before = [trial for trial in self.finished if trial.user_attrs["seed"] < TRIAL_SEED + number * ROUND]
        states = {trial.user_attrs["seed"]: trial.state for trial in self._trials}
        todo = [seed for seed in self._seeds(number) if states.get(seed) in (None, TrialState.WAITING)]
        if any(seed not in states for seed in todo):
            taken = {_key(_point(trial)) for trial in self._trials}
            for seed, point in zip(self._seeds(number), self._points(number, before), strict=True):
                if seed not in states:
                    if math.isfinite(size(self.space)):
                        point = self._untried(point, taken)
                        taken.add(_key(point))
                    self.study.enqueue_trial(point, user_attrs={"seed": seed})
        thresholds = self._thresholds(before) if self.prune else {}
        units = []
        for _ in todo[:most]:
            trial = self.study.ask()
            if "seed" not in trial.user_attrs:  # a process with another folder and the same database was faster
                self.study.tell(trial, state=TrialState.FAIL)
                break
            with suppress(UpdateFinishedTrialError):  # such a process marked it as lost, before it was signed
                trial.set_user_attr("owner", self.owners.signature)
                run = self.plan(draw(self.space, trial), trial.user_attrs["seed"])
                self.asked[trial.number] = trial
                units.append((trial.number, Unit(try_point, run, (thresholds,))))
        return units

    def _seeds(self, number: int) -> range:
        """The seeds of a round's trials."""
        first = number * ROUND
        return range(TRIAL_SEED + min(first, self.trials), TRIAL_SEED + min(first + ROUND, self.trials))

    def _points(self, number: int, before: Sequence[optuna.trial.FrozenTrial]) -> list[dict[str, Any]]:
        """The points to try in a round: a function of the results of the rounds before it, and of nothing else."""
        import optuna

        if self.is_exhaustive:  # the first one and, as that is tried, those after it
            return [next(points(self.space)) for _ in self._seeds(number)]
        sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=STARTUP, constant_liar=True)
        scratch = optuna.create_study(direction="maximize", sampler=sampler)
        scratch.add_trials(before)
        return [draw(self.space, scratch.ask()) for _ in self._seeds(number)]

    def _untried(self, point: dict[str, Any], taken: set[str]) -> dict[str, Any]:
        """The point of a finite space, or the next one in its order that is not taken: a neighbour, where there is one.

        It does not matter whether the points of a round are assigned at once or, after a kill, some of them later: a
        trial that is missing gets the same point again, as all others are taken.
        """
        after = itertools.dropwhile(lambda each: each != point, points(self.space))
        free = (each for each in itertools.chain(after, points(self.space)) if _key(each) not in taken)
        return next(free, point)

    def tell(self, number: int, result: Mapping[str, Any]) -> None:
        """Keep the result of a trial, unless its owner was taken for dead and another process has it now.

        Args:
            number: The trial's number.
            result: As ``try_point`` returns it, or ``error`` and ``died`` if the process that did it failed.
        """
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial, value = self.asked.pop(number), result.get("value")
        notes = {name: result[name] for name in ("seen", "seconds", "error", "died") if name in result}
        if value is None and "value" in result:
            notes["untold"] = True
        with suppress(UpdateFinishedTrialError):
            for name, note in notes.items():
                trial.set_user_attr(name, note)
        if value is not None and np.isfinite(value):
            self.study.tell(trial, value, skip_if_finished=True)
        else:
            state = TrialState.PRUNED if "pruned" in result else TrialState.FAIL
            self.study.tell(trial, state=state, skip_if_finished=True)

    def beat(self) -> None:
        """Say, every now and then, that this process is there and works on its trials."""
        from optuna.exceptions import UpdateFinishedTrialError

        if self.asked and time.monotonic() - self._beat >= BEAT:
            self._beat = time.monotonic()
            for trial in self.asked.values():
                with suppress(UpdateFinishedTrialError):  # it was taken for dead
                    trial.set_user_attr("beat", time.time())

    def waits_for(self) -> list[str]:
        """Who, besides this process, works on trials that are not finished, in words."""
        from optuna.trial import TrialState

        trials = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return sorted({self.owners.describe(trial) for trial in trials if trial.number not in self.asked})

    @property
    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        """Trials of this search: not those lost by dead processes, nor what others put into a database.

        One whose worker died counts for the command that saw it die, until another has tried it again.
        """
        trials = [
            trial for trial in self.study.get_trials(deepcopy=False)
            if "seed" in trial.user_attrs and not trial.user_attrs.get("lost")
            and trial.number not in self._failed_before
        ]  # fmt: skip
        again = {trial.user_attrs["seed"] for trial in trials if trial.state.is_finished() and not _has_died(trial)}
        return [trial for trial in trials if not _has_died(trial) or trial.user_attrs["seed"] not in again]

    @property
    def finished(self) -> list[optuna.trial.FrozenTrial]:
        """Finished trials, with or without a value, in the order of their seeds."""
        finished = {trial.user_attrs["seed"]: trial for trial in reversed(self._trials) if trial.state.is_finished()}
        return [finished[seed] for seed in sorted(finished)]

    @property
    def is_finished(self) -> bool:
        """Whether as many trials are finished as were asked for."""
        return len(self.finished) >= self.trials

    def top(self, count: int, among: int | None = None) -> list[Best]:
        """The best points; of equal ones those that were tried first.

        Args:
            count: How many at most.
            among: Only the first so many trials compete; None for all.

        Raises:
            EngineError: No trial has a value, although some could have had one.
        """
        from optuna.trial import TrialState

        finished = self.finished[:among]
        complete = [trial for trial in finished if trial.state == TrialState.COMPLETE]
        if not complete and any(trial.user_attrs.get("untold") for trial in finished):
            return [Best({}, None, TRIAL_SEED)]
        if not complete:
            errors = [trial.user_attrs["error"] for trial in finished if "error" in trial.user_attrs]
            raise EngineError(
                f"{self.name}: none of {len(finished)} trials succeeded ({errors[-1] if errors else 'no error'})"
            )
        complete.sort(key=lambda trial: (-(trial.value or 0.0), trial.user_attrs["seed"]))
        return [Best(dict(t.params), float(t.value or 0.0), t.user_attrs["seed"]) for t in complete[:count]]

    def guarded(self) -> AbstractContextManager[Callable[[], None]]:
        """Work on this search; what it yields raises ``FolderVanished`` if the folder with the trials was deleted."""
        folder = self.owners.folder.parent
        names = [str(self.owners.path.relative_to(folder))]
        if (folder / JOURNAL).exists():  # and no database
            names.append(JOURNAL)
        return guarded(folder, *names)

    def _mark_lost_trials(self) -> None:
        """Trials whose process died are marked as lost; their round then lacks them, and they are tried again."""
        from optuna.trial import TrialState

        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not self.owners.is_alive(trial):
                with suppress(RuntimeError, ValueError):  # another process was faster
                    self.storage.set_trial_user_attr(trial._trial_id, "lost", True)
                    self.study.tell(trial.number, state=TrialState.FAIL)

    def _thresholds(self, before: Sequence[optuna.trial.FrozenTrial]) -> dict[int, float]:
        """For every check the value below which three of four trials were; a trial above it is pruned."""
        curves = [{int(epoch): best for epoch, best in trial.user_attrs.get("seen", {}).items()} for trial in before]
        values = {check: [curve[check] for curve in curves if check in curve] for check in CHECKS}
        return {check: float(np.quantile(seen, 0.75)) for check, seen in values.items() if len(seen) >= FEWEST}


def _point(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    """The point of a trial, also of one that waits in the queue and has no parameters yet."""
    return trial.params or dict(trial.system_attrs.get("fixed_params", {}))


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True)


def _has_died(trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial finished by the failure of its process, not by a result of its own."""
    return bool(trial.user_attrs.get("died")) and trial.state.is_finished()


@dataclass
class Studies:
    """Makes searches that share one storage.

    Args:
        folder: The experiment's folder.
        protocol: What trials may look at.
        scale: How learning rate and weight decay are drawn.
        url: Of an Optuna database; None for a journal in the folder.
    """

    folder: Path
    protocol: EvalProtocol
    scale: Scale
    url: str | None = None

    def __post_init__(self) -> None:
        self.storage, self.owners = open_storage(self.folder, self.url), Owners(self.folder / OWNERS)

    def search(
        self, task: Task, method: str, space: Space, trials: int, plan: Callable[[dict[str, Any], int], Run], base: Any
    ) -> Search:
        """A search that is identified by all that its trials depend on: none is taken for another.

        Hopeless trials are pruned where monitors can be compared. Under the sealed protocol they cannot: the loss of
        credal models depends on delta. Vanilla GNNs, which fill the pool, are always trained to the end.

        Args:
            task: On which trials are fitted.
            method: The name of the method.
            space: What is searched.
            trials: How many trials are to be finished.
            plan: ``plan(point, seed)`` makes a run of a point.
            base: All else that trials depend on, as values that JSON knows.
        """
        depends = [task.fingerprint, self.protocol, self.scale, sorted(space), base]
        digest = hashlib.blake2b(json.dumps(depends, sort_keys=True).encode(), digest_size=6).hexdigest()
        prune = self.protocol in find_method(method).prunable
        return Search(f"{task.name} {method}", digest, space, trials, plan, self.storage, self.owners, prune)
