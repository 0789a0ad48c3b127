"""default_collate of plain numbers, for datasets whose items cost less than their collation.

torch's default_collate asks every tuple for its length and builds each tensor number by
number.  For tuples of ints and floats NumPy says the same in a fifth of the time.  Anything
else, and every error, is left to torch.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

KINDS = {int: np.dtype(np.int64), float: np.dtype(np.float64)}


def quick(collate: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """`collate`, made quicker if it is torch's own and nobody taught it other numbers."""
    torch = sys.modules.get("torch")
    module = sys.modules.get("torch.utils.data._utils.collate")
    if torch is None or module is None or collate is not module.default_collate:
        return collate
    taught = module.default_collate_fn_map
    is_plain = taught.get(int) is module.collate_int_fn
    if not (is_plain and taught.get(float) is module.collate_float_fn):
        return collate

    def collate_columns(items: Any) -> Any:
        columns = _columns(items)
        if columns is None:
            return collate(items)
        tensors = [torch.from_numpy(column) for column in columns]
        return tensors if type(items[0]) is tuple else tensors[0]

    return collate_columns


def _columns(items: Any) -> list[np.ndarray] | None:
    """An array for each place of the items; None if they are not numbers all along."""
    if type(items) is not list or not items:
        return None
    first = items[0] if type(items[0]) is tuple else (items[0],)
    if not first or any(type(value) not in KINDS for value in first):
        return None
    try:
        rows = zip(*items, strict=True) if type(items[0]) is tuple else (items,)
        columns = [np.array(row) for row in rows]
    except (TypeError, ValueError, OverflowError):
        return None
    are_plain = all(
        column.ndim == 1 and column.dtype == KINDS[type(value)]
        for column, value in zip(columns, first, strict=True)
    )
    return columns if are_plain else None
