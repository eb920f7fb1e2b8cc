"""How the paper's published figures were made, choice by choice: for ``reproduce`` when asked, and for nothing else."""

from ...records.schema import PREFIX
from .choices import CHOICES, TOLD, chosen, note, with_rows_of_sum_one
from .methods import PUBLISHED
from .reproduce import AsPublished

__all__ = [
    "CHOICES",
    "PREFIX",
    "PUBLISHED",
    "TOLD",
    "AsPublished",
    "chosen",
    "note",
    "with_rows_of_sum_one",
]
