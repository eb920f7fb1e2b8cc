"""Hyper-parameter search: trials proposed by Optuna in rounds, kept in a shared storage.

Points are drawn by TPE in rounds of a fixed size, from a sampler seeded by the round: they depend neither on the number
of processes nor on interruptions. No point of a finite space is tried twice, and one that has no more points than there
are trials is tried point by point.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from ..graphs import Task
from ..methods import METHODS, MethodError, find_method
from ..methods.base import search_space_of
from ..methods.parameters import Space, Uniform
from ..methods.training_data import EvalProtocol
from ..metrics import METRICS, Evaluation
from ..nn.training import Epoch, TrainingError
from ..records.folder import guarded
from ..runtime.files import locked
from .best import Best, write_best
from .engines import Engine, EngineError, Unit
from .execute import ModelCache, evaluate_validation
from .plan import Run
from .runner import Display, Session
from .storage import BEAT, JOURNAL, OWNERS, Owners, open_storage

if TYPE_CHECKING:
    import optuna

Scale: TypeAlias = Literal["uniform", "log"]
CHECKS = range(50, 1001, 50)  # epochs at which a trial may be pruned
ROUND = 6  # trials drawn at a time
STARTUP = 10  # trials drawn at random before TPE begins
FEWEST = 8  # trials to compare with before one is pruned
TRIAL_SEED = 1000  # seed of the first trial; results have seeds from 0
ORDERS_OF_MAGNITUDE = 1000.0  # `log` draws a range in logarithms if its ends differ by this factor
PATIENCE = 5.0  # seconds of waiting for other processes before a line says so


def space_of(method: str, training_nodes: int, scale: Scale) -> Space:
    """Return the search space of a method on a task with so many training nodes.

    `uniform` draws learning rate and weight decay evenly, as the paper does, so that hardly any weight decay is below a
    hundredth; `log` draws ranges over orders of magnitude evenly in their logarithm.
    """
    kind = find_method(method)
    if not kind.search_space:
        tunable = ", ".join(name for name, kind in METHODS.items() if kind.search_space)
        raise MethodError(f"{kind.name} has nothing to tune; choose from {tunable}")
    return {name: _scaled(values, scale) for name, values in search_space_of(kind, training_nodes).items()}


def _scaled(values: Uniform | tuple[Any, ...], scale: Scale) -> Uniform | tuple[Any, ...]:
    if scale == "log" and isinstance(values, Uniform) and values.low * ORDERS_OF_MAGNITUDE <= values.high:
        return replace(values, log=values.low > 0.0)
    return values


def size(space: Space) -> float:
    """Return the number of points of a space."""
    return math.prod(math.inf if isinstance(values, Uniform) else len(values) for values in space.values())


def points(space: Space) -> Iterator[dict[str, Any]]:
    """Yield all points of a finite space."""
    for values in itertools.product(*space.values()):  # type: ignore[arg-type]
        yield dict(zip(space, values, strict=True))


def draw(space: Space, trial: optuna.Trial) -> dict[str, Any]:
    """Draw a point of a space with Optuna."""
    point: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, Uniform):
            point[name] = trial.suggest_float(name, values.low, values.high, log=values.log)
        else:
            point[name] = trial.suggest_categorical(name, values)
    return point


def objective(run: Run, evaluation: Evaluation) -> float | None:
    """Return the value of a trial, larger is better; None if the validation nodes do not define it.

    It is `Method.objectives`: a metric of the prediction, or of its headline score.
    """
    key = run.kind.objectives[run.protocol]
    value = evaluation.metrics[key] if key in evaluation.metrics else evaluation.scores[evaluation.headline][key]
    return -value if value is not None and METRICS[key].better < 0 else value


class Pruned(Exception):
    """A trial is stopped, as it is worse than most others at the same epoch."""


class PruningCallback:
    """Stops a trial whose best monitor value (lower is better) is above the threshold of an epoch of `CHECKS`."""

    def __init__(self, thresholds: Mapping[int, float]) -> None:
        self.thresholds = thresholds
        self.best = float("inf")
        self.seen: dict[int, float] = {}

    def __call__(self, line: Epoch) -> None:
        if line.epoch:  # 0: the untrained weights
            self.best = min(self.best, line.monitor)
        if line.epoch in CHECKS:
            self.seen[line.epoch] = self.best
            if self.best > self.thresholds.get(line.epoch, float("inf")):
                raise Pruned


def try_point(run: Run, task: Task, models: ModelCache, thresholds: Mapping[int, float]) -> dict[str, Any]:
    """Fit and evaluate one point on the validation nodes; a training that fails is a result, too.

    The result has `value` (None if undefined), or `pruned`, or `error`; and always `seen`, the monitor's best value at
    each check, and `seconds`.
    """
    callback, begin = PruningCallback(thresholds), time.perf_counter()
    result: dict[str, Any] = {}
    try:
        result["value"] = objective(run, evaluate_validation(run, task, models, callback))
    except Pruned:
        result["pruned"] = True
    except TrainingError as error:
        result["error"] = str(error)
    return {**result, "seen": callback.seen, "seconds": round(time.perf_counter() - begin, 3)}


@dataclass
class Search:
    """Search of a space until a number of trials are finished.

    Trials lost to a dying worker or a full disk are tried again while the search is open; what builds on a finished
    search does not change.

    Args:
        name: Name of the search, for people.
        digest: Hash of all that its trials depend on; with the name it identifies the study in the storage.
        space: Space to search.
        trials: Trials to finish; all points of a finite space with fewer points.
        plan: Makes the run of a point and a seed.
        storage: Storage of the trials.
        owners: Processes that work on them.
        prune: Whether hopeless trials are pruned; monitors of two points must be comparable.
        pending: Trials that this process has begun, by number.
    """

    name: str
    digest: str
    space: Space
    trials: int
    plan: Callable[[dict[str, Any], int], Run]
    storage: optuna.storages.BaseStorage
    owners: Owners
    prune: bool = False
    pending: dict[int, optuna.Trial] = field(default_factory=dict)

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
        """Return up to `most` trials of the round to begin now, by number; none while the rest is under way."""
        with locked(self.owners.folder / "round", wait=True):
            self._mark_lost_trials()
            return self._request(most)

    def _request(self, most: int) -> list[tuple[int, Unit]]:
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
                        point = _untried(self.space, point, taken)
                        taken.add(_key(point))
                    self.study.enqueue_trial(point, user_attrs={"seed": seed})
        thresholds = self._thresholds(before) if self.prune else {}
        units = []
        for _ in todo[:most]:
            trial = self.study.ask()
            if "seed" not in trial.user_attrs:  # taken by a process with another folder and the same database
                self.study.tell(trial, state=TrialState.FAIL)
                break
            with suppress(UpdateFinishedTrialError):  # marked as lost by such a process
                trial.set_user_attr("owner", self.owners.signature)
                run = self.plan(draw(self.space, trial), trial.user_attrs["seed"])
                self.pending[trial.number] = trial
                units.append((trial.number, Unit(try_point, run, (thresholds,))))
        return units

    def _seeds(self, number: int) -> range:
        """The seeds of a round's trials."""
        first = number * ROUND
        return range(TRIAL_SEED + min(first, self.trials), TRIAL_SEED + min(first + ROUND, self.trials))

    def _points(self, number: int, before: Sequence[optuna.trial.FrozenTrial]) -> list[dict[str, Any]]:
        """The points of a round: a function of the results of earlier rounds alone."""
        import optuna

        if self.is_exhaustive:  # the first one and, as that is tried, those after it
            return [next(points(self.space)) for _ in self._seeds(number)]
        sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=STARTUP, constant_liar=True)
        scratch = optuna.create_study(direction="maximize", sampler=sampler)
        scratch.add_trials(before)
        return [draw(self.space, scratch.ask()) for _ in self._seeds(number)]

    def report(self, number: int, result: Mapping[str, Any]) -> None:
        """Store the result of a trial, unless another process has taken it over.

        `result` is that of `try_point`, or `error` and `died` if the worker failed.
        """
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial, value = self.pending.pop(number), result.get("value")
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
        """Renew the heartbeat of this process's trials."""
        from optuna.exceptions import UpdateFinishedTrialError

        if self.pending and time.monotonic() - self._beat >= BEAT:
            self._beat = time.monotonic()
            for trial in self.pending.values():
                with suppress(UpdateFinishedTrialError):  # another process has taken it over
                    trial.set_user_attr("beat", time.time())

    def waits_for(self) -> list[str]:
        """Describe the other processes that work on unfinished trials."""
        from optuna.trial import TrialState

        trials = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return sorted({self.owners.describe(trial) for trial in trials if trial.number not in self.pending})

    @property
    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        """Trials of this search, without those of dead processes and foreign ones in a database.

        One whose worker died counts for this call, until it is tried again.
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
        """Return whether enough trials are finished."""
        return len(self.finished) >= self.trials

    def top(self, count: int, among: int | None = None) -> list[Best]:
        """Return the best points among the first `among` trials, of equal ones the first.

        Raises `EngineError` if no trial has a value although some could have one.
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
        """Context that yields a check for the folder with the trials; see `guarded`."""
        folder = self.owners.folder.parent
        names = [str(self.owners.path.relative_to(folder))]
        if (folder / JOURNAL).exists():  # and no database
            names.append(JOURNAL)
        return guarded(folder, *names)

    def _mark_lost_trials(self) -> None:
        """Mark trials whose process died as lost: their round then lacks them, and they are tried again."""
        from optuna.trial import TrialState

        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not self.owners.is_alive(trial):
                with suppress(RuntimeError, ValueError):  # another process was faster
                    self.storage.set_trial_user_attr(trial._trial_id, "lost", True)
                    self.study.tell(trial.number, state=TrialState.FAIL)

    def _thresholds(self, before: Sequence[optuna.trial.FrozenTrial]) -> dict[int, float]:
        """The upper quartile of the monitor at every check; a trial above it is pruned."""
        curves = [{int(epoch): best for epoch, best in trial.user_attrs.get("seen", {}).items()} for trial in before]
        values = {check: [curve[check] for curve in curves if check in curve] for check in CHECKS}
        return {check: float(np.quantile(seen, 0.75)) for check, seen in values.items() if len(seen) >= FEWEST}


def _untried(space: Space, point: dict[str, Any], taken: set[str]) -> dict[str, Any]:
    """The point of a finite space, or the next free one in its order.

    A trial that a kill has cost gets the same point again, as all others are taken.
    """
    after = itertools.dropwhile(lambda each: each != point, points(space))
    free = (each for each in itertools.chain(after, points(space)) if _key(each) not in taken)
    return next(free, point)


def _point(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    """The point of a trial, also of one in the queue."""
    return trial.params or dict(trial.system_attrs.get("fixed_params", {}))


def _key(point: Mapping[str, Any]) -> str:
    return json.dumps(point, sort_keys=True)


def _has_died(trial: optuna.trial.FrozenTrial) -> bool:
    """Return whether a trial ended by the failure of its process."""
    return bool(trial.user_attrs.get("died")) and trial.state.is_finished()


@dataclass
class Studies:
    """Searches that share one storage: an Optuna database at `url`, or a journal in the folder."""

    folder: Path
    protocol: EvalProtocol
    scale: Scale
    url: str | None = None

    def __post_init__(self) -> None:
        self.storage, self.owners = open_storage(self.folder, self.url), Owners(self.folder / OWNERS)

    def search(
        self, task: Task, method: str, space: Space, trials: int, plan: Callable[[dict[str, Any], int], Run], base: Any
    ) -> Search:
        """Open a search, identified by all that its trials depend on; `base` is what is not in the other arguments.

        Hopeless trials are pruned where monitors are comparable: not under the sealed protocol, as the loss of credal
        models depends on delta, and not of vanilla GNNs, which fill the pool.
        """
        depends = [task.fingerprint, self.protocol, self.scale, sorted(space), base]
        digest = hashlib.blake2b(json.dumps(depends, sort_keys=True).encode(), digest_size=6).hexdigest()
        prune = self.protocol in find_method(method).prunable
        return Search(f"{task.name} {method}", digest, space, trials, plan, self.storage, self.owners, prune)


class SearchPlan(Protocol):
    """Searches on one data set in two stages: the second builds on what the first has chosen."""

    @property
    def task(self) -> Task:
        """Task of the searches."""

    @property
    def total(self) -> int:
        """Number of trials."""

    def stage(self, number: int) -> list[Search]:
        """Return the searches of stage 0, or of stage 1 when stage 0 is finished."""

    def results(self) -> dict[str, dict[str, Any]]:
        """Return what was chosen for each method, for ``best.json``."""


def run_searches(
    searches: Sequence[Search],
    engine: Engine,
    deadline: float | None = None,
    on_trial: Callable[[int, Search, Mapping[str, Any]], None] = lambda done, search, result: None,
    on_wait: Callable[[str], None] = lambda message: None,
) -> bool:
    """Finish searches side by side; return whether there was time enough.

    Raises `FolderVanished` if the folder with the trials is deleted meanwhile.

    Args:
        searches: Searches to finish.
        engine: Executes the trials.
        deadline: Value of ``time.monotonic`` after which nothing is begun or waited for.
        on_trial: Called with the number of finished trials, the search and the result of a trial that ends.
        on_wait: Called with a line about the process that is waited for.
    """
    with ExitStack() as stack:
        checks = [stack.enter_context(search.guarded()) for search in searches]
        busy: dict[int, tuple[Search, int]] = {}
        idle: float | None = None  # when waiting began; infinite once a line has said so
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
                time.sleep(0.2)  # other processes do the rest
                idle = time.monotonic() if idle is None else idle
                if time.monotonic() - idle >= PATIENCE:
                    for search in searches:
                        for owner in search.waits_for():
                            on_wait(f"{search.name}: waiting for {owner}")
                            idle = math.inf
            else:
                idle = None
            results = engine.finished(timeout=0.5) if busy else []
            for check in checks:  # before the storage is written to, which would create it again
                check()
            for done in results:
                if id(done.unit) not in busy:
                    continue  # of an earlier stage
                search, number = busy.pop(id(done.unit))
                result = {"error": done.error, "died": True} if done.error is not None else done.value
                search.report(number, result)
                on_trial(sum(min(len(each.finished), each.trials) for each in searches), search, result)
    return True


def search_all(parts: Sequence[SearchPlan], studies: Studies, session: Session) -> bool:
    """Finish the searches of all data sets side by side and write ``best.json``; return whether there was time."""
    before = 0
    with Display(sum(part.total for part in parts), session.progress) as display:
        for number in (0, 1):
            searches = [search for part in parts for search in part.stage(number)]

            def on_trial(done: int, search: Search, result: Mapping[str, Any], before: int = before) -> None:
                display.trial(search.name, result, before + done)

            if not run_searches(searches, session.engine, session.deadline, on_trial, display.note):
                return False
            before += sum(search.trials for search in searches)
    for part in parts:
        write_best(studies.folder, studies.protocol, part.task, part.results())
    session.is_finished = True
    return True
