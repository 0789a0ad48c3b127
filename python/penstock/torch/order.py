"""Which indices make which batch, and when they are asked for.

Two kinds of order:

    OwnOrder       a function of (seed, epoch, position): "sequential", "shuffle", "block".
                   Nothing is drawn, any batch can be named at once, ranks take slices.
    SamplerRun     what a torch sampler says, asked as torch's own loader asks it: the same
                   calls at the same moments, so that it draws the same numbers from the same
                   generators, and leaves them where torch would.

Either gives an iterator of `Task`s for an epoch.  Where a sampler's generators stood when
its epoch began is kept in a state (state.py), so that the epoch can be begun again.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import distributed
from torch.utils.data import BatchSampler

from penstock import _core
from penstock.loader import ORDERS, TAILS, Order, Tail

BLOCK_SIZE, WINDOW = 256, 16


class Task(NamedTuple):
    """A batch to be made: what the sampler gave, a list of indices or, if nothing is batched,
    one; and how often each came before in this epoch, if any did."""

    index: Any
    occurrences: list[int] | None


@dataclass(frozen=True)
class OwnOrder:
    """Batch b takes positions [b*G, (b+1)*G) of the epoch's order, G the global batch;
    rank r takes its own slice of them.  The same arithmetic as src/engine/stream.c."""

    kind: Order
    seed: int
    count: int
    batch_size: int | None  # None: single indices, not batches of one
    rank: int = 0
    world_size: int = 1
    given_tail: Tail | None = None
    block_size: int = BLOCK_SIZE
    window: int = WINDOW

    @property
    def tail(self) -> str:
        return self.given_tail or ("short" if self.world_size == 1 else "wrap")

    @property
    def global_batch(self) -> int:
        return (self.batch_size or 1) * self.world_size

    def __len__(self) -> int:
        whole, left = divmod(self.count, self.global_batch)
        return whole + (left > 0 and self.tail != "drop")

    def task(self, epoch: int, batch: int) -> Task:
        size = self.batch_size or 1
        begin = batch * self.global_batch + self.rank * size
        end = min(begin + size, self.count) if self.tail == "short" else begin + size
        kind, count = ORDERS[self.kind], self.count
        indices = _core.order_slice(
            kind, self.block_size, self.window, self.seed, count, epoch, begin, end - begin
        )
        laps = [position // count for position in range(begin, end)] if end > count else None
        return Task(indices[0] if self.batch_size is None else indices, laps)

    def run(self, epoch: int, first: int = 0) -> Iterator[Task]:
        return (self.task(epoch, batch) for batch in range(first, len(self)))


@dataclass
class Work:
    """An epoch, or the rest of it, to be made.

    first    batches that were received before
    order    one of ours, or
    tasks    what a sampler says, those of `skipped` already taken from it, or
    state    where the copies of an IterableDataset stand; None: at the beginning
    n_bad    bad samples before a resume
    """

    epoch: int
    first: int = 0
    order: OwnOrder | None = None
    tasks: Iterator[Task] | None = None
    skipped: list[Task] = field(default_factory=list)
    state: Any = None
    n_bad: int | None = None
    seed: int = 0
    base_seed: int = 0


class Source(Protocol):
    """The batches of one epoch.  `delivered` counts those received, from the epoch's start."""

    delivered: int

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...


def check_tail(tail: Tail | None, drop_last: bool, world_size: int) -> Tail | None:
    """The tail by its name, None for the usual one: short with one rank, wrap with several."""
    if tail not in TAILS:
        raise ValueError(f"tail must be one of {list(TAILS)}, not {tail!r}")
    if drop_last and tail not in (None, "drop"):
        raise ValueError(f"drop_last=True and tail={tail!r} contradict each other")
    if tail == "pad":
        raise ValueError("tail='pad' marks repeats in a mask: use penstock.Loader to see it")
    if tail == "short" and world_size > 1:
        raise ValueError("tail='short' would give ranks unequal batches: use drop or wrap")
    return "drop" if drop_last else tail


def ranks() -> tuple[int, int]:
    """This process's rank and their number, as torch.distributed has them."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


class SamplerRun:
    """One pass over a sampler, as an iterator of tasks.

    asks_twice  torch's loader with workers calls iter(sampler) twice, and uses the second:
                a sampler that draws in __iter__ itself, not in a generator, draws twice
    """

    def __init__(
        self, sampler: Iterable[Any], is_batched: bool, count: int | None, asks_twice: bool
    ) -> None:
        self._sampler = sampler
        self._is_batched = is_batched
        self._asks_twice = asks_twice
        self._indices: Iterator[Any] = iter(sampler)
        self._seen = Seen(count)

    def begin(self) -> None:
        """After torch's draw of the base seed."""
        if self._asks_twice:
            self._indices = iter(self._sampler)

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        index = next(self._indices)
        if self._is_batched and not isinstance(index, Sequence | np.ndarray | torch.Tensor):
            index = list(index)  # a set, an iterator: read more than once from here on
        return Task(index, self._seen.times(index if self._is_batched else [index]))


class Ahead:
    """Tasks, taken from a sampler when torch's loader would take them, and no later than they
    are asked for.  What the sampler raises is raised at its place, behind the tasks before."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks
        self._waiting: deque[Task] = deque()
        self._n_taken = 0
        self._end: BaseException | None = None

    def take_until(self, n_taken: int) -> None:
        while self._end is None and self._n_taken < n_taken:
            try:
                self._waiting.append(next(self._tasks))
            except StopIteration:
                self._end = StopIteration()  # a new one, that does not hold this frame
            except Exception as end:
                self._end = end
            self._n_taken += 1

    def __iter__(self) -> Iterator[Task]:
        return self

    def __next__(self) -> Task:
        if not self._waiting:
            self.take_until(self._n_taken + 1)
        if self._waiting:
            return self._waiting.popleft()
        assert self._end is not None
        end, self._end = self._end, StopIteration()
        try:
            raise end
        finally:
            del end  # it holds this frame


class Seen:
    """How often each index came before, in 4 bytes an index where they are small integers."""

    def __init__(self, count: int | None) -> None:
        self._times = np.zeros(count or 0, np.uint32)
        self._others: dict[Any, int] = {}

    def times(self, indices: Any) -> list[int] | None:
        """For each, how often it came before; None if none did.  Counts them."""
        if self._are_new(indices):
            return None
        before = [self._count(one) for one in indices]
        return before if any(before) else None

    def _are_new(self, indices: Any) -> bool:
        """The usual case, quickly: different small integers, none of which came before."""
        if not isinstance(indices, list) or any(type(one) is not int for one in indices):
            return False
        if not indices or min(indices) < 0 or max(indices) >= len(self._times):
            return False
        if len(set(indices)) < len(indices) or self._times[indices].any():
            return False
        self._times[indices] = 1
        return True

    def _count(self, index: Any) -> int:
        if isinstance(index, torch.Tensor) and index.ndim == 0:
            index = index.item()
        elif isinstance(index, bool | np.integer):  # as an index, True would be a mask
            index = int(index)
        times: Any = self._times
        if not (isinstance(index, int) and 0 <= index < len(times)):
            times, index = self._others, index if _is_hashable(index) else repr(index)
            times.setdefault(index, 0)
        before = int(times[index])
        times[index] = before + 1
        return before


def _is_hashable(index: Any) -> bool:
    try:
        hash(index)
    except TypeError:
        return False
    return True


def chain(loader: torch.utils.data.DataLoader) -> list[Any]:
    """The samplers behind a loader, outermost first."""
    found: list[Any] = []
    sampler: Any = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    while sampler is not None and all(sampler is not one for one in found):
        found.append(sampler)
        sampler = getattr(sampler, "sampler", None)
    if all(loader.sampler is not one for one in found):
        found.append(loader.sampler)
    return found


def largest_batch(loader: torch.utils.data.DataLoader) -> int | None:
    """The most indices that a batch of this loader can have, if its sampler says so."""
    sampler = loader.batch_sampler
    size = getattr(sampler, "batch_size", None)
    if isinstance(sampler, BatchSampler) and isinstance(size, int):
        return size
    return None


def n_ahead(loader: torch.utils.data.DataLoader) -> int:
    """How many batches torch's loader asks its sampler for before the first is received."""
    return loader.num_workers * (loader.prefetch_factor or 0)
