"""Where trials are kept, and who works on them: an Optuna storage that survives a kill, and locks of its owners."""

from __future__ import annotations

import math
import time
import uuid
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from .._files import Lock
from .._texts import one_line, without_credentials
from ..bench.engines import EngineError

if TYPE_CHECKING:
    import optuna

JOURNAL, OWNERS = "tuning.journal", ".owners"
UNSEEN = 3600.0  # seconds for which the trial of an owner who cannot be seen from here is taken to be under way


class Owners:
    """Who works on which trial: each process holds the lock of a file, which the system frees when it dies.

    Args:
        folder: Where the files are; shared by all processes that work on the same searches.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.me = folder, uuid.uuid4().hex
        self.path = folder / self.me
        self._lock = Lock(self.path)
        self._lock.take()

    @property
    def signature(self) -> tuple[str, float]:
        """Who begins a trial, and when, in seconds that all machines count alike."""
        return self.me, time.time()

    def is_alive(self, trial: optuna.trial.FrozenTrial) -> bool:
        """Whether a process still works on a trial; one that cannot be seen from here is taken to, for a while.

        Args:
            trial: A trial that was begun.
        """
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


def open_storage(folder: Path, url: str | None = None) -> optuna.storages.BaseStorage:
    """A journal in the folder, which processes and machines that see it share, or a database.

    Args:
        folder: The experiment's folder.
        url: Of an Optuna database, as SQLAlchemy reads it; None for the journal.

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
            raise EngineError(f"--storage {place}: cannot be opened ({message:.200})") from None
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
            f"{path}: damaged, and not by a kill ({reason:.100}); bring it back from a copy, or choose another --out"
        ) from None


def _check_trial(trial: optuna.trial.FrozenTrial) -> None:
    """Refuse a trial whose notes are not what ``study.py`` writes there."""
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
