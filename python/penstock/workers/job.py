"""What the workers are to do: the dataset and how batches are made of it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.workers.alike import UnlikeError, kind_of_all
from penstock.workers.columns import quick
from penstock.workers.rows import Room, Rows, Slabs, Stacking
from penstock.workers.seeding import Guard, NoSeeding, Reseed, Seeding


class Batch(NamedTuple):
    """One batch to be made by a map-style dataset.

    indices      what the batch sampler gave; with auto_collate False a single index
    number       the number of the global batch in its epoch (keys what collate draws)
    occurrences  how often each index came before in this epoch, where any did
    """

    indices: Any
    number: int = 0
    occurrences: Sequence[int] | None = None


class Part(Batch):
    """Some items of a batch that several workers make; see penstock.workers.opening."""

    __slots__ = ()


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

    def n_items(self, what: "Batch | Position") -> int | None:
        """How many a batch will have; None: only its maker knows.  (The last batch of a copy of
        an iterable dataset may be short.)"""
        if isinstance(what, Position):
            return 1 if self.batch_size is None else None
        if not self.auto_collate:
            return 1
        return len(what.indices) if hasattr(what.indices, "__len__") else None

    @property
    def can_part(self) -> bool:
        """Whether items are made one by one, by anyone, and collated in a known way if at all."""
        if self.iterable or not self.auto_collate or self.seeding.in_turn:
            return False
        if getattr(self.dataset, "__getitems__", None) or _rows_at_once(self) is not None:
            return False
        data = sys.modules.get("torch.utils.data")
        return self.collate is None or (data is not None and self.collate is data.default_collate)

    def fetcher(
        self, is_inline: bool, worker: int = 0, room: Room | None = None
    ) -> "MapFetcher | IterableFetcher":
        """`room` gives memory for batches; None: the fetcher has its own."""
        guard = self.seeding.guard(is_inline)
        if self.iterable:
            return IterableFetcher(self, guard, worker)
        return MapFetcher(self, guard, room)


class MapFetcher:
    """Makes batches of a map-style dataset, in one process."""

    def __init__(self, job: Job, guard: Guard, room: Room | None = None) -> None:
        self.job = job
        self._guard = guard
        self._rows = _rows_at_once(job)
        self._note: Any = None  # of the batch being made
        self._has_looked = not job.can_part
        self._collate = quick(job.collate)
        self._stacking = Stacking.of(job.collate, room or Slabs().room)

    def fetch(self, epoch: int, batch: Batch) -> tuple[Any, Any]:
        """A batch, and what is to be known of its items: see _look_at."""
        if self._rows is not None:
            return self._rows(batch.indices), None
        self._note = None
        data = self._guard.run(lambda reseed: self._make(batch, reseed), epoch)
        return data, self._note

    def _make(self, batch: Batch, reseed: Reseed | None) -> Any:
        job, dataset = self.job, self.job.dataset
        rows: Rows | None = None
        if not job.auto_collate:
            if reseed:
                reseed(batch.indices, batch.occurrences[0] if batch.occurrences else 0)
            items = dataset[batch.indices]
        elif getattr(dataset, "__getitems__", None):
            if reseed:
                reseed("items", batch.number)
            items = dataset.__getitems__(batch.indices)
        else:
            items, rows = self._items(batch, reseed)
            self._look_at(items, batch, rows)
        if self._collate is None:
            return items
        if reseed:
            reseed("collate", batch.number)
        if rows is not None and self._stacking is not None:
            return self._stacking.collate(items, rows)
        return self._collate(items)

    def _items(self, batch: Batch, reseed: Reseed | None) -> tuple[list[Any], Rows | None]:
        """All items, and the batch that parts of them stand in already, if any do."""
        items: list[Any] = []
        places = enumerate(batch.indices)  # a batch sampler may give any collection
        n_items = len(batch.indices)
        stacking = None if isinstance(batch, Part) else self._stacking
        if stacking is not None and n_items and stacking.is_in_force():
            rows = Rows(stacking, n_items)
            for place, index in places:
                items.append(rows.take(self._item(batch, place, index, reseed)))
                if not rows.is_in_use:
                    break
            else:
                return items, rows
        if reseed is None:
            dataset = self.job.dataset
            items += [dataset[index] for _, index in places]
        else:
            items += [self._item(batch, place, index, reseed) for place, index in places]
        return items, None

    def _look_at(self, items: list[Any], batch: Batch, rows: Rows | None) -> None:
        """What the items of a part are, all of them, or it raises; and with the first batch, whether
        it could have been made in parts."""
        if isinstance(batch, Part):
            self._note = kind_of_all(items, self.job.collate)
        elif not self._has_looked and rows is None:
            self._has_looked = True
            try:
                kind_of_all(items, self.job.collate)
            except UnlikeError:
                self._note = False

    def _item(self, batch: Batch, place: int, index: Any, reseed: Reseed | None) -> Any:
        if reseed is not None:
            reseed(index, batch.occurrences[place] if batch.occurrences else 0)
        return self.job.dataset[index]


def _rows_at_once(job: Job) -> Callable[[list[int]], list[Any]] | None:
    """torch's TensorDataset with its default_collate: the rows of a batch in one go.

    Picking rows and stacking them is what indexing with a list does; only that it takes a
    twentieth of the time.
    """
    torch = sys.modules.get("torch")
    data = sys.modules.get("torch.utils.data")
    if torch is None or data is None or type(job.dataset) is not data.TensorDataset:
        return None
    if job.collate is not data.default_collate or not job.auto_collate:
        return None
    for tensor in job.dataset.tensors:
        is_plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided
        if not is_plain or tensor.requires_grad or tensor.is_quantized:
            return None
    return lambda indices: [tensor[list(indices)] for tensor in job.dataset.tensors]


class Position(NamedTuple):
    """One batch to be made by a worker's copy of an iterable dataset.

    number  batches of this worker before it
    state   what the dataset's state_dict() said there; None: replay by skipping
    """

    number: int
    state: Any = None


class IterableFetcher:
    """Makes batches of an iterable dataset, in one process, from wherever it is asked to.

    Batch after batch it goes on; asked for another place (a resume, a new epoch, a worker that
    replaces a dead one), it makes a new iterator and goes there first.
    """

    def __init__(self, job: Job, guard: Guard, worker: int) -> None:
        self.job = job
        self._guard = guard
        self._worker = worker
        self._items: Iterator[Any] = iter(())
        self._place: tuple[int, int] | None = None  # epoch and number of the next batch
        self._has_ended = False

    def fetch(self, epoch: int, position: Position) -> tuple[Any, Any]:
        """A batch and the dataset's state behind it.  Raises StopIteration at the end."""
        return self._guard.apart(lambda: self._fetch(epoch, position))

    def _fetch(self, epoch: int, position: Position) -> tuple[Any, Any]:
        if self._place != (epoch, position.number):
            self._go_to(epoch, position)
        self._place = (epoch, position.number + 1)
        self._guard.seed_once(epoch, "iterable", self._worker, position.number)
        items = self._next_items()
        data = items if self.job.collate is None else self.job.collate(items)
        return data, self._state()

    def _go_to(self, epoch: int, position: Position) -> None:
        dataset = self.job.dataset
        self._has_ended = False
        has_loaded = False
        if position.state is not None and hasattr(dataset, "load_state_dict"):
            dataset.load_state_dict(position.state)
            has_loaded = True
        self._guard.seed_once(epoch, "iterable", self._worker, -1)
        self._items = iter(dataset)
        if position.state is not None and not has_loaded:
            self._items.load_state_dict(position.state)  # type: ignore[attr-defined]
            has_loaded = True
        if not has_loaded:
            for number in range(position.number):
                self._guard.seed_once(epoch, "iterable", self._worker, number)
                self._next_items()

    def _next_items(self) -> Any:
        if self._has_ended:
            raise StopIteration
        size = self.job.batch_size
        if size is None:
            return next(self._items)
        items = []
        for item in self._items:
            items.append(item)
            if len(items) == size:
                return items
        self._has_ended = True
        if not items or self.job.drop_last:
            raise StopIteration
        return items

    def _state(self) -> Any:
        for holder in (self.job.dataset, self._items):
            if hasattr(holder, "state_dict") and hasattr(holder, "load_state_dict"):
                return holder.state_dict()
        return None
