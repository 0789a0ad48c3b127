"""Datasets and comparisons that the tests of worker processes share."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from penstock.workers import Batch, Job, Workers


class Items:
    """A dataset that is a function."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def plan(n_batches: int, size: int = 4) -> Iterator[Batch]:
    return (Batch(list(range(k * size, (k + 1) * size)), k) for k in range(n_batches))


def run(job: Job, num_workers: Any, n_batches: int = 12, **options: Any) -> list[Any]:
    workers = Workers(job, num_workers, **options)
    try:
        return list(workers.epoch(plan(n_batches)))
    finally:
        workers.close()


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure, dtype and bytes."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def wait_until_gone(pid: int) -> bool:
    """Or a zombie, which its parent has not looked at."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def big_item(index: int) -> torch.Tensor:
    return torch.full((100_000,), float(index))


def drawing(index: int) -> tuple[float, float, float]:
    if index % 5 == 4:
        return 0.0, 0.0, 0.0  # not every item draws
    return random.gauss(0, 1), float(np.random.randn()), float(torch.randn(()))


class Counting(torch.utils.data.IterableDataset):
    """Shares 0 to n-1 among workers, unevenly."""

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, n_workers = (info.id, info.num_workers) if info else (0, 1)
        for item in range(self.n_items):
            if item % (n_workers + 1) == worker or (
                worker == 0 and item % (n_workers + 1) == n_workers
            ):
                yield item
