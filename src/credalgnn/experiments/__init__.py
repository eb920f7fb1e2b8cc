"""Benchmark, hyper-parameter search, probe and the paper's experiment: one runner, different plans."""

from .api import TuningResults, benchmark, reproduce, tune
from .probe_results import ProbeResults
from .probing import probe

__all__ = ["ProbeResults", "TuningResults", "benchmark", "probe", "reproduce", "tune"]
