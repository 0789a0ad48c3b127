"""What the workers are to do: the dataset and how batches are made of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.workers.seeding import NoSeeding, Seeding


class Batch(NamedTuple):
    """One batch to be made by a map-style dataset.

    indices      what the batch sampler gave; with auto_collate False a single index
    number       the number of the global batch in its epoch (keys what collate draws)
    occurrences  how often each index came before in this epoch, where any did
    """

    indices: Any
    number: int = 0
    occurrences: Sequence[int] | None = None


@dataclass(frozen=True)
class Job:
    """A dataset and how batches are made of it.  Pickled for spawned workers.

    dataset       map-style (__getitem__, or __getitems__ if it has one) or iterable
    collate       called with the list of items; with auto_collate False called with the one
                  item (torch's default_convert, or any collate_fn); None leaves it as it is
    iterable      whether to iterate the dataset instead of indexing it
    auto_collate  whether an entry of the batch sampler is a list of indices
    batch_size    items a batch of an iterable dataset; None: items one by one
    drop_last     leave out the last, short batch of each worker's iterable dataset
    worker_init   called with the worker's id in every new worker
    seeding       how global generators are seeded; see penstock.workers.seeding
    """

    dataset: Any
    collate: Callable[[Any], Any] | None = None
    iterable: bool = False
    auto_collate: bool = True
    batch_size: int | None = None
    drop_last: bool = False
    worker_init: Callable[[int], None] | None = None
    seeding: Seeding = field(default_factory=NoSeeding)
