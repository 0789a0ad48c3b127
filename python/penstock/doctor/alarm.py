"""Ends what the main thread does at a set time, by an exception that is raised there.

A thread keeps the time and sends the main thread a real-time signal, which scripts hardly use:
SIGALRM and its timers stay theirs.  As any signal does, it ends a wait in a system call.  Native
code that does not come back to the interpreter knows nothing of it (a collective operation whose
peer is gone, a disk that does not answer); for that there is `held_up`, which is called in the
alarm's own thread.  Nothing is done about native code that keeps the interpreter's lock as well.
"""

import contextlib
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

SIGNAL = signal.SIGRTMAX - 2
AGAIN_SECONDS = 1.0
LEAST_SECONDS = 0.01  # real-time signals queue up: the main thread has to get somewhere in between


class Alarm:
    """Raises `error` in the main thread, which has to be the one that enters, in `seconds`.

    It may be caught, so it is raised again and again; but what cleans up after one is spared
    `n_spares` times.  After more signals than that without an answer `held_up` is called.
    """

    def __init__(
        self,
        error: type[BaseException],
        seconds: float,
        n_spares: float,
        again_seconds: float,
        held_up: Callable[[], object] | None = None,
    ) -> None:
        self._error, self._again_seconds = error, max(again_seconds, LEAST_SECONDS)
        self._held_up = held_up
        self._n_spares, self._n_spared, self._n_unanswered = n_spares, 0, 0
        self._seconds = seconds
        self._is_over = False
        # New times, and None for the end.  A signal may come in the middle of a put().
        self._news: queue.SimpleQueue[float | None] = queue.SimpleQueue()

    def __enter__(self) -> "Alarm":
        signal.signal(SIGNAL, self._answer)
        self.set(self._seconds)
        self._thread = threading.Thread(
            target=self._keep_time, args=(threading.get_ident(),), name="alarm", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over = True
        self._news.put(None)
        self._thread.join()
        # Not the default, which would end the process: a signal may be on its way.
        signal.signal(SIGNAL, signal.SIG_IGN)

    def set(self, seconds: float) -> None:
        """So long from now, instead of what was set before.  In any thread."""
        self._news.put(time.monotonic() + seconds)

    def _keep_time(self, main: int) -> None:
        at = self._news.get()
        while at is not None:
            try:
                at = self._news.get(timeout=max(0.0, at - time.monotonic()))
            except queue.Empty:
                self._send(main)
                at = time.monotonic() + self._again_seconds

    def _send(self, main: int) -> None:
        if self._held_up is not None and self._n_unanswered > self._n_spares:
            self._held_up()
        self._n_unanswered += 1
        # Again, as one that comes just before a system call does not end it.
        with contextlib.suppress(BlockingIOError):  # so many are on their way already
            signal.pthread_kill(main, SIGNAL)

    def _answer(self, signum: int, frame: FrameType | None) -> None:
        """In the main thread.  What is done here, entering and leaving, is not interrupted."""
        self._n_unanswered = 0
        if self._is_over or _is_ours(frame):
            return
        if isinstance(sys.exc_info()[1], self._error) and self._n_spared < self._n_spares:
            self._n_spared += 1
        else:
            raise self._error


def _is_ours(frame: FrameType | None) -> bool:
    """Does it belong to this file, or was it called from here?"""
    while frame is not None and frame.f_globals is not globals():
        frame = frame.f_back
    return frame is not None
