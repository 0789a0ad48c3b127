"""What a loader sees: one `Workers` for its life, one `Stream` an epoch.

    num_workers   map-style dataset                    iterable dataset
    0             in the caller's process              in the caller's process
    n             n processes, batches to whoever is   n copies, batches taken in turn
                  idle (in turn with TorchSeeding)
    "auto"        see penstock.workers.auto            1 process
"""

from collections.abc import Iterable, Iterator
from multiprocessing.context import BaseContext
from typing import Any, Literal

from penstock.workers.job import Batch, Job


class Stream(Iterator[Any]):
    """One epoch's batches, in order.  Raises what a dataset raised, where it happened.

    Ends by itself when exhausted, when dropped, or by close().  `delivered` counts the batches
    taken so far.  A stream that was inherited through a fork raises ForkError.
    """

    delivered: int

    def state(self) -> dict[str, Any] | None:
        """Iterable datasets: where the *consumed* stream stands, picklable; for epoch(state=).
        None for map-style datasets: their position is the sampler's."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave the epoch.  Processes end, unless they are persistent."""
        raise NotImplementedError


class Workers:
    """Runs a job's epochs.  Starts nothing until epoch() is called.

    num_workers      0, a number of processes, or "auto"
    context          None, "fork", "spawn", "forkserver" or a multiprocessing context
    prefetch_factor  batches under way or ready, a worker
    timeout          seconds after which a worker is taken for stuck; 0: never
    persistent       keep the processes between epochs; otherwise each epoch forks anew and
                     sees what the caller did to the dataset in between
    memory_budget    bytes of batches made but not yet taken; None: a share of what is there
    """

    def __init__(
        self,
        job: Job,
        num_workers: int | Literal["auto"] = "auto",
        *,
        context: str | BaseContext | None = None,
        prefetch_factor: int = 2,
        timeout: float = 0,
        persistent: bool = False,
        memory_budget: int | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def num_workers(self) -> int:
        """Processes at work now; before the first epoch, those asked for (0 with "auto")."""
        raise NotImplementedError

    def epoch(
        self,
        batches: Iterable[Batch] = (),
        *,
        epoch: int = 0,
        state: dict[str, Any] | None = None,
    ) -> Stream:
        """Begin an epoch.

        batches  what to make, drawn lazily and only as far ahead as is prefetched; whatever
                 the iterable raises, the stream raises at that place.  Not used for iterable
                 datasets, which end by themselves.
        epoch    part of every item's seed
        state    of Stream.state(): continue there (iterable datasets)
        A stream of an earlier epoch that is still open is closed first if persistent.
        """
        raise NotImplementedError

    def resize(self, n_workers: int) -> None:
        """Grow or shrink, while running; iterable datasets and TorchSeeding refuse."""
        raise NotImplementedError

    def close(self) -> None:
        """End all processes.  Closing twice is fine; so is epoch() afterwards."""
        raise NotImplementedError
