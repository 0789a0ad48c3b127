"""The parent's view of its processes: one zygote, and the workers it forks.

Everything goes through the zygote: it forks, kills and reaps, so a pid is never another
process's by the time it is used.
"""

import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import time
import weakref
from collections.abc import Iterator
from multiprocessing.context import BaseContext
from typing import Any, NamedTuple

from penstock.workers.job import Job
from penstock.workers.wire import DONT_WAIT, Incoming, pair, send
from penstock.workers.zygote import GRACE_SECONDS, zygote_main


class Notice(NamedTuple):
    """What the zygote reports: a worker "started", "ended" (with its wait status) or
    "failed" to start (with the reason)."""

    what: str
    worker: int
    pid: int
    detail: Any


class Crew:
    """A zygote and its workers.  Ends them when closed; they end when this process does."""

    def __init__(self, job: Job, context: str | BaseContext | None, fds: list[int]) -> None:
        """fds: results' sending end and the board, for all workers."""
        if context is None:
            context = "fork"
        if isinstance(context, str):
            context = multiprocessing.get_context(context)
        _see_off()
        self._control, remote = pair()
        self._incoming = Incoming(self._control)
        self._owner = os.getpid()
        self.is_inherited = False  # through a fork: then it is another process's
        self.pids: dict[int, int] = {}  # of workers that run
        _crews.add(self)
        self._zygote: Any = context.Process(  # type: ignore[attr-defined]
            target=zygote_main,
            args=(remote, job, self._owner),
            name="penstock-zygote",
            daemon=True,
        )
        try:
            with quiet_logging():
                self._zygote.start()
        except BaseException:
            self._control.close()
            raise
        finally:
            remote.close()
        # multiprocessing would terminate it at exit, also from a forked child's exit.
        multiprocessing.process._children.discard(self._zygote)  # type: ignore[attr-defined]
        self.zygote_pid: int = self._zygote.pid
        self._say(("setup",), fds)

    def fileno(self) -> int:
        """Readable when there are notices, or when the zygote is gone."""
        return self._control.fileno()

    def fork(self, worker: int, n_workers: int, tasks: socket.socket) -> None:
        """Ask for a worker that reads from `tasks`; a notice will say how that went."""
        self._say(("fork", worker, n_workers), [tasks.fileno()])

    def kill(self, pid: int) -> None:
        """A worker, also one whose "started" has not been read yet; nothing if it is gone."""
        self._say(("kill", pid), [])

    def _say(self, words: tuple[Any, ...], fds: list[int]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a notice will say
            send(self._control, [pickle.dumps(words)], fds)

    def notices(self) -> list[Notice]:
        """What happened since.  Raises RuntimeError when the zygote is gone."""
        found: list[Notice] = []
        while True:
            try:
                received = self._incoming.receive(DONT_WAIT)
            except BlockingIOError:
                return found
            except ConnectionResetError:
                received = None
            if received is None:
                raise RuntimeError(
                    f"the process that DataLoader workers are forked from (pid {self.zygote_pid})"
                    f" {self._how_zygote_ended()}"
                )
            notice = Notice(*pickle.loads(received[0]))
            if notice.what == "started":
                self.pids[notice.worker] = notice.pid
            elif notice.what == "ended":
                self.pids.pop(notice.worker, None)
            found.append(notice)

    def _how_zygote_ended(self) -> str:
        self._zygote.join(1)
        code = self._zygote.exitcode
        if code is not None and code < 0:
            return f"is killed by signal: {signal_text(-code)}"
        return "exited unexpectedly"

    def close(self) -> None:
        """Let the processes end.  Those that are at work get a moment, then are killed; that
        does not keep the caller, and is looked after until it is done."""
        _crews.discard(self)
        if self.is_inherited or os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._zygote.join(0.05)
        _leaving.append((self._zygote, time.monotonic() + 1.5 * GRACE_SECONDS))
        _see_off()

    def abandon(self) -> None:
        """In a forked child: these are the parent's."""
        self.is_inherited = True
        self._control.close()


@contextlib.contextmanager
def quiet_logging() -> Iterator[None]:
    """Let no thread be writing a log record while this process is forked.

    `logging` renews its own locks in a child, but not those of the files below, which a thread
    that is writing holds: a worker that logs would wait for ever.  Handlers may call each other
    in any order, so a lock that cannot be had soon is let be.
    """
    held = []
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]
        handler = reference()
        if handler is not None and handler.lock and handler.lock.acquire(timeout=0.2):
            held.append(handler.lock)
    try:
        yield
    finally:
        for lock in held:
            lock.release()


def signal_text(number: int) -> str:
    try:
        return signal.strsignal(number) or str(number)
    except ValueError:
        return str(number)


def ending(pid: int, status: int) -> str:
    """How a worker ended, in torch's words."""
    if os.WIFSIGNALED(status):
        return f"DataLoader worker (pid {pid}) is killed by signal: {signal_text(os.WTERMSIG(status))}. "
    return (
        f"DataLoader worker (pid(s) {pid}) exited unexpectedly with code {os.WEXITSTATUS(status)}"
    )


# Zygotes that were told to end and have not yet, and what a fork inherits

_crews: weakref.WeakSet[Crew] = weakref.WeakSet()
_leaving: list[tuple[Any, float]] = []


def _see_off() -> None:
    """Reap the zygotes that are done; kill those that are late."""
    for entry in list(_leaving):
        zygote, latest = entry
        if zygote.exitcode is None and time.monotonic() > latest:
            zygote.kill()
            zygote.join()
        if zygote.exitcode is not None:
            _leaving.remove(entry)
            zygote.close()


def _after_fork_in_child() -> None:
    _leaving.clear()
    for crew in list(_crews):
        crew.abandon()
    _crews.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
