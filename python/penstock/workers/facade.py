"""What a loader sees: one `Workers` for its life, one `Stream` an epoch.

num_workers   map-style dataset                    iterable dataset
0             in the caller's process              in the caller's process
n             n processes, batches to whoever is   n copies, batches taken in turn
              idle (in turn with TorchSeeding)
"auto"        see penstock.workers.tuner           1 process
              neither in a daemonic process, which may not have children: there it is 0
"""

import dataclasses
import multiprocessing
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any, Literal

from penstock.errors import ForkError
from penstock.workers.board import WORKERS_MAX
from penstock.workers.job import Batch, IterableFetcher, Job, MapFetcher
from penstock.workers.limits import (
    cores_lately,
    memory_left,
    memory_of,
    resident_of,
    usable_cores,
    usable_memory,
)
from penstock.workers.meter import Meter
from penstock.workers.pool import Pool
from penstock.workers.seeding import Seeding
from penstock.workers.settings import Settings
from penstock.workers.streams import InlineStream, IterableStream, MapStream, Stream
from penstock.workers.tuner import Tuner


class Workers:
    """Runs a job's epochs.  Starts nothing until epoch() is called.

    num_workers      0, a number of processes, or "auto"
    context          None, "fork", "spawn", "forkserver" or a multiprocessing context
    prefetch_factor  batches under way or ready, a worker; None: two, but where batches are large
                     no more than AHEAD_BYTES lie ready
    timeout          seconds after which a worker is taken for stuck; 0: never
    persistent       keep the processes between epochs; otherwise each epoch forks anew and
                     sees what the caller did to the dataset in between
    memory_budget    bytes of batches under way or not yet taken, see Settings; None: a quarter of
                     what is there
    settings, meter  of another one that this one goes on for
    """

    def __init__(
        self,
        job: Job,
        num_workers: int | Literal["auto"] = "auto",
        *,
        context: str | BaseContext | None = None,
        prefetch_factor: int | None = None,
        timeout: float = 0,
        persistent: bool = False,
        memory_budget: int | None = None,
        settings: Settings | None = None,
        meter: Meter | None = None,
    ) -> None:
        if num_workers != "auto" and num_workers > WORKERS_MAX:
            raise ValueError(f"num_workers must be at most {WORKERS_MAX}, not {num_workers}")
        self.job = job
        self._context = context
        self._timeout = timeout
        self._persistent = persistent
        self.settings = settings or Settings(prefetch_factor, memory_budget or usable_memory() // 4)
        if timeout:  # a batch that is made again comes behind others, and would seem late
            self.settings.whole_because = "there is a timeout"
        self.meter = meter or Meter()
        self._is_automatic = num_workers == "auto"
        self._is_part = job.iterable or job.seeding.in_turn  # of the stream, their number is
        self._tuner: Tuner | None = None
        if not self._is_part and num_workers != 0:
            # A worker is initialised, and ended when it is late; the caller's process is not.
            can_leave = job.worker_init is None and not timeout
            self._tuner = Tuner(usable_cores(), can_leave, self.meter.say, _fits_weakly(self))
        if num_workers == "auto":
            num_workers = 1 if job.iterable else usable_cores()
        elif settings is None:
            self.settings.n_workers = num_workers
        self._asked = num_workers
        # Of the epoch under way.  Its stream has it, so that a loop that is left ends it.
        self._find_pool: Callable[[], Pool | None] = lambda: None
        self._kept: Pool | None = None  # the same, persistent
        self._stream: Callable[[], Stream | None] = lambda: None  # of the pool's last epoch
        self._owner = os.getpid()
        self._fetcher: MapFetcher | IterableFetcher | None = None

    @property
    def _pool(self) -> Pool | None:
        pool = self._find_pool()
        return None if pool is None or pool.is_closed else pool

    @property
    def num_workers(self) -> int:
        """Processes at work now; between epochs, those that the next one begins with."""
        if self._is_automatic and multiprocessing.current_process().daemon:
            return 0
        pool, tuner = self._pool, self._tuner
        if tuner is not None and not tuner.is_inline and self.settings.n_workers is not None:
            return self.settings.n_workers
        if pool is not None:
            return pool.n_workers
        if tuner is None:
            return self._asked
        return 0 if tuner.is_inline else tuner.n_workers

    @property
    def n_running(self) -> int:
        """Processes that there are, where fewer could be had than were asked for."""
        return self.num_workers if (pool := self._pool) is None else pool.n_workers

    @property
    def pids(self) -> dict[int, int]:
        """The pids of the workers that run, by worker."""
        return {} if (pool := self._pool) is None else pool.pids

    def epoch(
        self,
        batches: Iterable[Batch] = (),
        *,
        epoch: int = 0,
        state: dict[str, Any] | None = None,
        seeding: Seeding | None = None,
    ) -> Stream:
        """Begin an epoch.

        batches  what to make, drawn lazily and only as far ahead as is prefetched; whatever
                 the iterable raises, the stream raises at that place.  Not used for iterable
                 datasets, which end by themselves.
        epoch    part of every item's seed
        state    of Stream.state(): continue there (iterable datasets)
        seeding  instead of the job's, for processes that are made now (torch draws a new
                 base_seed for each epoch)
        Persistent workers serve one epoch at a time: a stream still open is closed.
        """
        if seeding is not None:
            self.job = dataclasses.replace(self.job, seeding=seeding)
        if self.num_workers == 0:
            return InlineStream(self.job, self._fetcher_here(), batches, epoch, state)
        begin = time.perf_counter()
        pool = self._pool_for_epoch()
        if self._tuner is not None:
            self._tuner.begin(time.perf_counter() - begin)
        if self.job.iterable:
            stream: Stream = IterableStream(
                pool,
                self.job,
                epoch,
                state,
                settings=self.settings,
                is_own=not self._persistent,
            )
        else:
            stream = self._map_stream(pool, iter(batches), epoch)
        self._stream = weakref.ref(stream)
        return stream

    def _map_stream(self, pool: Pool, batches: Iterator[Batch], epoch: int) -> MapStream:
        return MapStream(
            pool,
            self.job,
            lambda rest: InlineStream(self.job, self._fetcher_here(), rest, epoch, None),
            batches,
            epoch,
            settings=self.settings,
            tuner=self._tuner,
            meter=self.meter,
            is_own=not self._persistent,
        )

    def _fetcher_here(self) -> MapFetcher | IterableFetcher:
        """For batches made in this process; it remembers which generators are used."""
        if self._fetcher is None or self._fetcher.job is not self.job or self.job.iterable:
            self._fetcher = self.job.fetcher(is_inline=True)
        return self._fetcher

    def _pool_for_epoch(self) -> Pool:
        if self._persistent and (pool := self._pool) is not None:
            if os.getpid() != self._owner:
                raise ForkError("persistent workers belong to the process that made them")
            if (stream := self._stream()) is not None:
                stream.end_with(RuntimeError("another epoch has begun on these workers"))
            pool.forget_all()
            if not pool.is_broken:
                return pool
            pool.close()
        in_turn = self.job.iterable or self.job.seeding.in_turn
        pool = Pool(
            self.job,
            self.num_workers,
            context=self._context,
            in_turn=in_turn,
            can_retry=not self.job.seeding.in_turn,
            timeout=self._timeout,
            meter=self.meter,
            saw=self.settings.saw,
        )
        self._owner = os.getpid()
        self._find_pool = weakref.ref(pool)
        self._kept = pool if self._persistent else None
        return pool

    def resize(self, n_workers: int) -> None:
        """Grow or shrink, while running; iterable datasets and TorchSeeding refuse."""
        fewest, most = self.worker_range
        if not fewest <= n_workers <= most:
            raise ValueError(f"the number of workers must be {fewest} to {most} here")
        self.pin(n_workers)
        if (pool := self._pool) is not None:
            pool.resize(n_workers)

    # Knobs: any thread may turn them

    @property
    def is_inline(self) -> bool:
        """Whether batches are made in the caller's process, because that was asked for."""
        return self._asked == 0

    @property
    def has_left(self) -> bool:
        """Whether the tuner found that the caller's process does better, which is for good."""
        return self._tuner is not None and self._tuner.is_inline

    def is_outgrown(self, making: float) -> bool:
        """Whether batches take so long by now, in seconds, that workers would pay after all."""
        return self._tuner is not None and self._tuner.is_outgrown(making)

    @property
    def worker_range(self) -> tuple[int, int]:
        if self.has_left:
            return 0, 0  # workers forked later would inherit what the dataset has opened here
        return (self._asked, self._asked) if self._is_part or self.is_inline else (1, WORKERS_MAX)

    @property
    def is_tuned(self) -> bool:
        """Whether there is a tuner, which may rest."""
        return self._tuner is not None

    @property
    def n_cores(self) -> int:
        """Usable ones: those that the tuner goes by, or that there are."""
        return cores_lately() if self._tuner is None else self._tuner.n_cores

    def fits(self, n_workers: int) -> int:
        """Of so many, those that memory holds beside all else, each as large as one of them is now."""
        pids, left = list(self.pids.values()), memory_left()
        n_more, each = n_workers - len(pids), resident_of(pids[:1])
        if each is None or n_more * each > left:  # pages of this process count in that: look closer
            each = memory_of(pids[:1])
        return n_workers if not each or n_more * each <= left else len(pids) + int(left // each)

    @property
    def are_workers_pinned(self) -> bool:
        return self._tuner is None or self.settings.n_workers is not None

    @property
    def window(self) -> int:
        """Batches under way or waiting, at most; 0: each is made when it is asked for."""
        n_workers = self.num_workers
        if n_workers == 0:
            return 0
        window = self.settings.window(n_workers, self._is_part)
        whole = self.job.iterable and window >= n_workers  # as many of each copy
        return window // n_workers * n_workers if whole else window

    def queue(self) -> tuple[int, int, int]:
        """Batches under way or waiting; of those, ready when one was last taken; bytes shared."""
        pool = self._pool
        return (0, 0, 0) if pool is None else (pool.n_open, pool.n_ready, pool.nbytes)

    def pin(self, n_workers: int) -> None:
        """So many from now on: the next batch finds them."""
        self.settings.n_workers = n_workers

    def unpin(self) -> None:
        """The tuner's again, from what they are."""
        if self._tuner is not None:
            self.settings.n_workers = None

    def hold(self, is_held: bool) -> None:
        """Leave the number as it is, or let the tuner find it."""
        self.settings.is_held = is_held

    def close(self) -> None:
        """End all processes.  Closing twice is fine; so is epoch() afterwards."""
        if (pool := self._find_pool()) is not None:
            pool.close()
        self._kept = None


def _fits_weakly(workers: Workers) -> Callable[[int], int]:
    """Workers.fits, for a tuner that must not keep alive whom it tunes for."""
    method = weakref.WeakMethod(workers.fits)

    def fits(n_workers: int) -> int:
        found = method()
        return n_workers if found is None else found(n_workers)

    return fits
