"""A loader that is told what each batch is: for samplers of any kind.

    loader = FedLoader("train/", ops, batch_size=64, seed=1)
    for epoch in range(10):
        for batch in loader.run(epoch, batch_sampler):
            ...

A batch is a list of sample ids, in any order, with repeats, of any length up to batch_size.
The stream is a function of what is fed in the epoch, the dataset, the operations, the seed
and the epoch: a sample that comes again within an epoch gets other random parameters.

Threads work ahead as far as batches are fed, and at most on `prefetch` of them.  `run` feeds
that far ahead; who feeds by hand calls begin, feed, end and next.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from penstock import _core, transforms
from penstock.loader import (
    FED,
    INT64_MAX,
    Engine,
    Offload,
    OnError,
    Ops,
    Path,
    Policy,
    common_options,
)
from penstock.mix import BatchOps, describe, mixes
from penstock.sample import DType, Layout, pipeline

if TYPE_CHECKING:
    from penstock._core import Ids


class FedLoader(Engine):
    """Batches of the samples that the caller names.  Keywords are those of `Loader`.

    batch_size     the most samples that a batch may have
    rank           of world_size; each rank feeds its own batches.  It only keeps apart what
                   stands in for bad samples, and the parameters of batch_ops
    batch_ops      mix each batch as it was fed
    prefetch       is not the policy's to change: it says how far ahead `run` asks its iterable
    """

    def __init__(
        self,
        data: Path | _core.Dataset,
        ops: Ops,
        batch_size: int = 64,
        seed: int = 0,
        num_workers: int | Literal["auto"] = "auto",
        *,
        rank: int = 0,
        world_size: int = 1,
        batch_ops: BatchOps = (),
        on_error: OnError = "raise",
        max_bad: int = 1000,
        ledger: Path | None = None,
        memory_budget: int | str | None = None,
        prefetch: int = 3,
        policy: Policy = "model",
        decision_log: Path | None = None,
        metrics: str | None = None,
        offload: Offload | None = None,
        dtype: DType | None = None,
        layout: Layout = "NCHW",
        cache_dir: Path | None = None,
        index: bool = True,
    ) -> None:
        options = common_options(
            batch_size,
            seed,
            num_workers,
            rank,
            world_size,
            on_error,
            max_bad,
            memory_budget,
            prefetch,
            index,
            offload,
        )
        options["order"] = FED
        self.dataset = data if isinstance(data, _core.Dataset) else _core.Dataset(data, cache_dir)
        mixed = mixes(batch_ops, self.dataset)
        line = pipeline(ops, dtype, layout)
        self._core = _core.Loader(
            self.dataset, line, options, ledger, *mixed, policy, decision_log, metrics
        )
        self._turn = 0  # grows whenever something begins; older runs see it

    def run(self, epoch: int, batches: Iterable["Ids"], start: int = 0) -> Iterator[_core.Batch]:
        """The batches of one epoch, fed from an iterable, which may be endless.

        The first `start` are only counted: that continues an epoch exactly.
        """
        self.begin(epoch)
        turn, source = self._turn, iter(batches)
        for ids in itertools.islice(source, start):
            self.skip(ids)
        is_ended = False
        while True:
            if turn != self._turn:
                raise RuntimeError("the loader has begun something else since this run began")
            # One more than is worked on: while the caller is busy with it, so are all threads.
            while not is_ended and self.waiting <= self.knobs.ready_batches:
                try:
                    self.feed(next(source))
                except StopIteration:
                    self.end()
                    is_ended = True
            batch = self.next()
            if batch is None:
                return
            yield batch

    # By hand

    def begin(self, epoch: int, batch: int = 0) -> None:
        """Forget what was fed; what is fed next is this batch of this epoch.

        Beginning past batch 0 knows nothing of the samples before it: where samples repeat
        within an epoch, begin at 0 and `skip` instead.
        """
        check = transforms.check_integer
        self._core.seek(check("epoch", epoch, 0, INT64_MAX), check("batch", batch, 0, INT64_MAX))
        self._turn += 1

    def skip(self, ids: "Ids") -> None:
        """Count a batch that was delivered before, without making it; before any `feed`."""
        self._core.skip(ids)

    def feed(self, ids: "Ids") -> None:
        """Append a batch: a sequence of ids, or an array of int64."""
        self._core.feed(ids)

    def end(self) -> None:
        """The epoch is complete; what is fed from now on belongs to the next one."""
        self._core.feed_end()

    def next(self) -> _core.Batch | None:
        """The next batch, in the order they were fed; None once at the end of an epoch.

        With nothing fed and no end this is an InvalidError, and goes on once something is.
        """
        return self._core.next()

    @property
    def waiting(self) -> int:
        """Batches fed and not delivered yet."""
        return self._core.fed()

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, batch) of what comes next."""
        return self._core.tell()

    # State

    def state_dict(self) -> dict[str, Any]:
        """Position and identity; what the epoch is made of is the caller's to remember."""
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> tuple[int, int]:
        """Check that it is the state of this stream, and take its position, which is returned:
        continue with run(epoch, batches, start=batch)."""
        self._core.resume(json.dumps(state))
        self._turn += 1
        return self.position

    def draw_batch(self, epoch: int, batch: int) -> dict[str, Any]:
        """What batch_ops do to a batch, as `Loader.draw_batch`."""
        return describe(self._core.draw_mix(epoch, batch))
