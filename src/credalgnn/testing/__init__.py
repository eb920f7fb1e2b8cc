"""The contract of methods and data sets as a test that anyone can run on their own.

Every problem is an ``AssertionError``, or the ``MethodError`` or ``GraphError`` that a user would get, which names it
and the remedy. The package itself never imports this one.
"""

from .datasets import check_dataset
from .methods import check_method, check_prediction

__all__ = ["check_dataset", "check_method", "check_prediction"]
