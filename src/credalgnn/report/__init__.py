"""What a person sees: tables, a page, figures of credal sets. Reads results only, never trains.

``credalgnn.report`` is this package and, called, the function ``report``: whichever is imported first.
"""

import sys
from types import ModuleType
from typing import Any

from .results import Results, report
from .standings import Leaderboard, leaderboard
from .ternary import plot_ternary

__all__ = ["Leaderboard", "Results", "leaderboard", "plot_ternary", "report"]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Results:
        return report(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
