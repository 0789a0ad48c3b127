"""Large items are copied into their batch early only where nobody can tell the difference."""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils.data import default_collate  # noqa: E402

from penstock.workers import Batch, Job, Workers  # noqa: E402
from penstock.workers.rows import Rows, Slabs, Stacking  # noqa: E402

SIDE = 160  # of a square of floats: 100 KiB


def tensor(index: int) -> torch.Tensor:
    return torch.arange(SIDE * SIDE, dtype=torch.float32).view(SIDE, SIDE) + index


def array(index: int) -> np.ndarray:
    return np.arange(SIDE * SIDE, dtype=np.int64).reshape(SIDE, SIDE) * index


class Makes:
    """A dataset of whatever a function makes of an index."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __getitem__(self, index: int) -> Any:
        return self._make(index)


def stacking() -> Stacking:
    found = Stacking.of(default_collate, Slabs().room)
    assert found is not None
    return found


def collated(make: Callable[[int], Any], n_items: int = 4) -> tuple[Any, Rows]:
    """A batch made with rows, and the rows."""
    how = stacking()
    rows = Rows(how, n_items)
    items = [rows.take(make(index)) for index in range(n_items)]
    return how.collate(items, rows), rows


def assert_same(ours: Any, torchs: Any) -> None:
    assert type(ours) is type(torchs)
    if isinstance(torchs, torch.Tensor):
        assert ours.dtype == torchs.dtype
        assert ours.shape == torchs.shape
        assert ours.stride() == torchs.stride()
        assert torch.equal(ours, torchs)
    elif isinstance(torchs, dict):
        assert list(ours) == list(torchs)
        for key in torchs:
            assert_same(ours[key], torchs[key])
    elif isinstance(torchs, (list, tuple)):
        assert len(ours) == len(torchs)
        for one, other in zip(ours, torchs, strict=True):
            assert_same(one, other)
    else:
        assert ours == torchs


EARLY: dict[str, Callable[[int], Any]] = {
    "tensor": tensor,
    "array": array,
    "pair": lambda i: (tensor(i), i),
    "list": lambda i: [i, array(i), "name"],
    "dictionary": lambda i: {"image": tensor(i), "label": i, "mask": array(i)},
    "bytes": lambda i: (tensor(i) % 251).to(torch.uint8).repeat(4, 1),
    "half": lambda i: tensor(i).to(torch.bfloat16).repeat(2, 1),
    "booleans": lambda i: np.repeat(array(i) % 3 == 0, 4, axis=0),
    "complex": lambda i: torch.complex(tensor(i), tensor(i + 1)),
    "one channel": lambda i: tensor(i).view(1, SIDE, SIDE).clone(),
    "one column": lambda i: tensor(i).view(-1, 1, 1).clone(),
    "nested beside": lambda i: (tensor(i), {"boxes": torch.ones(2), "names": ["a", "b"]}),
}


@pytest.mark.parametrize("make", EARLY.values(), ids=EARLY.keys())
def test_what_only_the_item_holds_is_copied_early_and_comes_out_the_same(make: Any) -> None:
    batch, rows = collated(make)
    assert rows.is_in_use
    assert_same(batch, default_collate([make(index) for index in range(4)]))


def test_the_batch_is_the_memory_that_rows_were_copied_to() -> None:
    how = stacking()
    rows = Rows(how, 2)
    first, second = rows.take(tensor(0)), rows.take(tensor(1))
    batch = how.collate([first, second], rows)
    assert batch.data_ptr() == first.data_ptr()
    assert batch[1].data_ptr() == second.data_ptr()


SHARED = torch.zeros(SIDE, SIDE)
KEPT: list[Any] = []


def one_buffer(index: int) -> torch.Tensor:
    return SHARED.fill_(index)


def one_array(index: int) -> np.ndarray:
    buffer = SHARED.numpy()
    buffer[...] = index
    return buffer


def a_view(index: int) -> torch.Tensor:
    SHARED.fill_(index)
    return SHARED.view(-1)


def one_tuple(index: int) -> Any:
    if not KEPT:
        KEPT.append((torch.zeros(SIDE, SIDE), 0))
    KEPT[0][0].fill_(index)
    return KEPT[0]


def kept_for_later(index: int) -> torch.Tensor:
    """Changes the item before once it is asked for the next."""
    for old in KEPT:
        old.fill_(-1)
    KEPT.append(tensor(index))
    return KEPT[-1]


def a_view_kept_for_later(index: int) -> torch.Tensor:
    for old in KEPT:
        old.fill_(-1)
    item = tensor(index)
    KEPT.append(item.view(-1))
    return item


def weakly_kept(index: int) -> torch.Tensor:
    for old in KEPT:
        if old() is not None:
            old().fill_(-1)
    item = tensor(index)
    KEPT.append(weakref.ref(item))
    return item


def seen_as_an_array(index: int) -> torch.Tensor:
    for old in KEPT:
        old[...] = -1
    item = tensor(index)
    KEPT.append(item.numpy())
    return item


def of_an_array_kept(index: int) -> torch.Tensor:
    for old in KEPT:
        old[...] = -1
    KEPT.append(array(index))
    return torch.from_numpy(KEPT[-1])


def an_array_kept(index: int) -> np.ndarray:
    of_an_array_kept(index)
    return KEPT[-1]


def a_slice_of_an_array_kept(index: int) -> np.ndarray:
    of_an_array_kept(index)
    return KEPT[-1][:]


STORAGE = torch.UntypedStorage(SIDE * SIDE * 4)


def one_storage(index: int) -> torch.Tensor:
    return torch.empty(0).set_(STORAGE, 0, (SIDE, SIDE)).fill_(index)


def a_storage_kept(index: int) -> torch.Tensor:
    for old in KEPT:
        old.fill_(0)
    item = tensor(index)
    KEPT.append(item.untyped_storage())
    return item


ALIASES = [
    one_storage,
    a_storage_kept,
    one_buffer,
    one_array,
    a_view,
    one_tuple,
    kept_for_later,
    a_view_kept_for_later,
]
ALIASES += [weakly_kept, seen_as_an_array, of_an_array_kept, an_array_kept]
ALIASES += [a_slice_of_an_array_kept]


@pytest.mark.parametrize("make", ALIASES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("is_in_a_pair", [False, True])
def test_what_others_can_still_change_is_collated_when_torch_would(
    make: Any, is_in_a_pair: bool
) -> None:
    whole = (lambda i: (make(i), i)) if is_in_a_pair else make
    KEPT.clear()
    batch, rows = collated(whole)
    assert not rows.is_in_use
    KEPT.clear()
    assert_same(batch, default_collate([whole(index) for index in range(4)]))
    KEPT.clear()


LATE: dict[str, Callable[[int], Any]] = {
    "small": lambda i: torch.full((10,), i),
    "gradients": lambda i: tensor(i).requires_grad_().detach().requires_grad_(i < 9),
    "channels last": lambda i: torch.ones(2, 8, 80, 80).contiguous(memory_format=torch.channels_last),
    "transposed": lambda i: tensor(i).t(),
    "not all as large": lambda i: (tensor(i), torch.ones(3)),
    "text": lambda i: "x" * 100_000,
    "parameter": lambda i: torch.nn.Parameter(tensor(i), requires_grad=False),
}  # fmt: skip


@pytest.mark.parametrize("make", LATE.values(), ids=LATE.keys())
def test_what_is_unlike_is_left_to_torch(make: Any) -> None:
    batch, _ = collated(make)
    assert_same(batch, default_collate([make(index) for index in range(4)]))


def shapes_differ(index: int) -> torch.Tensor:
    return tensor(index)[: SIDE - (index == 2)].clone()


def arrays_shapes_differ(index: int) -> np.ndarray:
    return array(index)[: SIDE - (index == 2)].copy()


def objects(index: int) -> np.ndarray:
    return np.full((SIDE, SIDE), "x", dtype=object)


def tensor_then_text(index: int) -> Any:
    return tensor(index) if index < 2 else "text"


def sparse(index: int) -> torch.Tensor:
    return tensor(index).to_sparse()


def dense_and_sparse(index: int) -> Any:
    return tensor(index), sparse(index)


def nested(index: int) -> torch.Tensor:
    return torch.nested.nested_tensor([tensor(index), tensor(index)[:2]])


NO_BATCHES = [shapes_differ, arrays_shapes_differ, objects, tensor_then_text]
NO_BATCHES += [sparse, dense_and_sparse, nested]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("make", NO_BATCHES, ids=lambda make: make.__name__)
def test_what_cannot_be_stacked_fails_as_in_torch(make: Any) -> None:
    with pytest.raises((RuntimeError, TypeError)) as torchs:
        default_collate([make(index) for index in range(4)])
    with pytest.raises(type(torchs.value)) as ours:
        collated(make)
    assert str(ours.value) == str(torchs.value)


def test_kinds_that_differ_are_promoted_as_in_torch() -> None:
    def make(index: int) -> torch.Tensor:
        return tensor(index).to(torch.float64) if index == 2 else tensor(index)

    batch, rows = collated(make)
    assert rows.is_in_use
    assert_same(batch, default_collate([make(index) for index in range(4)]))


@pytest.mark.parametrize("kind", [torch.Tensor, np.ndarray, tuple, list, dict])
def test_another_collation_is_not_gone_round_whenever_it_is_taught(
    kind: type, monkeypatch: Any
) -> None:
    from torch.utils.data._utils import collate

    workers = Workers(Job(Makes(lambda i: (tensor(i), i)), default_collate), 0)
    assert type(next(workers.epoch([Batch([0, 1])]))) is list
    how = stacking()
    taught = {**collate.default_collate_fn_map, kind: lambda batch, **_: len(batch)}
    monkeypatch.setattr(collate, "default_collate_fn_map", taught)
    assert not how.is_in_force()
    found = next(workers.epoch([Batch([0, 1])]))
    assert_same(found, default_collate([(tensor(0), 0), (tensor(1), 1)]))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_may_be_detached_in_place(num_workers: int) -> None:
    workers = Workers(
        Job(Makes(lambda i: (tensor(i), torch.ones(3))), default_collate), num_workers
    )
    for part in next(workers.epoch([Batch([0, 1])])):
        part.detach_()
    workers.close()


@pytest.mark.parametrize("make", [tensor, float])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_batch_sampler_may_name_items_in_any_collection(make: Any, num_workers: int) -> None:
    workers = Workers(Job(Makes(make), default_collate), num_workers)
    batches = [Batch(deque([2, 1, 0])), Batch({3: "", 5: ""}, 1), Batch((4,), 2)]
    for found, indices in zip(workers.epoch(batches), ([2, 1, 0], [3, 5], [4]), strict=True):
        assert_same(found, default_collate([make(index) for index in indices]))
    workers.close()


def test_another_collate_is_not_gone_round() -> None:
    assert Stacking.of(lambda items: items, Slabs().room) is None


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_batches_of_large_items_are_the_same_wherever_they_are_made(num_workers: int) -> None:
    data = Makes(lambda i: {"image": tensor(i), "label": i})
    workers = Workers(Job(data, default_collate), num_workers)
    batches = [Batch([0, 1, 2], 0), Batch([3, 1, 4], 1), Batch([5], 2)]
    for found, batch in zip(workers.epoch(batches), batches, strict=True):
        assert_same(found, default_collate([data[index] for index in batch.indices]))
    workers.close()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_behind_large_items_leaves_the_next_batch_right(num_workers: int) -> None:
    def make(index: int) -> torch.Tensor:
        if index == 2:
            raise KeyError("two")
        return tensor(index)

    workers = Workers(Job(Makes(make), default_collate), num_workers, prefetch_factor=1)
    stream = workers.epoch([Batch([0, 1, 2]), Batch([3, 4], 1), Batch([5, 6], 2)])
    with pytest.raises(KeyError):
        next(stream)
    found = [next(stream), next(stream)]
    for batch, first in zip(found, (3, 5), strict=True):
        assert_same(batch, torch.stack([tensor(first), tensor(first + 1)]))
    workers.close()


# Slabs


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def test_a_slab_is_used_again_when_nobody_looks_into_it() -> None:
    slabs = Slabs()
    room = slabs.room(1 << 20)
    begin = address(room)
    view = torch.from_numpy(room).view(torch.float32)[5:]
    del room
    other = slabs.room(1 << 20)
    assert address(other) != begin
    del view
    assert address(slabs.room(1 << 19)) == begin


def test_a_caller_who_keeps_every_batch_keeps_its_bytes() -> None:
    slabs = Slabs()
    kept = []
    for number in range(50):
        room = slabs.room(4096)
        room[:] = number
        kept.append(room)
        del room
    assert all((room == number).all() for number, room in enumerate(kept))


def test_a_slab_that_is_too_many_is_given_up() -> None:
    slabs = Slabs()
    kept = [slabs.room(4096) for _ in range(4)]
    kept.clear()
    for _ in range(20):
        slabs.room(4096)
    assert len(slabs._slabs) == 1


@pytest.mark.parametrize("n_parts", [1, 2, 5, 12])
@pytest.mark.parametrize("n_kept", [0, 1, 3])
def test_slabs_are_used_again_however_many_parts_an_item_has(n_parts: int, n_kept: int) -> None:
    slabs, kept, seen = Slabs(), [], set()
    for number in range(30):
        batch = [slabs.room(4096) for _ in range(n_parts)]
        if number >= 5:
            seen.update(address(room) for room in batch)
        kept = [*kept, batch][-n_kept:] if n_kept else []
        del batch
    assert len(seen) <= n_parts * (n_kept + 1)


def test_threads_never_get_one_slab_together() -> None:
    slabs = Slabs()
    failures: list[int] = []

    def use(number: int) -> None:
        for _ in range(300):
            room = slabs.room(1024)
            room[:] = number
            if not (room == number).all():
                failures.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
