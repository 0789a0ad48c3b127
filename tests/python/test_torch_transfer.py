"""penstock.torch.prefetch_to_device: batches ahead, and memory that stays while it is read."""

import ctypes
import gc

import pytest

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")
from penstock.torch.transfer import NoCopy, Prefetcher  # noqa: E402

WANTED_DEPTH = 2


def make(folder, ops, **options):
    settings = {"batch_size": 2, "shuffle": True, "seed": 5, "num_workers": 2} | options
    return ptorch.DataLoader(folder, transform=ops, **settings)


class LateCopy:
    """Reads its source through an address, as a device does: it keeps nothing alive."""

    def __init__(self, batch):
        images = batch[0]
        self.address, self.n_bytes = images.data_ptr(), images.numel() * images.element_size()
        self.batch = torch.empty_like(images)
        self.is_finished = False

    def finish(self):
        ctypes.memmove(self.batch.data_ptr(), self.address, self.n_bytes)
        self.is_finished = True

    def is_done(self):
        return self.is_finished

    def wait(self):
        if not self.is_finished:
            self.finish()

    def take(self):
        return self


def test_a_late_copy_reads_what_was_in_the_batch(folder, ops):
    """No copy finishes before the loader has gone on to the end of its epoch."""
    wanted = [images.clone() for images, _ in make(folder, ops)]
    iterator = iter(Prefetcher(make(folder, ops), LateCopy, WANTED_DEPTH))
    copies = list(iterator)
    gc.collect()
    assert len(copies) == len(wanted)
    for copy in copies:
        copy.finish()
    assert all(torch.equal(copy.batch, images) for copy, images in zip(copies, wanted, strict=True))


def test_leaving_early_waits_for_the_copies_under_way(folder, ops):
    wanted = [images.clone() for images, _ in make(folder, ops)]
    loader = make(folder, ops)
    iterator = iter(Prefetcher(loader, LateCopy, WANTED_DEPTH))
    copies = [next(iterator) for _ in range(3)]
    del iterator
    assert all(copy.is_finished for copy in copies)
    list(loader)
    assert all(
        torch.equal(copy.batch, images) for copy, images in zip(copies, wanted, strict=False)
    )


def test_without_holding_it_would_read_later_batches(folder, ops):
    """What the rule is for: the loader writes into memory that nobody holds, or frees it."""
    addresses = []
    for batch in make(folder, ops):
        addresses.append(batch[0].data_ptr())
        del batch
    assert len(set(addresses)) < len(addresses)


def test_memory_goes_back_once_a_copy_is_done(folder, ops):
    """Held batches are let go in order, as their copies finish."""
    iterator = iter(Prefetcher(make(folder, ops), LateCopy, WANTED_DEPTH))
    copies = [next(iterator) for _ in range(4)]
    assert len(iterator._held) == 4 + WANTED_DEPTH - 1
    copies[0].finish()
    copies[1].finish()
    copies[3].finish()  # the one before it is not done: it stays held, too
    next(iterator)
    assert len(iterator._held) == 4 + WANTED_DEPTH - 2


def test_batches_are_asked_for_ahead():
    asked = []

    def numbers():
        for number in range(5):
            asked.append(number)
            yield number

    iterator = iter(Prefetcher(numbers(), NoCopy, 3))
    assert next(iterator) == 0
    assert asked == [0, 1, 2]
    assert list(iterator) == [1, 2, 3, 4]


def test_on_the_cpu_batches_pass_through(folder, ops):
    prefetched = ptorch.prefetch_to_device(make(folder, ops), "cpu")
    pairs = list(zip(make(folder, ops), prefetched, strict=True))
    assert len(pairs) == 12
    for (images, labels), (same_images, same_labels) in pairs:
        assert torch.equal(images, same_images)
        assert torch.equal(labels, same_labels)


def test_its_state_is_of_what_was_taken_from_it(folder, ops):
    wanted = [labels.tolist() for _, labels in make(folder, ops)]
    prefetched = ptorch.prefetch_to_device(make(folder, ops), "cpu", depth=3)
    iterator = iter(prefetched)
    assert [next(iterator)[1].tolist() for _ in range(4)] == wanted[:4]
    state = prefetched.state_dict()
    other = ptorch.prefetch_to_device(make(folder, ops), "cpu")
    other.load_state_dict(state)
    assert [labels.tolist() for _, labels in other] == wanted[4:]
    list(iterator)
    assert prefetched.state_dict()["epoch"] == 1


def test_it_iterates_again_and_knows_its_length(folder, ops):
    prefetched = ptorch.prefetch_to_device(make(folder, ops), "cpu")
    assert len(prefetched) == len(list(prefetched)) == len(list(prefetched)) == 12


def test_devices_and_depths_are_checked(folder, ops):
    with pytest.raises(ValueError, match="depth"):
        ptorch.prefetch_to_device(make(folder, ops), "cpu", depth=0)
    with pytest.raises(ValueError, match="meta"):
        ptorch.prefetch_to_device(make(folder, ops), "meta")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_batches_arrive_whole(folder, ops):
    loader = make(folder, ops)
    wanted = [images.clone() for images, _ in make(folder, ops)]
    moved = [images for images, _ in ptorch.prefetch_to_device(loader, "cuda")]
    assert all(torch.equal(m.cpu(), w) for m, w in zip(moved, wanted, strict=True))
