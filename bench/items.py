"""Items of Python datasets: those that wait, and those that compute. Arrays, so that every loader can take them."""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np


class Items(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


class Sleepy:
    """Items that wait for something: a disk, a network."""

    def __len__(self) -> int:
        return 1600

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.005)
        return np.full(16, index, dtype=np.float32)


class Heavy:
    """Items that take a core some three milliseconds."""

    def __len__(self) -> int:
        return 640

    def __getitem__(self, index: int) -> Any:
        values = np.arange(40_000, dtype=np.float64) + index
        for _ in range(6):
            values = np.sqrt(values * values + 1.0) + np.sin(values)
        return values[:1024].astype(np.float32)


def items_of(name: str) -> Items:
    return {"sleepy": Sleepy, "heavy": Heavy}[name]()
