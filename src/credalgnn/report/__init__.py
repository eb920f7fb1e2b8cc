"""Tables, pages and drawings of results, made from records alone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .drawing import plot_ternary
    from .results import Results, load_results, write_report
    from .standings import Leaderboard, leaderboard

__all__ = ["Leaderboard", "Results", "leaderboard", "load_results", "plot_ternary", "write_report"]
_MODULES = {"Leaderboard": "standings", "leaderboard": "standings", "plot_ternary": "drawing"}


def __getattr__(name: str) -> Any:
    """Import public names at first use: pages of models need no records of benchmarks."""
    if name in __all__:
        return getattr(import_module(f".{_MODULES.get(name, 'results')}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
