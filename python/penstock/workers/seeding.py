"""How the global generators of Python, NumPy and torch are seeded while a dataset runs.

    ItemSeeding   every item from (seed, epoch, sample, occurrence): the law holds for
                  datasets that draw from global generators, whatever the worker count
    TorchSeeding  base_seed + worker id once a worker, as torch does (batches go to workers
                  in turn, so that the same seeds meet the same items)
    NoSeeding     as forked

Seeding three generators costs more than a small item does, and most datasets never draw.  So
`ItemSeeding` seeds only the generators that were seen to be used.  In the first batch all are
seeded for each item, and which of them moved is written down.  Later the others are left
alone, and looked at once a batch: should one have moved after all, or been loaded only now,
the batch is made again with that one seeded too.  Either way an item sees the same numbers.
"""

import ctypes
import hashlib
import operator
import random
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Seeding:
    """What a worker does with generators."""

    in_turn = False  # whether batch i must go to worker i % n

    def start(self, worker: int) -> int:
        """In a new worker: seed what is seeded once.  Returns WorkerInfo.seed."""
        raise NotImplementedError

    def guard(self, is_inline: bool) -> "Guard":
        """What runs batches in this process; `is_inline`: it is the caller's own."""
        return Guard()


class Reseed(Protocol):
    """Called before an item, and with the batch's key before it is collated."""

    def __call__(self, *key: Any) -> None: ...


Make = Callable[[Reseed | None], Any]  # makes a batch, calling what it is given, if anything


class Guard:
    """Runs batches, one after the other, in one process.  This one leaves generators alone."""

    def run(self, make: Make, epoch: int) -> Any:
        return make(None)

    def apart(self, make: Callable[[], Any]) -> Any:
        """Run what calls seed_once; the caller's own generators are left as they were."""
        return make()

    def seed_once(self, epoch: int, *key: Any) -> None:
        """Seed for a batch of an iterable dataset, which cannot be made again."""


@dataclass(frozen=True)
class NoSeeding(Seeding):
    """Generators stay as they are: num_workers=0 of torch."""

    def start(self, worker: int) -> int:
        return worker


@dataclass(frozen=True)
class TorchSeeding(Seeding):
    """torch's own: Python's and torch's generators get base_seed + worker id, NumPy's a state
    derived from both.  Draw base_seed as torch does, when an epoch's workers are made."""

    base_seed: int
    in_turn = True

    def start(self, worker: int) -> int:
        import torch
        from torch.utils.data._utils.worker import _generate_state

        seed = self.base_seed + worker
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(_generate_state(self.base_seed, worker))
        return seed


@dataclass(frozen=True)
class ItemSeeding(Seeding):
    """Every item's own seed, from (seed, epoch, sample, occurrence)."""

    seed: int = 0

    def start(self, worker: int) -> int:
        # Known states with nothing cached in them, so that a first use is seen.
        for source in sources():
            source.seed(worker)
        return (self.seed + worker) & 0x7FFFFFFFFFFFFFFF

    def guard(self, is_inline: bool) -> Guard:
        return _ItemGuard(self.seed, is_inline)


# Generators


class Source(Protocol):
    """A global generator."""

    def mark(self) -> Any:
        """Differs after any draw."""
        ...

    def is_fresh(self) -> bool:
        """Whether it shows that nobody drew from it since it was loaded."""
        ...

    def seed(self, seed: int) -> None: ...
    def save(self) -> Any: ...
    def restore(self, state: Any) -> None: ...


class _Memory:
    """Where a generator keeps its state.  Reading it there takes a hundredth of the time that
    getstate() and setstate() need to make numbers of it and back."""

    def __init__(self, address: int, size: int) -> None:
        self._address, self._size = address, size

    def read(self) -> bytes:
        return ctypes.string_at(self._address, self._size)

    def write(self, data: bytes) -> None:
        ctypes.memmove(self._address, data, self._size)


class _Python:
    """The module `random`.  Its state is read from the object, where that is as expected."""

    def __init__(self) -> None:
        inner: Any = random._inst  # type: ignore[attr-defined]
        self._inner = inner
        address = id(inner) + object.__basicsize__  # int index; uint32 state[624]
        self._word = ctypes.c_uint64.from_address(address)
        self._memory: _Memory | None = _Memory(address, 4 * 625)
        *words, index = inner.getstate()[1]
        if self._memory.read() != struct.pack("i624I", index, *words):
            self._memory = None

    def is_fresh(self) -> bool:
        return False

    def mark(self) -> Any:
        if self._memory is not None:
            return self._word.value, self._inner.gauss_next
        return self._inner.getstate()

    def seed(self, seed: int) -> None:
        random.seed(seed)

    def save(self) -> Any:
        if self._memory is not None:
            return self._memory.read(), self._inner.gauss_next
        return random.getstate()

    def restore(self, state: Any) -> None:
        if self._memory is not None:
            data, self._inner.gauss_next = state
            self._memory.write(data)
        else:
            random.setstate(state)


class _NumPy:
    """numpy.random's functions; the state is where NumPy says it is, and in the RandomState."""

    def __init__(self) -> None:
        inner: Any = np.random.mtrand._rand  # type: ignore[attr-defined]
        self._bits: Any = None
        self._words: Any = None
        self._memory: tuple[_Memory, ...] = ()
        bits = getattr(inner, "_bit_generator", None)
        cached = _place_of_cached_gaussian()
        if type(bits) is np.random.MT19937 and cached is not None:
            address = bits.ctypes.state_address  # uint32 key[624]; int pos
            self._bits = bits
            self._words = (
                ctypes.c_uint32.from_address(address),
                ctypes.c_int.from_address(address + 624 * 4),
                ctypes.c_int.from_address(id(inner) + cached),
            )
            self._memory = (_Memory(address, 4 * 625), _Memory(id(inner) + cached, 16))

    def is_fresh(self) -> bool:
        return bool(self._words) and self.mark() == [0x80000000, 623, 0]  # as NumPy makes it

    def mark(self) -> Any:
        if self._words:
            return [word.value for word in self._words]
        return repr(np.random.get_state())

    def seed(self, seed: int) -> None:
        np.random.seed((seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))

    def save(self) -> Any:
        if self._memory:
            return [memory.read() for memory in self._memory]
        return np.random.get_state(legacy=False)

    def restore(self, state: Any) -> None:
        if self._memory:
            for memory, data in zip(self._memory, state, strict=True):
                memory.write(data)
        else:
            np.random.set_state(state)


def _place_of_cached_gaussian() -> int | None:
    """Where in a RandomState it says that a gaussian is left over from the draw before: taking
    that one moves nothing else.  Found by looking for one; None: nowhere."""
    probe = np.random.RandomState(0)
    probe.standard_normal()
    raw = ctypes.string_at(id(probe), type(probe).__basicsize__)
    # struct { ...; int has_gauss; double gauss; }
    state: Any = probe.get_state()
    place = raw.find(struct.pack("d", state[4])) - 8
    is_found = place >= 0 and raw[place : place + 4] == struct.pack("i", 1)
    return place if is_found else None


class _Torch:
    """torch's generator of the CPU."""

    def __init__(self, torch: Any) -> None:
        self._generator = torch.default_generator

    def is_fresh(self) -> bool:
        return False

    def mark(self) -> Any:
        state = self._generator.get_state()  # of uint8
        return ctypes.string_at(state.data_ptr(), len(state))

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def save(self) -> Any:
        return self._generator.get_state()

    def restore(self, state: Any) -> None:
        self._generator.set_state(state)


_known: dict[str, Source] = {}


def sources(is_complete: bool = False) -> list[Source]:
    """The generators there are now: those of NumPy and torch only once somebody loaded them,
    or, to be complete, NumPy's too (torch is loaded with whatever uses it)."""
    if "python" not in _known:
        _known["python"] = _Python()
    if "numpy" not in _known and (is_complete or "numpy.random" in sys.modules):
        _known["numpy"] = _NumPy()
    if "torch" not in _known and "torch" in sys.modules:
        torch = sys.modules["torch"]
        if hasattr(torch, "default_generator"):
            _known["torch"] = _Torch(torch)
    return list(_known.values())


# Keys


def mix(seed: int, epoch: int, *key: Any) -> int:
    """64 bits from all of it.  A sample's index may be any object; its text stands for it."""
    words = [seed & 0xFFFFFFFFFFFFFFFF, epoch & 0xFFFFFFFFFFFFFFFF]
    rest = b""
    for part in key:
        try:
            words.append(operator.index(part) & 0xFFFFFFFFFFFFFFFF)
        except TypeError:
            rest += repr(part).encode() + b"\0"
    data = struct.pack(f"<{len(words)}Q", *words) + rest
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class _ItemGuard(Guard):
    """Seeds each item, as far as anybody looks."""

    def __init__(self, seed: int, is_inline: bool) -> None:
        self._seed = seed
        self._is_inline = is_inline
        self._used: list[Source] = []
        self._saved: list[tuple[Source, Any]] = []
        self._is_first = True

    def run(self, make: Make, epoch: int) -> Any:
        is_first, self._is_first = self._is_first, False
        run = self._run_first if is_first else self._run_later
        return self.apart(lambda: run(make, epoch))

    def apart(self, make: Callable[[], Any]) -> Any:
        """Where generators are the caller's own, all of them: which will move is not known."""
        if not self._is_inline:
            return make()
        outer, self._saved = self._saved, [(source, source.save()) for source in sources()]
        try:
            return make()
        finally:
            for source, state in self._saved:
                source.restore(state)
            self._saved = outer

    def seed_once(self, epoch: int, *key: Any) -> None:
        number = mix(self._seed, epoch, *key)
        for source in sources(is_complete=True):
            source.seed(number)

    def _run_first(self, make: Make, epoch: int) -> Any:
        """Seed all, before each item; see which of them were used."""
        every = sources()
        marks: list[Any] = []

        def look() -> None:
            for source, mark in zip(every, marks, strict=bool(marks)):
                if source not in self._used and source.mark() != mark:
                    self._used.append(source)

        def reseed(*key: Any) -> None:
            if marks:
                look()
            self._seed_all(every, epoch, key)
            marks[:] = [source.mark() for source in every]

        try:
            value = make(reseed)
        except Exception:
            if not self._appeared(every):
                raise
        else:
            if not self._appeared(every):
                return value
        finally:
            if marks:
                look()
        self._use(self._appeared(every))
        return self._run_later(make, epoch)

    def _use(self, more: list[Source]) -> None:
        """Seed these from now on; and leave them as they are now, if they are the caller's."""
        self._used += more
        known = [source for source, _ in self._saved]
        if self._is_inline:
            self._saved += [(source, source.save()) for source in more if source not in known]

    def _appeared(self, before: list[Source]) -> list[Source]:
        """Generators loaded since, unless it shows that they have not been used."""
        return [s for s in sources() if s not in before and not s.is_fresh()]

    def _run_later(self, make: Make, epoch: int) -> Any:
        """Seed those that are used; look once at the others."""
        others = [source for source in sources() if source not in self._used]
        marks = [source.mark() for source in others]

        def moved() -> list[Source]:
            still = [s for s, mark in zip(others, marks, strict=True) if s.mark() != mark]
            return still + self._appeared(others + self._used)

        try:
            value = make(self._reseed(epoch))
        except Exception:
            if not moved():
                raise
        else:
            if not moved():
                return value
        self._use(moved())
        return self._run_later(make, epoch)

    def _reseed(self, epoch: int) -> Reseed | None:
        if not self._used:
            return None
        return lambda *key: self._seed_all(self._used, epoch, key)

    def _seed_all(self, chosen: list[Source], epoch: int, key: tuple[Any, ...]) -> None:
        number = mix(self._seed, epoch, *key)
        for source in chosen:
            source.seed(number)
