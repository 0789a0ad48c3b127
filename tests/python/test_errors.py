"""Faults: of arguments, of the machine, and of single samples."""

import json
import os
import shutil

import pytest
from PIL import Image

import penstock
from penstock import transforms as T

N = 23
BAD = (4, 17)


def ids_of(batches):
    return [id for batch in batches for id in batch.ids]


def collect(loader, received):
    """Keep what came before a fault."""
    for batch in loader:
        received.append(batch)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"num_workers": -1}, "num_workers"),
        ({"num_workers": 257}, "num_workers"),
        ({"num_workers": "many"}, "num_workers"),
        ({"order": "random"}, "order"),
        ({"order": "sequential", "shuffle": True}, "order"),
        ({"block_size": 0}, "block_size"),
        ({"window": 0}, "window"),
        ({"tail": "long"}, "tail"),
        ({"rank": 1}, "rank"),
        ({"rank": -1, "world_size": 2}, "rank"),
        ({"world_size": 0}, "world_size"),
        ({"on_error": "ignore"}, "on_error"),
        ({"max_bad": -1}, "max_bad"),
        ({"memory_budget": "much"}, "memory_budget"),
        ({"memory_budget": 0}, "memory_budget"),
        ({"prefetch": 0}, "prefetch"),
        ({"dtype": "float64"}, "dtype"),
        ({"layout": "CHW"}, "layout"),
    ],
)
def test_a_wrong_argument_is_named(folder, plain_ops, options, argument):
    with pytest.raises(ValueError, match=rf"^{argument}\b"):
        penstock.Loader(folder, plain_ops, **options)


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("64MiB", 2**26), ("100 MB", 10**8), ("0.5gib", 2**29), ("33554432", 2**25), (2**25, 2**25)],
)
def test_a_budget_may_be_text(folder, plain_ops, text, n_bytes):
    loader = penstock.Loader(folder, plain_ops, 4, memory_budget=text)
    next(iter(loader))
    assert loader.stats()["budget_bytes"] == n_bytes


def test_a_dataset_that_is_not_there_is_an_os_error(tmp_path, plain_ops):
    with pytest.raises(OSError, match="nowhere") as caught:
        penstock.Loader(tmp_path / "nowhere", plain_ops)
    assert isinstance(caught.value, penstock.Error)


def test_a_dataset_without_samples_is_refused(tmp_path, plain_ops):
    with pytest.raises(penstock.Error):
        penstock.Loader(tmp_path, plain_ops)


def test_ids_and_keys_outside_the_dataset_are_python_errors(folder):
    dataset = penstock.Dataset(folder)
    assert dataset.find(dataset.key(-1)) == N - 1
    for use in (dataset.key, dataset.label, dataset.read):
        with pytest.raises(IndexError):
            use(N)
    with pytest.raises(KeyError, match="dog"):
        dataset.find("dog/0001")
    with pytest.raises(ValueError, match="field"):
        dataset.field(0, "audio")


def test_a_dataset_tells_about_itself(folder, shard):
    dataset = penstock.Dataset(folder)
    assert len(dataset) == N
    assert dataset.classes == ["ant", "bee", "cat"]
    assert dataset.nbytes == sum(len(dataset.read(id)) for id in range(N))
    assert len(dataset.hash) == 32
    assert f"len={N}" in repr(dataset)
    tar = penstock.Dataset(shard, use_cache=False)
    assert tar.field(tar.find("ant/0000"), "json") == b'{"number": 0}'
    assert tar.field(tar.find("bee/0001"), "json") is None


# One error class a kind of fault


def test_data_that_is_no_image_is_a_data_error():
    for data in (b"", b"not an image at all"):
        with pytest.raises(penstock.DataError) as caught:
            penstock.decode(data)
        assert caught.value.code in ("PEN_EUNSUPPORTED", "PEN_ECORRUPT")
        assert isinstance(caught.value, penstock.Error)


def test_a_bad_sample_raises_with_its_key(spoiled, plain_ops):
    loader = penstock.Loader(spoiled, plain_ops, 4, num_workers=2)
    key = loader.dataset.key(BAD[0])
    received = []
    with pytest.raises(penstock.DataError, match=key) as caught:
        collect(loader, received)
    assert ids_of(received) == [0, 1, 2, 3]
    assert caught.value.code.startswith("PEN_E")
    with pytest.raises(penstock.DataError, match=key):
        loader.replay(0, 1)


@pytest.mark.parametrize("workers", [0, 3])
def test_after_an_error_the_next_iteration_is_the_next_epoch(spoiled, plain_ops, workers):
    loader = penstock.Loader(spoiled, plain_ops, 2, num_workers=workers)
    for epoch in range(2):
        received = []
        with pytest.raises(penstock.DataError):
            collect(loader, received)
        assert [(batch.epoch, batch.index) for batch in received] == [(epoch, 0), (epoch, 1)]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_bad_samples_can_be_skipped(spoiled, plain_ops, workers):
    loader = penstock.Loader(spoiled, plain_ops, 6, on_error="skip", num_workers=workers)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [5, 6, 5, 5]
    assert ids_of(batches) == [id for id in range(N) if id not in BAD]
    assert all(len(batch["image"]) == len(batch["label"]) == len(batch) for batch in batches)
    assert loader.stats()["bad_samples"] >= 2


def test_bad_samples_can_be_replaced_and_always_by_the_same(spoiled, ops, digests):
    streams = []
    for workers in (0, 2, 5):
        loader = penstock.Loader(
            spoiled, ops, 6, shuffle=True, on_error="replace", num_workers=workers
        )
        batches = list(loader)
        assert [len(batch) for batch in batches] == [6, 6, 6, 5]
        assert not set(BAD) & set(ids_of(batches))
        streams.append(digests(batches) + digests(loader))
    assert streams[0] == streams[1] == streams[2]


def test_replacing_keeps_ranks_equal(spoiled, plain_ops):
    options = {"shuffle": True, "on_error": "replace", "seed": 4, "tail": "wrap"}
    alone = penstock.Loader(spoiled, plain_ops, 8, **options)
    ranks = [
        penstock.Loader(spoiled, plain_ops, 4, rank=rank, world_size=2, **options)
        for rank in range(2)
    ]
    together = [a.ids + b.ids for a, b in zip(*ranks, strict=True)]
    assert together == [batch.ids for batch in alone]


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_too_many_bad_samples_are_an_error(spoiled, plain_ops, on_error):
    loader = penstock.Loader(spoiled, plain_ops, 4, on_error=on_error, max_bad=1)
    with pytest.raises(penstock.DataError) as caught:
        list(loader)
    assert caught.value.code == "PEN_EBAD"
    assert len(list(penstock.Loader(spoiled, plain_ops, 4, on_error=on_error, max_bad=2))) == 6


def test_every_bad_sample_is_written_to_the_ledger(spoiled, plain_ops, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    loader = penstock.Loader(
        spoiled, plain_ops, 4, on_error="skip", ledger=ledger, num_workers=2, prefetch=1
    )
    list(loader)
    loader.close()
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    text = ledger.read_text()
    assert len(lines) >= 2
    for id in BAD:
        assert loader.dataset.key(id) in text


def test_a_file_that_is_gone_is_raised_whatever_on_error_says(tmp_path, folder, plain_ops):
    root = tmp_path / "copy"
    shutil.copytree(folder, root)
    loader = penstock.Loader(root, plain_ops, 4, on_error="skip")
    os.remove(sorted((root / "ant").iterdir())[2])
    with pytest.raises(OSError, match="ant/0006") as caught:
        list(loader)
    assert caught.value.code == "PEN_EIO"


def test_a_sample_that_cannot_fit_the_budget_is_named(tmp_path):
    Image.new("RGB", (30, 30)).save(tmp_path / "a.png")
    Image.new("RGB", (3000, 3000)).save(tmp_path / "b.png")
    ops = [T.Resize((8, 8))]
    loader = penstock.Loader(tmp_path, ops, 1, memory_budget="1MiB", num_workers=1)
    with pytest.raises(penstock.Error, match="b") as caught:
        list(loader)
    assert caught.value.code == "PEN_EBUDGET"
