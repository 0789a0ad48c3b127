"""Which operation of a dataset runs where, and why, as a table for people."""

from typing import Any


class Explanation:
    """The result of `explain`: str() is the table, .steps the lines, .summary the last one."""


def explain(dataset: Any, transform: Any = None, *, exact: bool = False) -> Explanation:
    """Print, and return, where each operation of a dataset would run and why."""
    raise NotImplementedError
