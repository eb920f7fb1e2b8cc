"""Storage of trials that survives a kill, and locks of the processes that work on them."""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.files import Lock
from ..runtime.texts import one_line, without_credentials
from .engines import EngineError

if TYPE_CHECKING:
    import optuna

JOURNAL, OWNERS = "tuning.journal", ".owners"
BEAT = 20.0  # seconds between two heartbeats of an owner
SILENT = 90.0  # seconds without a heartbeat after which an owner on another machine counts as dead
UNSEEN = 3600.0  # seconds since the last heartbeat after which an owner is dead, however clocks differ


class Owners:
    """Processes at work on trials: each holds the lock of a file, which the system frees when it dies.

    Processes on other machines, or with other folders and the same database, are known by their heartbeats in the
    storage, whose changes are timed by the clock of the reader.

    Args:
        folder: Folder of the lock files, shared by all processes that work on the same searches.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.me = folder, uuid.uuid4().hex
        self.path = folder / self.me
        self._lock = Lock(self.path)
        self._lock.take()
        self.host = socket.gethostname()
        self._heard: dict[str, tuple[float, float]] = {}  # the last heartbeat of an owner, and when it was noticed

    @property
    def signature(self) -> tuple[str, float, str, int]:
        """Owner of a trial that is begun now: its id, the time in seconds, the host and the process."""
        return self.me, time.time(), self.host, os.getpid()

    def is_alive(self, trial: optuna.trial.FrozenTrial) -> bool:
        """Return whether a process works on a trial; one that cannot be seen from here counts, for a while."""
        if "owner" not in trial.user_attrs:  # begun, but not signed yet
            begin = trial.datetime_start
            return begin is not None and abs(datetime.now() - begin) < timedelta(minutes=1)
        owner, since, *place = trial.user_attrs["owner"]
        if owner == self.me:
            return True
        if not (self.folder / owner).exists() or (place and place[0] != self.host):
            return self._is_heard(owner, float(trial.user_attrs.get("beat", since)))
        lock = Lock(self.folder / owner)
        if not lock.take():
            return True
        lock.free()
        return False

    def _is_heard(self, owner: str, beat: float) -> bool:
        if time.time() - beat >= UNSEEN:
            return False
        now = time.monotonic()
        last, noticed = self._heard.get(owner, (beat, now))
        self._heard[owner] = max(last, beat), noticed if beat <= last else now
        return now - self._heard[owner][1] < SILENT

    def describe(self, trial: optuna.trial.FrozenTrial) -> str:
        """Return who works on a trial of another process, and what happens to it, for a person who waits."""
        owner, _, *place = trial.user_attrs.get("owner", ("", 0.0))
        process = f"process {place[1]} on {place[0]}" if len(place) > 1 else "another process"
        if owner not in self._heard:
            return f"{process}, which is at work: this command goes on when it is done or has been stopped"
        quiet = time.monotonic() - self._heard[owner][1]
        return f"{process}, not heard of for {quiet:.0f} s: after {SILENT:.0f} s this command does its work"


def open_storage(folder: Path, url: str | None = None) -> optuna.storages.BaseStorage:
    """Open the journal in a folder, which processes and machines share, or a database.

    Args:
        folder: Folder of the experiment.
        url: URL of an Optuna database, as SQLAlchemy reads it; None: the journal.

    Raises:
        EngineError: The database cannot be opened, or the journal is damaged.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if url is not None:
        try:
            return optuna.storages.RDBStorage(url)
        except Exception as error:  # whatever the driver of the database raises
            place, message = without_credentials(url), without_credentials(one_line(str(error)), url)
            raise EngineError(f"`storage` {place}: cannot be opened ({message:.200})") from None
    from .journal import Journal  # here, as it needs Optuna

    path = folder / JOURNAL
    try:
        storage = optuna.storages.JournalStorage(Journal(path, Lock(folder / ".journal")))
        for study in storage.get_all_studies():
            for trial in storage.get_all_trials(study._study_id, deepcopy=False):
                _check_trial(trial)
        return storage
    except (OSError, EngineError):
        raise
    except Exception as error:  # whatever Optuna makes of operations that do not belong together
        reason = one_line(str(error)) or type(error).__name__
        raise EngineError(
            f"{path}: damaged, and not by a kill ({reason:.100}); bring it back from a copy, or choose another `out`"
        ) from None


def _check_trial(trial: optuna.trial.FrozenTrial) -> None:
    """Refuse a trial with user attributes of unexpected types."""
    notes = trial.user_attrs
    seed, owner, seen = notes.get("seed", 0), notes.get("owner", ["", 0.0]), notes.get("seen", {})
    numbers = [*(trial.values or [0.0]), owner[1], *seen.values()]
    if (
        not isinstance(seed, int)
        or not isinstance(owner[0], str)
        or not all(isinstance(number, int | float) for number in numbers)
        or not all(epoch.isdigit() for epoch in seen)
        or not math.isfinite(math.fsum(trial.values or []))
        or not isinstance(trial.system_attrs.get("fixed_params", {}), dict)
    ):
        raise ValueError(f"trial {trial.number} has notes of another kind")
