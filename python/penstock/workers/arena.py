"""Memory that a worker writes and the parent's arrays look into.

A worker puts the arrays of a result into an arena: a memfd, mapped by the worker that made it
and by the parent.  The descriptor crosses once, then both ends close it, so an arena costs a
mapping and no descriptor.  The parent's arrays are views of the mapping.  When the last of
them dies, the parent writes one byte at the arena's beginning, and the worker may fill it
again: pages stay warm on both sides, and nothing is sent.

Invariants:
  1. A worker writes into an arena only between taking it (FREE -> TAKEN) and sending it.
  2. TAKEN becomes FREE or DROPPED only when no array of the parent looks into it.
  3. A worker takes back an arena only when its own arrays over it are gone too: a dataset may
     keep a batch it returned.
  4. An arena that anybody might look into through a fork is never filled again.
"""

import ctypes
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

FREE, TAKEN, DROPPED = 0, 1, 2
HEADER = 64  # the state is the first byte; arrays begin on a cache line
ALIGN = 64
INLINE_MAX = 8 << 10  # a result's small arrays travel in its message
PATIENCE = 3  # results; making an arena costs as much as filling a few
LIVE_MAX = 512  # arenas that a user may hold; what comes on top is copied out

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A shared mapping of a whole memfd.  Unlike mmap.mmap it keeps no descriptor."""

    def __init__(self, fd: int, size: int) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        address = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, 0)
        if address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        self.address: int = address
        self.size = size
        self._state = ctypes.c_ubyte.from_address(address)

    @property
    def state(self) -> int:
        return self._state.value

    @state.setter
    def state(self, state: int) -> None:
        self._state.value = state

    def array(self) -> Bytes:
        """All of it.  Arrays made from this one keep it, and nothing else, alive."""
        memory: Any = (ctypes.c_ubyte * self.size).from_address(self.address)
        return np.frombuffer(memory, np.uint8)

    def close(self) -> None:
        """Unmap; nobody looks into it any more."""
        if self.address:
            _libc.munmap(self.address, self.size)
            self.address = 0


def _round_up(size: int) -> int:
    """To a page, or a 32nd of its own magnitude: batches of nearly one size share arenas."""
    step = max(mmap.PAGESIZE, 1 << max(size.bit_length() - 6, 0))
    return -(-size // step) * step


class _Owned:
    """An arena as its worker sees it."""

    def __init__(self, number: int, size: int) -> None:
        fd = os.memfd_create("penstock", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, size)  # no memory: an error now, not SIGBUS later
            self.mapping = Mapping(fd, size)
        except BaseException:
            os.close(fd)
            raise
        self.number = number
        self.size = size
        self.fd = fd  # until it is sent
        self.kept: weakref.ref[Bytes] | None = None

    def is_free(self) -> bool:
        return self.mapping.state == FREE and (self.kept is None or self.kept() is None)

    def take(self) -> Bytes:
        self.mapping.state = TAKEN
        array = self.mapping.array()
        self.kept = weakref.ref(array)
        return array

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        if self.kept is None or self.kept() is None:
            self.mapping.close()


class Segment:
    """A stretch of memory that a result's arrays are placed in, one behind the other."""

    def __init__(self, array: Bytes, used: int) -> None:
        self.array = array
        self.used = used
        self.address: int = array.__array_interface__["data"][0]

    def place(self, size: int) -> Bytes | None:
        start = -(-self.used // ALIGN) * ALIGN
        if start + size > len(self.array):
            return None
        self.used = start + size
        return self.array[start : self.used]


class Writer:
    """A worker's arenas, and where the arrays of the result being made are placed.

    Segment 0 of a result travels in its message, the others are arenas.  Where no arena can be
    had (descriptors, memory), plain memory takes its place and travels in parts.
    """

    def __init__(self) -> None:
        self._arenas: list[_Owned] = []
        self._count = 0
        self._usual = 0  # bytes of recent results
        self._inline: Segment | None = None
        self._segments: list[Segment] = []
        self._taken: list[_Owned | None] = []
        self.dropped: list[int] = []  # arenas the parent may unmap
        self._spared = 0  # results in a row that left a free arena over
        self.is_plain = False  # whether the parent cannot receive arenas

    def place(self, size: int) -> Bytes:
        """Room for an array of the result being made."""
        if size <= INLINE_MAX:
            if self._inline is None:
                self._inline = Segment(np.empty(INLINE_MAX, np.uint8), 0)
            if (found := self._inline.place(size)) is not None:
                return found
        if self._segments and (found := self._segments[-1].place(size)) is not None:
            return found
        self._open(max(HEADER + size, self._usual))
        found = self._segments[-1].place(size)
        assert found is not None
        return found

    def locate(self, array: Bytes) -> tuple[int, int] | None:
        """(segment, offset) of memory that was placed; None for any other."""
        address = array.__array_interface__["data"][0]
        for number, segment in self._all():
            offset = address - segment.address
            if offset >= 0 and offset + len(array) <= segment.used:
                return number, offset
        return None

    def _all(self) -> Iterator[tuple[int, Segment]]:
        if self._inline is not None:
            yield 0, self._inline
        yield from enumerate(self._segments, 1)

    def finish(self) -> tuple[Bytes, list[Segment], list[_Owned | None]]:
        """The inline bytes, the other segments and their arenas; then begin a new result."""
        inline = self._inline.array[: self._inline.used] if self._inline else np.empty(0, np.uint8)
        segments, taken = self._segments, self._taken
        total = HEADER + sum(segment.used + ALIGN for segment in segments) if segments else 0
        self._usual = max(total, self._usual - self._usual // 16)
        self._inline, self._segments, self._taken = None, [], []
        return inline, segments, taken

    def abandon(self) -> None:
        """Forget what was placed: the result was not finished."""
        for arena in self._taken:
            if arena is not None:
                arena.mapping.state = FREE
        self._inline, self._segments, self._taken = None, [], []

    def _open(self, size: int) -> None:
        try:
            arena = None if self.is_plain else self._find(size) or self._make(size)
        except OSError:
            arena = None
        if arena is None:
            self._segments.append(Segment(np.empty(size, np.uint8), 0))
            self._taken.append(None)
        else:
            self._segments.append(Segment(arena.take(), HEADER))
            self._taken.append(arena)

    def _find(self, size: int) -> _Owned | None:
        """A free arena that is large enough.  Those too small are given up; one that was left
        over many times is too."""
        found, spare = None, None
        for arena in list(self._arenas):
            if arena.mapping.state == DROPPED:
                self._give_up(arena)
            elif arena.is_free() and arena.size < size:
                self.dropped.append(arena.number)
                self._give_up(arena)
            elif arena.is_free():
                found, spare = (arena, spare) if found is None else (found, arena)
        self._spared = 0 if spare is None else self._spared + 1
        if spare is not None and self._spared >= PATIENCE:
            self._spared = 0
            self.dropped.append(spare.number)
            self._give_up(spare)
        return found

    def _give_up(self, arena: _Owned) -> None:
        self._arenas.remove(arena)
        arena.close()

    def _make(self, size: int) -> _Owned:
        arena = _Owned(self._count, _round_up(size))
        self._count += 1
        self._arenas.append(arena)
        return arena


class Seen:
    """An arena as the parent sees it."""

    def __init__(self, key: tuple[int, int], mapping: Mapping) -> None:
        self.key = key
        self.mapping = mapping
        self.is_live = False  # a result stands in it, not yet taken or still looked at
        self.is_last = False  # not to be filled again after this
        self.watch: weakref.ref[Bytes] | None = None


class Reader:
    """The parent's mappings of all workers' arenas."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], Seen] = {}  # by (worker's pid, arena's number)
        self._live: set[Seen] = set()
        self._pid = os.getpid()
        self.keep = 4  # arenas worth keeping beside those that are looked at
        _readers.add(self)

    @property
    def nbytes(self) -> int:
        """Of all that is mapped, or still looked at after its worker went."""
        mapped = {
            id(seen): seen.mapping for seen in [*self._seen.copy().values(), *self._live.copy()]
        }
        return sum(mapping.size for mapping in mapped.values())

    def add(self, pid: int, number: int, fd: int, size: int) -> None:
        """Map an arena that a worker made.  The descriptor stays the caller's."""
        self._seen[pid, number] = Seen((pid, number), Mapping(fd, size))

    def drop(self, pid: int, number: int) -> None:
        """The worker gave it up; nothing looks into it, or it would not have."""
        seen = self._seen.pop((pid, number), None)
        if seen is not None and not seen.is_live:
            seen.mapping.close()

    def forget(self, pid: int) -> None:
        """A worker is gone.  What is still looked at lives as long as that."""
        for key in [key for key in list(self._seen) if key[0] == pid]:
            seen = self._seen.pop(key, None)
            if seen is None:  # given back meanwhile: arrays may die at any moment
                continue
            seen.is_last = True
            if not seen.is_live:
                seen.mapping.close()

    def hold(self, pid: int, number: int) -> Seen:
        """A result arrived in it, which outlives its worker."""
        seen = self._seen[pid, number]
        seen.is_live = True
        return seen

    def open(self, seen: Seen, used: int) -> Bytes:
        """An array over a result's arena; its death, and that of all its views, is watched."""
        if len(self._live) >= LIVE_MAX:  # a user who keeps every batch: keep mappings few
            copy = seen.mapping.array()[:used].copy()
            self.give_back(seen)
            return copy
        array = seen.mapping.array()
        seen.watch = weakref.ref(array, self._closer(seen))
        self._live.add(seen)
        return array

    def _closer(self, seen: Seen) -> Callable[[object], None]:
        # Runs wherever the last view dies: in any thread, in a collection, after the pool is
        # closed, or in a forked child, where it must not touch what the parent still sees.
        pid, live, give_back = self._pid, self._live, self.give_back

        def closed(_: object) -> None:
            if os.getpid() == pid:
                live.discard(seen)
                give_back(seen)

        return closed

    def give_back(self, seen: Seen) -> None:
        """Nothing looks into it: its worker may fill it again."""
        seen.is_live = False
        if seen.is_last or len(self._seen) - len(self._live) > self.keep:
            self._seen.pop(seen.key, None)
            seen.mapping.state = DROPPED
            seen.mapping.close()
        else:
            seen.mapping.state = FREE

    def before_fork(self) -> None:
        for seen in self._live.copy():
            seen.is_last = True

    def close(self) -> None:
        for pid in {pid for pid, _ in list(self._seen)}:
            self.forget(pid)


_readers: weakref.WeakSet[Reader] = weakref.WeakSet()


def _before_fork() -> None:
    """What is looked at now will be looked at by the child as well, for nobody knows how long."""
    for reader in list(_readers):
        reader.before_fork()


os.register_at_fork(before=_before_fork)
