"""Batches and arrays: names, shapes, types, and memory that is shared and outlives its loader."""

import gc
import hashlib
import json

import numpy as np
import pytest

import penstock
from penstock import transforms as T


def first(data, ops, batch_size=4, **options):
    return next(iter(penstock.Loader(data, ops, batch_size, **options)))


def test_a_batch_has_images_labels_masks_and_ids(folder, ops):
    batch = first(folder, ops)
    assert len(batch) == 4
    assert batch["image"].shape == (4, 3, 32, 32)
    assert batch["image"].dtype == "float32"
    assert batch["label"].dtype == "int64"
    assert batch["label"].tolist() == [0, 0, 0, 0]
    assert batch["mask"].dtype == "bool"
    assert batch["mask"].tolist() == [True] * 4
    assert batch["id"].tolist() == batch.ids == [0, 1, 2, 3]
    assert batch.keys == ["ant/0000", "ant/0003", "ant/0006", "ant/0009"]
    assert (batch.epoch, batch.index) == (0, 0)
    assert repr(batch) == "Batch(epoch=0, index=0, len=4)"


def test_a_name_that_is_not_there_is_a_key_error(folder, plain_ops):
    batch = first(folder, plain_ops)
    with pytest.raises(KeyError, match="images"):
        batch["images"]
    with pytest.raises(TypeError):
        batch[0]


def test_keys_and_labels_are_those_of_the_dataset(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 7, shuffle=True)
    dataset = loader.dataset
    for batch in loader:
        assert batch.keys == [dataset.key(id) for id in batch.ids]
        assert batch["label"].tolist() == [dataset.label(id) for id in batch.ids]


def test_extra_fields_of_tar_samples_are_read_when_asked_for(shard, plain_ops):
    for batch in penstock.Loader(shard, plain_ops, 6, shuffle=True):
        numbers = [int(key.split("/")[1]) for key in batch.keys]
        for number, txt, data, cls in zip(
            numbers, batch["txt"], batch["json"], batch["cls"], strict=True
        ):
            assert txt == (f"picture {number}".encode() if number % 3 == 0 else None)
            assert (data and json.loads(data)) == ({"number": number} if number % 4 == 0 else None)
            assert int(cls) == number % 3


def test_samples_of_a_folder_have_no_extra_fields(folder, plain_ops):
    assert first(folder, plain_ops)["json"] == [None] * 4


def test_numpy_sees_the_same_memory_by_every_door(folder, ops):
    image = first(folder, ops)["image"]
    views = [np.asarray(image), np.from_dlpack(image), np.asarray(memoryview(image))]
    addresses = {view.__array_interface__["data"][0] for view in views}
    assert len(addresses) == 1
    assert addresses.pop() % 64 == 0
    views[0][0, 0, 0, 0] = 42.0
    assert views[1][0, 0, 0, 0] == views[2][0, 0, 0, 0] == 42.0


def test_a_copy_is_a_copy(folder, ops):
    image = first(folder, ops)["image"]
    copy = np.from_dlpack(image, copy=True)
    other = np.array(image)
    np.asarray(image)[:] = 0
    assert copy.any()
    assert other.any()


def test_memory_outlives_batch_and_loader(folder, ops):
    loader = penstock.Loader(folder, ops, 4, num_workers=2)
    views, wanted = [], []
    for batch in loader:
        views.append(np.from_dlpack(batch["image"]))
        wanted.append(hashlib.sha256(batch["image"]).digest())
    loader.close()
    del loader, batch
    gc.collect()
    assert [hashlib.sha256(view).digest() for view in views] == wanted


def test_memory_is_not_reused_while_anyone_holds_it(folder, ops):
    loader = penstock.Loader(folder, ops, 2, prefetch=1, num_workers=2)
    labels = [batch["label"] for batch in loader]
    capsules = [label.__dlpack__() for label in labels]
    wanted = [label.tolist() for label in labels]
    list(loader)
    assert [label.tolist() for label in labels] == wanted
    del capsules
    gc.collect()
    assert [label.tolist() for label in labels] == wanted


def test_a_capsule_is_legacy_unless_a_newer_version_is_asked_for(folder, plain_ops):
    image = first(folder, plain_ops)["image"]
    assert '"dltensor"' in repr(image.__dlpack__())
    assert '"dltensor"' in repr(image.__dlpack__(max_version=(0, 8)))
    assert '"dltensor_versioned"' in repr(image.__dlpack__(max_version=(1, 0)))
    assert '"dltensor_versioned"' in repr(image.__dlpack__(max_version=(2, 3)))
    assert image.__dlpack_device__() == (1, 0)


def test_what_dlpack_cannot_do_is_refused(folder, plain_ops):
    image = first(folder, plain_ops)["image"]
    with pytest.raises(BufferError, match="CPU"):
        image.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        image.__dlpack__(stream=1)
    with pytest.raises(TypeError):
        image.__dlpack__(max_version="1")


@pytest.mark.parametrize(
    ("dtype", "numpy_type"),
    [("float32", np.float32), ("float16", np.float16)],
)
def test_images_come_in_the_type_asked_for(folder, ops, dtype, numpy_type):
    image = first(folder, ops, dtype=dtype)["image"]
    assert image.dtype == dtype
    assert np.asarray(image).dtype == numpy_type
    exact = np.asarray(first(folder, ops)["image"])
    assert np.array_equal(np.asarray(image), exact.astype(numpy_type))


def test_without_to_tensor_images_are_bytes(folder, plain_ops):
    image = first(folder, plain_ops)["image"]
    assert image.dtype == "uint8"
    assert image.shape == (4, 3, 24, 20)
    assert image.nbytes == 4 * 3 * 24 * 20
    assert image.ndim == 4
    assert repr(image) == "Array(shape=(4, 3, 24, 20), dtype=uint8)"


def test_numpy_is_told_that_it_has_no_bfloat16(folder, ops):
    image = first(folder, ops, dtype="bfloat16")["image"]
    assert image.dtype == "bfloat16"
    with pytest.raises(TypeError, match="bfloat16"):
        np.asarray(image)
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(image)
    exact = np.asarray(first(folder, ops)["image"]).view(np.uint32).ravel()
    rounded = (exact + 0x7FFF + ((exact >> 16) & 1)) >> 16  # to nearest, ties to even
    assert np.array_equal(np.frombuffer(image, np.uint16), rounded)


def test_the_other_layout_is_the_same_image(folder, ops):
    planar = np.asarray(first(folder, ops)["image"])
    interleaved = np.asarray(first(folder, ops, layout="NHWC")["image"])
    assert interleaved.shape == (4, 32, 32, 3)
    assert np.array_equal(interleaved.transpose(0, 3, 1, 2), planar)


def test_grey_images_have_one_channel(folder):
    ops = [T.Decode(mode="L"), T.Resize((16, 18)), T.ToTensor(), T.Normalize(0.5, 0.5)]
    assert first(folder, ops)["image"].shape == (4, 1, 16, 18)


def test_arrays_and_batches_are_made_by_loaders_only():
    for kind in (penstock.Array, penstock.Batch):
        with pytest.raises(TypeError):
            kind()
