"""A page that the parent and its workers share: who does what, and since when.

A worker takes a task from a socket that others read too, so nobody else can know which one it
has: it writes that here, and there it is found when the worker dies.  Also here: from which
task on anybody is still waiting, so that work nobody wants is skipped.
"""

import mmap
import os
import time

WORKERS_MAX = 256
NOTHING = -1
_FLOOR, _PLAIN, _FIRST, _EACH = 0, 1, 8, 4
_SIZE = (_FIRST + _EACH * WORKERS_MAX) * 8


def create_board() -> int:
    """A descriptor of a new, empty board."""
    fd = os.memfd_create("penstock-board", os.MFD_CLOEXEC)
    os.ftruncate(fd, _SIZE)
    return fd


class Board:
    """Words of a shared mapping; each has one writer."""

    def __init__(self, fd: int) -> None:
        """Of a descriptor made by create_board, which stays the caller's."""
        self._map = mmap.mmap(fd, _SIZE)
        self._words = memoryview(self._map).cast("q")

    def close(self) -> None:
        self._words.release()
        self._map.close()

    # Written by the parent

    @property
    def floor(self) -> int:
        """Tasks before this one are not waited for."""
        return self._words[_FLOOR]

    @floor.setter
    def floor(self, task: int) -> None:
        self._words[_FLOOR] = task

    @property
    def is_plain(self) -> bool:
        """Whether arenas cannot be received, and results come in parts."""
        return bool(self._words[_PLAIN])

    @is_plain.setter
    def is_plain(self, value: bool) -> None:
        self._words[_PLAIN] = value

    def clear(self, worker: int) -> None:
        """Before a worker is made."""
        self._words[_FIRST + _EACH * worker] = NOTHING

    # Written by a worker

    def begin(self, worker: int, task: int) -> None:
        self._words[_FIRST + _EACH * worker + 1] = time.monotonic_ns()
        self._words[_FIRST + _EACH * worker] = task

    def end(self, worker: int) -> None:
        self._words[_FIRST + _EACH * worker] = NOTHING

    # Read by the parent

    def task(self, worker: int) -> int:
        """What a worker is at, or died at; NOTHING if nothing."""
        return self._words[_FIRST + _EACH * worker]

    def seconds(self, worker: int) -> float:
        """How long it has been at that."""
        return (time.monotonic_ns() - self._words[_FIRST + _EACH * worker + 1]) * 1e-9
