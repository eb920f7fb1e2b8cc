"""Contract tests for methods and data sets of plug-ins.

Every problem raises an ``AssertionError``, or the ``MethodError`` or ``GraphError`` that a user would get, which names
the problem and its remedy. The rest of the package never imports this one.
"""

from .datasets import check_dataset
from .methods import check_method, check_prediction

__all__ = ["check_dataset", "check_method", "check_prediction"]
