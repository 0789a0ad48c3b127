"""The process that workers are forked from.

It is made when an epoch's (or persistent workers') life begins, has one thread for ever, and
does nothing but fork, wait and report.  So workers can be added at any time, however many
threads, locks and CUDA contexts the parent has by then: what they inherit is this quiet
process.

How it all ends: the zygote's workers are killed when it dies (PR_SET_PDEATHSIG); the zygote
ends when its parent closes the connection, and when its parent dies, which it sees on a pidfd:
the end of a connection would not do, as any process forked in between holds it open.
"""

import contextlib
import gc
import io
import multiprocessing
import os
import pickle
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from penstock.workers.board import Board
from penstock.workers.job import Job
from penstock.workers.loop import Place, Worker, die_with
from penstock.workers.wire import Incoming, send

GRACE_SECONDS = 1.0  # for a batch under way when the pool is closed
_TICK_SECONDS = 0.1  # where the kernel has no pidfds


def zygote_main(control: socket.socket, job: Job, parent: int) -> None:
    """The zygote's life.  Returns when there is nothing left to look after."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    # A collection in a worker would copy every page it marks: of the 170,000 objects that come with
    # torch, for 74 to 87 ms.  So it takes 0.2 ms.
    gc.freeze()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):  # closed, or without a buffer
            _renew(stream)
    zygote = Zygote(control, job, parent)
    zygote.run()
    zygote.close()


_locked: list[io.BufferedWriter] = []  # kept: as they end they would wait for their locks


def _renew(stream: Any) -> None:
    """Give a stream a new buffer: a thread of the parent that was printing when it forked holds the
    lock of the old one, here for ever.  In place, as loggers keep the stream; what lay in the buffer is
    the parent's to write."""
    if type(stream) is not io.TextIOWrapper or type(stream.buffer) is not io.BufferedWriter:
        return  # somebody else's, or unbuffered: it has no lock
    _locked.append(stream.buffer)
    stream.__init__(  # type: ignore[misc]
        io.BufferedWriter(stream.buffer.raw),
        encoding=stream.encoding,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class Zygote:
    """Forks on request, reaps, reports."""

    def __init__(self, control: socket.socket, job: Job, parent: int) -> None:
        self._control = control
        self._incoming = Incoming(control)
        self._job = job
        self._parent = parent
        self._parent_fd = _pidfd(parent)
        self._pids: dict[int, int] = {}  # worker -> pid
        self._fds: dict[int, int | None] = {}  # worker -> pidfd
        self._results: socket.socket | None = None
        self._board: Board | None = None

    def run(self) -> None:
        is_open = True
        while is_open and self._parent_lives():
            ready = self._wait([self._control.fileno()])
            self._reap()
            if self._control.fileno() in ready:
                is_open = self._obey()
        if self._parent_lives():
            self._let_finish()
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            os.waitpid(pid, 0)

    def close(self) -> None:
        self._control.close()
        if self._results is not None:
            self._results.close()

    def _wait(self, others: Sequence[int] = (), seconds: float | None = None) -> set[int]:
        """Until the parent or a worker ends, or something is in `others`: which fds have it."""
        poll = select.poll()
        watched = self._watched()
        for fd in (*others, *watched):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        if None in watched:
            seconds = _TICK_SECONDS if seconds is None else min(seconds, _TICK_SECONDS)
        return {fd for fd, _ in poll.poll(None if seconds is None else 1000 * seconds)}

    def _watched(self) -> list[int | None]:
        return [self._parent_fd, *self._fds.values()]

    def _parent_lives(self) -> bool:
        if self._parent_fd is not None:
            poll = select.poll()
            poll.register(self._parent_fd, select.POLLIN)
            return not poll.poll(0)
        with contextlib.suppress(PermissionError):
            try:
                os.kill(self._parent, 0)
            except ProcessLookupError:
                return False
        return True

    def _reap(self) -> None:
        for worker, pid in list(self._pids.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._pids[worker]
                fd = self._fds.pop(worker)
                if fd is not None:
                    os.close(fd)
                self._say("ended", worker, pid, status)

    def _say(self, *words: Any) -> None:
        with contextlib.suppress(OSError):
            send(self._control, [pickle.dumps(words)], [])

    def _obey(self) -> bool:
        """Do what the parent says.  False: it has closed the connection."""
        try:
            received = self._incoming.receive()
        except OSError:
            return False
        if received is None:
            return False
        message, fds, are_lost = received
        what, *rest = pickle.loads(message)
        if what == "setup":
            self._results = socket.socket(fileno=fds[0])
            self._board = Board(fds[1])
            os.close(fds[1])
        elif what == "fork":
            worker, n_workers = rest
            self._fork(worker, n_workers, fds, are_lost)
        elif what == "kill" and rest[0] in self._pids.values():  # not reaped: still its own
            os.kill(rest[0], signal.SIGKILL)
        return True

    def _fork(self, worker: int, n_workers: int, fds: list[int], are_lost: bool) -> None:
        if are_lost:
            self._say("failed", worker, 0, "too many open files")
            return
        tasks = socket.socket(fileno=fds[0])
        zygote = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._say("failed", worker, 0, str(error))
            tasks.close()
            return
        if pid == 0:
            self._be_worker(zygote, worker, n_workers, tasks)
        tasks.close()
        self._pids[worker] = pid
        self._fds[worker] = _pidfd(pid)
        self._say("started", worker, pid, 0)

    def _be_worker(self, zygote: int, worker: int, n_workers: int, tasks: socket.socket) -> None:
        """In the forked process; does not return."""
        code = 1
        try:
            die_with(zygote)
            self._close_own()
            assert self._results is not None
            assert self._board is not None
            place = Place(worker, n_workers, tasks, self._results, self._board)
            life = Worker(self._job, place)
            # multiprocessing's own way into a child: what registered itself to be renewed
            # after a fork is, and current_process() answers as it does in torch's workers.
            process = multiprocessing.Process(
                target=life.run, name=f"penstock-worker-{worker}", daemon=True
            )
            code = process._bootstrap()  # type: ignore[attr-defined]
        finally:
            os._exit(code)

    def _close_own(self) -> None:
        """A worker needs nothing of the zygote's but results and board."""
        self._control.close()
        for fd in self._watched():
            if fd is not None:
                os.close(fd)

    def _let_finish(self) -> None:
        """Workers end by themselves when their tasks do; those at work get a moment."""
        end = time.monotonic() + GRACE_SECONDS
        for step in (0, signal.SIGTERM):
            if step:
                for pid in self._pids.values():
                    os.kill(pid, step)
                end = time.monotonic() + GRACE_SECONDS / 4
            while self._pids and self._parent_lives() and (left := end - time.monotonic()) > 0:
                self._wait(seconds=left)
                self._reap()


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
