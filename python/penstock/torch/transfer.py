"""Batches to a device, a few ahead of the network, from memory that cannot change meanwhile.

    for images, labels in prefetch_to_device(loader, "cuda"):
        ...

Copies run on a stream of their own while the network computes.  Three rules keep them right:

 1  A batch is held until its copy has finished: its memory goes back to the loader's pool,
    to be written to again, when the last tensor over it is dropped, and not before.
 2  Who takes a batch waits for its copy on the device, not on the host.
 3  A tensor on the device, made on one stream and used on another, is not given back to the
    allocator before the second is done with it.

`Prefetcher` has the rules and is tested on any machine with copiers that are late on purpose.
`CudaCopier` is the part that needs a GPU; it has not been run on one yet.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only


class Copy(Protocol):
    """A copy under way."""

    batch: Any
    """What it becomes on the device."""

    def is_done(self) -> bool:
        """Whether the source is no longer read."""

    def wait(self) -> None:
        """Until it is done, on the host."""

    def take(self) -> Any:
        """The batch, safe to use from now on by whoever asks."""


Copier = Callable[[Any], Copy]
"""Begins to copy a batch.  Does not hold it: that is the prefetcher's task."""


class Prefetcher:
    """A loader's batches, `depth` of them copied ahead.  Iterate it as the loader.

    state_dict() says where the *batches taken from here* stand; the loader's own would count
    those that wait as well.
    """

    def __init__(self, loader: Iterable[Any], copier: Copier, depth: int = 2) -> None:
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, not {depth!r}")
        self.loader = loader
        self._copier = copier
        self._depth = depth
        self._state: dict[str, Any] | None = None

    def __iter__(self) -> "Prefetched":
        self._state = None
        return Prefetched(self, iter(self.loader), self._copier, self._depth)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def state_dict(self) -> dict[str, Any]:
        """For the loader's load_state_dict."""
        return self._state or self.loader.state_dict()  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state = None
        self.loader.load_state_dict(state)  # type: ignore[attr-defined]


class Prefetched:
    """One epoch."""

    def __init__(
        self, owner: Prefetcher, source: Iterator[Any], copier: Copier, depth: int
    ) -> None:
        self._owner = owner
        self._source: Iterator[Any] | None = source
        self._copier = copier
        self._depth = depth
        self._ready: deque[tuple[Copy, Any]] = deque()  # and the loader's state after each
        self._held: deque[tuple[Copy, Any]] = deque()  # and the memory that it reads

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._fill()
        if not self._ready:
            self._owner._state = None
            raise StopIteration
        copy, self._owner._state = self._ready.popleft()
        return copy.take()

    def _fill(self) -> None:
        while self._source is not None and len(self._ready) < self._depth:
            self._release()
            try:
                batch = next(self._source)
            except StopIteration:
                self._source = None
                return
            copy = self._copier(batch)
            self._held.append((copy, batch))
            self._ready.append((copy, self._state()))

    def _release(self) -> None:
        """Copies on one stream finish in the order in which they began."""
        while self._held and self._held[0][0].is_done():
            self._held.popleft()

    def __del__(self) -> None:
        """Left early, or at the end with copies under way: they read memory that we hold."""
        for copy, _ in self._held:
            copy.wait()

    def _state(self) -> Any:
        loader = self._owner.loader
        return loader.state_dict() if hasattr(loader, "state_dict") else None


def prefetch_to_device(
    loader: Iterable[Any], device: torch.device | str, depth: int = 2
) -> Prefetcher:
    """Let a loader's batches be on a device, `depth` of them copied ahead of their use.

    On the CPU there is nothing to copy: batches are only asked for ahead.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return Prefetcher(loader, NoCopy, depth)
    if device.type != "cuda":
        raise ValueError(f"device must be a 'cuda' device or 'cpu', not {str(device)!r}")
    return Prefetcher(loader, CudaCopier(device), depth)


class NoCopy:
    """The batch itself, where it is."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def is_done(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def take(self) -> Any:
        return self.batch


class CudaCopier:
    """Copies on a stream of its own, by way of pinned memory of torch's allocator, which knows
    the copies that read it.  Only from pinned memory are copies asynchronous."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def __call__(self, batch: Any) -> "CudaCopy":
        with torch.cuda.stream(self._stream):
            moved = tree_map_only(Tensor, self._move, batch)
            done = torch.cuda.Event()
            done.record(self._stream)
        return CudaCopy(moved, done)

    def _move(self, tensor: Tensor) -> Tensor:
        if not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(self._device, non_blocking=True)


class CudaCopy:
    def __init__(self, batch: Any, done: "torch.cuda.Event") -> None:
        self.batch = batch
        self._done = done

    def is_done(self) -> bool:
        return self._done.query()

    def wait(self) -> None:
        self._done.synchronize()

    def take(self) -> Any:
        stream = torch.cuda.current_stream()
        stream.wait_event(self._done)
        tree_map_only(Tensor, lambda tensor: tensor.record_stream(stream), self.batch)
        return self.batch
