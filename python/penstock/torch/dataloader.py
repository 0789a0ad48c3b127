"""torch's DataLoader, with our engines behind it.

    from penstock.torch import DataLoader          # instead of torch.utils.data

The class is a subclass of torch's: arguments are checked by torch, with torch's words, and
every attribute reads as it does there.  What differs is who makes the batches (engines.py)
and who decides the order (order.py).  Iterating, in short:

    each iter() is an epoch          the first is epoch 0; leaving one early begins the next
    load_state_dict(state)           the next iter() continues where the state was taken
    set_epoch(e)                     the next iter() is epoch e, from its beginning

Draws.  torch's loader draws a base seed at every iter(), and RandomSampler another one with
the first batch.  So do we, also where nobody needs them: the script's own random numbers,
a network's dropout for one, are the same with either loader.
"""

import copyreg
import html
import itertools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal, Self

import torch
from torch.utils import data as torch_data
from torch.utils.data._utils.pin_memory import pin_memory

from penstock import transforms
from penstock._core import Dataset
from penstock.display import as_html
from penstock.errors import Error, StateError
from penstock.fed import FedLoader
from penstock.knobs import Knobs
from penstock.loader import (
    INT64_MAX,
    ON_ERROR,
    POLICIES,
    Closing,
    Loader,
    Offload,
    OnError,
    Path,
    Policy,
    Tail,
    budget_bytes,
)
from penstock.mix import BatchOps
from penstock.sample import DType, Layout, check_seed
from penstock.torch import state as states
from penstock.torch.arguments import (
    OWN_ORDERS,
    Order,
    check_choice,
    check_numbers,
    check_order,
    count_workers,
    place,
)
from penstock.torch.engines import Engine, PythonEngine, choose, fingerprint
from penstock.torch.native import NativeEngine
from penstock.torch.order import (
    BLOCK_SIZE,
    WINDOW,
    OwnOrder,
    SamplerRun,
    Source,
    Work,
    chain,
    check_tail,
)
from penstock.torch.state import Progress
from penstock.workers import Account


class DataLoader(Closing, torch_data.DataLoader):
    """torch.utils.data.DataLoader's arguments mean what they mean there; docs/pytorch.md lists
    the differences.  dataset may also be a path or a penstock.Dataset.  Ours are:

    num_workers    "auto" (the default) is a thread a usable core, or as many processes as pay;
                   1 process for an IterableDataset; with order="torch" torch's default, 0
    transform      what is done to the images, after what the dataset itself does
    seed           of order and augmentation; by default torch's generator decides with the
                   first iter(), so torch.manual_seed() governs it.  Several ranks: 0
    order          "sequential", "shuffle" or "block" are ours; "torch" draws what torch's
                   RandomSampler or DistributedSampler draws, and seeds workers as torch does
    rank, world_size  which equal part of every global batch to deliver.  TAKEN FROM
                   torch.distributed when that is initialised and no sampler is given: there
                   is no need for a DistributedSampler, and one that is given is obeyed
    tail           the last, incomplete global batch: "short", "drop" or "wrap"
    on_error       a bad image in a native dataset: "raise", "skip" or "replace"
    max_bad        so many are tolerated
    ledger         a file that bad images are written to, as lines of JSON
    memory_budget  bytes, or text such as "2GiB"
    policy         who turns the knobs while it runs: "model", "hillclimb", "rules", which are all
                   the same for worker processes; "fixed": nobody.  May be set at any time
    decision_log   a file to which a line of JSON is added for each period, as in Loader
    metrics        where a native dataset's loader answers HTTP, "127.0.0.1:9464", as in Loader;
                   no other dataset's does, and an address is refused there
    offload        what storage nodes do with a penstock:// dataset's samples, as in Loader
    batch_ops      MixUp or CutMix, done natively to whole batches
    compile        False: leave the dataset in Python whatever it is
    dtype, layout  of a native dataset's images
    cache_dir      where indexes of tars are kept
    block_size, window  of order="block"
    """

    # Accelerate's prepare() would put a loader of torch's in our place, and say nothing.
    _is_accelerate_prepared = True

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | Literal["auto"] = "auto",
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Any = None,
        seed: int | None = None,
        memory_budget: int | str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        tail: Tail | None = None,
        on_error: OnError = "raise",
        max_bad: int = 1000,
        ledger: Path | None = None,
        policy: Policy = "model",
        decision_log: Path | None = None,
        metrics: str | None = None,
        offload: Offload | None = None,
        order: Order | None = None,
        batch_ops: BatchOps = (),
        compile: bool = True,
        dtype: DType | None = None,
        layout: Layout = "NCHW",
        cache_dir: Path | None = None,
        block_size: int = BLOCK_SIZE,
        window: int = WINDOW,
    ) -> None:
        if isinstance(dataset, str | os.PathLike):
            dataset = Dataset(dataset, cache_dir)
        # What was given stays readable under its name: who makes a loader like this one
        # (Lightning does) reads the arguments from the attributes.
        self.transform, self.seed, self.memory_budget = transform, seed, memory_budget
        self.rank, self.world_size, self.tail = rank, world_size, tail
        self.on_error: OnError = on_error
        self.max_bad, self.ledger = max_bad, ledger
        self.policy: Policy = policy
        self.decision_log, self.metrics = decision_log, metrics
        self.offload: Offload | None = offload
        self.order, self.compile = order, compile
        self.batch_ops: BatchOps = batch_ops or ()
        self.dtype, self.layout, self.cache_dir = dtype, layout, cache_dir
        self.block_size, self.window = block_size, window
        self._asked_prefetch = prefetch_factor
        is_given = sampler is not None or batch_sampler is not None
        is_iterable = isinstance(dataset, torch_data.IterableDataset)
        self._check(shuffle, is_given, is_iterable)
        if self._order_kind == "sampler" and not is_given and self._place[1] > 1:
            sampler, shuffle = self._shared_sampler(dataset, shuffle, drop_last), None
        n_workers = count_workers(num_workers, is_iterable, order)
        self._n_automatic = n_workers if num_workers == "auto" else None
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            n_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        check_tail(tail, drop_last, self._place[1])
        self._is_shuffled = bool(shuffle)
        self._stand_at_the_beginning()
        self._engine: Engine | None = choose(self)
        self._made_from = fingerprint(self)

    def _check(self, shuffle: bool | None, is_given: bool, is_iterable: bool) -> None:
        """Our own arguments; torch checks its.  Decides who orders, and for which rank."""
        if self.seed is not None:
            self.seed = check_seed(self.seed)
        check_order(self.order, shuffle, is_given, is_iterable)
        self._place = place(self.rank, self.world_size, is_given or is_iterable)
        check_choice("on_error", self.on_error, ON_ERROR)
        check_numbers(self.block_size, self.window, self.max_bad)
        budget_bytes(self.memory_budget)
        self._order_kind = self._who_orders(shuffle, is_given, is_iterable)
        self._follows_epoch = False

    def _shared_sampler(self, dataset: Any, shuffle: bool | None, drop_last: bool) -> Any:
        """order="torch" on several ranks: the sampler that torch would be given."""
        rank, world_size = self._place
        drops = check_tail(self.tail, drop_last, world_size) == "drop"
        self._follows_epoch = True
        return torch_data.DistributedSampler(
            dataset, world_size, rank, bool(shuffle), self.seed or 0, drops
        )

    def _stand_at_the_beginning(self) -> None:
        self._seed = self.seed
        self._base_seed: int | None = None
        self._epoch = 0  # of the next iteration
        self._progress: Progress | None = None  # of the last one
        self._pending: dict[str, Any] | None = None  # a state to continue from
        self._bad_before: int | None = None  # bad samples that a loaded state counted

    def _who_orders(self, shuffle: bool | None, is_given: bool, is_iterable: bool) -> str:
        """One of ours, "sampler", or "iterable"."""
        if is_iterable:
            return "iterable"
        if is_given or self.order == "torch":
            return "sampler"
        return self.order or ("shuffle" if shuffle else "sequential")

    # Iterating

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._engine is None:
            return super().__iter__()
        self._warn_of_pinning()
        if self._made_from != fingerprint(self):
            older, self._engine, self._made_from = self._engine, choose(self), fingerprint(self)
            if isinstance(self._engine, PythonEngine):
                self._engine.go_on_for(older)
            if self._engine is None:
                return super().__iter__()
        pending, self._pending = self._pending, None
        iteration = self._continue(pending) if pending is not None else None
        return iteration if iteration is not None else self._begin()

    def _begin(self) -> "Iteration":
        """An epoch from its first batch."""
        if self._order_kind in OWN_ORDERS:
            self._own_order()
        epoch, self._epoch = self._epoch, self._epoch + 1
        progress = Progress(epoch)
        if self._follows_epoch:
            self.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        if self._order_kind == "sampler":
            progress.marks = states.mark(self)
            tasks = self._ask_sampler(progress)
            return self._start(Work(epoch, tasks=tasks), progress)
        self._draw_base_seed(progress)
        if self._order_kind == "iterable":
            return self._start(Work(epoch), progress)
        if self._is_shuffled and self.generator is None:
            _draw(None)  # RandomSampler's
        return self._start(Work(epoch, order=self._own_order()), progress)

    def _continue(self, saved: dict[str, Any]) -> "Iteration | None":
        """The rest of an epoch; None if there is no rest.  The global generators are left as
        they are: where the epoch goes on, nothing would be drawn."""
        epoch, first = saved["epoch"], saved["batch"]
        self._epoch = epoch + 1
        progress = Progress(epoch, first, base_seed=saved.get("base_seed") or 0)
        if self._order_kind == "iterable":
            return self._start(Work(epoch, first, state=saved["workers"]), progress)
        if self._order_kind != "sampler":
            order = self._own_order()
            work = Work(epoch, first, order=order)
            return self._start(work, progress) if first < len(order) else None
        progress.marks = saved["marks"]
        with states.marks_restored(self, saved["marks"]):
            tasks = self._ask_sampler(progress)
            skipped = list(itertools.islice(tasks, first))
            following = next(tasks, None)
            if following is None:
                return None
            tasks = itertools.chain([following], tasks)
            return self._start(Work(epoch, first, tasks=tasks, skipped=skipped), progress)

    def _start(self, work: Work, progress: Progress) -> "Iteration":
        assert self._engine is not None and self._seed is not None
        work.seed, work.base_seed = self._seed, progress.base_seed or 0
        work.n_bad = self._bad_before
        self._bad_before = None
        source = self._engine.start(self, work)
        self._progress = progress
        return Iteration(self, progress, source)

    def _ask_sampler(self, progress: Progress) -> Iterator[Any]:
        """As torch's own loader does, call for call."""
        is_first = not (self._is_persistent and self._base_seed is not None)
        count = len(self.dataset) if hasattr(self.dataset, "__len__") else None
        asks_twice = self.num_workers > 0 and is_first
        run = SamplerRun(self._index_sampler, self._auto_collation, count, asks_twice)
        self._draw_base_seed(progress)
        run.begin()
        return run

    def _draw_base_seed(self, progress: Progress) -> None:
        """One a set of workers: persistent ones keep theirs."""
        if not (self._is_persistent and self._base_seed is not None):
            self._base_seed = _draw(self.generator)
        if progress.base_seed is None:
            progress.base_seed = self._base_seed
        if self._seed is None:
            self._seed = self._base_seed if self._place[1] == 1 else 0

    @property
    def _asked_workers(self) -> int | Literal["auto"]:
        """As given; the attribute may be set afterwards."""
        return "auto" if self.num_workers == self._n_automatic else self.num_workers

    @property
    def _is_persistent(self) -> bool:
        return self.persistent_workers and self.num_workers > 0

    def _own_order(self) -> OwnOrder:
        # Asked for anew: torch.distributed may have been initialised after the loader was made.
        rank, world_size = self._place = place(self.rank, self.world_size, False)
        return OwnOrder(
            self._order_kind,  # type: ignore[arg-type]
            self._seed or 0,
            len(self.dataset),  # type: ignore[arg-type]
            self.batch_size,
            rank,
            world_size,
            check_tail(self.tail, self.drop_last, world_size),
            self.block_size,
            self.window,
        )

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        if self._order_kind in ("sampler", "iterable"):
            return super().__len__()
        return len(self._own_order())

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch, also for a sampler that has a set_epoch.

        Right after load_state_dict, the epoch of that state goes on where it stood: the usual
        loop calls set_epoch before every epoch, also before the one that is resumed.
        """
        epoch = transforms.check_integer("epoch", epoch, 0, INT64_MAX)
        for sampler in chain(self):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        if self._pending is None or self._pending["epoch"] != epoch:
            self._epoch, self._pending, self._progress = epoch, None, None

    # State

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, after the last batch received, and which stream it is."""
        if self._engine is None:
            raise StateError("a loader of DataPipes has no state; their graph may have one")
        if self._pending is not None:
            return dict(self._pending)
        progress, epoch, batch = self._progress, self._epoch, 0
        if progress is not None and not progress.is_over:
            epoch, batch = progress.epoch, progress.batches
        saved = {"penstock": states.FORMAT, "epoch": epoch, "batch": batch} | self._identity()
        saved["bad"] = self._engine.n_bad()
        if self._order_kind == "sampler":
            saved["marks"] = progress.marks if batch and progress else states.mark_own(self)
            saved["base_seed"] = progress.base_seed if batch and progress else None
        if self._order_kind == "iterable":
            saved["base_seed"] = progress.base_seed if batch and progress else None
            copies = progress.copies if batch and progress else None
            saved["workers"] = copies() if copies else None
        return saved

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, also on another number of ranks or workers.

        Raises StateError, naming what differs, if it is the state of another stream.
        """
        states.check(state, self._identity(), is_seed_open=self.seed is None)
        is_own = self._order_kind not in ("sampler", "iterable")
        if is_own and state["batch"] > len(self):
            raise StateError(f"the state's batch is {state['batch']}, of {len(self)} in an epoch")
        self._seed = None if state["seed"] is None else int(state["seed"])
        self._epoch, self._progress, self._bad_before = state["epoch"], None, state["bad"]
        self._pending = dict(state) if state["batch"] > 0 else None
        if self._pending is None and self._order_kind == "sampler":
            states.restore_own(self, state["marks"])

    def _identity(self) -> dict[str, Any]:
        """What the stream is a function of; the seed as text, because JSON readers disagree
        about integers past 2^53."""
        assert self._engine is not None
        own: dict[str, Any] = {
            "seed": None if self._seed is None else str(self._seed),
            "order": self._order_kind,
        }
        if self._order_kind == "iterable":
            own |= {"num_workers": self.num_workers, "batch_size": self.batch_size}
        elif self._order_kind == "sampler":
            own |= {"is_torch": self.order == "torch"}
        else:
            order = self._own_order()
            own |= {"global_batch": order.global_batch, "tail": order.given_tail or "auto"}
            own |= {"count": order.count, "batches": None if self.batch_size else "single"}
            if self._order_kind == "block":
                own |= {"block": self.block_size, "window": self.window}
        return own | self._engine.identity()

    # Asking and ending

    def stats(self) -> dict[str, int]:
        """Counters since creation: batches, bytes, time by stage (ns), memory."""
        return self._figures().stats()

    def telemetry(self) -> dict[str, Any]:
        """Service times by stage, queues and waits, as `penstock.Loader.telemetry`."""
        return self._figures().telemetry()

    def verdict(self) -> str:
        """One line: how much the loop waits, for what, and what would help."""
        return self._figures().verdict()

    def status(self) -> dict[str, Any]:
        """All of that at once, with recent decisions, as `penstock.Loader.status`."""
        return self._figures().status()

    @property
    def reason(self) -> str:
        """What the policy, or the tuner of worker processes, last said."""
        return self._figures().reason

    @property
    def address(self) -> str:
        """Where it answers HTTP, "" if it was not asked to."""
        return self._native().address

    def trace(self, path: Path, seconds: float = 5.0) -> None:
        """A trace of the native threads, from now on, as `penstock.Loader.trace`."""
        self._native().trace(path, seconds)

    def _repr_html_(self) -> str:
        try:
            return as_html(repr(self), self.status())
        except (RuntimeError, Error):  # DataPipes, not begun, or closed
            return f"<code>{html.escape(repr(self))}</code>"

    @property
    def knobs(self) -> Knobs:
        """Settings that may change while it runs, as `penstock.Loader.knobs`."""
        return self._figures().knobs

    def _figures(self) -> Loader | FedLoader | Account:
        """Who can tell about this loader: threads, or worker processes."""
        if isinstance(self._engine, PythonEngine):
            return self._engine.account(self.policy)
        return self._native()

    def _native(self) -> Loader | FedLoader:
        if not isinstance(self._engine, NativeEngine):
            raise RuntimeError("only loaders of natively compiled datasets have this")
        return self._engine.newest()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "policy":
            check_choice(name, value, POLICIES)
            if (engine := self.__dict__.get("_engine")) is not None:
                engine.set_policy(value)
        super().__setattr__(name, value)

    def close(self) -> None:
        """End threads and processes.  Batches already received stay valid."""
        if self._engine is not None:
            self._engine.close()

    def __getstate__(self) -> dict[str, Any]:
        """Settings travel, engines do not: a copy makes its own, and begins its next epoch."""
        return self.__dict__ | {"_engine": None, "_progress": None}

    def __setstate__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)
        self._engine, self._made_from = choose(self), fingerprint(self)

    def _warn_of_pinning(self) -> None:
        """In torch's words, which it says when an iteration begins."""
        if self.pin_memory and self.pin_memory_device:
            warnings.warn(
                "pin_memory_device is deprecated, the current accelerator will be used as the "
                f"device,ignore pin_memory_device='{self.pin_memory_device}'.",
                stacklevel=3,
            )
        if self.pin_memory and not torch.accelerator.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, "
                "then device pinned memory won't be used.",
                stacklevel=3,
            )


class Iteration:
    """What iter(loader) gives: the batches of an epoch, or the rest of them."""

    def __init__(self, loader: DataLoader, progress: Progress, source: Source) -> None:
        self._loader = loader
        self._progress = progress
        self._source: Any = source
        self._said_length = loader._IterableDataset_len_called
        self._lock, self._owner = threading.RLock(), os.getpid()
        accelerator = torch.accelerator.current_accelerator() if loader.pin_memory else None
        self._pins_for = accelerator.type if accelerator is not None else None
        if loader._order_kind == "iterable":
            watched: Any = weakref.ref(source)
            progress.copies = lambda: watched().state()

    def __del__(self) -> None:
        if self._progress.copies is not None and not (
            self._progress.is_over or sys.is_finalizing()
        ):
            copies = self._source.state()
            self._progress.copies = lambda: copies

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Threads may share an iteration: each batch goes to one of them."""
        if os.getpid() != self._owner:  # forked, perhaps while a thread held the lock
            return self._next()
        with self._lock:
            if torch.autograd.profiler._is_profiler_enabled:
                with torch.autograd.profiler.record_function("enumerate(DataLoader)#penstock"):
                    return self._next()
            return self._next()

    def _next(self) -> Any:
        progress = self._progress
        try:
            batch = next(self._source)
        except StopIteration:
            progress.is_over = True
            raise
        finally:
            progress.batches = self._source.delivered
        if self._said_length is not None and progress.batches > self._said_length:
            self._warn_of_length()
        return pin_memory(batch, self._pins_for) if self._pins_for else batch

    def _warn_of_length(self) -> None:
        """In torch's words."""
        loader = self._loader
        text = (
            f"Length of IterableDataset {loader.dataset} was reported to be {self._said_length}"
            f"(when accessing len(dataloader)), but {self._progress.batches} samples have been "
            "fetched. "
        )
        if loader.num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly "
                "configuring the IterableDataset replica at each worker. Please see "
                "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for "
                "examples."
            )
        warnings.warn(text, stacklevel=3)

    def __len__(self) -> int:
        return len(self._loader)


def _draw(generator: torch.Generator | None) -> int:
    """The number that torch draws for its workers' seeds, and RandomSampler for its own."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def _reopen(dataset: Dataset) -> tuple[Any, ...]:
    """How a copy of a loader in another process gets at its dataset."""
    if dataset.kind == "list":
        raise TypeError("a dataset made from a list of files cannot be pickled")
    return Dataset, (dataset.path,)


copyreg.pickle(Dataset, _reopen)
