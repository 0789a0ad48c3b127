"""The loader: what an iteration is, and where in the stream it stands.

The C library knows one endless stream of epochs and a position in it.  Here that becomes
Python's `for`: one `iter(loader)` is one epoch, or what is left of it after a resume.

    finished an epoch        the next iter() is the next epoch, which is prefetched already
    left it by `break`       the next iter() is the next epoch, from its beginning
    load_state_dict(state)   the next iter() continues where the state was taken
    set_epoch(e)             the next iter() is epoch e, from its beginning
"""

import html
import json
import os
import re
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypedDict

from penstock import _core, transforms
from penstock.display import as_html
from penstock.errors import Error
from penstock.knobs import Knobs
from penstock.mix import BatchOps, describe, mixes
from penstock.sample import DType, Layout, check_seed, pipeline
from penstock.tracing import Tracing

Ops = transforms.Transform | Iterable[transforms.Transform]
Path = str | os.PathLike[str]
Order = Literal["sequential", "shuffle", "block"]
Tail = Literal["short", "drop", "pad", "wrap"]
OnError = Literal["raise", "skip", "replace"]
Policy = Literal["fixed", "rules", "hillclimb", "model"]
Offload = Literal["auto", "none", "all", "resize", "fastflow", "sophon"]

ORDERS = {"sequential": 0, "shuffle": 1, "block": 2}
FED = 3
TAILS = {None: 0, "short": 1, "drop": 2, "pad": 3, "wrap": 4}
ON_ERROR = {"raise": 0, "skip": 1, "replace": 2}
OFFLOADS = {None: 0, "auto": 1, "none": 2, "all": 3, "resize": 4, "fastflow": 5, "sophon": 6}
MAX_WORKERS, MAX_BATCH, MAX_READY, MAX_WORLD = 256, 2**20, 1024, 2**20  # as the C library's
PREFETCH = 0  # where the policy begins: the core chooses by threads and batch size
PIN_READY = 1 << 1  # the bit of ready_batches in PEN_KNOBS
POLICIES = ("fixed", "rules", "hillclimb", "model")
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Options(TypedDict, total=False):
    """The loader's keywords beside the usual five, for those who pass them on."""

    order: Order | None
    block_size: int
    window: int
    drop_last: bool
    tail: Tail | None
    batch_ops: BatchOps
    on_error: OnError
    max_bad: int
    ledger: Path | None
    memory_budget: int | str | None
    prefetch: int | None
    policy: Policy
    decision_log: Path | None
    metrics: str | None
    offload: Offload | None
    dtype: DType | None
    layout: Layout
    cache_dir: Path | None
    index: bool


class Closing:
    """`with loader:` ends what runs behind it."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Engine(Closing):
    """What loaders of every kind have: threads behind them, counters, an end."""

    _core: _core.Loader
    _tracing: Tracing | None = None  # the last trace that was asked for

    def stats(self) -> dict[str, int]:
        """Counters since creation: batches, bytes, time by stage (ns), memory."""
        return self._core.stats()

    def telemetry(self) -> dict[str, Any]:
        """Service times by stage (mean, p50, p95, p99, variation), queues, waits, and what the
        samples ahead are expected to cost."""
        return self._core.telemetry()

    def verdict(self) -> str:
        """One line: how much the loop waits, for what, and what would help."""
        return self._core.verdict()

    @property
    def knobs(self) -> Knobs:
        """Settings that may change while the loader runs; see penstock.knobs."""
        return Knobs(self._core)

    @property
    def policy(self) -> str:
        """Who turns the knobs: "fixed" (nobody), "rules", "hillclimb" or "model"."""
        return self._core.policy()[0]

    @policy.setter
    def policy(self, name: Policy) -> None:
        self._core.set_policy(name)

    @property
    def reason(self) -> str:
        """What the policy last said, "" if it left everything as it was."""
        return self._core.policy()[1]

    def status(self) -> dict[str, Any]:
        """All of that at once, with recent decisions: what `penstock top` shows."""
        status: dict[str, Any] = json.loads(self._core.status())
        return status

    def openmetrics(self) -> str:
        """Statistics as OpenMetrics text, which metrics="HOST:PORT" serves."""
        return self._core.metrics()

    @property
    def address(self) -> str:
        """Where this loader answers HTTP, "" if it was not asked to."""
        return self._core.address()

    def _repr_html_(self) -> str:
        try:
            return as_html(repr(self), self.status())
        except (Error, ValueError):  # closed, or no JSON: a notebook's cell must not fail for that
            return f"<code>{html.escape(repr(self))}</code>"

    def trace(self, path: Path, seconds: float = 5.0) -> None:
        """Note what each thread does, for some seconds from now or until close(), and write it
        to a file for ui.perfetto.dev or chrome://tracing.  Returns at once."""
        self._tracing = Tracing(self._core, path, seconds)

    def close(self) -> None:
        """End the threads.  Batches already received stay valid."""
        tracing, self._tracing = self._tracing, None
        try:
            if tracing is not None:
                tracing.finish()
        finally:  # the file may not be writable any more
            self._core.close()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(
            f"a {name} owns threads and cannot be copied or pickled: make another one with the "
            f"same arguments, and give it this one's state_dict() to continue here"
        )


class Loader(Engine):
    """Batches of a dataset, made by threads, in an order and with contents that depend on
    nothing but the dataset, the operations, the seed, the epoch and the global batch size.

    data           a path (folder, 'shard-{000..146}.tar', 'train.pen', manifest) or a Dataset
    ops            penstock.transforms, in turn; the output must have one size
    batch_size     samples a batch of this rank; the global batch is batch_size * world_size
    num_workers    threads, as many as you say; 0 works in the caller's thread; "auto" begins
                   with one a usable core, and the policy finds how many pay
    order          "sequential", "shuffle" or "block" (for slow disks: blocks of block_size
                   neighbours, shuffled among window blocks)
    drop_last      the same as tail="drop"
    rank           which of world_size equal parts of each global batch to deliver
    tail           the last, incomplete batch: "short", "drop", "pad" (see batch["mask"]) or
                   "wrap"; by default "short" with one rank and "wrap" with several
    batch_ops      MixUp, CutMix or several of them, one of which is picked for each batch;
                   batch["label"] is then float32 (batch, classes)
    on_error       a bad sample: "raise", "skip" (one rank only) or "replace"
    max_bad        bad samples tolerated before an error all the same
    ledger         a file to which a line of JSON is added for each bad sample
    memory_budget  bytes, or text such as "2GiB"; a hard limit that slows the loader
    prefetch       batches under way or ready, as many as you say; None begins with 2, and
                   the policy finds how many are needed
    policy         who turns loader.knobs: "model" (from service times, each change tried),
                   "hillclimb", "rules", or "fixed" (nobody).  Never changes a batch
    decision_log   a file to which a line of JSON is added for each period of the policy
    metrics        answer HTTP at this address, "127.0.0.1:9464": /metrics (OpenMetrics) and
                   /status.json; None: where PENSTOCK_METRICS says, if it does; "off": nowhere
    offload        what storage nodes do with samples of a penstock:// dataset: "auto", "none",
                   "all", "resize", "fastflow", "sophon" (docs/near-storage.md); None: what
                   PENSTOCK_OFFLOAD says, or "auto".  Never changes a batch; other datasets
                   ignore it
    dtype          of the images; by default float32 after ToTensor, else uint8
    layout         "NCHW" or "NHWC"
    cache_dir      where indexes of tars and JPEG files are kept (see the guide for the default)
    index          keep where parts of JPEG files begin, which makes later epochs quicker; of a
                   penstock:// dataset, what was learned of its samples
    """

    def __init__(
        self,
        data: Path | _core.Dataset,
        ops: Ops,
        batch_size: int = 64,
        shuffle: bool = False,
        seed: int = 0,
        num_workers: int | Literal["auto"] = "auto",
        *,
        order: Order | None = None,
        block_size: int = 256,
        window: int = 16,
        drop_last: bool = False,
        tail: Tail | None = None,
        rank: int = 0,
        world_size: int = 1,
        batch_ops: BatchOps = (),
        on_error: OnError = "raise",
        max_bad: int = 1000,
        ledger: Path | None = None,
        memory_budget: int | str | None = None,
        prefetch: int | None = None,
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
        options["order"] = _order_kind(order, shuffle)
        options["order_block"] = transforms.check_integer("block_size", block_size, 1, INT32_MAX)
        options["order_window"] = transforms.check_integer("window", window, 1, INT32_MAX)
        options["tail"] = _tail_kind(tail, drop_last)
        self._pipeline = pipeline(ops, dtype, layout)
        self.dataset = data if isinstance(data, _core.Dataset) else _core.Dataset(data, cache_dir)
        mixed = mixes(batch_ops, self.dataset)
        self._core = _core.Loader(
            self.dataset, self._pipeline, options, ledger, *mixed, policy, decision_log, metrics
        )
        self._options = options
        self._turn = 0  # grows whenever the position is moved; older iterators see it
        self._left_in: int | None = None  # the epoch that an unfinished iteration stands in
        self._is_resumed = False  # by load_state_dict, and nothing was taken since

    # Iterating

    def __iter__(self) -> Iterator[_core.Batch]:
        if self._left_in is not None:
            self._core.seek(self._left_in + 1, 0)
        self._moved()
        return _Epoch(self)

    def __len__(self) -> int:
        """Batches in an epoch, the same on every rank."""
        return len(self._core)

    @property
    def epoch(self) -> int:
        """The epoch being iterated; between iterations, the one that comes next."""
        return self._core.tell()[0] if self._left_in is None else self._left_in

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be this epoch.  What is prefetched for it is kept.

        Right after load_state_dict, the epoch of that state goes on where it stood: the usual
        loop calls set_epoch before every epoch, also before the one that is resumed.
        """
        epoch = transforms.check_integer("epoch", epoch, 0, INT64_MAX)
        if not (self._is_resumed and self._core.tell()[0] == epoch):
            self._core.seek(epoch, 0)
            self._moved()

    def _moved(self) -> None:
        self._turn += 1
        self._left_in = None
        self._is_resumed = False

    # State

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands, after the last batch received, and which stream it is."""
        state: dict[str, Any] = json.loads(self._core.state())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state, also on another number of ranks or workers.

        Raises StateError, naming what differs, if it is the state of another stream.
        """
        self._core.resume(json.dumps(state))
        self._moved()
        self._is_resumed = True

    # Asking

    def order(self, epoch: int, position: int) -> int:
        """The id of the sample at a position of an epoch."""
        options = self._options
        return _core.order_at(
            options["order"],
            options["order_block"],
            options["order_window"],
            options["seed"],
            len(self.dataset),
            epoch,
            position,
        )

    def replay(self, epoch: int, batch: int) -> _core.Batch:
        """Build any batch again, outside the stream."""
        return self._core.replay(epoch, batch)

    def draw(self, epoch: int, id: int) -> list[dict[str, Any]]:
        """What each operation does to a sample, the first time it occurs in an epoch."""
        id = transforms.check_integer("id", id, 0, len(self.dataset) - 1)
        return self._pipeline.draw(self.dataset.read(id), self._options["seed"], epoch, id, 0)

    def draw_batch(self, epoch: int, batch: int) -> dict[str, Any]:
        """What batch_ops do to a batch: {"op": "MixUp", "lam": ...} or {"op": "CutMix",
        "lam": ..., "box": (x1, y1, x2, y2)}, lam being the sample's own share in its label."""
        return describe(self._core.draw_mix(epoch, batch))

    def __repr__(self) -> str:
        options = self._options
        return (
            f"Loader({self.dataset!r}, batch_size={options['batch_size']}, "
            f"seed={options['seed']}, rank={options['rank']}/{options['world_size']})"
        )


class _Epoch:
    """The batches of one epoch, or the rest of them."""

    def __init__(self, loader: Loader) -> None:
        self._loader: Loader | None = loader
        self._turn = loader._turn

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _core.Batch:
        loader = self._loader
        if loader is None:
            raise StopIteration
        if self._turn != loader._turn:
            raise RuntimeError(
                "the loader has moved since this iteration began (iter, set_epoch or "
                "load_state_dict); two iterations at once need two loaders"
            )
        try:
            batch = loader._core.next()
        except Error:
            # The position stays at the fault; the next iteration must not begin there again.
            self._loader = None
            if loader._left_in is None:
                loader._left_in = _epoch_at_fault(loader)
            raise
        if batch is None:
            self._loader = loader._left_in = None
            raise StopIteration
        loader._left_in = batch.epoch
        return batch


def _epoch_at_fault(loader: Loader) -> int | None:
    try:
        return loader._core.tell()[0]
    except Error:  # closed
        return None


# Checks.  Each returns what the C library takes, or names the argument at fault.


def common_options(
    batch_size: int,
    seed: int,
    num_workers: int | Literal["auto"],
    rank: int,
    world_size: int,
    on_error: OnError,
    max_bad: int,
    memory_budget: int | str | None,
    prefetch: int | None,
    index: bool,
    offload: Offload | None,
) -> dict[str, int]:
    """What every loader takes; order and tail stay the defaults, for the caller to set."""
    check = transforms.check_integer
    world_size = check("world_size", world_size, 1, MAX_WORLD)
    return {
        "batch_size": check("batch_size", batch_size, 1, MAX_BATCH),
        "seed": check_seed(seed),
        "order": ORDERS["sequential"],
        "order_block": 256,
        "order_window": 16,
        "rank": check("rank", rank, 0, world_size - 1),
        "world_size": world_size,
        "tail": TAILS[None],
        "on_error": _choice("on_error", on_error, ON_ERROR),
        "max_bad": check("max_bad", max_bad, 0, INT64_MAX),
        "workers": _workers(num_workers),
        "ready_batches": PREFETCH
        if prefetch is None
        else check("prefetch", prefetch, 1, MAX_READY),
        "memory_budget": budget_bytes(memory_budget),
        "use_index": int(bool(index)),
        "period_ms": 100,
        "pinned_knobs": 0 if prefetch is None else PIN_READY,
        "offload": _choice("offload", offload, OFFLOADS),
    }


def _choice(name: str, value: str | None, choices: dict[Any, int]) -> int:
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, not {value!r}")
    return choices[value]


def _order_kind(order: Order | None, shuffle: bool) -> int:
    if order is None:
        return ORDERS["shuffle" if shuffle else "sequential"]
    if shuffle and order == "sequential":
        raise ValueError("order='sequential' and shuffle=True contradict each other")
    return _choice("order", order, ORDERS)


def _tail_kind(tail: Tail | None, drop_last: bool) -> int:
    if drop_last and tail not in (None, "drop"):
        raise ValueError(f"drop_last=True and tail={tail!r} contradict each other")
    return TAILS["drop"] if drop_last else _choice("tail", tail, TAILS)


def _workers(num_workers: int | str) -> int:
    if num_workers == "auto":
        return -1
    if isinstance(num_workers, str):
        raise ValueError(f"num_workers must be a whole number or 'auto', not {num_workers!r}")
    return transforms.check_integer("num_workers", num_workers, 0, MAX_WORKERS)


def to_bytes(name: str, size: int | str) -> int:
    """Bytes; text is a number and a unit, decimal (GB) or binary (GiB)."""
    if not isinstance(size, str):
        return transforms.check_integer(name, size, 1, INT64_MAX)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT]?)(i?)B)?\s*", size, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{name} must be bytes or text such as '2GiB', not {size!r}")
    number, prefix, binary = match.groups(default="")
    unit = (1024 if binary else 1000) ** " KMGT".index(prefix.upper() or " ")
    return transforms.check_integer(name, int(float(number) * unit), 1, INT64_MAX)


def budget_bytes(budget: int | str | None) -> int:
    return 0 if budget is None else to_bytes("memory_budget", budget)
