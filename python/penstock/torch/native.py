"""The native engine behind a DataLoader: threads, no Python a sample.

A `NativeEngine` knows what to make (dataset, operations, options) and makes loaders for it:
one whose order is our own, which prefetches across epochs, or one that is fed a sampler's
batches.  What comes out has the shape that torch's default_collate gives for (image, label)
samples: a list of two tensors, the first of them the loader's own memory.

A loader has one position.  Iterations that follow each other share one; an iteration that
begins while another is still held and unfinished gets a loader of its own.
"""

import operator
import os
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Self, TypeVar

from torch import Tensor
from torch.utils.data import default_collate
from torch.utils.dlpack import from_dlpack

from penstock._core import Batch, Dataset
from penstock.errors import Error
from penstock.fed import FedLoader
from penstock.loader import Loader, Policy
from penstock.sample import DType
from penstock.torch.order import OwnOrder, Task, Work, largest_batch, n_ahead, ranks

AHEAD = 4  # batches: those under way, and one to begin when one is done
AnyLoader = TypeVar("AnyLoader", Loader, FedLoader)


def tensors(batch: Batch) -> list[Tensor]:
    """[images, labels] of a batch, over its own memory."""
    return [from_dlpack(batch["image"]), from_dlpack(batch["label"])]


class NativeEngine:
    """Makes batches of a dataset with native operations.

    target_transform  called on each label, an int, in the thread that asks for batches
    """

    def __init__(
        self,
        loader: Any,
        dataset: Dataset,
        ops: Any,
        target_transform: Callable[[int], Any] | None,
        dtype: DType | None,
    ) -> None:
        self._dataset = dataset
        self._ops = ops
        if target_transform is not None and loader.batch_ops:
            raise ValueError("batch_ops mix labels, so the dataset's target_transform has none")
        self._target_transform = target_transform
        self._options = _options(loader) | {"dtype": dtype}
        self._key: Hashable = None
        self._loader: Loader | FedLoader | None = None  # the newest, made for _key
        self._user: weakref.ref[OrderedEpoch | FedEpoch] | None = None  # who iterates it
        # Makes nothing yet, but finds whatever is wrong with the options and operations.  What the
        # environment says about metrics is for loaders that do something.
        probing = self._options | {"metrics": loader.metrics or "off"}
        with Loader(dataset, ops, **probing) as probe:
            self._identity = {
                name: probe.state_dict()[name] for name in ("dataset", "pipeline", "numerics")
            }

    def start(self, loader: Any, work: Work) -> "Line":
        if work.order is not None:
            source: OrderedEpoch | FedEpoch = OrderedEpoch(self._ordered(work.order), work)
        else:
            source = FedEpoch(self, loader, work)
        self.used_by(source)
        return Line(source, self._collate, work.first)

    def used_by(self, source: "OrderedEpoch | FedEpoch") -> None:
        """The newest loader is somebody's until he is done or gone."""
        self._user = weakref.ref(source)

    def _ordered(self, order: OwnOrder) -> Loader:
        """A loader with an order of our own."""

        def make() -> Loader:
            return Loader(
                self._dataset,
                self._ops,
                order.batch_size or 1,
                seed=order.seed,
                order=order.kind,
                block_size=order.block_size,
                window=order.window,
                tail=order.given_tail,
                rank=order.rank,
                world_size=order.world_size,
                **self._options,
            )

        return self._free_or_new(order, make)

    def fed(self, batch_size: int, seed: int) -> FedLoader:
        """A loader that is told what each batch is."""

        def make() -> FedLoader:
            rank, world_size = ranks()
            return FedLoader(
                self._dataset,
                self._ops,
                batch_size,
                seed,
                rank=rank,
                world_size=world_size,
                **self._options,
            )

        return self._free_or_new((batch_size, seed), make)

    def _free_or_new(self, key: Hashable, make: Callable[[], AnyLoader]) -> AnyLoader:
        user = self._user() if self._user is not None else None
        is_free = user is None or user.is_over
        if self._loader is None or key != self._key or not is_free:
            self._loader, self._key, self._user = make(), key, None
        return self._loader  # type: ignore[return-value]

    def _collate(self, batch: Batch) -> list[Any]:
        images, labels = tensors(batch)
        if self._target_transform is None:
            return [images, labels]
        return [images, default_collate([self._target_transform(one) for one in labels.tolist()])]

    def identity(self) -> dict[str, Any]:
        return self._identity

    def n_bad(self) -> int:
        """Bad samples so far, which max_bad limits, those before a resume included."""
        return 0 if self._loader is None else int(self._loader.state_dict()["bad"])

    def newest(self) -> Loader | FedLoader:
        if self._loader is None:
            raise RuntimeError("there are no figures before the first iteration")
        return self._loader

    def set_policy(self, policy: Policy) -> None:
        """Who turns the knobs, of the present loader and of later ones."""
        self._options["policy"] = policy
        if self._loader is not None:
            self._loader.policy = policy

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()


def _options(loader: Any) -> dict[str, Any]:
    """Of the native loaders, beside those that an order decides."""
    log = loader.decision_log
    options = {
        "num_workers": loader._asked_workers,
        "on_error": loader.on_error,
        "max_bad": loader.max_bad,
        "ledger": loader.ledger,
        "memory_budget": loader.memory_budget,
        "policy": loader.policy,
        "decision_log": None if log is None else os.path.abspath(log),
        "metrics": loader.metrics,
        "offload": loader.offload,
        "layout": loader.layout,
        "batch_ops": loader.batch_ops,
    }
    if loader._asked_prefetch is not None:  # batches a worker; ours make one together
        options["prefetch"] = max(1, loader._asked_prefetch * loader.num_workers)
    return options


class Line:
    """The batches of one epoch, made natively."""

    def __init__(
        self,
        source: "OrderedEpoch | FedEpoch",
        collate: Callable[[Batch], list[Any]],
        first: int,
    ) -> None:
        self.delivered = first
        self._source = source
        self._collate = collate

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Any]:
        source = self._source
        if source.is_over:
            raise StopIteration
        try:
            batch = source.next()
        except Error:
            source.is_over = True  # the loader's position stays at the fault
            raise
        if batch is None:
            source.is_over = True
            raise StopIteration
        self.delivered = batch.index + 1
        return self._collate(batch)


class OrderedEpoch:
    """An epoch of an ordered loader, or the rest of it; what is prefetched for it is kept."""

    def __init__(self, loader: Loader, work: Work) -> None:
        self.is_over = False
        self._core = loader._core
        if work.n_bad is not None:
            loader.load_state_dict(loader.state_dict() | {"bad": work.n_bad})
        if self._core.tell() != (work.epoch, work.first):
            self._core.seek(work.epoch, work.first)

    def next(self) -> Batch | None:
        return self._core.next()


class FedEpoch:
    """An epoch of a fed loader, or the rest of it.

    Tasks go in as far ahead as torch would ask its sampler: so many before the first batch is
    asked for, and one more with each batch received; without workers each when it is asked
    for.  If nobody said how many workers torch would have (num_workers="auto" with
    order="torch"), our threads are kept busy, from the first batch on.  Where the sampler does
    not say how large its batches get, a larger one than ever waits until all before it are out,
    and goes to a larger loader.
    """

    def __init__(self, engine: NativeEngine, loader: Any, work: Work) -> None:
        self.is_over = False
        self._engine = engine
        self._work = work
        self._tasks: Iterator[Task] | None = work.tasks
        self._ahead = n_ahead(loader)
        is_late = self._ahead == 0
        if is_late and loader._asked_workers == "auto":
            self._ahead = AHEAD
        self._count = len(loader.dataset)
        size = largest_batch(loader)
        skipped = [self._ids(task) for task in work.skipped]
        self._history: list[list[int]] | None = None if size else list(skipped)
        self._waiting: list[int] | None = None  # the larger one
        self._fault: IndexError | None = None  # what follows the batches that were fed
        self._begin(size or max(map(len, skipped), default=1), skipped)
        if work.n_bad is not None:
            self._loader.load_state_dict(self._loader.state_dict() | {"bad": work.n_bad})
            self._begin(self._size, skipped)
        if not is_late:
            self._fill()

    def _begin(self, size: int, skipped: list[list[int]]) -> None:
        self._size = size
        self._loader = self._engine.fed(size, self._work.seed)
        self._loader.begin(self._work.epoch)
        for ids in skipped:
            self._loader.skip(ids)

    def next(self) -> Batch | None:
        self._fill()
        batch = self._loader.next()
        if batch is None and self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        if batch is not None and self._ahead:
            self._fill()
        return batch

    def _fill(self) -> None:
        while self._tasks is not None and self._loader.waiting < max(1, self._ahead):
            try:
                ids = self._waiting or self._next_ids()
            except _OutOfRange as fault:
                ids, self._fault = None, IndexError(str(fault))
            if ids is None:
                self._tasks = None
                self._loader.end()
                return
            if len(ids) > self._size and self._loader.waiting:
                self._waiting = ids
                return
            self._feed(ids)

    def _feed(self, ids: list[int]) -> None:
        self._waiting = None
        if len(ids) > self._size:
            self._begin(max(len(ids), 2 * self._size), self._history or [])
            self._engine.used_by(self)
        if self._history is not None:
            self._history.append(ids)
        self._loader.feed(ids)

    def _next_ids(self) -> list[int] | None:
        task = next(self._tasks, None) if self._tasks is not None else None
        return None if task is None else self._ids(task)

    def _ids(self, task: Task) -> list[int]:
        """Negative ones count from the end, as in Python's sequences."""
        ids = list(map(operator.index, task.index))  # a TypeError for 1.5, as from a list
        for one in ids:
            if not -self._count <= one < self._count:
                raise _OutOfRange(f"index {one} is out of range: the dataset has {self._count}")
        return [one + self._count if one < 0 else one for one in ids]


class _OutOfRange(IndexError):
    """Of a sampler's index.  Raised where the batch would have come, not when it is asked for."""
