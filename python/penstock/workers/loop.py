"""A worker's life: take a task, make the batch, send it, until there are no more."""

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import sys
import time
from typing import Any, NamedTuple

from penstock.workers.arena import Writer
from penstock.workers.board import Board
from penstock.workers.failure import Failure
from penstock.workers.job import Job
from penstock.workers.seeding import sources
from penstock.workers.wire import Incoming, Packed, pack, send_result

_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_libc = ctypes.CDLL(None)
_CANNOT_PICKLE = (pickle.PicklingError, AttributeError, TypeError)
_UNPICKLED = (
    "A batch leaves its worker process pickled, and this one cannot be.  Return something that "
    "can, or use num_workers=0, which makes batches in the program's own process."
)


class Place(NamedTuple):
    """Where a worker stands."""

    worker: int
    n_workers: int
    tasks: socket.socket
    results: socket.socket
    board: Board


def die_with(parent: int) -> None:
    """Be killed when the process that forked this one ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_freed_memory() -> None:
    """Items are freed batch by batch, and the next batch needs as much again: where glibc gave
    that back to the kernel each time, large items would cost a page fault for every page."""
    with contextlib.suppress(AttributeError):  # another C library
        _libc.mallopt(_M_TRIM_THRESHOLD, 256 << 20)
        _libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)


class Worker:
    """Runs in a forked process."""

    def __init__(self, job: Job, place: Place) -> None:
        self._job = job
        self._place = place
        self._writer = Writer()
        self._fetcher: Any = None
        self._failure: Failure | None = None
        try:
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._schedstat = -1

    def run(self) -> None:
        keep_freed_memory()
        try:
            self._begin()
        except BaseException as error:
            self._failure = Failure.of(error, self._place.worker)
        incoming = Incoming(self._place.tasks)
        with contextlib.suppress(OSError):  # the parent closed its ends
            while (received := incoming.receive()) is not None:
                message, fds, _ = received
                if not self._answer(_read_task(message, fds)):
                    return

    def _begin(self) -> None:
        worker = self._place.worker
        if self._job.worker_init is not None:
            sources(is_complete=True)  # it may draw from any
        seed = self._job.seeding.start(worker)
        if torch := sys.modules.get("torch"):
            _introduce_to_torch(torch, self._job, self._place, seed, self._writer)
        if self._job.worker_init is not None:
            self._job.worker_init(worker)
        self._fetcher = self._job.fetcher(False, worker, self._writer.place)

    def _answer(self, task: tuple[int, int, Any] | None) -> bool:
        """Make a batch and send it.  False: the worker is to retire."""
        if task is None:
            return False
        number, epoch, what = task
        board = self._place.board
        if number < board.floor:
            return True
        board.begin(self._place.worker, number)
        self._writer.is_plain = board.is_plain
        begin, busy, queued = time.perf_counter_ns(), *self._busy_ns()
        kind, packed = self._make(epoch, what)
        wall, busy_after, queued_after = time.perf_counter_ns() - begin, *self._busy_ns()
        cost = (wall, busy_after - busy, queued_after - queued)
        dropped, self._writer.dropped = self._writer.dropped, []
        send_result(self._place.results, kind, number, cost, packed, dropped)
        board.end(self._place.worker)
        return True

    def _busy_ns(self) -> tuple[int, int]:
        """Time on a core or in the queue for one (the rest of a batch's time is sleep), and the
        queue's part of it."""
        if self._schedstat < 0:
            return time.thread_time_ns(), 0
        on_core, in_queue, _ = map(int, os.pread(self._schedstat, 64, 0).split())
        return on_core + in_queue, in_queue

    def _make(self, epoch: int, what: Any) -> tuple[str, Packed]:
        if self._failure is not None:
            return "error", self._pack_failure(self._failure)
        try:
            value = self._fetcher.fetch(epoch, what)
        except BaseException as error:
            if self._job.iterable and isinstance(error, StopIteration):
                return "end", pack(None, self._fresh_writer())
            return "error", self._pack_failure(Failure.of(error, self._place.worker))
        try:
            return "value", pack(value, self._writer)
        except Exception as error:
            if isinstance(error, _CANNOT_PICKLE):
                error.add_note(_UNPICKLED)
            return "error", self._pack_failure(Failure.of(error, self._place.worker))

    def _fresh_writer(self) -> Writer:
        self._writer.abandon()
        return self._writer

    def _pack_failure(self, failure: Failure) -> Packed:
        try:
            return pack(failure, self._fresh_writer())
        except Exception:  # a class defined in a function, say
            return pack(failure.as_runtime_error(), self._fresh_writer())


def write_task(number: int, epoch: int, what: Any) -> bytes:
    return pickle.dumps((number, epoch, what), 5)


RETIRE = pickle.dumps(None, 5)


def _read_task(message: bytearray, fds: list[int]) -> Any:
    """A task too long for a message comes as a descriptor of its text."""
    if not fds:
        return pickle.loads(message)
    with os.fdopen(fds[0], "rb") as file:
        file.seek(0)
        return pickle.loads(file.read())


def _introduce_to_torch(torch: Any, job: Job, place: Place, seed: int, writer: Writer) -> None:
    """What torch's own workers do, for datasets that rely on it; and stack into arenas."""
    torch.set_num_threads(1)
    if "torch.utils.data" not in sys.modules:
        return
    from torch.utils.data._utils import collate
    from torch.utils.data._utils import worker as torch_worker

    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=place.worker, num_workers=place.n_workers, seed=seed, dataset=job.dataset
    )
    original = collate.collate_tensor_fn
    if collate.default_collate_fn_map.get(torch.Tensor) is original:
        collate.default_collate_fn_map[torch.Tensor] = _stacker(torch, original, writer)


def _stacker(torch: Any, original: Any, writer: Writer) -> Any:
    """torch's collation of tensors; plain ones are stacked where they are sent from.

    (torch's own makes a file in /dev/shm for each.)
    """

    def stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if first.layout is not torch.strided or first.is_nested:
            return original(batch, collate_fn_map=collate_fn_map)  # says that it cannot
        dtype = first.dtype
        for tensor in batch:
            if type(tensor) is not torch.Tensor or tensor.dtype is not dtype:
                return torch.stack(batch, 0)
        if first.device.type != "cpu" or first.is_quantized or not first.numel():
            return torch.stack(batch, 0)
        if any(tensor.requires_grad for tensor in batch):
            return torch.stack(batch, 0)
        room = writer.place(first.nbytes * len(batch))
        out = torch.from_numpy(room).view(dtype).view(len(batch), *first.shape)
        return torch.stack(batch, 0, out=out)

    stack.is_penstocks = True  # type: ignore[attr-defined]
    return stack
