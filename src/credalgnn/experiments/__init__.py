"""Benchmark, hyper-parameter search, probe and the paper's experiment: one runner, different plans."""

from .bench import benchmark
from .probe_results import ProbeResults
from .probing import probe
from .reproduction import reproduce
from .tuning import TuningResults, tune

__all__ = ["ProbeResults", "TuningResults", "benchmark", "probe", "reproduce", "tune"]
