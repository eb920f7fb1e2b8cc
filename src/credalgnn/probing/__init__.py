"""Whether aleatoric uncertainty answers to noise, and epistemic uncertainty to missing knowledge (docs/probe.md)."""

from .results import Answer, ProbeResults, is_probe, read_probes
from .run import probe

__all__ = ["Answer", "ProbeResults", "is_probe", "probe", "read_probes"]
