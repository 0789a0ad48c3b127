"""What a DataLoader's own arguments may be; torch checks those that it has as well."""

import multiprocessing
import os
from collections.abc import Iterable
from typing import Literal

from penstock import transforms
from penstock.loader import INT32_MAX, INT64_MAX, MAX_WORKERS
from penstock.torch.order import ranks

Order = Literal["sequential", "shuffle", "block", "torch"]
OWN_ORDERS = ("sequential", "shuffle", "block")


def place(rank: int | None, world_size: int | None, is_sharded: bool) -> tuple[int, int]:
    """This process's rank and their number: as given, else as torch.distributed has them,
    unless a sampler decides who gets what."""
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size are given together or not at all")
    if rank is not None and world_size is not None:
        if is_sharded:
            raise ValueError(
                "rank and world_size share out an order of ours; a sampler, a batch_sampler "
                "and an IterableDataset share out themselves"
            )
        world_size = transforms.check_integer("world_size", world_size, 1, INT32_MAX)
        return transforms.check_integer("rank", rank, 0, world_size - 1), world_size
    return (0, 1) if is_sharded else ranks()


def check_order(
    order: Order | None, shuffle: bool | None, is_given: bool, is_iterable: bool
) -> None:
    if order not in (None, *OWN_ORDERS, "torch"):
        raise ValueError(f"order must be one of {[None, *OWN_ORDERS, 'torch']}, not {order!r}")
    if shuffle and order == "sequential":
        raise ValueError("order='sequential' and shuffle=True contradict each other")
    if order in OWN_ORDERS and (is_given or is_iterable):
        who = "an IterableDataset" if is_iterable else "a sampler or batch_sampler"
        raise ValueError(f"order={order!r} and {who} contradict each other: both decide the order")


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, not {value!r}")


def check_numbers(block_size: int, window: int, max_bad: int) -> None:
    check = transforms.check_integer
    check("block_size", block_size, 1, INT32_MAX)
    check("window", window, 1, INT32_MAX)
    check("max_bad", max_bad, 0, INT64_MAX)


def count_workers(num_workers: int | str, is_iterable: bool, order: str | None) -> int:
    """The number that torch is told, and that the attribute shows."""
    if num_workers != "auto":
        if isinstance(num_workers, str):
            raise ValueError(f"num_workers must be a whole number or 'auto', not {num_workers!r}")
        if num_workers > MAX_WORKERS:
            raise ValueError(f"num_workers must be at most {MAX_WORKERS}, not {num_workers}")
        return num_workers
    if order == "torch":
        return 0
    if is_iterable and multiprocessing.current_process().daemon:
        return 0  # it may not have children
    return 1 if is_iterable else len(os.sched_getaffinity(0))
