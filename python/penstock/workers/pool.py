"""Tasks under way in worker processes, and their results in order.

The parent has no thread: everything happens while somebody waits for a result.  Workers do
not wait for that, as tasks lie ready for them in a socket, the lane.  A map-style dataset has
one lane that all workers read, so a slow batch holds up nobody.  Where a certain worker must
make a certain batch (iterable datasets, torch's seeding), each worker has a lane of its own.

What can go wrong, and what is done:

    a worker raises                  the exception is the task's result
    a worker dies at a task          a new worker; the task is done again, once
    a worker dies whose generators   nobody can go on in its place: its tasks, also those to
      are part of the stream           come, are errors
    a worker dies before it noted    the task is in no lane, at no worker and not done: it is
      which task it took             sent again
    a worker is stuck (timeout)      it is killed, which is the second case
    nobody takes a task (timeout)    an error
    a worker dies without a task,    again and again: an error
    the zygote dies                  an error
    an arena cannot be received      workers are told to send results in parts; that one is
                                       killed, as it waits for the arena for ever
"""

import array
import contextlib
import fcntl
import os
import select
import socket
import termios
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.context import BaseContext
from typing import Any

from penstock.errors import ForkError
from penstock.workers.arena import Reader
from penstock.workers.board import WORKERS_MAX, Board, create_board
from penstock.workers.crew import Crew, Notice, ending
from penstock.workers.job import Job
from penstock.workers.loop import RETIRE, write_task
from penstock.workers.meter import Meter
from penstock.workers.wire import MESSAGE_MAX, Result, Results, UnreachableError, pair, send

_SUSPECT_SECONDS = 0.1  # after a death, for a task to show up at some worker
_TICK_SECONDS = 1.0


class Task:
    """One batch to be made, or a part of one."""

    __slots__ = ("deaths", "error", "is_last", "lane", "message", "number", "result")

    def __init__(self, number: int, lane: int, message: bytes, is_last: bool) -> None:
        self.number = number
        self.lane = lane
        self.message = message
        self.is_last = is_last  # of its batch's parts
        self.deaths = 0
        self.result: Result | None = None
        self.error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.error is not None


class Lane:
    """Where tasks lie until a worker takes them."""

    def __init__(self) -> None:
        self.sender, self.receiver = pair()
        self.backlog: deque[bytes] = deque()  # what the socket had no room for

    def put(self, message: bytes) -> None:
        self.backlog.append(message)
        self.flush()

    def flush(self) -> None:
        while self.backlog:
            try:
                _send_task(self.sender, self.backlog[0])
            except BlockingIOError:
                return
            self.backlog.popleft()

    def is_empty(self) -> bool:
        """Whether workers took everything."""
        unread = array.array("i", [0])
        fcntl.ioctl(self.sender, termios.TIOCOUTQ, unread)
        return not self.backlog and unread[0] == 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sender.shutdown(socket.SHUT_RDWR)  # also for those who inherited it
        self.sender.close()
        self.receiver.close()


class Pool:
    """Processes that run a job's tasks.

    n_workers   how many; resize() changes it while they run
    in_turn     whether each worker has a lane of its own; then their number is fixed
    can_retry   whether a worker that died may be replaced and its task be done again; only
                where each has its own lane it may not
    timeout     seconds that a wait for one task may take before its worker is replaced
    meter       told what each result cost
    saw         told how much memory each batch takes, when it is taken in
    """

    def __init__(
        self,
        job: Job,
        n_workers: int,
        *,
        context: str | BaseContext | None = None,
        in_turn: bool = False,
        can_retry: bool = True,
        timeout: float = 0,
        meter: Meter | None = None,
        saw: Callable[[int], None] = lambda nbytes: None,
    ) -> None:
        self._meter = meter
        self._saw = saw
        self.in_turn = in_turn
        self.n_workers = n_workers
        self._can_retry = can_retry
        self._timeout = timeout
        self._tasks: dict[int, Task] = {}
        self._next = 0
        self._retiring = 0
        self._useless_deaths = 0  # without a result in between
        self._has_skipped = False  # looking at the sockets, when a result was last asked for
        self._suspect_since: float | None = None
        self._started: set[int] = set()  # workers asked for
        self._condemned: set[int] = set()  # pids killed for no fault of their tasks
        self._lost: dict[int, str] = {}  # lanes whose worker cannot be replaced, and why
        self._lanes = [Lane() for _ in range(n_workers if in_turn else 1)]
        self._reader = Reader()
        receiver, sender = pair()
        self._receiver = receiver
        self._results = Results(receiver, self._reader)
        board = create_board()
        self._board = Board(board)
        _pools.add(self)
        try:
            self._crew = Crew(job, context, [sender.fileno(), board])
        except BaseException:
            self.abandon()
            raise
        finally:
            os.close(board)
            sender.close()
        self._end = weakref.finalize(
            self, _end, self._crew, receiver, self._lanes, self._reader, self._board, os.getpid()
        )
        self.resize(n_workers, is_first=True)

    # Processes

    @property
    def pids(self) -> dict[int, int]:
        """The running workers' pids, by worker."""
        return dict(self._crew.pids)

    @property
    def zygote_pid(self) -> int:
        return self._crew.zygote_pid

    @property
    def is_closed(self) -> bool:
        return not self._end.alive

    @property
    def is_broken(self) -> bool:
        """Whether a worker is gone that cannot be replaced."""
        return bool(self._lost)

    def resize(self, n_workers: int, is_first: bool = False) -> None:
        """Grow at once, or shrink as soon as workers are done with what they have."""
        if not 1 <= n_workers <= WORKERS_MAX:
            raise ValueError(f"n_workers must be from 1 to {WORKERS_MAX}, not {n_workers}")
        self.check_usable()
        if self.in_turn and not is_first:
            raise ValueError("the number of workers is part of this stream and cannot change")
        missing = n_workers - (len(self._started) - self._retiring)
        self.n_workers = n_workers
        if self.in_turn:
            for worker in range(n_workers):
                self._start(worker)
        for _ in range(missing if not self.in_turn else 0):
            free = (w for w in range(WORKERS_MAX) if w not in self._started)
            if (found := next(free, None)) is not None:  # else some still retire: later
                self._start(found)
        for _ in range(-missing):
            self._retiring += 1
            self._lanes[0].put(RETIRE)

    def _start(self, worker: int) -> None:
        self._board.clear(worker)
        self._started.add(worker)
        lane = self._lanes[worker if self.in_turn else 0]
        self._crew.fork(worker, self.n_workers, lane.receiver)

    def close(self) -> None:
        """End the processes.  What results' arrays look into lives on."""
        self._end()

    def abandon(self) -> None:
        """Close our ends and disturb nobody who has them too: in a forked child."""
        self._receiver.close()
        for lane in self._lanes:
            lane.sender.close()
            lane.receiver.close()

    def check_usable(self) -> None:
        if self._crew.is_inherited:
            raise ForkError(
                "these workers belong to the process this one was forked from: "
                "begin an iteration of your own"
            )
        if self.is_closed:
            raise RuntimeError("the workers were closed")

    # Tasks

    def submit(self, epoch: int, what: Any, lane: int = 0, *, is_last: bool = True) -> int:
        """Let a batch be made, or one of its parts.  Returns the number to ask for it by."""
        number = self._next
        self._next += 1
        task = Task(number, lane, write_task(number, epoch, what), is_last)
        self._tasks[number] = task
        if lane in self._lost:
            task.error = RuntimeError(self._lost[lane])
        else:
            self._lanes[lane].put(task.message)
        return number

    def forget_all(self) -> None:
        """Nobody waits for what was submitted so far."""
        self._board.floor = self._next
        self.forget(list(self._tasks))
        for lane in self._lanes:
            lane.backlog = deque(one for one in lane.backlog if one is RETIRE)

    def forget(self, numbers: Iterable[int]) -> None:
        """Nobody waits for these."""
        for number in numbers:
            task = self._tasks.pop(number, None)
            if task is not None and task.result is not None:
                task.result.give_back(self._reader)

    def result(self, number: int) -> Result:
        """Wait for a task.  Raises what happened to it; a worker's own exception is a result."""
        result = self._await(number)
        if self._meter is not None and result.kind != "end":
            self._meter.made(result.cost, result.nbytes, self.n_workers)
        return result

    def results(self, numbers: Sequence[int]) -> list[Result]:
        """Wait for the parts of a batch.  Where a worker raised at one, that is all there is of them.
        Who can use them counts them, by count()."""
        found: list[Result] = []
        are_all = False
        try:
            while len(found) < len(numbers) and (not found or found[-1].kind == "value"):
                found.append(self._await(numbers[len(found)]))
            are_all = found[-1].kind == "value"
        finally:
            if not are_all:
                self.forget(numbers)
                for result in found:
                    if result.kind == "value":
                        result.give_back(self._reader)
        return found if are_all else found[-1:]

    def count(self, parts: list[Result]) -> None:
        """A batch came in these."""
        if self._meter is not None:
            self._meter.made(*total(parts), self.n_workers)

    def _await(self, number: int) -> Result:
        self.check_usable()
        task = self._tasks[number]
        begin = time.monotonic()
        try:
            # Looking at the sockets takes longer than all else here: where the task is done, every
            # second time will do.
            self._has_skipped = task.is_done and not self._has_skipped
            if not self._has_skipped:
                self._receive()
            while not task.is_done:
                self._wait(task, begin)
                self._receive()
        except (OSError, ValueError):
            self.check_usable()  # closed meanwhile, by another thread
            raise
        del self._tasks[number]
        if task.error is not None:
            raise task.error
        assert task.result is not None
        return task.result

    def value(self, result: Result) -> Any:
        return result.value(self._reader)

    @property
    def n_open(self) -> int:
        """Batches under way or done, that were not taken."""
        return sum(task.is_last for task in list(self._tasks.values()))

    @property
    def n_ready(self) -> int:
        """Of those, done when it was last looked."""
        return sum(task.is_last and task.is_done for task in list(self._tasks.values()))

    @property
    def nbytes(self) -> int:
        """Of memory that workers and this process share, batches still looked at included."""
        return self._reader.nbytes

    def set_window(self, n_tasks: int) -> None:
        """How many tasks will be under way: arenas for that many are kept."""
        self._reader.keep = n_tasks + 1

    # Waiting

    def _wait(self, task: Task, begin: float) -> None:
        seconds = _TICK_SECONDS
        if self._suspect_since is not None:
            seconds = _SUSPECT_SECONDS
        if self._timeout:
            seconds = min(seconds, max(0.001, begin + self._timeout - time.monotonic()))
        poll = select.poll()
        poll.register(self._receiver, select.POLLIN)
        poll.register(self._crew, select.POLLIN)
        for lane in self._lanes:
            if lane.backlog:
                poll.register(lane.sender, select.POLLOUT)
        if not poll.poll(seconds * 1000):
            self._look_for_lost()
        if self._timeout:
            self._look_for_stuck(task, begin)

    def _receive(self) -> None:
        """Take in everything that is there, without waiting."""
        for lane in self._lanes:
            lane.flush()
        notices = self._crew.notices()  # first: what a worker sent, it sent before it ended
        while True:
            try:
                result = self._results.receive()
            except UnreachableError as error:
                self._cannot_map(error)
                continue
            if result is None:
                break
            self._take(result)
        for notice in notices:
            self._heed(notice)

    def _take(self, result: Result) -> None:
        self._useless_deaths = 0
        if result.kind == "value":
            self._saw(result.held_bytes)
        task = self._tasks.get(result.task)
        if task is None or task.is_done:
            result.give_back(self._reader)
        else:
            task.result = result

    def _cannot_map(self, error: UnreachableError) -> None:
        """Its worker can never use that arena again, so the worker goes as well."""
        self._board.is_plain = True
        self._condemned.add(error.pid)
        self._crew.kill(error.pid)
        task = self._tasks.get(error.task)
        if task is not None and not task.is_done and not self.in_turn:
            self._lanes[task.lane].put(task.message)

    # Deaths

    def _heed(self, notice: Notice) -> None:
        if notice.what == "started":
            return
        if notice.what == "failed":
            self._started.discard(notice.worker)
            if self.in_turn or not self._crew.pids:
                why = f"cannot fork a DataLoader worker: {notice.detail}"
                self._lose(notice.worker if self.in_turn else 0, why)
            else:
                self.n_workers = len(self._started)
            return
        self._results.forget(notice.pid)
        self._started.discard(notice.worker)
        held = self._tasks.get(self._board.task(notice.worker))
        if held is None and self._retiring and notice.detail == 0:
            self._retiring -= 1
            return
        if self._can_retry:
            self._replace(notice, None if held is None or held.is_done else held)
        else:
            self._lose(notice.worker, ending(notice.pid, notice.detail))

    def _lose(self, lane: int, why: str) -> None:
        self._lost[lane] = why
        for task in self._tasks.values():
            if task.lane == lane and not task.is_done:
                task.error = RuntimeError(why)

    def _replace(self, notice: Notice, held: Task | None) -> None:
        why = ending(notice.pid, notice.detail)
        if notice.pid in self._condemned:
            self._condemned.remove(notice.pid)
        elif held is None:
            self._useless_deaths += 1
            if self._useless_deaths > 2 * self.n_workers:
                raise RuntimeError(why)
        else:
            held.deaths += 1
            if held.deaths > 1:
                held.error = RuntimeError(why)
        if self.in_turn:
            self._renew_lane(notice.worker)
        elif held is not None and held.error is None:
            self._lanes[0].put(held.message)
        self._suspect_since = time.monotonic()
        self._start(notice.worker)

    def _renew_lane(self, number: int) -> None:
        """A lane of one worker: everything not done goes into a new one, in order."""
        self._lanes[number].close()
        self._lanes[number] = Lane()
        for task in self._tasks.values():
            if task.lane == number and not task.is_done:
                self._lanes[number].put(task.message)

    def _look_for_lost(self) -> None:
        """A worker may have died between taking a task and saying so."""
        if self._suspect_since is None or self.in_turn or not self._lanes[0].is_empty():
            return
        self._suspect_since = None
        held = {self._board.task(worker) for worker in self._crew.pids}
        for task in self._tasks.values():
            if not task.is_done and task.number not in held:
                self._lanes[0].put(task.message)

    def _look_for_stuck(self, task: Task, begin: float) -> None:
        waited = time.monotonic() - begin
        if waited < self._timeout:
            return
        late = RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        for worker, pid in self._crew.pids.items():
            if self._board.task(worker) == task.number:
                if self._board.seconds(worker) >= self._timeout:
                    if task.deaths or not self._can_retry:
                        task.error = late
                    self._crew.kill(pid)
                return
        # Nobody is at it: workers are stuck before their first task, or stopped.  One that was
        # put back after a death has as long again.
        if waited >= self._timeout * (1 + task.deaths):
            task.error = late


def total(parts: list[Result]) -> tuple[tuple[int, int, int], int]:
    """What a batch cost that came in parts, and its bytes."""
    make, busy, queue = map(sum, zip(*(part.cost for part in parts), strict=True))
    return (make, busy, queue), sum(part.nbytes for part in parts)


def _send_task(sender: socket.socket, message: bytes) -> None:
    if len(message) <= MESSAGE_MAX:
        send(sender, [message], [], socket.MSG_DONTWAIT)
        return
    fd = os.memfd_create("penstock-task", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb") as file:
        file.write(message)
        file.flush()
        send(sender, [b"."], [fd], socket.MSG_DONTWAIT)


def _end(
    crew: Crew,
    receiver: socket.socket,
    lanes: list[Lane],
    reader: Reader,
    board: Board,
    owner: int,
) -> None:
    if os.getpid() != owner:  # a forked child drops what it inherited
        return
    for lane in lanes:
        lane.close()
    receiver.close()
    crew.close()
    reader.close()
    board.close()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.abandon()
    _pools.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
