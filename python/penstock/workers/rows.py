"""Large items copied into their batch as they come, instead of when all of them are there.

default_collate stacks at the end, when a batch's memory is there twice and its first items
have long left the cache.  Copied at once, an item is still in the cache, and its memory serves
the next one.

An item that somebody else still sees may change until the batch is collated: a dataset may
fill one buffer again and again.  So only memory that nobody but the item holds is copied
early, and all else, with every error, is left to torch.
"""

import contextlib
import mmap
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.workers.arena import Bytes

_LARGE = 64 << 10  # bytes of a tensor; what is smaller gains nothing
_PATIENCE = 3  # times that all in use were asked for anew and one was left over: it is given up
_WATCHED = 64  # slabs in use that may come back; a caller who keeps every batch keeps its own

Room = Callable[[int], Bytes]


def _references(item: Any) -> int:
    return sys.getrefcount(item)


def _references_inside(item: Any) -> int:
    for key in range(len(item)):
        inner = item[key]
        return sys.getrefcount(inner)
    return 0


# What the interpreter counts where nobody else holds an item, or what it holds.
_SOLE, _SOLE_INSIDE = _references(object()), _references_inside((object(),))


class Stacking:
    """Collates a job's batches early.  `room` gives the memory they stand in."""

    def __init__(self, torch: Any, module: Any, room: Room) -> None:
        self.torch = torch
        self._module = module
        self.room = room
        self._counts = self._holders(torch.empty(1, device="cpu"))

    @classmethod
    def of(cls, collate: Any, room: Room) -> "Stacking | None":
        """None unless `collate` is torch's own."""
        torch = sys.modules.get("torch")
        module = sys.modules.get("torch.utils.data._utils.collate")
        if torch is None or module is None or collate is not module.default_collate:
            return None
        try:
            return cls(torch, module, room)
        except AttributeError:  # a torch that does not tell who holds a tensor
            return None

    def is_in_force(self) -> bool:
        """Unless somebody taught default_collate other ways with what is looked at here."""
        taught = self._module.default_collate_fn_map
        stack = taught.get(self.torch.Tensor)
        if stack is not self._module.collate_tensor_fn and not hasattr(stack, "is_penstocks"):
            return False
        if taught.get(np.ndarray) is not self._module.collate_numpy_array_fn:
            return False
        return not any(kind in taught for kind in (tuple, list, dict))

    def is_sole(self, leaf: Any) -> bool:
        """Whether nobody sees this memory but who holds `leaf`; and it is stacked as it is."""
        if weakref.getweakrefcount(leaf):
            return False
        if type(leaf) is np.ndarray:
            is_own = leaf.nbytes >= _LARGE and leaf.flags.owndata and leaf.flags.c_contiguous
            return is_own and leaf.dtype.kind in "biuf" and leaf.dtype.isnative
        if leaf.is_nested or leaf.layout is not self.torch.strided or leaf.nbytes < _LARGE:
            return False
        if leaf.device.type != "cpu" or leaf.requires_grad or leaf.is_quantized or leaf.__dict__:
            return False
        if leaf.is_conj() or leaf.is_neg() or not leaf.is_contiguous():
            return False
        return self._holders(leaf) == self._counts

    def _holders(self, tensor: Any) -> tuple[Any, ...]:
        storage = tensor.untyped_storage()
        holders = self.torch._C._storage_Use_Count(storage._cdata)
        seen = sys.getrefcount(storage)  # one wrapper a storage: a dataset may keep it
        return tensor._use_count(), holders, seen, storage.resizable(), storage.is_shared()

    def collate(self, items: list[Any], rows: "Rows") -> Any:
        functions = dict(self._module.default_collate_fn_map)
        stack = functions[self.torch.Tensor]

        def stack_rest(batch: Any, *, collate_fn_map: Any = None) -> Any:
            done = rows.whole(batch)
            return stack(batch, collate_fn_map=collate_fn_map) if done is None else done

        functions[self.torch.Tensor] = stack_rest
        return self._module.collate(items, collate_fn_map=functions)


class Rows:
    """One batch under way.  Items go through take(), in order."""

    def __init__(self, stacking: Stacking, n_items: int) -> None:
        self._stacking = stacking
        self._n_items = n_items
        self._place = -1  # of the item being taken
        self._rows: dict[Any, Any] = {}  # by the place in an item
        self._batches: dict[int, Any] = {}  # the tensors of all rows, by address

    @property
    def is_in_use(self) -> bool:
        """After the first item: whether the others are worth looking at."""
        return bool(self._rows)

    def take(self, item: Any) -> Any:
        """The item, or one like it whose large parts stand in the batch.  Nobody but the caller's
        call may hold it."""
        self._place += 1
        kind = type(item)
        if sys.getrefcount(item) > _SOLE:
            return item
        if kind is not tuple and kind is not list and kind is not dict:
            row = self._copy(None, item)
            return item if row is None else row
        rows = {}
        for key in item if kind is dict else range(len(item)):
            inner = item[key]
            if sys.getrefcount(inner) <= _SOLE_INSIDE:
                row = self._copy(key, inner)
                if row is not None:
                    rows[key] = row
        if not rows:
            return item
        if kind is dict:
            return {**item, **rows}
        return kind(rows.get(key, inner) for key, inner in enumerate(item))

    def _copy(self, key: Any, leaf: Any) -> Any:
        """`leaf` in its row of the batch; None: it stays where it is."""
        is_array = type(leaf) is np.ndarray
        if not is_array and type(leaf) is not self._stacking.torch.Tensor:
            return None
        if (self._place and key not in self._rows) or not self._stacking.is_sole(leaf):
            return None
        if self._place == 0 and not self._begin(key, leaf):
            return None
        row = self._rows[key][self._place]
        if type(row) is not type(leaf) or row.shape != leaf.shape or row.dtype != leaf.dtype:
            return None
        if is_array:
            row[...] = leaf
        else:
            row.copy_(leaf)
        return row

    def _begin(self, key: Any, leaf: Any) -> bool:
        torch = self._stacking.torch
        try:
            like = torch.from_numpy(np.empty(0, leaf.dtype)) if type(leaf) is np.ndarray else leaf
        except TypeError:  # torch has no such numbers
            return False
        room = self._stacking.room(leaf.nbytes * self._n_items)
        batch = torch.from_numpy(room).view(like.dtype).view(self._n_items, *leaf.shape).detach()
        self._batches[batch.data_ptr()] = batch
        # All at once: made one by one they would stand where the item before them stood, and
        # the next would not fit there.
        self._rows[key] = batch.unbind() if like is leaf else list(batch.numpy())
        return True

    def whole(self, tensors: Any) -> Any:
        """The batch whose rows these are, all of them; None: there is none."""
        torch = self._stacking.torch
        for tensor in tensors:
            if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
                return None
            if tensor.is_nested:
                return None
        batch = self._batches.get(tensors[0].data_ptr())
        if batch is None or len(tensors) != len(batch):
            return None
        begin, step = batch.data_ptr(), batch[0].nbytes
        for number, tensor in enumerate(tensors):
            if tensor.data_ptr() != begin + number * step or tensor.shape != batch.shape[1:]:
                return None
            if tensor.dtype is not batch.dtype or not tensor.is_contiguous():
                return None
        return batch


class Slabs:
    """Memory for batches made in the caller's own process, used again when the last array that
    looks into it is gone: fresh pages would cost more than what is written to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_new = True
        self._slabs: list[tuple[mmap.mmap, Callable[[], Bytes | None]]] = []
        self._spared = 0  # rooms in a row that left a slab over

    def room(self, size: int) -> Bytes:
        with self._lock:
            free = [memory for memory, array in self._slabs if array() is None]
            busy = [(memory, array) for memory, array in self._slabs if array() is not None]
            found = min((memory for memory in free if len(memory) >= size), key=len, default=None)
            if found is None:
                self._is_new = self._is_new and _let_the_heap_keep_items()
                free, found = [], _pages(size)
            else:
                free.remove(found)
            self._spared = self._spared + 1 if free else 0
            if self._spared >= _PATIENCE * (1 + len(busy)):
                self._spared = 0
                free.pop()
            array = np.frombuffer(found, np.uint8)
            self._slabs = [*busy[1 - _WATCHED :], (found, weakref.ref(array))]
            self._slabs += [(memory, _nobody) for memory in free]
            return array[:size]


def _pages(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(AttributeError, OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)  # a batch is written and read once, from end to end
    return memory


def _let_the_heap_keep_items() -> bool:
    """glibc gives free memory at the heap's end back to the kernel where it is more than twice
    the largest block, up to 32 MiB, that was ever freed.  Batches do not come from the heap here,
    so only items were, and each would find its pages gone.  Freeing a large block, untouched, is
    all it takes."""
    np.empty((32 << 20) - (64 << 10), np.uint8)
    return False


def _nobody() -> None:
    return None
