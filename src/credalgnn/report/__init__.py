"""What a person sees: figures of credal sets. Reads results only, never trains."""

from .ternary import plot_ternary

__all__ = ["plot_ternary"]
