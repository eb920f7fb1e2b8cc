"""Hyper-parameter search: what the protocol allows to look at decides, processes share a storage, a kill costs nothing.

Knows the benchmark's runs and engines, and nothing of reports.
"""

from .best import Best, tuned, tuned_alike
from .reproduce import Budget, Reproduction
from .run import Experiment, Progress, run_searches, search_all
from .study import Search, Studies
from .tune import Tuning

__all__ = [
    "Best",
    "Budget",
    "Experiment",
    "Progress",
    "Reproduction",
    "Search",
    "Studies",
    "Tuning",
    "run_searches",
    "search_all",
    "tuned",
    "tuned_alike",
]
